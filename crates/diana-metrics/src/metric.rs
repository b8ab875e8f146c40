//! What a metric is called, what it means, and how it is read.
//!
//! Each subject has a list of its metrics: [`Totals::METRICS`](crate::Totals::METRICS),
//! [`ServiceTotals::METRICS`](crate::ServiceTotals::METRICS) and [`UpstreamStatus::METRICS`](crate::UpstreamStatus::METRICS).
//! `/metrics`, `/status`, the dashboard and `diana status` show what the lists have.

use crate::Buckets;

/// A metric of a gateway, a service or an upstream.
#[derive(Debug)]
pub struct Metric<T> {
    /// Its name in Prometheus.
    pub name: &'static str,
    /// What it means.
    pub help: &'static str,
    /// Its type, and how it is read.
    pub value: Value<T>,
    /// Its field in `/status`, if it has one.
    pub field: Option<&'static str>,
}

/// The type of a metric in Prometheus, and how it is read.
#[derive(Debug)]
#[non_exhaustive]
pub enum Value<T> {
    /// A number that only increases.
    Counter(fn(&T) -> u64),
    /// One counter for each value of a label.
    CounterBy(&'static str, fn(&T) -> Vec<(&'static str, u64)>),
    /// A number that increases and decreases.
    Gauge(fn(&T) -> u64),
    /// A gauge that is 0 or 1; of several subjects together, 1 if it is 1 for all. Absent where it is `None`.
    Flag(fn(&T) -> Option<bool>),
    /// Durations.
    Histogram(fn(&T) -> &Buckets),
    /// A histogram for each value of a label.
    HistogramBy(&'static str, fn(&T) -> Vec<(&'static str, &Buckets)>),
}

/// The type of a metric in Prometheus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// A number that only increases.
    Counter,
    /// A number that increases and decreases.
    Gauge,
    /// Counts of values up to each bound.
    Histogram,
    /// The number of values and their sum.
    Summary,
}

/// What was read of a metric.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reading {
    /// A number.
    Number(u64),
    /// 0 or 1.
    Flag(bool),
    /// Durations.
    Durations(Buckets),
}

impl<T> Metric<T> {
    pub(crate) const fn new(name: &'static str, help: &'static str, value: Value<T>) -> Self {
        Self { name, help, value, field: None }
    }

    /// Creates a metric that `/status` has as this field.
    pub(crate) const fn in_status(
        name: &'static str,
        field: &'static str,
        help: &'static str,
        value: Value<T>,
    ) -> Self {
        Self { name, help, value, field: Some(field) }
    }

    /// Returns its type in Prometheus.
    pub fn kind(&self) -> Kind {
        match self.value {
            Value::Counter(_) | Value::CounterBy(..) => Kind::Counter,
            Value::Gauge(_) | Value::Flag(_) => Kind::Gauge,
            Value::Histogram(_) | Value::HistogramBy(..) => Kind::Histogram,
        }
    }

    /// Returns its label, if there is one.
    pub fn label(&self) -> Option<&'static str> {
        match self.value {
            Value::CounterBy(label, _) | Value::HistogramBy(label, _) => Some(label),
            Value::Counter(_) | Value::Gauge(_) | Value::Flag(_) | Value::Histogram(_) => None,
        }
    }

    /// Returns what it is for these subjects together, for each value of its [`label`](Self::label).
    pub fn read(&self, subjects: &[&T]) -> Vec<(&'static str, Reading)> {
        let mut sums: Vec<(&'static str, Reading)> = Vec::new();
        for (label, reading) in subjects.iter().flat_map(|subject| self.read_one(subject)) {
            match sums.iter_mut().find(|(known, _)| *known == label) {
                Some((_, sum)) => sum.add(reading),
                None => sums.push((label, reading)),
            }
        }
        sums
    }

    fn read_one(&self, subject: &T) -> Vec<(&'static str, Reading)> {
        match self.value {
            Value::Counter(read) | Value::Gauge(read) => vec![("", Reading::Number(read(subject)))],
            Value::Flag(read) => read(subject).map(|flag| ("", Reading::Flag(flag))).into_iter().collect(),
            Value::Histogram(read) => vec![("", Reading::Durations(read(subject).clone()))],
            Value::CounterBy(_, read) => {
                read(subject).into_iter().map(|(label, count)| (label, Reading::Number(count))).collect()
            }
            Value::HistogramBy(_, read) => {
                read(subject).into_iter().map(|(label, buckets)| (label, Reading::Durations(buckets.clone()))).collect()
            }
        }
    }
}

impl Kind {
    /// Returns its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
            Self::Summary => "summary",
        }
    }
}

impl Reading {
    /// Returns the number: 0 or 1 for a flag, and how many durations there are.
    pub fn number(&self) -> u64 {
        match self {
            Self::Number(number) => *number,
            Self::Flag(flag) => u64::from(*flag),
            Self::Durations(buckets) => buckets.count(),
        }
    }

    fn add(&mut self, other: Self) {
        match (self, other) {
            (Self::Number(sum), Self::Number(number)) => *sum += number,
            (Self::Flag(all), Self::Flag(flag)) => *all &= flag,
            (Self::Durations(sum), Self::Durations(buckets)) => sum.add(&buckets),
            // A metric is read in one way only.
            (Self::Number(_) | Self::Flag(_) | Self::Durations(_), _) => {}
        }
    }
}
