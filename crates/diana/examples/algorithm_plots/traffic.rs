//! The same requests through a rule: which are allowed, which wait, which are denied.
//!
//! The engine decides on a clock that stands still between requests, so a run gives the same result on every machine.

use diana::rules::attributes::SyntheticRequest;
use diana::rules::{Document, Registry, RuleFile};
use diana::{Clock, DecideMode, EngineOptions, ManualClock, Permit, Timestamp};
use std::time::Duration;

/// The length of the picture.
pub(crate) const LENGTH: Duration = Duration::from_millis(5_500);

/// How long an allowed request takes, which only limits of concurrency notice.
const SERVICE_TIME: Duration = Duration::from_millis(300);

/// On a full second, since windows on the clock begin there.
const START: Timestamp = Timestamp::from_secs(1_700_000_000);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Allowed { wait: Duration },
    Denied,
}

/// One request, at a time since the start of the picture.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pub(crate) at: Duration,
    pub(crate) outcome: Outcome,
}

impl Request {
    /// Returns when the request is served.
    pub(crate) fn served(&self) -> Option<Duration> {
        match self.outcome {
            Outcome::Allowed { wait } => Some(self.at + wait),
            Outcome::Denied => None,
        }
    }
}

/// Returns when requests arrive: five a second, ten before and ten after a full second, 25 almost at once, twenty a second.
fn arrivals() -> Vec<Duration> {
    let every = |from: u64, step: u64, count: u64| (0..count).map(move |n| Duration::from_millis(from + n * step));
    every(100, 200, 5)
        .chain(every(1_850, 10, 10))
        .chain(every(2_050, 10, 10))
        .chain(every(3_000, 5, 25))
        .chain(every(4_000, 50, 20))
        .collect()
}

/// Sends the requests to a rule, which is given by its fields.
pub(crate) fn run(fields: &str) -> Result<Vec<Request>, String> {
    let fields = fields.lines().map(|line| format!("    {line}\n")).collect::<String>();
    let document = Document::new("diana.yaml", format!("rules:\n  - name: example\n{fields}"));
    let file = RuleFile::read(&document, &Registry::default()).map_err(|problems| problems.to_string())?;
    let clock = ManualClock::at(START);
    let engine = EngineOptions::of(&file).clock(clock.clone()).build(&file);
    let request = SyntheticRequest::new("GET", "/").ip([203, 0, 113, 7]);
    // Those that are being served, each with the time of its end.
    let mut served: Vec<(Duration, Permit)> = Vec::new();
    let mut requests = Vec::new();
    for at in arrivals() {
        let now = clock.now().since(START);
        clock.advance(at.saturating_sub(now));
        served.retain(|(end, _)| *end > at);
        let decided = engine.decide(&[&request], DecideMode::Deny).now();
        let outcome = match decided.map_err(|_| "the decision waits for something else than time")? {
            Ok(permit) => {
                let wait = permit.wait().unwrap_or_default();
                served.push((at + wait + SERVICE_TIME, permit));
                Outcome::Allowed { wait }
            }
            Err(_) => Outcome::Denied,
        };
        requests.push(Request { at, outcome });
    }
    Ok(requests)
}
