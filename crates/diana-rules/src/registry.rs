//! The algorithms, keys and matchers that rules can name, and the sections of a file, both built-in and custom.
//!
//! Names are registered at run time, without a change in this crate; files that do not use them are not affected.

use crate::algorithm::{AlgorithmOptions, DynAlgorithm, RegisteredAlgorithm, built_in};
use crate::attributes::Attributes;
use crate::http_settings::HttpSettings;
use crate::section::{Section, SectionKind};
use diana_core::{Limit, Quota};
use diana_document::Node;
use diana_document::Problem;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// Returns the key of a request; `None` if it has none.
pub(crate) type KeyOf = dyn for<'a> Fn(&'a dyn Attributes) -> Option<Cow<'a, str>> + Send + Sync;
/// Creates a matcher from its value in a rule.
pub(crate) type BuildMatcher = dyn Fn(&Node, &mut Vec<Problem>) -> Option<Arc<dyn Matcher>> + Send + Sync;

/// Returns why the shared store does not support a limit; `None` if it does.
type WhyNotShared = dyn Fn(&Limit) -> Option<String> + Send + Sync;

/// A custom condition that a rule names in its `match`. Register it with
/// [`Registry::matcher`](Registry::matcher).
pub trait Matcher: fmt::Debug + Send + Sync {
    /// Returns `true` if the rule applies to this request.
    fn matches(&self, request: &dyn Attributes) -> bool;
}

/// The algorithms, keys and matchers that rules can name, and the [sections](Section) that a file can have.
///
/// ```
/// use diana_core::TokenBucket;
/// use diana_rules::{Attribute, Registry};
///
/// let mut registry = Registry::default();
/// // `algorithm: half_bucket`, with `share: 4` beside it
/// registry.algorithm("half_bucket", &["burst", "share"], |quota, options| {
///     let share = options.count("share", 1).unwrap_or(2);
///     let less = quota.with_burst((quota.burst() / share).max(1)).ok()?;
///     Some(TokenBucket::new(less).into())
/// });
/// // `by: first_segment`
/// registry.key("first_segment", |request| {
///     let path = request.get(&Attribute::Path)?;
///     path.split('/').nth(1).map(|segment| segment.to_owned().into())
/// });
/// assert!(registry.algorithms().any(|name| name == "half_bucket"));
/// ```
#[derive(Clone)]
pub struct Registry {
    algorithms: BTreeMap<&'static str, RegisteredAlgorithm>,
    keys: BTreeMap<&'static str, Arc<KeyOf>>,
    matchers: BTreeMap<&'static str, Arc<BuildMatcher>>,
    sections: BTreeMap<&'static str, SectionKind>,
    why_not_shared: Option<Arc<WhyNotShared>>,
}

impl Default for Registry {
    /// Creates a registry with the built-in algorithms, and the [settings](HttpSettings) for HTTP front ends.
    fn default() -> Self {
        let mut registry = Self {
            algorithms: BTreeMap::new(),
            keys: BTreeMap::new(),
            matchers: BTreeMap::new(),
            sections: BTreeMap::new(),
            why_not_shared: None,
        };
        registry.algorithms.extend(built_in::algorithms());
        registry.section::<HttpSettings>();
        registry
    }
}

impl Registry {
    /// Registers an algorithm. `options` are its fields besides the limit; `build` creates it, or reports errors
    /// through the options. Replaces an algorithm with the same name.
    pub fn algorithm(
        &mut self,
        name: &'static str,
        options: &'static [&'static str],
        build: impl Fn(Quota, &mut AlgorithmOptions<'_, '_>) -> Option<DynAlgorithm> + Send + Sync + 'static,
    ) {
        self.algorithms.insert(name, RegisteredAlgorithm::new(options, build));
    }

    /// Describes a registered algorithm for editors: a description, and the JSON Schema of each of its options. Options
    /// without a schema accept any value.
    ///
    /// ```
    /// use diana_core::TokenBucket;
    /// use diana_rules::{Registry, schema};
    ///
    /// let mut registry = Registry::default();
    /// registry.algorithm("half_bucket", &["share"], |quota, _| Some(TokenBucket::new(quota).into()));
    /// registry.describe("half_bucket", "a bucket of half the size", |option| {
    ///     (option == "share").then(|| serde_json::json!({"type": "integer"}))
    /// });
    /// assert_eq!(schema::rule_file(&registry)["$defs"]["rule"]["properties"]["share"]["type"], "integer");
    /// ```
    pub fn describe(&mut self, name: &str, description: &'static str, option: fn(&str) -> Option<serde_json::Value>) {
        if let Some(kind) = self.algorithms.get_mut(name) {
            (kind.description, kind.schema) = (Some(description), option);
        }
    }

    /// Registers a key: `by: NAME`. `of` returns the key of a request, or `None` if it has none. Replaces a built-in
    /// key with the same name.
    pub fn key(
        &mut self,
        name: &'static str,
        of: impl for<'a> Fn(&'a dyn Attributes) -> Option<Cow<'a, str>> + Send + Sync + 'static,
    ) {
        self.keys.insert(name, Arc::new(of));
    }

    /// Registers a match condition: `match: {NAME: ...}`. `build` creates the [`Matcher`] from the value in the rule,
    /// or reports errors.
    pub fn matcher(
        &mut self,
        name: &'static str,
        build: impl Fn(&Node, &mut Vec<Problem>) -> Option<Arc<dyn Matcher>> + Send + Sync + 'static,
    ) {
        self.matchers.insert(name, Arc::new(build));
    }

    /// Registers a section of the file. Replaces a section with the same name. The fields that every file may have, such
    /// as `rules`, can't be replaced.
    pub fn section<S: Section>(&mut self) {
        self.sections.insert(S::NAME, SectionKind::of::<S>());
    }

    /// Checks rules against the shared store: `check` returns an error for a limit that it does not support, such as
    /// `RedisStore::check_limit` of `diana-redis`. The text of the error is shown as the reason.
    pub fn shared_by<E: std::error::Error>(&mut self, check: impl Fn(&Limit) -> Result<(), E> + Send + Sync + 'static) {
        self.why_not_shared = Some(Arc::new(move |limit| check(limit).err().map(|error| error.to_string())));
    }

    /// Returns why the shared store does not support a limit; `None` if it does.
    pub(crate) fn why_not_shared(&self, limit: &Limit) -> Option<String> {
        self.why_not_shared.as_ref().and_then(|why_not| why_not(limit))
    }

    /// The names of all algorithms.
    pub fn algorithms(&self) -> impl Iterator<Item = &'static str> {
        self.algorithms.keys().copied()
    }

    /// The names of all registered keys.
    pub fn keys(&self) -> impl Iterator<Item = &'static str> {
        self.keys.keys().copied()
    }

    /// The names of all registered matchers.
    pub fn matchers(&self) -> impl Iterator<Item = &'static str> {
        self.matchers.keys().copied()
    }

    /// The names of all registered sections.
    pub fn sections(&self) -> impl Iterator<Item = &'static str> {
        self.sections.keys().copied()
    }

    pub(crate) fn find_section(&self, name: &str) -> Option<&SectionKind> {
        self.sections.get(name)
    }

    pub(crate) fn find(&self, name: &str) -> Option<(&'static str, &RegisteredAlgorithm)> {
        self.algorithms.get_key_value(name).map(|(name, kind)| (*name, kind))
    }

    pub(crate) fn find_key(&self, name: &str) -> Option<(&'static str, Arc<KeyOf>)> {
        self.keys.get_key_value(name).map(|(name, of)| (*name, Arc::clone(of)))
    }

    pub(crate) fn each_matcher(&self) -> impl Iterator<Item = (&'static str, &BuildMatcher)> {
        self.matchers.iter().map(|(name, build)| (*name, &**build))
    }

    pub(crate) fn each_algorithm(&self) -> impl Iterator<Item = (&'static str, &RegisteredAlgorithm)> {
        self.algorithms.iter().map(|(name, kind)| (*name, kind))
    }

    /// All options of all algorithms.
    pub(crate) fn options(&self) -> Vec<&'static str> {
        let mut options = self.algorithms.values().flat_map(|kind| kind.options.iter().copied()).collect::<Vec<_>>();
        options.sort_unstable();
        options.dedup();
        options
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = |names: &mut dyn Iterator<Item = &'static str>| names.collect::<Vec<_>>();
        f.debug_struct("Registry")
            .field("algorithms", &names(&mut self.algorithms()))
            .field("keys", &names(&mut self.keys()))
            .field("matchers", &names(&mut self.matchers()))
            .finish()
    }
}
