//! Instructions per operation, by callgrind: the same on every machine, independent of its load.
//!
//! A bench runs itself under valgrind, which counts only instructions within `measured_operations`.

use crate::rounds::{Contender, Expect};
use std::hint::black_box;
use std::process::Command;

/// The number of counted operations.
const OPERATIONS: u64 = 2_000;

/// Returns the instructions per operation of the bench started with `--count` and `what`; an error if they can't be
/// counted.
pub fn count(what: &[&str]) -> Result<f64, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut valgrind = Command::new("valgrind");
    valgrind
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null", "--toggle-collect=*measured_operations*"])
        .arg(program);
    valgrind.arg("--count").args(what);
    let output =
        valgrind.output().map_err(|error| format!("cannot start `valgrind` (apt install valgrind): {error}"))?;
    let text = String::from_utf8_lossy(&output.stderr);
    let collected = text.lines().find_map(|line| line.split_once("Collected :")?.1.trim().parse::<f64>().ok());
    collected.map(|all| all / OPERATIONS as f64).ok_or_else(|| format!("valgrind reported no count: {text}"))
}

/// Returns what to count, if the bench was started for that.
pub fn requested() -> Option<Vec<String>> {
    let mut args = std::env::args().skip(1);
    (args.next()? == "--count").then(|| args.collect())
}

/// Runs the counted operations, after a warm-up.
///
/// The loop and the indirect calls count as well, and goals for absolute counts include them: a change of this loop is
/// a change of those goals.
pub fn run(check: &dyn Fn() -> bool) {
    assert!(check());
    measured_operations(&mut || {
        for _ in 0..OPERATIONS {
            assert!(black_box(check()));
        }
    });
}

/// Runs the counted operations of a contender, in its own loop as when it is timed: for checks of some 50 instructions,
/// to which indirect calls would add half. Warms up with as many. Panics if the results of its checks are not as
/// expected.
pub fn run_contender(mut contender: Contender<'_>, expect: Expect) {
    let granted = contender.run(OPERATIONS);
    expect.check(&contender, OPERATIONS, granted);
    let mut granted = 0;
    measured_operations(&mut || granted = contender.run(OPERATIONS));
    expect.check(&contender, OPERATIONS, granted);
}

/// Valgrind finds it by its name.
#[inline(never)]
fn measured_operations(run: &mut dyn FnMut()) {
    run();
}
