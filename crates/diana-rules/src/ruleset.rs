//! The rules in force: indexed, and with the limits that stores know.
//!
//! This is the arrow from a request's attributes to asks: which rules is the request about, whose is it, what does it cost.

mod compiled;
mod counters;
mod diff;
mod explain;
mod key_lookup;
mod matches;
mod named_rule;

use crate::attributes::{Attribute, Attributes};
use crate::file::RuleFile;
use crate::identity::Identity;
use crate::matching::index::{Candidates, Index};
use crate::matching::{Looks, Normalised, RequestView, When};
use crate::rule::{Mode, Rule};
use compiled::{Asks, Expressions};
pub use compiled::{CompiledLimit, CompiledRule, Move};
pub use counters::{RequestOutcome, RuleCounts};
use diana_core::Limit;
pub use explain::{Explained, ExplainedRule};
use hashbrown::{HashMap, HashSet};
pub use key_lookup::{InvalidKey, Listed};
pub use matches::{DenyReason, MatchedRule, Matches, RefusedBy, Resource};
pub use named_rule::RuleNotCallable;

/// The rules in force.
///
/// ```
/// use diana_rules::{Attribute, Attributes, Document, Matches, Registry, RuleFile, RuleSet};
/// use std::borrow::Cow;
///
/// struct Request(&'static str);
///
/// impl Attributes for Request {
///     fn get(&self, attribute: &Attribute) -> Option<Cow<'_, str>> {
///         (*attribute == Attribute::Path).then_some(Cow::Borrowed(self.0))
///     }
/// }
///
/// let document = Document::new("diana.yaml", "rules: [{name: search, by: resource, match: {path: /search/**}, limit: 5/s}]");
/// let rules = RuleSet::new(&RuleFile::read(&document, &Registry::default())?);
///
/// let mut found = Matches::default();
/// rules.find(&Request("/search/shoes"), &mut found);
/// assert_eq!(found.key(&found.applied()[0]), b"/search/shoes");
/// # Ok::<(), diana_rules::Problems>(())
/// ```
#[derive(Debug)]
pub struct RuleSet {
    rules: Vec<CompiledRule>,
    index: Index,
    /// The numbers of the rules, by their names.
    by_name: HashMap<Box<str>, u32>,
    identity: Identity,
    /// What the rules look at, so that nothing else is asked for.
    looks: Looks,
    asks_identity: bool,
    has_load: bool,
    has_adaptive: bool,
    has_reserved: bool,
}

impl RuleSet {
    /// The rules of a file, all new.
    pub fn new(file: &RuleFile) -> Self {
        Self::build(file, |_| None)
    }

    /// The rules of a file in place of these. Limits that are the same, or have only changed, keep their counts.
    ///
    /// A limit is known by its rule's name and its place in the rule; one that counts somebody else (`by`), or elsewhere
    /// (`store`), is another one.
    #[must_use]
    pub fn changed_to(&self, file: &RuleFile) -> Self {
        Self::build(file, |name| self.named(name))
    }

    fn build<'a>(file: &RuleFile, known: impl Fn(&str) -> Option<&'a CompiledRule>) -> Self {
        let index = Index::new(file.rules.iter().map(|rule| &rule.matches));
        let rules = file.rules.iter().map(|rule| CompiledRule::new(rule.clone(), known(&rule.name)));
        let rules = rules.collect::<Vec<_>>();
        let numbers = rules.iter().zip(0_u32..);
        let by_name = numbers.map(|(rule, number)| (rule.rule().name.as_str().into(), number)).collect();
        let looks = file.rules.iter().fold(Looks::default(), |looks, rule| looks.and(&rule.matches).and_lists_of(rule));
        let asks_identity = file.rules.iter().any(Rule::asks_identity);
        let has_load = file.rules.iter().any(|rule| rule.load.is_some());
        let has_reserved = rules.iter().any(CompiledRule::has_reserved);
        let has_adaptive = file.rules.iter().any(|rule| rule.adaptive);
        Self {
            rules,
            index,
            by_name,
            identity: file.identity.clone(),
            looks,
            asks_identity,
            has_load,
            has_adaptive,
            has_reserved,
        }
    }

    /// Every rule, in the order of the file.
    pub fn rules(&self) -> &[CompiledRule] {
        &self.rules
    }

    /// A rule by its number.
    pub fn rule(&self, number: u32) -> Option<&CompiledRule> {
        self.rules.get(number as usize)
    }

    /// Whether a rule goes by how busy the machine is.
    pub fn has_load(&self) -> bool {
        self.has_load
    }

    /// Who requests are from.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// What the file's `identity` knows about a request: each name, and what it stands for, is handed to `tell`.
    ///
    /// ```
    /// use diana_rules::{SyntheticRequest, Document, Registry, RuleFile, RuleSet};
    ///
    /// let document = Document::new("diana.yaml", "identity: {account: header(x-account), device: cookie(d)}\nrules: []");
    /// let rules = RuleSet::new(&RuleFile::read(&document, &Registry::default())?);
    /// let request = SyntheticRequest::new("GET", "/").header("x-account", "alice");
    /// let known = rules.identify(&request, vec![], |mut known, name, value| {
    ///     known.push(format!("{name} is {value}"));
    ///     known
    /// });
    /// assert_eq!(known, ["account is alice"]);
    /// # Ok::<(), diana_rules::Problems>(())
    /// ```
    pub fn identify<T>(&self, request: &dyn Attributes, to: T, tell: impl Fn(T, &str, &str) -> T) -> T {
        let normalised = Normalised(request);
        let identified = self.identity.of(&normalised);
        self.identity.names().fold(to, |to, name| match identified.get(&Attribute::Named(name.into())) {
            Some(value) => tell(to, name, &value),
            None => to,
        })
    }

    /// The number of a rule by its name.
    pub fn number(&self, name: &str) -> Option<u32> {
        self.by_name.get(name).copied()
    }

    /// What was found by the rules `before`, as it would be found by these: with the same keys and costs, and the limits of the
    /// rules that have the same names. Rules that are gone are left out, and new ones are not asked about it.
    ///
    /// `None` if a rule counts by something else now, or refuses what it only would have refused: only the request itself could
    /// tell.
    pub fn carried_over(&self, before: &Self, found: &Matches) -> Option<Matches> {
        let mut carried = Matches::default();
        let counted = found.applied().iter().map(|applied| (applied, Some(applied.cost)));
        for (applied, cost) in counted.chain(found.free().iter().map(|applied| (applied, None))) {
            let old = before.rule(applied.rule)?;
            let Some(number) = self.number(&old.rule().name) else { continue };
            let rule = self.rule(number).filter(|rule| rule.rule().by == old.rule().by)?;
            rule.apply_key(number, found.key(applied), cost, &mut carried);
        }
        for refused in found.refused() {
            let Some(number) = self.number(&before.rule(refused.rule)?.rule().name) else { continue };
            self.rule(number).filter(|rule| rule.rule().mode == Mode::Shadow)?;
            carried.refuse(number, refused.why);
        }
        Some(carried)
    }

    /// A rule by its name.
    pub fn named(&self, name: &str) -> Option<&CompiledRule> {
        self.rule(self.number(name)?)
    }

    /// Whether a rule goes by how long answers take.
    pub fn has_adaptive(&self) -> bool {
        self.has_adaptive
    }

    /// Whether a limit bounds those who wait for [promised times](LimitInForce::reserved).
    pub fn has_reserved(&self) -> bool {
        self.has_reserved
    }

    /// The limits that these rules have and `others` don't: nobody asks for them any more once `others` are in force.
    pub fn limits_gone_in(&self, others: &Self) -> Vec<Limit> {
        let kept = others.limits().map(Limit::id).collect::<HashSet<_>>();
        self.limits().filter(|limit| !kept.contains(&limit.id())).cloned().collect()
    }

    /// The keys that have another limit once `after` are in force, because an override came or went. What they have used can be
    /// taken along where it is counted in this process.
    pub fn moves_to<'a>(&'a self, after: &'a Self) -> Vec<Move<'a>> {
        let same = self.rules.iter().filter_map(|rule| Some((rule, after.named(&rule.rule().name)?)));
        let same = same.filter(|(before, after)| before.rule().by == after.rule().by);
        same.flat_map(|(before, after)| before.moves_to(after)).collect()
    }

    fn limits(&self) -> impl Iterator<Item = &Limit> {
        self.rules.iter().flat_map(CompiledRule::all_limits)
    }

    /// Finds the rules that a request is about, and for each whose it is and what it costs. `found` is emptied first.
    pub fn find(&self, request: &dyn Attributes, found: &mut Matches) {
        found.clear();
        if self.asks_identity {
            self.find_for(&self.identity.of(&Normalised(request)), found);
        } else {
            self.find_for(request, found);
        }
    }

    fn find_for(&self, request: &dyn Attributes, found: &mut Matches) {
        let seen = RequestView::new(request, self.looks);
        let mut candidates = Candidates::new();
        self.index.candidates(&seen, &mut candidates);
        for candidate in &candidates {
            let Some(rule) = self.rule(candidate.rule) else { continue };
            match rule.rule().matches.check(&seen, candidate.proved) {
                Ok(when) => {
                    let failed = rule.apply(candidate.rule, &seen, Asks::Request, found) == Expressions::Failed;
                    if failed || when == When::Failed {
                        rule.count_failure();
                    }
                }
                Err(_) => continue,
            }
        }
    }
}
