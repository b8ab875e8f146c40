//! Lookup of a rule by its name: for a function that names it, rather than for a request that it matches.

use super::{Expressions, Hits, Matches, PassedIdentity, Purpose, RuleSet, Subject};
use diana_rules::attributes::Attributes;
use diana_rules::matching::{NeededAttributes, RequestView, When};

/// Why a call could not use a rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RuleNotCallable {
    /// No rule has this name.
    #[error("unknown rule `{rule}`")]
    Unknown {
        /// The name.
        rule: String,
    },
    /// The call passes an argument that the rule does not use, so the argument that it uses may be missing.
    #[error("unknown argument `{argument}` for rule `{rule}`; its `match` has `call: {expected}`")]
    UnknownArgument {
        /// The rule's name.
        rule: String,
        /// The argument of the call.
        argument: String,
        /// The arguments that the rule uses, as in its `match`.
        expected: String,
    },
}

impl RuleSet {
    /// Finds one rule by its name, and the key and cost of a call. Clears `matches` first.
    ///
    /// A rule for requests applies to every call that names it, regardless of its `match`. For a rule for calls
    /// (`match: {call: ...}`), the rest of its `match` selects the calls.
    ///
    /// `call` provides the values that `identity` would find in a request. A missing part of the key is `(unknown)`,
    /// shared by all such calls, unless the rule has `missing: deny`: a limit that a function names must not be skipped.
    ///
    /// ```
    /// use diana::ruleset::{Matches, Purpose};
    /// use diana::RuleSet;
    /// use diana_rules::{Attribute, Attributes, Document, Registry, RuleFile};
    /// use std::borrow::Cow;
    ///
    /// struct Call(&'static str);
    ///
    /// impl Attributes for Call {
    ///     fn get(&self, attribute: &Attribute) -> Option<Cow<'_, str>> {
    ///         (*attribute == Attribute::Named("phone".into())).then_some(Cow::Borrowed(self.0))
    ///     }
    /// }
    ///
    /// let document = Document::new("diana.yaml", "rules: [{name: sms, match: {call: phone}, by: phone, limit: 1/min}]");
    /// let rules = RuleSet::new(&RuleFile::read(&document, &Registry::default())?);
    ///
    /// let mut matches = Matches::default();
    /// rules.find_named("sms", &Call("555-1234"), Purpose::Charge, &mut matches).unwrap();
    /// assert_eq!(matches.key(&matches.matched()[0]), b"555-1234");
    /// matches.clear();
    /// rules.find(&[&Call("555-1234")], Purpose::Charge, &mut matches); // a request does not match it
    /// assert!(matches.matched().is_empty());
    /// assert_eq!(rules.find_named("mms", &Call(""), Purpose::Charge, &mut matches).unwrap_err().to_string(), "unknown rule `mms`");
    /// # Ok::<(), diana_rules::Problems>(())
    /// ```
    pub fn find_named(
        &self,
        name: &str,
        call: &dyn Attributes,
        purpose: Purpose,
        matches: &mut Matches,
    ) -> Result<(), RuleNotCallable> {
        matches.clear();
        let unknown = || RuleNotCallable::Unknown { rule: name.to_owned() };
        let number = *self.by_name.get(name).ok_or_else(unknown)?;
        let rule = self.rule(number).ok_or_else(unknown)?;
        if let Some(arguments) = rule.rule().matches.call()
            && let Some(argument) = call.unknown_argument(&|name| arguments.iter().any(|known| **known == *name))
        {
            let expected = if arguments.is_empty() { "true".to_owned() } else { format!("[{}]", arguments.join(", ")) };
            return Err(RuleNotCallable::UnknownArgument {
                rule: name.to_owned(),
                argument: argument.to_owned(),
                expected,
            });
        }
        let hits = Hits::of(call, purpose);
        let call = PassedIdentity { request: call, identity: &self.identity, identified: None };
        let view = RequestView::new(&call, NeededAttributes::default());
        let Ok(when) = rule.rule().matches.check_call(&view) else { return Ok(()) };
        let failed = rule.apply(number, &view, Subject::Call, hits, matches) == Expressions::Failed;
        if failed || when == When::Failed {
            rule.count_failure();
        }
        Ok(())
    }
}
