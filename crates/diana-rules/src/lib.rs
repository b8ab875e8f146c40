//! The rule file of Diana: what users write, checked kindly.
//!
//! # What is here
//! - [`Document`] reads YAML, JSON and TOML into one [tree](Node) that knows where each value stands, with `${VARIABLES}` from
//!   the environment.
//! - [`Problems`] are told all at once, each with its line and what was expected; [`MapReader`] reads a map field by field, and
//!   finds what nobody asked for.
//! - [`LimitRule`] reads what a rule says about its limits, by the algorithms of a [`Registry`], which is open for yours.
//! - [`KeySpec`] says whom a limit counts, by the [`Attributes`] of a request; [`Match`] which requests a rule is about;
//!   [`Expression`] what neither can say; [`Identity`] where names such as `account` come from.
//! - [`RuleSet`] is the rules in force: it finds by an index which are about a request, whose it is, and what it costs.
//! - `Sources` (feature `sources`) bring rules from a watched file and from a configuration centre.
//! - [`RuleFile`] is a whole file. [`schema()`] is what editors know about it, and [`table()`] what it means in words.

mod algorithm;
mod attributes;
mod bytes;
mod describe;
mod document;
mod expression;
mod file;
mod identity;
mod key;
mod limit;
mod map_reader;
mod matching;
mod problem;
mod registry;
mod response;
mod rule;
mod ruleset;
mod scalar;
mod schema;
mod scope;
mod secret;
#[cfg(feature = "sources")]
mod source;
mod synthetic_request;

pub use algorithm::{AlgorithmOptions, Configured};
pub use attributes::{Attribute, Attributes, Doubt, SEVERAL};
pub use bytes::{InvalidByteRate, parse_byte_rate};
pub use describe::{RuleDescription, describe, describe_gateway, describe_store, table};
pub use document::node::{Entry, Node, Span, Value};
pub use document::{Document, Format};
pub use expression::{Expression, ExpressionFailed, InvalidExpression, Kind};
pub use file::{
    AccessLogFormat, Admin, Certificate, Gateway, GatewayLimits, InvalidUpstream, Lease, MemorySection, Methods,
    NotChecked, OnFullKeys, Paths, RateLimitHeaders, RedisSection, RemoteSection, Route, RuleFile, Scheme, Signature,
    Spelling, StoreSection, Timeouts, Tls, Upstream, WhenRedisIsDown, WhenRemoteIsDown,
};
pub use identity::{Identified, Identity};
pub use key::{KeyBytes, KeySpec, MissingKeyPart};
pub use limit::LimitRule;
pub use map_reader::MapReader;
pub use matching::host::split_host;
pub use matching::normal_segment;
pub use matching::{Match, Matcher, Mismatch};
pub use problem::{Problem, Problems};
pub use registry::Registry;
pub use response::CustomResponse;
pub use rule::{
    Bandwidth, Bodies, CostOf, CountedIn, HeldUntil, KeyList, Missing, Mode, OverLimit, Overload, Override, Percent,
    Rule,
};
pub use ruleset::{
    CompiledLimit, CompiledRule, DenyReason, Explained, ExplainedRule, InvalidKey, Listed, MatchedRule, Matches, Move,
    RefusedBy, RequestOutcome, Resource, RuleCounts, RuleNotCallable, RuleSet,
};
pub use schema::schema;
pub use secret::Secret;
#[cfg(feature = "sources")]
pub use source::{
    Apply, Origin, Remote, RemoteError, SourceError, SourceStatus, Sources, StartError, WatchHandle, default_keep,
};
pub use synthetic_request::SyntheticRequest;

/// The page's code, so that it is tested.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/the-rule-file.md")]
struct TheRuleFile;
