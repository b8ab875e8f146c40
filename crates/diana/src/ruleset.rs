//! The active rules: indexed, and compiled to the limits that stores use.
//!
//! This is the step from a request's attributes to queries: which rules match the request, with which key and cost.

mod compiled_rule;
mod explain;
mod key_lookup;
mod matches;
mod outcome_counts;
mod passed_identity;
mod plan;
mod previous_limits;
mod read_headers;
mod rule_by_name;
mod top_keys;

pub use compiled_rule::{CompiledLimit, CompiledRule, Move};
use compiled_rule::{Expressions, Hits, RecordsKeys, Subject};
use diana_core::Limit;
use diana_rules::attributes::{Attribute, Attributes};
use diana_rules::file::RuleFile;
use diana_rules::identity::Identity;
use diana_rules::key::KeySpec;
use diana_rules::logged_keys::LoggedKeys;
use diana_rules::matching::index::{Candidate, Index};
use diana_rules::matching::{IndexedMatch, NeededAttributes, Normalised, RequestView, When};
use diana_rules::permissions::{Permission, Permissions};
use diana_rules::rule::{Mode, Rule};
pub use explain::{Explained, ExplainedRule};
use hashbrown::{HashMap, HashSet};
pub use key_lookup::{InvalidKey, Listed};
pub use matches::{ChargedAt, ChargedRule, DeniedBy, DenyReason, KeyRange, MatchedRule, Matches, Resource};
pub use outcome_counts::{RequestOutcome, RuleCounts, WaitingRequest};
use passed_identity::PassedIdentity;
pub use plan::{Needs, Plan};
pub use read_headers::ReadHeaders;
pub use rule_by_name::RuleNotCallable;
use std::sync::Arc;
pub use top_keys::{DeniedMinute, KeyOutcome, MAX_LOGGED, MAX_RECORDED, TopKey, TopKeys, Window, sample};

/// The active rules.
///
/// ```
/// use diana::ruleset::{Matches, Purpose};
/// use diana::RuleSet;
/// use diana_rules::{Attribute, Attributes, Document, Registry, RuleFile};
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
/// let mut matches = Matches::default();
/// rules.find(&[&Request("/search/shoes")], Purpose::Charge, &mut matches);
/// assert_eq!(matches.key(&matches.matched()[0]), b"/search/shoes");
/// # Ok::<(), diana_rules::Problems>(())
/// ```
#[derive(Debug)]
pub struct RuleSet {
    rules: Vec<CompiledRule>,
    index: Index,
    /// The indexes of the rules, by name.
    by_name: HashMap<Box<str>, u32>,
    identity: Identity,
    read_headers: ReadHeaders,
    permissions: Option<Arc<Permissions>>,
    /// The parts of a request that the rules read; no others are fetched.
    needed: NeededAttributes,
    reads_identity: bool,
    has_load: bool,
    has_adaptive: bool,
    has_reserved: bool,
    has_queues: bool,
    log_keys: LoggedKeys,
    has_top_keys: bool,
}

impl RuleSet {
    /// Creates the rules of a file, with new limits.
    pub fn new(file: &RuleFile) -> Self {
        Self::build(file, |_| None)
    }

    /// Creates the rules of a file as a replacement of these. Limits that are unchanged or only reconfigured keep their counts.
    ///
    /// A limit is identified by its rule's name and its position in the rule; a limit with another `by` or `store` is a
    /// new one.
    #[must_use]
    pub fn changed_to(&self, file: &RuleFile) -> Self {
        Self::build(file, |name| self.named(name))
    }

    fn build<'a>(file: &RuleFile, known: impl Fn(&str) -> Option<&'a CompiledRule>) -> Self {
        let index = Index::new(file.rules.iter().map(|rule| &rule.matches));
        let records_keys = if file.top_keys { RecordsKeys::Always } else { RecordsKeys::ForLog };
        let rules = file.rules.iter().map(|rule| CompiledRule::new(rule.clone(), records_keys, known(&rule.name)));
        let mut rules = rules.collect::<Vec<_>>();
        let numbers = rules.iter().zip(0_u32..);
        let by_name = numbers.map(|(rule, number)| (rule.rule().name.as_str().into(), number));
        let by_name = by_name.collect::<HashMap<Box<str>, u32>>();
        for rule in &mut rules {
            let charged = rule.rule().charges.as_ref().and_then(|name| by_name.get(&**name).copied());
            rule.set_charges(charged);
        }
        set_same_keys(&mut rules);
        let needed = file.rules.iter().fold(NeededAttributes::default(), |needed, rule| {
            let needed = needed.and(&rule.matches);
            if rule.allow.is_empty() && rule.deny.is_empty() { needed } else { needed.with_lists() }
        });
        let reads_identity = file.rules.iter().any(Rule::reads_identity);
        let has_load = file.rules.iter().any(|rule| rule.load.is_some());
        let has_reserved = rules.iter().any(CompiledRule::has_reserved);
        let has_queues = rules.iter().any(CompiledRule::has_queues);
        let has_adaptive = file.rules.iter().any(|rule| rule.adaptive);
        Self {
            rules,
            index,
            by_name,
            identity: file.identity.clone(),
            read_headers: ReadHeaders::of(file),
            permissions: file.permissions.clone(),
            needed,
            reads_identity,
            has_load,
            has_adaptive,
            has_reserved,
            has_queues,
            log_keys: file.log_keys,
            has_top_keys: file.top_keys,
        }
    }

    /// Returns all rules, in the order of the file.
    pub fn rules(&self) -> &[CompiledRule] {
        &self.rules
    }

    /// Returns a rule by its index.
    pub fn rule(&self, number: u32) -> Option<&CompiledRule> {
        self.rules.get(number as usize)
    }

    /// Returns how logs write the keys of requests.
    pub fn log_keys(&self) -> LoggedKeys {
        self.log_keys
    }

    /// Returns `true` if the heaviest keys are recorded, not only for the log.
    pub fn has_top_keys(&self) -> bool {
        self.has_top_keys
    }

    /// Returns `true` if a rule depends on the load of the machine.
    pub fn has_load(&self) -> bool {
        self.has_load
    }

    /// Returns the sources of the standard keys.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Decides whether a request has permission; `None` if the file has no `permissions`.
    pub fn permission(&self, request: &dyn Attributes) -> Option<Permission<'_>> {
        self.permissions.as_ref().map(|permissions| permissions.decide(request, &self.identity))
    }

    /// Returns `true` if the file has `permissions`.
    #[inline]
    pub fn has_permissions(&self) -> bool {
        self.permissions.is_some()
    }

    /// Returns the headers that the rules and `identity` read.
    pub fn read_headers(&self) -> &ReadHeaders {
        &self.read_headers
    }

    /// Evaluates the file's `identity` for a request: each name and its value are passed to `add`.
    ///
    /// ```
    /// use diana_rules::attributes::SyntheticRequest;
    /// use diana::RuleSet;
    /// use diana_rules::{Document, Registry, RuleFile};
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
    pub fn identify<T>(&self, request: &dyn Attributes, to: T, add: impl Fn(T, &str, &str) -> T) -> T {
        let normalised = Normalised(request);
        let identified = self.identity.of(&normalised);
        self.identity.names().fold(to, |to, name| match identified.get(&Attribute::Named(name.into())) {
            Some(value) => add(to, name, &value),
            None => to,
        })
    }

    /// Returns the index of a rule by its name.
    pub fn number(&self, name: &str) -> Option<u32> {
        self.by_name.get(name).copied()
    }

    /// Migrates the matches of the rules `before` to these rules: with the same keys and costs, and the limits of the
    /// rules with the same names. Removed rules are left out, and new rules are not evaluated.
    ///
    /// `None` if a rule has another `by` now, or if a shadow rule that would have denied the request is now enforced:
    /// then the request itself must be evaluated again.
    pub fn migrate_matches(&self, before: &Self, matches: &Matches) -> Option<Matches> {
        let mut migrated = Matches::default();
        let counted = matches.matched().iter().map(|applied| (applied, Some(applied.cost)));
        for (applied, cost) in counted.chain(matches.uncharged().iter().map(|applied| (applied, None))) {
            let old = before.rule(applied.rule)?;
            let Some(number) = self.number(&old.rule().name) else { continue };
            let rule = self.rule(number).filter(|rule| rule.rule().by == old.rule().by)?;
            rule.apply_key(number, matches.key(applied), cost, &mut migrated);
        }
        for charged in matches.charged() {
            let old = before.rule(charged.by)?;
            let Some(number) = self.number(&old.rule().name) else { continue };
            let rule = self.rule(number).filter(|rule| rule.rule().by == old.rule().by)?;
            rule.apply_key(number, matches.charged_key(charged), Some(charged.cost), &mut migrated);
        }
        for denied in matches.denied() {
            let Some(number) = self.number(&before.rule(denied.rule)?.rule().name) else { continue };
            self.rule(number).filter(|rule| rule.rule().mode == Mode::Shadow)?;
            let start = migrated.keys.len();
            // The key is unknown if `by` differs.
            if before.rule(denied.rule)?.rule().by == self.rule(number)?.rule().by {
                migrated.keys.extend_from_slice(matches.key_at(denied.key_range()));
            }
            migrated.deny(number, denied.why, start);
        }
        migrated.keep_parts_of(matches);
        Some(migrated)
    }

    /// Returns `true` if a rule is for requests of this domain from Envoy.
    pub fn knows_domain(&self, domain: &str) -> bool {
        self.rules.iter().any(|rule| rule.rule().matches.domains().iter().any(|known| **known == *domain))
    }

    /// Returns a rule by its name.
    pub fn named(&self, name: &str) -> Option<&CompiledRule> {
        self.rule(self.number(name)?)
    }

    /// Returns `true` if a rule depends on the latency of responses.
    pub fn has_adaptive(&self) -> bool {
        self.has_adaptive
    }

    /// Returns `true` if a limit bounds the number of [reservations](CompiledLimit::reserved).
    pub fn has_reserved(&self) -> bool {
        self.has_reserved
    }

    /// Returns `true` if requests can be queued for a limit.
    pub fn has_queues(&self) -> bool {
        self.has_queues
    }

    /// Returns the limits that these rules have and `others` do not. They are unused once `others` are active.
    pub fn limits_removed_in(&self, others: &Self) -> Vec<Limit> {
        let remaining = others.limits().map(Limit::id).collect::<HashSet<_>>();
        self.limits().filter(|limit| !remaining.contains(&limit.id())).cloned().collect()
    }

    /// Returns the keys that have another limit once `after` is active, because an override was added or removed. Their
    /// usage can be migrated if it is counted in this process.
    pub fn moves_to<'a>(&'a self, after: &'a Self) -> Vec<Move<'a>> {
        let same = self.rules.iter().filter_map(|rule| Some((rule, after.named(&rule.rule().name)?)));
        let same = same.filter(|(before, after)| before.rule().by == after.rule().by);
        same.flat_map(|(before, after)| before.moves_to(after)).collect()
    }

    /// Returns the limits that are counted in this process, but for the bandwidths, with the keys that they count. Their
    /// names differ.
    pub fn local_limits(&self) -> impl Iterator<Item = (&KeySpec, &Limit)> {
        self.rules.iter().flat_map(|rule| rule.local_limits().map(|limit| (&rule.rule().by, limit)))
    }

    fn limits(&self) -> impl Iterator<Item = &Limit> {
        self.rules.iter().flat_map(CompiledRule::all_limits)
    }

    /// Adds the rules that match a request to `matches`, with its key and its cost for each. `matches` must be
    /// [clear](Matches::clear).
    ///
    /// Several requests are decided together, such as the descriptors of one request from Envoy: a rule that matches several
    /// of them with the same key is charged once, at the highest cost.
    pub fn find(&self, requests: &[&dyn Attributes], purpose: Purpose, matches: &mut Matches) {
        debug_assert!(matches.is_clear(), "the matches of another request are left");
        for request in requests {
            if requests.len() > 1 {
                matches.begin_part();
            }
            self.find_more(*request, Hits::of(*request, purpose), matches);
        }
    }

    #[inline]
    fn find_more(&self, request: &dyn Attributes, hits: Hits, matches: &mut Matches) {
        if !self.reads_identity && (self.identity.is_empty() || !request.passes_names()) {
            self.find_for(request, hits, matches);
        } else {
            self.find_identified(request, hits, matches);
        }
    }

    /// Finds the rules that match a request with the names of `identity`.
    #[inline(never)]
    fn find_identified(&self, request: &dyn Attributes, hits: Hits, matches: &mut Matches) {
        if request.passes_names() {
            let identified = Some(self.identity.of(request));
            self.find_for(&PassedIdentity { request, identity: &self.identity, identified }, hits, matches);
        } else {
            self.find_for(&self.identity.of(&Normalised(request)), hits, matches);
        }
    }

    fn find_for(&self, request: &dyn Attributes, hits: Hits, matches: &mut Matches) {
        let view = RequestView::new(request, self.needed);
        matches.candidates.clear();
        matches.last_key = None;
        self.index.candidates(&view, &mut matches.candidates);
        // The cost of several hits, and a rule that was added for another part, are not simple.
        let is_one = hits == Hits::Charge(1) && !matches.has_parts();
        let mut next = 0;
        while let Some(candidate) = matches.candidates.get(next).copied() {
            next += 1;
            let Some(rule) = self.rule(candidate.rule) else { continue };
            let is_simple = is_one && candidate.indexed == IndexedMatch::HostAndPath;
            if !(is_simple && rule.apply_simple(candidate.rule, request, matches)) {
                add_if_match(rule, candidate, &view, hits, matches);
            }
        }
    }
}

/// The purpose of a search for the rules of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// The rules are charged. A request that stands for 0 hits charges nothing.
    Charge,
    /// The remaining permits are read: a request that stands for 0 hits has a cost of [zero](diana_core::Cost::ZERO).
    Peek,
}

/// Sets for each rule the number of the first rule with the same key.
fn set_same_keys(rules: &mut [CompiledRule]) {
    let mut first = HashMap::<String, u32>::new();
    for (index, number) in (0..rules.len()).zip(0_u32..) {
        let by = &rules[index].rule().by;
        let known = *first.entry(by.to_string()).or_insert(number);
        // Two keys that are written alike are the same, unless they are custom ones.
        let is_same = rules.get(known as usize).is_some_and(|rule| rule.rule().by == *by);
        rules[index].set_same_key(if is_same { known } else { number });
    }
}

/// Adds a rule that the index has found, if its other conditions match, too.
#[inline(never)]
fn add_if_match(rule: &CompiledRule, candidate: Candidate, view: &RequestView<'_>, hits: Hits, matches: &mut Matches) {
    let Ok(when) = rule.rule().matches.check(view, candidate.indexed) else { return };
    let applied = rule.apply(candidate.rule, view, Subject::Request, hits, matches);
    if applied == Expressions::Failed || when == When::Failed {
        rule.count_failure();
    }
}
