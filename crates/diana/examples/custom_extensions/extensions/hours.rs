//! `match: {hours: 9-17}`: a rule that is active only at some hours of the day, in UTC.

use diana::Clock;
use diana::rules::document::Node;
use diana::rules::matching::Matcher;
use diana::rules::{Attributes, Problem};
use std::sync::Arc;

const NANOS_PER_HOUR: u64 = 3_600_000_000_000;

/// From one hour of the day to another; over midnight if the first is the later one.
#[derive(Debug)]
pub(crate) struct Hours {
    from: u64,
    to: u64,
    clock: Arc<dyn Clock>,
}

impl Hours {
    /// Parses `9-17`, or reports the location and the expected format.
    pub(crate) fn parse(node: &Node, clock: Arc<dyn Clock>, problems: &mut Vec<Problem>) -> Option<Self> {
        let hour = |text: &str| text.trim().parse().ok().filter(|hour| *hour <= 24);
        let range = node.text().and_then(|text| text.split_once('-'));
        let Some((from, to)) = range.and_then(|(from, to)| hour(from).zip(hour(to))) else {
            let problem = Problem::new(node.span, "invalid `hours`");
            problems.push(problem.expected("expected two hours of the day, such as `9-17`"));
            return None;
        };
        Some(Self { from, to, clock })
    }
}

impl Matcher for Hours {
    fn matches(&self, _request: &dyn Attributes) -> bool {
        let hour = self.clock.now().as_nanos() / NANOS_PER_HOUR % 24;
        if self.from <= self.to { (self.from..self.to).contains(&hour) } else { hour >= self.from || hour < self.to }
    }
}
