//! Denials as HTML: a small, self-contained page with the retry time.

use bytes::Bytes;
use diana::Verdict;
use http::StatusCode;

pub(super) const TYPE: &str = "text/html; charset=utf-8";

/// Returns the page.
pub(super) fn body(status: StatusCode, retry: Option<u64>, verdict: &Verdict) -> Bytes {
    let (title, message) = match (retry, status) {
        (None, _) => ("Request denied", "Retrying does not help.".to_owned()),
        (Some(seconds), StatusCode::SERVICE_UNAVAILABLE) => (
            "Service overloaded",
            format!("The service receives more requests than it can handle. Please try again {}.", when(seconds)),
        ),
        (Some(seconds), _) => (
            "Too many requests",
            format!("There were too many requests in a short time. Please try again {}.", when(seconds)),
        ),
    };
    // A rule's name has no characters that need escaping in HTML.
    let rule = verdict.denied_by().map_or("", |rule| &rule.name);
    let page = include_str!("denial.html");
    let page = page.replace("{title}", title).replace("{message}", &message);
    Bytes::from(page.replace("{status}", status.as_str()).replace("{rule}", rule))
}

/// Formats the retry time.
pub(super) fn when(seconds: u64) -> String {
    const UNITS: [(u64, &str); 3] = [(86_400, "day"), (3_600, "hour"), (60, "minute")];
    // Below two of a unit, the next smaller one is clearer.
    let (unit, name) = UNITS.into_iter().find(|(unit, _)| seconds >= 2 * unit).unwrap_or((1, "second"));
    match (seconds.div_ceil(unit), name) {
        (0 | 1, "second") => "in a second".to_owned(),
        (count, name) => format!("in {count} {name}s"),
    }
}
