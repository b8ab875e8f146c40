//! One to eight limits that match the same request: instructions of a decision.

use crate::Tables;
use crate::steps::{Bound, Claim, Steps};
use diana::Engine;
use diana_bench::rule_sets::{Request, file, is_granted, text_matching, text_matching_keys};
use diana_bench::{Length, instructions};
use std::hint::black_box;

const NUMBERS: [usize; 4] = [1, 2, 4, 8];

pub(crate) fn run(tables: &mut Tables, _length: Length) {
    let steps =
        Steps::new("limits: instructions of a decision over several, of one key (callgrind)", "limits", "instructions");
    let text =
        "the limits of one key need one hash and one lock (ARCHITECTURE.md), so they cost less than as many decisions";
    tables.push_instructions(steps, "one-key", &NUMBERS, &Claim { text, from: 1.0, bound: Bound::Slope(0.9) });
    let steps = Steps::new("limits: the same, each of its own key", "limits", "instructions");
    let text = "less than as many decisions: each key has its own hash and lookup, the rest is done once (this bench's own bound)";
    tables.push_instructions(steps, "own-keys", &NUMBERS, &Claim { text, from: 1.0, bound: Bound::Slope(0.95) });
}

/// Runs under valgrind.
pub(crate) fn counted(subject: &str, number: usize) {
    let text = match subject {
        "one-key" => text_matching(number),
        "own-keys" => text_matching_keys(number),
        other => panic!("unknown subject `{other}`"),
    };
    let (engine, request) = (Engine::new(&file(&text)), Request::new(1));
    instructions::run(&|| is_granted(&engine, black_box(&request)));
}
