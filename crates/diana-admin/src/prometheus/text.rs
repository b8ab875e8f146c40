//! Prometheus' text format, version 0.0.4, which every scraper reads.
//!
//! A family is begun once and its samples follow it. Metric names are constants and need no escape; label values may
//! contain anything, and are escaped.

use diana_metrics::{Buckets, Kind, Metric, Reading};
use std::borrow::Cow;
use std::fmt::{self, Display, Write as _};

/// The label of the subjects that are counted together, since only so many have samples of their own.
const OTHERS: &str = "other";

/// A page of metrics as it is being written.
#[derive(Clone, Debug, Default)]
pub(super) struct Text {
    text: String,
}

impl Text {
    /// The content type of the page.
    pub(super) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

    /// Begins a family.
    pub(super) fn family(&mut self, name: &str, kind: Kind, help: &str) {
        self.push(format_args!("# HELP {name} {help}\n# TYPE {name} {}\n", kind.name()));
    }

    /// Writes a sample.
    pub(super) fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        self.text.push_str(name);
        for (index, (label, text)) in labels.iter().enumerate() {
            let before = if index == 0 { '{' } else { ',' };
            self.push(format_args!("{before}{label}=\"{}\"", escaped(text)));
        }
        let end = if labels.is_empty() { "" } else { "}" };
        self.push(format_args!("{end} {value}\n"));
    }

    /// Writes a family with one sample.
    pub(super) fn single(&mut self, name: &str, kind: Kind, help: &str, value: impl Display) {
        self.family(name, kind, help);
        self.sample(name, &[], value);
    }

    /// Writes the metrics of these subjects, each under its name; those with the same name are counted together.
    pub(super) fn metrics<T>(&mut self, metrics: &[Metric<T>], label: &str, subjects: &[(&str, Vec<&T>)]) {
        for metric in metrics {
            let read = subjects.iter().map(|(name, together)| (name, metric.read(together)));
            let read = read.filter(|(_, readings)| !readings.is_empty()).collect::<Vec<_>>();
            if !read.is_empty() {
                self.family(metric.name, metric.kind, metric.help);
            }
            for (name, (value, reading)) in read.iter().flat_map(|(name, all)| all.iter().map(move |each| (name, each)))
            {
                let subject = Some((label, **name)).filter(|(label, _)| !label.is_empty());
                let labels = subject.into_iter().chain(metric.label.map(|label| (label, *value))).collect::<Vec<_>>();
                match reading {
                    Reading::Durations(buckets) => self.buckets(metric.name, &labels, buckets),
                    number => self.sample(metric.name, &labels, number.number()),
                }
            }
        }
    }

    /// Writes the samples of a histogram.
    fn buckets(&mut self, name: &str, labels: &[(&str, &str)], buckets: &Buckets) {
        let with_name = |end: &str| format!("{name}{end}");
        let bucket_name = with_name("_bucket");
        // The last bucket is the total. Reading it again could give another number, and the two samples would differ.
        let mut total = 0;
        for (bound, count) in buckets.cumulative() {
            let bound = bound.map_or_else(|| "+Inf".to_owned(), |bound| bound.to_string());
            let labels = labels.iter().copied().chain([("le", &*bound)]).collect::<Vec<_>>();
            self.sample(&bucket_name, &labels, count);
            total = count;
        }
        self.sample(&with_name("_sum"), labels, buckets.seconds());
        self.sample(&with_name("_count"), labels, total);
    }

    fn push(&mut self, text: fmt::Arguments<'_>) {
        // Writing to a string never fails.
        let _ = self.text.write_fmt(text);
    }
}

impl Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Returns each subject with its name. If there are more than `max`, the others have the name [`OTHERS`] together.
pub(super) fn labelled<'a, T>(
    subjects: &'a [T],
    max: usize,
    name: impl Fn(&'a T) -> &'a str,
) -> Vec<(&'a str, Vec<&'a T>)> {
    let is_too_many = subjects.len() > max;
    // While there are others, no subject may have their label as its name.
    let is_other = |(index, subject): &(usize, &'a T)| is_too_many && (*index >= max || name(subject) == OTHERS);
    let (others, named): (Vec<_>, Vec<_>) = subjects.iter().enumerate().partition(is_other);
    let named = named.into_iter().map(|(_, subject)| (name(subject), vec![subject]));
    let others = is_too_many.then(|| (OTHERS, others.into_iter().map(|(_, subject)| subject).collect()));
    named.chain(others).collect()
}

/// Escapes the value of a label.
fn escaped(text: &str) -> Cow<'_, str> {
    if !text.contains(['\\', '"', '\n']) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_family_is_followed_by_its_samples() {
        let mut text = Text::default();
        text.family("diana_requests_total", Kind::Counter, "Requests by outcome.");
        text.sample("diana_requests_total", &[("outcome", "denied")], 3);
        let expected = "\
# HELP diana_requests_total Requests by outcome.
# TYPE diana_requests_total counter
diana_requests_total{outcome=\"denied\"} 3
";
        assert_eq!(text.to_string(), expected);
    }

    #[test]
    fn labels_are_escaped() {
        let mut text = Text::default();
        text.sample("x", &[("a", "one\"two\\three\nfour"), ("b", "ä")], 1);
        assert_eq!(text.to_string(), "x{a=\"one\\\"two\\\\three\\nfour\",b=\"ä\"} 1\n");
    }
}
