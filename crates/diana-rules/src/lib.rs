//! The rule file of Diana: parsing and validation with helpful messages.
//!
//! # Contents
//! - [`Document`] parses YAML, JSON and TOML into one [tree](Node) that has the location of each value, with
//!   `${VARIABLES}` from the environment.
//! - [`Problems`] are reported all at once, each with its line and what was expected; [`MapReader`] reads a map field
//!   by field, and reports unknown fields.
//! - [`LimitRule`] parses the limits of a rule, using the algorithms of a [`Registry`], to which you can add your own.
//! - [`KeySpec`] is the key that a limit counts by, built from the [`Attributes`] of a request; [`Match`] selects the
//!   requests that a rule applies to; [`Expression`] covers all other conditions; [`Identity`] defines names such as
//!   `account`.
//! - [`RuleSet`] is the set of loaded rules: it finds the rules that match a request through an index, its keys, and
//!   its cost.
//! - [`RuleFile`] is a whole file. [`schema()`] is its JSON Schema for editors, and [`table()`] describes it in words.

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
pub use synthetic_request::SyntheticRequest;

/// Includes the page's code, so that it is tested.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/the-rule-file.md")]
struct TheRuleFile;
