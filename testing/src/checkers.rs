//! Programs that check the files of a package or the text of an endpoint: `promtool`, `systemd-analyze` and
//! `kubernetes-validate`. Each is an error that names the command that installs it if it can't be started, so that no check
//! passes because it did not run.

use crate::tools;
use std::ffi::OsStr;
use std::io::{self, Write};
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Runs `promtool` with these arguments and this standard input.
///
/// # Errors
/// It can't be started.
pub fn promtool(arguments: &[&str], input: &str) -> io::Result<Output> {
    let mut command = Command::new("promtool");
    output(command.args(arguments), input)
}

/// Runs `systemd-analyze` with these arguments. It needs no running systemd.
///
/// # Errors
/// It can't be started.
pub fn systemd_analyze(arguments: &[impl AsRef<OsStr>]) -> io::Result<Output> {
    let mut command = Command::new("systemd-analyze");
    output(command.args(arguments), "")
}

/// Checks a file of manifests by the schemas of a version of Kubernetes. Unknown fields are errors.
///
/// # Errors
/// `kubernetes-validate` can't be started.
pub fn kubernetes_validate(version: &str, file: &Path) -> io::Result<Output> {
    let mut command = Command::new(tools::installed("kubernetes/bin/kubernetes-validate")?);
    output(command.args(["-k", version, "--strict"]).arg(file), "")
}

fn output(command: &mut Command, input: &str) -> io::Result<Output> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| start_error(command, &error))?;
    if let Some(mut stdin) = child.stdin.take() {
        // A program that ends before it reads closes the pipe, which is fine.
        let _ = stdin.write_all(input.as_bytes());
    }
    child.wait_with_output()
}

/// Returns the error for a program that can't be started. It names the command that installs it.
pub fn start_error(command: &Command, error: &io::Error) -> io::Error {
    let program = command.get_program().display();
    io::Error::new(error.kind(), format!("cannot start `{program}`: {error}; `cargo xtask install` installs it"))
}

#[cfg(test)]
mod tests {
    use super::output;
    use std::io::ErrorKind;
    use std::process::Command;

    #[test]
    fn a_missing_checker_is_an_error_with_the_command_that_installs_it() {
        let missing = output(&mut Command::new("no-such-checker"), "").unwrap_err();
        assert_eq!(missing.kind(), ErrorKind::NotFound);
        let text = missing.to_string();
        assert!(text.starts_with("cannot start `no-such-checker`: "), "{text}");
        assert!(text.ends_with("; `cargo xtask install` installs it"), "{text}");
    }
}
