//! Custom extensions in a rule file: an algorithm, a key and a matcher, without a change in Diana.
//!
//! `cargo run -p diana-limit --features redis,rules --example custom_extensions` prints a transcript: three wrong
//! passwords, a pause of ten minutes, and exports that are limited for each customer during office hours only. The
//! extensions are in `extensions/`.

mod extensions;

use diana::rules::attributes::SyntheticRequest;
use diana::rules::describe::table;
use diana::rules::{Document, RuleFile};
use diana::{DecideMode, EngineOptions};
use diana::{ManualClock, Timestamp};
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

const RULES: &str = "\
rules:
  - name: login
    match: {path: /login, method: POST}
    by: ip
    limit: 3/min
    algorithm: strikes
    pause: 10min
    status: 429

  - name: exports
    match: {path: /export/**, hours: 9-17}
    by: subdomain
    limit: 2/h
";

fn main() -> Result<(), Box<dyn Error>> {
    // A fixed day at 8:00, so that the transcript is always the same.
    let clock = ManualClock::at(Timestamp::from_secs(20_000 * 86_400 + 8 * 3_600));
    let mut registry = diana::registry();
    extensions::register(&mut registry, Arc::new(clock.clone()));

    let file = RuleFile::read(&Document::new("rules.yaml", RULES), &registry)?;
    println!("{}", table(&file));
    let engine = EngineOptions::of(&file).clock(clock.clone()).build(&file);
    let decide = |label: &str, request: &SyntheticRequest| {
        // With local counts, the answer is ready immediately; with shared ones it would be awaited.
        let Ok(decided) = engine.decide(&[request], DecideMode::Deny).now() else { return };
        println!("{label}: {}", decided.map_or_else(|denial| denial.to_string(), |permit| permit.to_string()));
    };

    let login = SyntheticRequest::new("POST", "/login").ip([203, 0, 113, 7]);
    for _ in 0..4 {
        decide("08:00 login", &login);
    }
    clock.advance(Duration::from_secs(600));
    decide("08:10 login", &login);

    let export = SyntheticRequest::new("GET", "/export/all").host("acme.example.com");
    decide("08:10 export", &export);
    clock.advance(Duration::from_secs(3_000));
    for _ in 0..3 {
        decide("09:00 export", &export);
    }
    decide("09:00 export of another", &SyntheticRequest::new("GET", "/export/all").host("globex.example.com"));
    Ok(())
}
