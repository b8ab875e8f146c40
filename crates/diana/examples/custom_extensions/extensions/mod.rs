//! A custom algorithm, key and matcher, under names for rules.

mod hours;
mod strikes;

use diana::Clock;
use diana::rules::{Attribute, Problem, Registry};
use hours::Hours;
use std::borrow::Cow;
use std::sync::Arc;
use strikes::Strikes;

/// Registers `algorithm: strikes`, `by: subdomain` and `match: {hours: 9-17}`.
pub(crate) fn register(registry: &mut Registry, clock: Arc<dyn Clock>) {
    // The quota comes from `limit`. The options are read by name; a problem with one is reported with its location.
    registry.algorithm("strikes", &["pause"], |quota, options| {
        let span = options.span();
        let Some(pause) = options.duration("pause") else {
            if options.node("pause").is_none() {
                let problem = Problem::new(span, "`strikes` needs a `pause`");
                options.problem(problem.expected("add a `pause`, such as `pause: 10min`"));
            }
            return None;
        };
        let strikes = Strikes::new(quota.permits(), quota.period(), pause);
        Some(strikes.into())
    });
    // Shown by editors; an algorithm without a description is in the schema as well.
    registry.describe("strikes", "a number of requests per time, then a pause", |option| {
        let pause = || {
            let description = "how long to deny requests after the last one";
            serde_json::json!({"$ref": "#/$defs/duration", "description": description})
        };
        (option == "pause").then(pause)
    });

    // `acme` of `acme.example.com`. A host without a subdomain has no key, and `missing` applies.
    registry.key("subdomain", |request| {
        let host = request.get(&Attribute::Host)?;
        let (first, rest) = host.split_once('.')?;
        rest.contains('.').then(|| Cow::Owned(first.to_ascii_lowercase()))
    });

    registry.matcher("hours", move |node, problems| Some(Arc::new(Hours::parse(node, Arc::clone(&clock), problems)?)));
}
