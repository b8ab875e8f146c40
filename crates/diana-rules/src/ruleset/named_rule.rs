//! One rule, asked for by its name: by a function that it is attached to, rather than by a request that it matches.

use super::{Asks, Expressions, Matches, RuleSet};
use crate::attributes::{Attribute, Attributes};
use crate::identity::Identity;
use crate::matching::{Looks, RequestView, When};
use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;

/// Why a call could not ask a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RuleNotCallable {
    /// No rule has this name.
    Unknown {
        /// The name.
        rule: String,
    },
    /// The rule does not ask for something that the call tells; so it may lack what it does ask for.
    NotAsked {
        /// The rule's name.
        rule: String,
        /// What the call tells.
        told: String,
        /// What the rule asks for, as its `match` says it.
        asks: String,
    },
}

impl fmt::Display for RuleNotCallable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown { rule } => write!(f, "no rule in force is called `{rule}`"),
            Self::NotAsked { rule, told, asks } => {
                write!(f, "the rule `{rule}` does not ask for `{told}`; its `match` says `call: {asks}`")
            }
        }
    }
}

impl std::error::Error for RuleNotCallable {}

impl RuleSet {
    /// Asks one rule, by its name, whose a call is and what it costs. `found` is emptied first.
    ///
    /// A rule for requests is asked wherever they would go, and whatever else its `match` says: who names it means its limit.
    /// One for calls (`match: {call: ...}`) says in the rest of its `match` which of them it means.
    ///
    /// `call` says by itself what `identity` would find in a request. A part of the key that it does not tell is `(nobody)`, one
    /// for all such calls, unless the rule says `missing: deny`: a limit that somebody attached on purpose is not to be
    /// skipped.
    ///
    /// ```
    /// use diana_rules::{Attribute, Attributes, Document, Matches, Registry, RuleFile, RuleSet};
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
    /// let mut found = Matches::default();
    /// rules.find_named("sms", &Call("555-1234"), &mut found).unwrap();
    /// assert_eq!(found.key(&found.applied()[0]), b"555-1234");
    /// rules.find(&Call("555-1234"), &mut found); // as a request it is not meant
    /// assert!(found.applied().is_empty());
    /// assert_eq!(rules.find_named("mms", &Call(""), &mut found).unwrap_err().to_string(), "no rule in force is called `mms`");
    /// # Ok::<(), diana_rules::Problems>(())
    /// ```
    pub fn find_named(&self, name: &str, call: &dyn Attributes, found: &mut Matches) -> Result<(), RuleNotCallable> {
        found.clear();
        let unknown = || RuleNotCallable::Unknown { rule: name.to_owned() };
        let number = *self.by_name.get(name).ok_or_else(unknown)?;
        let rule = self.rule(number).ok_or_else(unknown)?;
        if let Some(asks) = &rule.rule().matches.call
            && let Some(told) = call.told_in_vain(&|told| asks.iter().any(|asked| **asked == *told))
        {
            let asks = if asks.is_empty() { "true".to_owned() } else { format!("[{}]", asks.join(", ")) };
            return Err(RuleNotCallable::NotAsked { rule: name.to_owned(), told: told.to_owned(), asks });
        }
        let call = Known { call, identity: &self.identity };
        let seen = RequestView::new(&call, Looks::default());
        let Ok(when) = rule.rule().matches.check_call(&seen) else { return Ok(()) };
        let failed = rule.apply(number, &seen, Asks::Call, found) == Expressions::Failed;
        if failed || when == When::Failed {
            rule.count_failure();
        }
        Ok(())
    }
}

/// A call, which knows by name what a request would have in a header or elsewhere.
struct Known<'a> {
    call: &'a dyn Attributes,
    identity: &'a Identity,
}

impl Attributes for Known<'_> {
    fn get(&self, attribute: &Attribute) -> Option<Cow<'_, str>> {
        let by_name =
            || self.identity.names_of(attribute).find_map(|name| self.call.get(&Attribute::Named(name.into())));
        self.call.get(attribute).or_else(by_name)
    }

    fn told_in_vain(&self, is_asked: &dyn Fn(&str) -> bool) -> Option<&str> {
        self.call.told_in_vain(is_asked)
    }

    fn ip(&self) -> Option<IpAddr> {
        self.call.ip()
    }
}
