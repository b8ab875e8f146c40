//! A run as an SVG: when requests arrive, when they are served, which are denied, and how many are served in a second.
//!
//! The colours are readable on a light and on a dark page, so the picture needs no variant of each.

use super::traffic::{self, LENGTH, Outcome, Request};
use std::fmt::Write as _;
use std::time::Duration;

const LEFT: f64 = 118.0;
const WIDTH: f64 = 640.0;
const RIGHT: f64 = 14.0;
/// The top of each part, and the height of a lane.
const ARRIVED: f64 = 26.0;
const SERVED: f64 = 62.0;
const DENIED: f64 = 98.0;
const LANE: f64 = 16.0;
/// The chart: its top, its height and its largest value.
const CHART: f64 = 140.0;
const CHART_HEIGHT: f64 = 90.0;
const MOST: f64 = 30.0;
const HEIGHT: f64 = CHART + CHART_HEIGHT + 30.0;

/// The limit of every rule of the page: requests a second.
const LIMIT: f64 = 10.0;

const STYLE: &str = "text { font: 13px system-ui, sans-serif; fill: #7d8590; } \
    .arrived { stroke: #7d8590; } .now { stroke: #2f81f7; } .waited { stroke: #d98a17; } .wait { stroke: #d98a17; opacity: 0.45; } \
    .denied { stroke: #e5534b; } .limit { stroke: #7d8590; stroke-dasharray: 4 4; } .axis { stroke: #7d8590; opacity: 0.35; } \
    .count { fill: #2f81f7; opacity: 0.3; } .over { fill: #e5534b; opacity: 0.6; }";

/// Returns the pictures that a page shows, each with its path: the rule of each is the block of YAML before it.
pub(crate) fn plots_of(page: &str) -> Result<Vec<(&str, String)>, String> {
    let mut plots = Vec::new();
    for part in page.split("\n```yaml rule\n").skip(1) {
        let (fields, rest) = part.split_once("```\n").ok_or("a block is not closed")?;
        let Some((before, rest)) = rest.split_once("](../images/plots/") else { continue };
        if before.contains("```") {
            continue;
        }
        let (alt, name) = (before.rsplit("![").next().unwrap_or_default(), rest.split(')').next().unwrap_or_default());
        let start = part.len() - rest.len() - "../images/plots/".len();
        let path = &part[start..start + "../images/plots/".len() + name.len()];
        plots.push((path, svg(alt, &traffic::run(fields)?)));
    }
    Ok(plots)
}

fn x(time: Duration) -> f64 {
    LEFT + WIDTH * time.as_secs_f64() / LENGTH.as_secs_f64()
}

/// A vertical tick in the lane that begins at `top`.
fn tick(svg: &mut String, class: &str, time: Duration, top: f64) {
    let _ = writeln!(svg, "<path class=\"{class}\" d=\"M{:.1} {top}v{LANE}\"/>", x(time));
}

fn svg(title: &str, requests: &[Request]) -> String {
    let (width, bottom) = (LEFT + WIDTH + RIGHT, CHART + CHART_HEIGHT);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {HEIGHT}\" width=\"{width}\" height=\"{HEIGHT}\" role=\"img\">\n\
         <title>{title}</title>\n<!-- Written by `cargo xtask docs plots`. -->\n<style>{STYLE}</style>\n"
    );
    let waits = requests.iter().any(|request| matches!(request.outcome, Outcome::Allowed { wait } if !wait.is_zero()));
    let served = requests.iter().filter_map(Request::served).count();
    let denied = requests.iter().filter(|request| request.outcome == Outcome::Denied).count();
    let labels = [
        (ARRIVED, format!("{} arrive", requests.len())),
        (SERVED, format!("{served} served")),
        (DENIED, format!("{denied} denied")),
        (CHART + CHART_HEIGHT / 2.0 - LANE / 2.0, "served within".to_owned()),
        (CHART + CHART_HEIGHT / 2.0 + LANE / 2.0, "the last second".to_owned()),
    ];
    for (top, label) in labels {
        let _ = writeln!(svg, "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{label}</text>", LEFT - 12.0, top + 12.5);
    }
    for request in requests {
        tick(&mut svg, "arrived", request.at, ARRIVED);
        match (request.outcome, request.served()) {
            (Outcome::Allowed { wait }, Some(at)) if at <= LENGTH => {
                if !wait.is_zero() {
                    let (from, to) = (x(request.at), x(at));
                    let _ =
                        writeln!(svg, "<path class=\"wait\" d=\"M{from:.1} {}L{to:.1} {SERVED}\"/>", ARRIVED + LANE);
                }
                tick(&mut svg, if wait.is_zero() { "now" } else { "waited" }, at, SERVED);
            }
            (Outcome::Denied, _) => tick(&mut svg, "denied", request.at, DENIED),
            _ => {}
        }
    }
    chart(&mut svg, requests);
    for second in 0..=LENGTH.as_secs() {
        let at = x(Duration::from_secs(second));
        let _ = writeln!(svg, "<path class=\"axis\" d=\"M{at:.1} 14V{bottom}\"/>");
        let _ = writeln!(svg, "<text x=\"{at:.1}\" y=\"{}\" text-anchor=\"middle\">{second} s</text>", bottom + 18.0);
    }
    let limit = bottom - CHART_HEIGHT * LIMIT / MOST;
    let _ = writeln!(svg, "<path class=\"limit\" d=\"M{LEFT} {limit}h{WIDTH}\"/>");
    let _ = writeln!(svg, "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">10</text>", LEFT + WIDTH, limit - 4.0);
    if waits {
        let _ = writeln!(
            svg,
            "<text x=\"{}\" y=\"14\" text-anchor=\"end\">orange: served after a wait</text>",
            LEFT + WIDTH
        );
    }
    svg + "</svg>\n"
}

/// The number of requests served within the last second, at each hundredth of a second.
fn chart(svg: &mut String, requests: &[Request]) {
    let mut times = requests.iter().filter_map(Request::served).collect::<Vec<_>>();
    times.sort_unstable();
    let (step, second) = (Duration::from_millis(10), Duration::from_secs(1));
    let bottom = CHART + CHART_HEIGHT;
    let mut area = |class: &str, from: f64| {
        let y = |count: usize| bottom - CHART_HEIGHT * (count as f64).clamp(from, MOST) / MOST;
        let (mut path, mut shown, mut at) = (format!("M{LEFT} {:.1}", y(0)), 0, Duration::ZERO);
        while at <= LENGTH {
            let count = times.iter().filter(|time| **time <= at && at < **time + second).count();
            if count != shown {
                let _ = write!(path, "H{:.1}V{:.1}", x(at), y(count));
                shown = count;
            }
            at += step;
        }
        let _ = write!(path, "H{:.1}", x(LENGTH));
        let _ = writeln!(svg, "<path class=\"{class}\" d=\"{path}V{:.1}z\"/>", y(0));
    };
    area("count", 0.0);
    area("over", LIMIT);
}
