//! A custom algorithm, key and matcher, under names for rules.

mod hours;
mod strikes;

use diana::Clock;
use diana::rules::algorithm::Configured;
use diana::rules::{Attribute, Problem, Registry};
use hours::Hours;
use std::borrow::Cow;
use std::sync::Arc;
use strikes::Strikes;

/// Registers `algorithm: strikes`, `by: subdomain` and `match: {hours: 9-17}`.
pub(crate) fn register(registry: &mut Registry, clock: Arc<dyn Clock>) {
    // The quota comes from `limit`. The options are read by name; a problem with one is reported with its location.
    registry.algorithm("strikes", &["pause"], |quota, options| {
        let place = options.span();
        let Some(pause) = options.duration("pause") else {
            if options.node("pause").is_none() {
                let problem = Problem::new(place, "`strikes` needs a `pause`");
                options.problem(problem.expected("`pause: 10min` beside it"));
            }
            return None;
        };
        let strikes = Strikes::new(quota.permits(), quota.period(), pause);
        let words = format!("at most {} in {:?}, then a pause of {pause:?}", quota.permits(), quota.period());
        Some(Configured::new(strikes).describe(words))
    });
    // Shown by editors; an algorithm without a description is in the schema as well.
    registry.describe("strikes", "so many in a time, then a pause", |option| {
        let pause =
            || serde_json::json!({"$ref": "#/$defs/duration", "description": "how long nothing goes after the last"});
        (option == "pause").then(pause)
    });

    // `acme` of `acme.example.com`. A host without a subdomain has no key, and `missing` applies.
    registry.key("subdomain", |request| {
        let host = request.get(&Attribute::Host)?;
        let (first, rest) = host.split_once('.')?;
        rest.contains('.').then(|| Cow::Owned(first.to_ascii_lowercase()))
    });

    registry.matcher("hours", move |node, problems| Some(Arc::new(Hours::read(node, Arc::clone(&clock), problems)?)));
}
