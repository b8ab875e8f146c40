//! The rule file of Diana: what users write, checked kindly.
//!
//! # What is here
//! - [`Document`] reads YAML, JSON and TOML into one [tree](Node) that knows where each value stands, with `${VARIABLES}` from
//!   the environment.
//! - [`Problems`] are told all at once, each with its line and what was expected; [`Fields`] reads a map field by field, and
//!   finds what nobody asked for.
//! - [`LimitRule`] reads what a rule says about its limits, by the algorithms of a [`Registry`], which is open for yours.
//! - [`By`] says whom a limit counts, by the [`Attributes`] of a request; [`Match`] which requests a rule is about;
//!   [`Expression`] what neither can say; [`Identity`] where names such as `account` come from.
//! - [`RuleSet`] is the rules in force: it finds by an index which are about a request, whose it is, and what it costs.
//! - `Sources` (feature `sources`) bring rules from a watched file and from a configuration centre.
//! - [`RuleFile`] is a whole file. [`schema()`] is what editors know about it, and [`table()`] what it means in words.

mod algorithm;
mod answer;
mod attributes;
mod by;
mod bytes;
mod described;
mod document;
mod expression;
mod fields;
mod file;
mod identity;
mod limit;
mod matching;
mod problem;
mod registry;
mod rule;
mod ruleset;
mod scalar;
mod schema;
mod secret;
#[cfg(feature = "sources")]
mod source;
mod vocabulary;
mod words;

pub use algorithm::{AlgorithmOptions, Configured};
pub use answer::OwnAnswer;
pub use attributes::{Attribute, Attributes, Doubt, SEVERAL};
pub use by::{By, KeyBytes, MissingPart};
pub use bytes::{InvalidByteRate, parse_byte_rate};
pub use described::DescribedRequest;
pub use document::node::{Entry, Node, Span, Value};
pub use document::{Document, Format};
pub use expression::{Expression, ExpressionFailed, InvalidExpression, Kind};
pub use fields::Fields;
pub use file::{
    AccessLogFormat, Admin, Bounds, Certificate, Gateway, InvalidUpstream, Lease, MemorySection, Methods, NotChecked,
    OnFullKeys, Paths, RateLimitHeaders, RedisSection, RemoteSection, Route, RuleFile, Scheme, Signature, Spelling,
    StoreSection, Timeouts, Tls, Upstream, WhenRedisIsDown, WhenRemoteIsDown,
};
pub use identity::{Identified, Identity};
pub use limit::LimitRule;
pub use matching::host::split_host;
pub use matching::normal_segment;
pub use matching::{Match, Matcher, Mismatch};
pub use problem::{Problem, Problems};
pub use registry::Registry;
pub use rule::{
    Bandwidth, Bodies, CostOf, HeldUntil, Home, KeyList, Load, Missing, Mode, Over, Override, Percent, Rule,
};
pub use ruleset::{
    Applied, Counted, Explained, ExplainedRule, Fate, Found, InvalidKey, LimitInForce, Listed, Move, NotAskable,
    RefusedBy, Resource, RuleInForce, RuleSet, Why,
};
pub use schema::schema;
pub use secret::Secret;
#[cfg(feature = "sources")]
pub use source::{
    Apply, Origin, Remote, RemoteError, Running, SourceError, SourceStatus, Sources, StartError, default_keep,
};
pub use words::{RuleInWords, gateway_in_words, in_words, store_in_words, table};

/// The page's code, so that it is tested.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/the-rule-file.md")]
struct TheRuleFile;
