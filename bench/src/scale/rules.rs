//! One to ten thousand rules: instructions and time of a decision that one of them matches, and bytes of each.

use crate::Tables;
use crate::steps::{Bound, Claim, Steps};
use diana::Engine;
use diana_bench::rounds::{Contender, Effort, Expect, measure};
use diana_bench::rule_sets::{Request, engine, file, is_granted, text};
use diana_bench::{Length, alloc, instructions};
use std::hint::black_box;

const NUMBERS: [usize; 5] = [1, 10, 100, 1_000, 10_000];
const NAMES: [&str; 5] = ["1", "10", "100", "1,000", "10,000"];
const CLAIM: &str = "ten thousand rules cost about as much as ten (docs/the-rule-file.md)";

pub(crate) fn run(tables: &mut Tables, length: Length) {
    // Twice the cost for a thousand times as many rules.
    let claim = || Claim { text: CLAIM, from: 10.0, bound: Bound::Slope(0.1) };
    let steps =
        Steps::new("rules: instructions of a decision that one rule matches (callgrind)", "rules", "instructions");
    tables.push_instructions(steps, "rules", &NUMBERS, &claim());

    let mut time = Steps::new("rules: time of the same", "rules", "ns");
    let mut bytes = Steps::new("rules: bytes of each, with its compiled matcher and its counters", "rules", "bytes");
    let mut engines = Vec::new();
    for number in NUMBERS {
        let file = file(&text(number));
        let before = alloc::live();
        let engine = Engine::new(&file);
        bytes.push(number, (alloc::live() - before) as f64 / number as f64);
        engines.push((engine, Request::new(number)));
    }
    let contenders = engines.iter().zip(NAMES);
    let contenders =
        contenders.map(|((engine, request), name)| Contender::new(name, || is_granted(engine, black_box(request))));
    let times = measure(Effort::of(length), Expect::Granted, contenders.collect());
    for (index, number) in NUMBERS.into_iter().enumerate() {
        time.push(number, times.ns(index));
    }
    tables.push(&time, &claim());
    let text = "memory grows with the rules, and no faster";
    tables.push(&bytes, &Claim { text, from: 100.0, bound: Bound::Slope(0.02) });
}

/// Runs under valgrind.
pub(crate) fn counted(number: usize) {
    let (engine, request) = (engine(number), Request::new(number));
    instructions::run(&|| is_granted(&engine, black_box(&request)));
}
