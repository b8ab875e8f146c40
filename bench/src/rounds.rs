//! Time measurement: every contender has a slice in every round, and only slices of one round are compared.
//!
//! The machine is shared and its speed changes from second to second. Two consecutive slices see the same machine, so
//! their ratio is meaningful where neither time is; the median over rounds removes the rounds that other processes
//! disturbed. The order rotates, so that no contender is always first, and every round has its stack at another
//! address: where stack and data have the same page offset, a loop of 10 ns can take 15, at random for each process.

#![allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "counts and times of one run fit")]

use crate::{Length, median, now};
use std::hint::black_box;
use std::time::Duration;

/// How long to measure.
#[derive(Clone, Copy)]
pub struct Effort {
    pub rounds: usize,
    pub slice: Duration,
}

impl Effort {
    /// Returns the effort of a quick run, or of a full one.
    pub fn of(length: Length) -> Self {
        match length {
            Length::Quick => Self { rounds: 9, slice: Duration::from_millis(8) },
            Length::Full => Self { rounds: 31, slice: Duration::from_millis(40) },
        }
    }

    /// Returns the same rounds with slices `times` as long, for work that has to warm the caches first.
    pub fn longer(self, times: u32) -> Self {
        Self { slice: self.slice * times, ..self }
    }
}

/// The expected results of a contender's checks; a run that measures something else must fail.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Expect {
    Granted,
    Denied,
    /// At most one in a thousand denied.
    MostlyGranted,
    Anything,
}

impl Expect {
    /// Panics if `granted` of `asked` checks is not what was expected.
    pub(crate) fn check(self, contender: &Contender<'_>, asked: u64, granted: u64) {
        let as_expected = match self {
            Self::Granted => granted == asked,
            Self::Denied => granted == 0,
            Self::MostlyGranted => granted * 1_000 >= asked * 999,
            Self::Anything => true,
        };
        let name = contender.name;
        assert!(as_expected, "{name}: unexpected result: {granted} of {asked} checks were granted");
    }
}

/// A measured implementation: a loop of checks that returns how many were allowed.
pub struct Contender<'a> {
    name: &'static str,
    run: Box<dyn FnMut(u64) -> u64 + 'a>,
}

impl<'a> Contender<'a> {
    /// Creates a contender whose every operation is `check`.
    pub fn new(name: &'static str, mut check: impl FnMut() -> bool + 'a) -> Self {
        let run = move |ops| {
            let mut granted = 0;
            for _ in 0..ops {
                granted += u64::from(black_box(check()));
            }
            granted
        };
        Self { name, run: Box::new(run) }
    }

    /// Returns its name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Runs `ops` operations, and returns how many were allowed.
    pub(crate) fn run(&mut self, ops: u64) -> u64 {
        (self.run)(ops)
    }
}

/// Nanoseconds per operation, by contender and round.
pub struct Times {
    by_contender: Vec<Vec<f64>>,
    granted: Vec<f64>,
}

impl Times {
    /// Returns the median time of a contender.
    pub fn ns(&self, contender: usize) -> f64 {
        median(self.by_contender[contender].clone())
    }

    /// Returns the median over rounds of one contender's time relative to another's.
    pub fn ratio(&self, contender: usize, peer: usize) -> f64 {
        median(self.by_contender[contender].iter().zip(&self.by_contender[peer]).map(|(a, b)| a / b).collect())
    }

    /// Returns the share of a contender's checks that were allowed.
    pub fn granted(&self, contender: usize) -> f64 {
        self.granted[contender]
    }
}

/// Measures `contenders` in turns. Panics if the results of their checks are not as expected.
pub fn measure(effort: Effort, expect: Expect, mut contenders: Vec<Contender<'_>>) -> Times {
    let ops: Vec<u64> = contenders.iter_mut().map(|contender| calibrate(contender, effort.slice)).collect();
    let count = contenders.len();
    let mut by_contender = vec![Vec::with_capacity(effort.rounds); count];
    let (mut asked, mut granted) = (vec![0; count], vec![0; count]);
    for round in 0..effort.rounds {
        for position in 0..count {
            let index = (round + position) % count;
            let start = now();
            granted[index] += run_with_stack_offset(round % 16, &mut contenders[index].run, ops[index]);
            by_contender[index].push(start.elapsed().as_nanos() as f64 / ops[index] as f64);
            asked[index] += ops[index];
        }
    }
    for index in 0..count {
        expect.check(&contenders[index], asked[index], granted[index]);
    }
    let granted = granted.iter().zip(&asked).map(|(granted, asked)| *granted as f64 / *asked as f64).collect();
    Times { by_contender, granted }
}

/// Runs `ops` operations with the stack `steps` steps further down.
#[inline(never)]
fn run_with_stack_offset(steps: usize, run: &mut dyn FnMut(u64) -> u64, ops: u64) -> u64 {
    if steps == 0 {
        return run(ops);
    }
    // Some 300 bytes with the frame, so that sixteen steps spread over a page.
    let padding = black_box([0_u64; 25]);
    let granted = run_with_stack_offset(steps - 1, run, ops);
    black_box(&padding);
    granted
}

/// Returns the number of operations that fill a slice. Also warms up.
fn calibrate(contender: &mut Contender<'_>, slice: Duration) -> u64 {
    let mut ops = 64;
    loop {
        let start = now();
        contender.run(ops);
        let took = start.elapsed();
        if took * 4 >= slice {
            return (ops as f64 * slice.as_secs_f64() / took.as_secs_f64()) as u64 + 1;
        }
        ops *= 2;
    }
}
