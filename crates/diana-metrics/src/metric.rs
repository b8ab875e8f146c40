//! A metric: its name, its meaning, and how it is read.
//!
//! Each subject has a list of its metrics: [`Totals::METRICS`](crate::Totals::METRICS),
//! [`ServiceTotals::METRICS`](crate::ServiceTotals::METRICS) and [`UpstreamStatus::METRICS`](crate::UpstreamStatus::METRICS).
//! `/metrics`, `/status`, the dashboard and `diana status` show what the lists have.

use crate::Buckets;

/// A metric of a gateway, a service, an upstream or a rule.
#[derive(Debug)]
#[non_exhaustive]
pub struct Metric<T> {
    /// The name in Prometheus.
    pub name: &'static str,
    /// The meaning.
    pub help: &'static str,
    /// The type in Prometheus.
    pub kind: Kind,
    /// The label that distinguishes its values of one subject, if it has several.
    pub label: Option<&'static str>,
    /// The field in `/status`, if there is one.
    pub field: Option<&'static str>,
    /// Whether the dashboard and `diana status` show the field.
    pub is_shown: bool,
    read: Read<T>,
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

/// A value of a metric.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reading {
    /// A number.
    Number(u64),
    /// 0 or 1; of several subjects together, 1 if it is 1 for all.
    Flag(bool),
    /// Durations.
    Durations(Buckets),
}

/// Values, each with the value of the label; it is empty without a label.
pub type Readings = Vec<(&'static str, Reading)>;

/// The source of a metric's value.
#[derive(Debug)]
enum Read<T> {
    Number(fn(&T) -> u64),
    Durations(fn(&T) -> &Buckets),
    All(fn(&T) -> Readings),
}

impl<T> Metric<T> {
    const fn new(name: &'static str, kind: Kind, help: &'static str, read: Read<T>) -> Self {
        Self { name, help, kind, label: None, field: None, is_shown: false, read }
    }

    /// Creates a metric of a number that only increases.
    pub const fn counter(name: &'static str, help: &'static str, read: fn(&T) -> u64) -> Self {
        Self::new(name, Kind::Counter, help, Read::Number(read))
    }

    /// Creates a metric of a number that increases and decreases.
    pub const fn gauge(name: &'static str, help: &'static str, read: fn(&T) -> u64) -> Self {
        Self::new(name, Kind::Gauge, help, Read::Number(read))
    }

    /// Creates a metric of durations.
    pub const fn histogram(name: &'static str, help: &'static str, read: fn(&T) -> &Buckets) -> Self {
        Self::new(name, Kind::Histogram, help, Read::Durations(read))
    }

    /// Creates a metric with any number of values: none if it is absent, several with a [`label`](Self::by).
    pub const fn with_readings(name: &'static str, kind: Kind, help: &'static str, read: fn(&T) -> Readings) -> Self {
        Self::new(name, kind, help, Read::All(read))
    }

    /// Sets the label of its values.
    pub const fn by(self, label: &'static str) -> Self {
        Self { label: Some(label), ..self }
    }

    /// Makes it a field of `/status`.
    pub const fn in_status(self, field: &'static str) -> Self {
        Self { field: Some(field), ..self }
    }

    /// Makes it a field of `/status` that the dashboard and `diana status` show under its name.
    pub const fn shown(self, field: &'static str) -> Self {
        Self { is_shown: true, ..self.in_status(field) }
    }

    /// Returns its values for these subjects together.
    pub fn read(&self, subjects: &[&T]) -> Readings {
        let mut sums = Readings::new();
        for (label, reading) in subjects.iter().flat_map(|subject| self.read.call(subject)) {
            match sums.iter_mut().find(|(known, _)| *known == label) {
                Some((_, sum)) => sum.add(reading),
                None => sums.push((label, reading)),
            }
        }
        sums
    }
}

impl<T> Read<T> {
    fn call(&self, subject: &T) -> Readings {
        match self {
            Self::Number(read) => vec![("", Reading::Number(read(subject)))],
            Self::Durations(read) => vec![("", Reading::Durations(read(subject).clone()))],
            Self::All(read) => read(subject),
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
    /// Returns these numbers, each with the value of the label.
    pub fn numbers(numbers: impl IntoIterator<Item = (&'static str, u64)>) -> Readings {
        numbers.into_iter().map(|(label, number)| (label, Self::Number(number))).collect()
    }

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
            // The values of a metric are of one type.
            (Self::Number(_) | Self::Flag(_) | Self::Durations(_), _) => {}
        }
    }
}
