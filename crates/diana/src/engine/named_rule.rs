//! Decisions by one named rule, for functions with a rule attached.

use super::decide::WhenFull;
use super::future::{NextStep, RefundGuard};
use super::{DecideFuture, Engine};
use diana_core::Store;
use diana_rules::Attributes;
use diana_rules::ruleset::RuleNotCallable;

impl<S: Store + 'static> Engine<S> {
    /// Decides about a call by one named rule. Other rules are not checked; otherwise like [`decide`](Self::decide).
    /// See [`RuleSet::find_named`](diana_rules::RuleSet::find_named) for the parts of the rule that apply.
    ///
    /// ```
    /// use diana::Engine;
    /// use diana::rules::{Attribute, Attributes, Document, Registry, RuleFile};
    /// use std::borrow::Cow;
    ///
    /// struct Sms<'a> {
    ///     to: &'a str,
    /// }
    ///
    /// impl Attributes for Sms<'_> {
    ///     fn get(&self, attribute: &Attribute) -> Option<Cow<'_, str>> {
    ///         matches!(attribute, Attribute::Named(name) if &**name == "phone").then_some(Cow::Borrowed(self.to))
    ///     }
    /// }
    ///
    /// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
    /// let file = Document::new("diana.yaml", "rules: [{name: sms, match: {call: phone}, by: phone, limit: 1/min}]");
    /// let engine = Engine::new(&RuleFile::read(&file, &Registry::default())?);
    ///
    /// assert!(engine.decide_by("sms", &Sms { to: "555-1234" })?.await.is_granted());
    /// assert!(!engine.decide_by("sms", &Sms { to: "555-1234" })?.await.is_granted());
    /// assert!(engine.decide_by("mms", &Sms { to: "555-1234" }).is_err());
    /// # Ok(())
    /// # }
    /// # futures_util::future::FutureExt::now_or_never(run()).unwrap().unwrap();
    /// ```
    pub fn decide_by(&self, rule: &str, call: &dyn Attributes) -> Result<DecideFuture<'_, S>, RuleNotCallable> {
        self.by_name(rule, call, WhenFull::Deny)
    }

    /// Decides about a call by one named rule and queues it if the rule has `wait`, like [`admit`](Self::admit).
    ///
    /// # Panics
    /// If it must wait and there is no tokio runtime with a timer.
    #[cfg(feature = "wait")]
    pub fn admit_by(&self, rule: &str, call: &dyn Attributes) -> Result<DecideFuture<'_, S>, RuleNotCallable> {
        self.by_name(rule, call, WhenFull::Queue)
    }

    fn by_name(
        &self,
        rule: &str,
        call: &dyn Attributes,
        in_line: WhenFull,
    ) -> Result<DecideFuture<'_, S>, RuleNotCallable> {
        let (begun, next): (RefundGuard<'_>, NextStep) = self.first_look_by(rule, call, in_line)?;
        Ok(match next {
            NextStep::Nothing => DecideFuture::made(begun),
            _ => DecideFuture::asking(self.carry_on(begun, next, in_line)),
        })
    }
}
