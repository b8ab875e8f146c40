//! Times as scripts represent them: microseconds, and a numerator over a denominator that a whole limit shares.
//!
//! diana-core measures a rate's times in ticks, `scale` to a nanosecond. A tick is then `1 / (1000 × scale)` of a
//! microsecond, and all times that a script handles are whole multiples of one permit's interval after a whole
//! microsecond. So the denominator is that of the interval in lowest terms, which is often 1.

/// The highest time in microseconds that scripts distinguish from "never": the year 2255.
pub(crate) const END: u64 = 9_000_000_000_000_000;

/// The largest denominator: two numerators must add up to less than 2^53.
const MAX_DENOMINATOR: u64 = 1 << 52;

/// A time in microseconds and a fraction of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Time {
    pub(crate) micros: u64,
    pub(crate) numerator: u64,
}

/// Converts ticks into [`Time`]s and back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fractions {
    /// Ticks in a microsecond.
    ticks: u128,
    /// Numerators in a microsecond.
    denominator: u64,
}

impl Fractions {
    /// Creates the conversion for intervals of `interval / scale` nanoseconds; `None` if a double is not precise enough.
    pub(crate) fn new((interval, scale): (u64, u64)) -> Option<Self> {
        let ticks = u128::from(scale) * 1_000;
        let denominator = ticks / gcd(ticks, u128::from(interval));
        let denominator = u64::try_from(denominator).ok().filter(|denominator| *denominator <= MAX_DENOMINATOR)?;
        Some(Self { ticks, denominator })
    }

    pub(crate) fn denominator(&self) -> u64 {
        self.denominator
    }

    /// Converts ticks to a time, rounded down; at most [`END`].
    pub(crate) fn time(&self, ticks: u128) -> Time {
        let micros = u64::try_from(ticks / self.ticks).unwrap_or(u64::MAX);
        if micros >= END {
            return Time { micros: END, numerator: 0 };
        }
        let numerator = ticks % self.ticks / (self.ticks / u128::from(self.denominator));
        Time { micros, numerator: u64::try_from(numerator).unwrap_or(0) }
    }

    /// Converts ticks to a time, rounded up: for a time that comes from other parameters, and may lie between two
    /// numerators.
    ///
    /// It is only compared with whole numerators (times, prices, capacities, maximum wait in microseconds), so
    /// comparisons with the rounded time have the same result as with the exact time.
    pub(crate) fn time_from(&self, ticks: u128) -> Time {
        let numerator = self.ticks / u128::from(self.denominator);
        self.time(ticks.div_ceil(numerator).saturating_mul(numerator))
    }

    /// Converts a time to ticks.
    pub(crate) fn ticks(&self, time: Time) -> u128 {
        u128::from(time.micros) * self.ticks + u128::from(time.numerator) * (self.ticks / u128::from(self.denominator))
    }

    /// Converts nanoseconds to ticks.
    pub(crate) fn of_nanos(&self, nanos: u64) -> u128 {
        u128::from(nanos) * (self.ticks / 1_000)
    }
}

fn gcd(mut a: u128, mut b: u128) -> u128 {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_third_of_a_second_counts_thirds() {
        let thirds = Fractions::new((1_000_000_000, 3)).unwrap();
        assert_eq!(thirds.denominator(), 3);
        let time = thirds.time(1_000_000_000);
        assert_eq!(time, Time { micros: 333_333, numerator: 1 });
        assert_eq!(thirds.ticks(time), 1_000_000_000);
    }

    #[test]
    fn whole_microseconds_need_no_fraction() {
        assert_eq!(Fractions::new((10_000_000, 1)).map(|fractions| fractions.denominator()), Some(1));
        assert_eq!(Fractions::new((1, 1)).map(|fractions| fractions.denominator()), Some(1_000));
        assert_eq!(Fractions::new((1, 1 << 53)), None);
    }

    #[test]
    fn a_migrated_time_is_rounded_up() {
        let halves = Fractions::new((500, 1)).unwrap();
        let rounded = [1_000, 1_001, 1_500, 1_501].map(|ticks| halves.time_from(ticks));
        let halves = [(1, 0), (1, 1), (1, 1), (2, 0)].map(|(micros, numerator)| Time { micros, numerator });
        assert_eq!(rounded, halves);
    }

    #[test]
    fn times_are_capped_at_the_end() {
        let whole = Fractions::new((1_000, 1)).unwrap();
        assert_eq!(whole.time(u128::MAX), Time { micros: END, numerator: 0 });
        assert_eq!(whole.time_from(u128::MAX), Time { micros: END, numerator: 0 });
    }
}
