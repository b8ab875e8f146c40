//! `cargo xtask bench rules [--quick]`: the engine with few rules and with many, compared with the core alone.

#![allow(clippy::unwrap_used, reason = "a bench stops with the line that failed")]
#![allow(clippy::panic, reason = "a bench stops with the line that failed")]

mod load;

use diana::store::{Ask, Limit, LocalStore, MemoryStore};
use diana::{Clock, Engine, KeyedLimiter, MaxWait, SystemClock, TokenBucket};
use diana_bench::report::{Goal, Report, ns};
use diana_bench::rounds::{Contender, Effort, Expect, Times, measure};
use diana_bench::rule_sets::{Request, engine, file, is_granted, text, text_matching};
use diana_bench::{instructions, length};
use std::hint::black_box;

/// The numbers of rules.
const COUNTS: [usize; 4] = [1, 10, 1_000, 10_000];
/// The maximum number of instructions of a decision with one rule. Includes some 30 of the counting loop.
const MAX_INSTRUCTIONS: f64 = 2_050.0;

fn main() {
    if let Some(what) = instructions::requested() {
        return run(&what[0], what[1].parse().unwrap());
    }
    let Some(length) = length("rules") else { return };
    let effort = Effort::of(length);
    let mut report = Report::default();
    time(&mut report, effort);
    counted(&mut report);
    load::run(&mut report, length);
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    println!("{cores} cores; {} rounds of {:?} slices.", effort.rounds, effort.slice);
    println!("Times and ratios are medians over rounds; a ratio compares slices of one round, so trust it before the");
    println!("times.\n");
    report.print();
}

/// Returns a limit of the core, and the key of one account.
fn core_limit() -> (TokenBucket, String) {
    (TokenBucket::new("1000000000/s".parse().unwrap()), "account-1234567".to_owned())
}

fn time(report: &mut Report, effort: Effort) {
    let engines = COUNTS.map(|count| (engine(count), Request::new(count)));
    let (bucket, key) = core_limit();
    let (store, limit) = (MemoryStore::default(), Limit::new("each-account", bucket));
    let keyed = KeyedLimiter::<String>::new("1000000000/s".parse().unwrap());
    let mut contenders = vec![
        Contender::new("the store alone", || {
            store.decide(&[Ask::one(black_box(&limit), black_box(&key))], SystemClock.now(), MaxWait::NONE).is_granted()
        }),
        Contender::new("a keyed limiter", || keyed.check(black_box(&key)).is_granted()),
    ];
    let names = ["1 rule", "10 rules", "1,000 rules", "10,000 rules"];
    for ((engine, request), name) in engines.iter().zip(names) {
        contenders.push(Contender::new(name, || is_granted(engine, black_box(request))));
    }
    let times = measure(effort, Expect::Granted, contenders);
    report.section("a decision that one rule matches, by account, one key");
    let line = |report: &mut Report, what: &str, index: usize, peer: usize, name: &str, goal: Goal| {
        let (own, theirs) = (times.ns(index), times.ns(peer));
        report.compare(what, ns(own), format!("{name} {}", ns(theirs)), times.ratio(index, peer), goal);
    };
    line(report, "  the engine, 1 rule", 2, 0, "the core's store", Goal::AtMost(2.5));
    line(report, "  the engine, 1 rule", 2, 1, "the core's keyed limiter", Goal::Information);
    line(report, "  the engine, 10 rules", 3, 0, "the core's store", Goal::Information);
    line(report, "  the engine, 1,000 rules", 4, 3, "10 rules", Goal::AtMost(2.0));
    line(report, "  the engine, 10,000 rules", 5, 3, "10 rules", Goal::AtMost(2.0));
    report.section("decisions a second, one thread");
    for (index, name) in (2..).zip(names) {
        report.figure(&format!("  {name}"), format!("{:.2} M/s", millions_per_second(&times, index)), String::new());
    }
}

fn millions_per_second(times: &Times, index: usize) -> f64 {
    1e3 / times.ns(index)
}

/// Runs under valgrind.
fn run(what: &str, rules: usize) {
    let (engine, request) = (engine(rules), Request::new(rules));
    let (bucket, key) = core_limit();
    let (store, limit) = (MemoryStore::default(), Limit::new("each-account", bucket));
    let keyed = KeyedLimiter::<String>::new("1000000000/s".parse().unwrap());
    let one = |settings: &str, limit: &str| {
        Engine::new(&file(&format!("{settings}{}", text(1).replace("1000000000/s", limit))))
    };
    let silent = "log: off\ntop_keys: off\n";
    let granting = one(silent, "1000000000/s");
    let (denying, denying_silent) = (one("", "1/h"), one(silent, "1/h"));
    let _ = (is_granted(&denying, &request), is_granted(&denying_silent, &request));
    let matching = Engine::new(&file(&text_matching(rules)));
    // The subject is selected before the loop: a comparison of its name would count as a part of the operation.
    let check: &dyn Fn() -> bool = match what {
        "engine" => &|| is_granted(&engine, black_box(&request)),
        "store" => &|| {
            store.decide(&[Ask::one(black_box(&limit), black_box(&key))], SystemClock.now(), MaxWait::NONE).is_granted()
        },
        "keyed" => &|| keyed.check(black_box(&key)).is_granted(),
        "silent" => &|| is_granted(&granting, black_box(&request)),
        "denied" => &|| !is_granted(&denying, black_box(&request)),
        "denied-silent" => &|| !is_granted(&denying_silent, black_box(&request)),
        "matching" => &|| is_granted(&matching, black_box(&request)),
        other => panic!("unknown subject `{other}`"),
    };
    instructions::run(check);
}

/// Returns the instructions per operation of `what` with this number of rules.
fn count(what: &str, rules: usize) -> Result<f64, String> {
    instructions::count(&[what, &rules.to_string()])
}

fn counted(report: &mut Report) {
    report.section("instructions a decision (callgrind)");
    let core = match count("store", 1) {
        Ok(core) => core,
        Err(problem) => return report.figure("  not counted", String::new(), problem),
    };
    let keyed = count("keyed", 1).unwrap_or(f64::NAN);
    for (name, own, without) in [("allowed", "engine", "silent"), ("denied", "denied", "denied-silent")] {
        let [own, without] = [own, without].map(|what| count(what, 1).unwrap_or(f64::NAN));
        let peer = format!("without recorded keys {without:.0}");
        report.compare(
            &format!("  the engine: one {name} request"),
            format!("{own:.0}"),
            peer,
            own / without,
            Goal::AtMost(1.03),
        );
    }
    let mut ten = f64::NAN;
    for rules in COUNTS {
        let own = count("engine", rules).unwrap_or(f64::NAN);
        let text = |count: f64| format!("{count:.0}");
        match rules {
            1 => {
                report.compare(
                    "  the engine: one decision, 1 rule",
                    text(own),
                    format!("goal {MAX_INSTRUCTIONS}"),
                    own / MAX_INSTRUCTIONS,
                    Goal::AtMost(1.0),
                );
                report.compare(
                    "  the engine, 1 rule",
                    text(own),
                    format!("the core's store {core:.0}"),
                    own / core,
                    Goal::AtMost(2.5),
                );
                report.compare(
                    "  the engine, 1 rule",
                    text(own),
                    format!("the core's keyed limiter {keyed:.0}"),
                    own / keyed,
                    Goal::Information,
                );
            }
            10 => {
                ten = own;
                report.compare(
                    "  the engine, 10 rules",
                    text(own),
                    format!("the core's store {core:.0}"),
                    own / core,
                    Goal::Information,
                );
            }
            _ => {
                let name = format!("  the engine, {rules} rules");
                report.compare(&name, text(own), format!("10 rules {ten:.0}"), own / ten, Goal::AtMost(2.0));
            }
        }
    }
}
