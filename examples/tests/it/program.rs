//! An example, as a program that users start.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    dead_code,
    reason = "a test that can't go on should stop; not every test uses all of it"
)]

use rustix::process::{Pid, Signal};
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, ExitStatus, Output, Stdio};

/// A running example; stopped when dropped.
pub(crate) struct Program(Child);

impl Program {
    /// Returns the command of an example: cargo builds them next to the tests.
    pub(crate) fn of(example: &str) -> Command {
        let test = std::env::current_exe().unwrap();
        let folder = test.parent().and_then(|folder| folder.parent()).unwrap().join("examples");
        let program = folder.join(example);
        assert!(program.exists(), "{} is not built: `cargo build --examples` first", program.display());
        Command::new(program)
    }

    /// Starts an example that keeps running, and waits for a line of its output.
    pub(crate) fn start(mut command: Command, matches: impl Fn(&str) -> bool) -> (Self, String) {
        let mut program = Self(command.stdout(Stdio::piped()).spawn().unwrap());
        let mut lines = BufReader::new(program.0.stdout.take().unwrap()).lines().map(Result::unwrap);
        let Some(line) = lines.find(|line| matches(line)) else { panic!("the example exited: {:?}", program.0.wait()) };
        // Drains the rest of the output.
        std::thread::spawn(move || lines.for_each(drop));
        (program, line)
    }

    /// Sends Ctrl-C, and waits for the exit.
    pub(crate) fn interrupt(mut self) -> ExitStatus {
        rustix::process::kill_process(Pid::from_child(&self.0), Signal::INT).unwrap();
        self.0.wait().unwrap()
    }

    /// Runs an example to its end. Returns its output.
    pub(crate) fn run(mut command: Command) -> (String, Output) {
        let output = command.output().unwrap();
        (String::from_utf8_lossy(&output.stdout).into_owned(), output)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
