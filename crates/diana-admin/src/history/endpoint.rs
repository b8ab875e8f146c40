//! `GET /history`.

use super::latency::{Latency, PERCENTILES, percentile};
use super::series::{SPAN, Series};
use super::{Counts, History, OUTCOMES, Outcomes, Recorded};
use crate::AdminState;
use crate::parameters::Parameters;
use crate::response::{HandlerResult, Problem, json};
use axum::extract::State;
use axum::http::StatusCode;
use serde_json::{Map, Value};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

const KNOWN: [&str; 4] = ["rule", "seconds", "step", "sums"];
/// The default span, in seconds.
const SECONDS: u64 = 300;
/// The names of [`Recorded::latency`].
const LATENCIES: [&str; 3] = ["request", "upstream", "decision"];

pub(crate) async fn history(State(state): State<Arc<AdminState>>, parameters: Parameters) -> HandlerResult {
    parameters.reject_unknown(&KNOWN)?;
    let seconds = parameters.number("seconds")?.unwrap_or(SECONDS);
    let step = parameters.number("step")?.unwrap_or(1);
    if !(1..=SPAN).contains(&seconds) || step == 0 || seconds % step != 0 {
        let detail = format!("invalid `seconds` or `step`: expected 1 to {SPAN} seconds, a multiple of `step`");
        return Err(Problem::bad(detail));
    }
    let sums = match parameters.optional("sums")? {
        None | Some("false") => false,
        Some("true") => true,
        Some(other) => return Err(Problem::bad(format!("invalid `sums` `{other}`: expected true or false"))),
    };
    let rule = parameters.optional("rule")?;
    let (report, has_history) = state.history.report(rule, seconds, step, sums);
    match rule {
        Some(name) if !has_history && state.engine.rules().named(name).is_none() => {
            Err(Problem::new(StatusCode::NOT_FOUND, format!("unknown rule `{name}`")))
        }
        _ => json(report),
    }
}

impl History {
    /// Returns the counts of a rule, or of all requests, and whether there are any.
    fn report(&self, rule: Option<&str>, seconds: u64, step: u64, sums: bool) -> (Value, bool) {
        let recorded = &*self.recorded.lock();
        // Steps start at multiples of their length, and the last one is complete: a chart of them moves as a whole.
        let end = recorded.end - recorded.end % step;
        let span = end.saturating_sub(seconds)..end.max(seconds);
        let mut report = Map::new();
        report.insert("start".to_owned(), span.start.into());
        report.insert("step".to_owned(), step.into());
        let of_rule = rule.and_then(|rule| recorded.rules.get(rule));
        match rule {
            Some(_) => {
                of_rule.map_or(&Outcomes::default(), |rule| &rule.outcomes).report(&mut report, &span, step);
            }
            None => {
                recorded.all.report(&mut report, &span, step);
                report.insert("failed".to_owned(), bins(&recorded.failed, &span, step).into());
                let latencies = LATENCIES.iter().zip(&recorded.latency);
                let latencies =
                    latencies.map(|(name, latency)| ((*name).to_owned(), percentiles(latency, &span, step)));
                report.insert("latency".to_owned(), Value::Object(latencies.collect()));
            }
        }
        if sums {
            report.insert("rules".to_owned(), recorded.sums(&span).into_iter().map(reported).collect());
        }
        (Value::Object(report), rule.is_none() || of_rule.is_some())
    }
}

impl History {
    /// Returns the rank of each rule with requests in the last hour: the one that denied most has 0.
    pub(crate) fn ranks(&self) -> HashMap<Box<str>, usize> {
        let recorded = &*self.recorded.lock();
        let span = recorded.end.saturating_sub(SPAN)..recorded.end;
        recorded.sums(&span).into_iter().enumerate().map(|(rank, (name, _))| (name.into(), rank)).collect()
    }
}

impl Recorded {
    /// Returns the sums of each rule with requests, the most denied first.
    fn sums(&self, span: &Range<u64>) -> Vec<(&str, Counts)> {
        let sum = |outcomes: &Outcomes| {
            outcomes.series.each_ref().map(|series| {
                let mut sum = 0;
                series.visit(span.clone(), |_, count| sum += u64::from(*count));
                sum
            })
        };
        let rules = self.rules.iter().map(|(name, rule)| (&**name, sum(&rule.outcomes)));
        let mut rules = rules.filter(|(_, sums)| sums.iter().any(|sum| *sum > 0)).collect::<Vec<_>>();
        let order = |sums: &Counts| (sums[1] + sums[3], sums[4], sums[2], sums[0]);
        rules.sort_by(|(a, sums), (b, others)| order(others).cmp(&order(sums)).then_with(|| a.cmp(b)));
        rules
    }
}

fn reported((name, sums): (&str, Counts)) -> Value {
    let mut report = Map::from_iter([("rule".to_owned(), name.into())]);
    report.extend(OUTCOMES.iter().zip(sums).map(|(outcome, sum)| ((*outcome).to_owned(), sum.into())));
    Value::Object(report)
}

impl Outcomes {
    fn report(&self, report: &mut Map<String, Value>, span: &Range<u64>, step: u64) {
        for (outcome, series) in OUTCOMES.iter().zip(&self.series) {
            report.insert((*outcome).to_owned(), bins(series, span, step).into());
        }
    }
}

fn bins(series: &Series<u32>, span: &Range<u64>, step: u64) -> Vec<u64> {
    let mut bins = vec![0; usize::try_from((span.end - span.start) / step).unwrap_or_default()];
    series.add_to(&mut bins, span.start, step);
    bins
}

fn percentiles(latency: &Latency, span: &Range<u64>, step: u64) -> Value {
    let bins = latency.bins(span, step);
    let at_rank = |rank: f64| Value::from(bins.iter().map(|counts| percentile(counts, rank)).collect::<Vec<_>>());
    Value::Object(PERCENTILES.iter().map(|(name, rank)| ((*name).to_owned(), at_rank(*rank))).collect())
}
