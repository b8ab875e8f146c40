//! Lookup of a key of a rule by its values, through the admin API, without a request.

use super::compiled_rule::{CompiledLimit, CompiledRule};
use diana_rules::key::KeyBytes;
use diana_rules::rule::Missing;

/// The values do not form a key of the rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}; {expected}")]
pub struct InvalidKey {
    what: String,
    expected: String,
}

/// The list of a rule that contains a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listed {
    /// `allow`: the key is not counted.
    Allow,
    /// `deny`: the key is always denied.
    Deny,
}

impl CompiledRule {
    /// Returns the list that contains a key with values as in [`key_of`](Self::key_of). Addresses are checked only if
    /// the rule counts by address; otherwise the key does not contain the client's address.
    pub fn list_of(&self, values: &[&str]) -> Option<Listed> {
        let rule = self.rule();
        if rule.allow.contains_values(&rule.by, values) {
            return Some(Listed::Allow);
        }
        rule.deny.contains_values(&rule.by, values).then_some(Listed::Deny)
    }

    /// Returns the key with these values, one for each part of the rule's `by`, written as in `overrides`. An empty
    /// list is the key of everyone, or of all requests whose key is missing (`missing: shared`).
    ///
    /// ```
    /// use diana::RuleSet;
    /// use diana_rules::{Document, Registry, RuleFile};
    ///
    /// let document = Document::new("diana.yaml", "rules: [{name: a, by: ip/24, limit: 5/s}]");
    /// let rules = RuleSet::new(&RuleFile::read(&document, &Registry::default())?);
    /// let rule = rules.named("a").unwrap();
    /// assert_eq!(rule.key_of(&["203.0.113.7"]).unwrap(), b"203.0.113.0");
    /// assert!(rule.key_of(&["alice"]).is_err());
    /// # Ok::<(), diana_rules::Problems>(())
    /// ```
    pub fn key_of(&self, values: &[&str]) -> Result<KeyBytes, InvalidKey> {
        let (rule, by) = (self.rule(), &self.rule().by);
        let invalid = |what: String, expected: String| Err(InvalidKey { what, expected });
        if by.is_each_request() {
            let expected = "expected a rule that counts by key".to_owned();
            return invalid(format!("rule `{}` counts each request separately", rule.name), expected);
        }
        if values.is_empty() && rule.missing == Missing::Shared {
            return Ok(KeyBytes::new());
        }
        if values.len() != by.part_count() {
            let what = match values.len() {
                0 => "missing key".to_owned(),
                1 => format!("found one value `{}`", values[0]),
                many => format!("found {many} values"),
            };
            let expected = match by.part_count() {
                0 => format!("expected no key: `{}` counts all requests together", rule.name),
                1 => format!("expected one value: `{}` counts by {by}", rule.name),
                parts => format!("expected {parts} values: `{}` counts by {by}", rule.name),
            };
            return invalid(what, expected);
        }
        by.check_key(values).map_err(|(_, what, expected)| InvalidKey { what, expected })?;
        Ok(by.key_of(values))
    }

    /// Returns the limits of a key: those of its override, if there is one, else the rule's own.
    pub fn limits_of_key(&self, key: &[u8]) -> &[CompiledLimit] {
        self.limits_at(self.limits_of(key))
    }
}
