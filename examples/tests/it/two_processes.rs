//! The example `two_processes`: together they get the limit once, not twice.

use crate::program::Program;
use diana::{Clock, SystemClock};

#[test]
fn both_processes_together_get_the_limit() {
    let began = SystemClock.now();
    let (printed, output) = Program::run(Program::of("two_processes"));
    let seconds = SystemClock.now().since(began).as_secs() + 1;
    assert!(output.status.success(), "{output:?}");
    let together = printed.split_once("together: ").and_then(|(_, rest)| rest.split_once(';')).unwrap().0;
    let together = together.parse::<u64>().unwrap();
    // It runs for three seconds; on a busy machine it may send less than it could.
    assert!((50..=50 + 100 * seconds).contains(&together), "{printed}");
    assert!(printed.contains("as one of 2 instances"), "{printed}");
}
