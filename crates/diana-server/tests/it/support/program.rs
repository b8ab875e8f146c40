//! A running `diana serve` on its own ports, until the test ends.

use super::client::{ClientResponse, send_request};
use diana_testing::{Port, start_error, wait_until};
use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;

/// A timeout far longer than anything takes, also on a busy machine.
pub(crate) const LONG: Duration = Duration::from_secs(30);

/// A running `diana serve`; stopped on drop, which waits for its end.
pub(crate) struct Diana {
    child: Child,
    listen: Port,
    tls: Port,
    admin: Port,
    folder: TempDir,
    /// Its output so far: the log on standard error, and the access log on standard output.
    output: Arc<Mutex<String>>,
    /// Its standard error, if it is not read.
    _unread: Option<ChildStderr>,
}

/// Whether its standard error is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stderr {
    Read,
    Unread,
}

impl Diana {
    /// Serves a rule file in which `$LISTEN`, `$TLS` and `$FOLDER` are replaced by its addresses and its folder. A file
    /// with `$ADMIN` has its own section `admin`; to others it is added.
    pub(crate) fn serve(rules: &str) -> Self {
        Self::serve_in(TempDir::new().unwrap(), rules)
    }

    /// The same, in a folder that may have files already.
    pub(crate) fn serve_in(folder: TempDir, rules: &str) -> Self {
        Self::launch(folder, rules).ready()
    }

    /// The same, with a command that is created for the file.
    pub(crate) fn serve_by(rules: &str, stderr: Stderr, command: impl FnOnce(&Path) -> Command) -> Self {
        Self::launch_by(TempDir::new().unwrap(), rules, stderr, command).ready()
    }

    /// Waits until it is ready.
    fn ready(mut self) -> Self {
        self.wait_until_ready();
        self
    }

    fn wait_until_ready(&mut self) {
        let diana = self;
        let is_ready = || {
            if let Some(status) = diana.child.try_wait().unwrap() {
                panic!("it exited with {status}:\n{}", diana.output.lock());
            }
            let response = send_request(diana.admin.number(), "GET /readyz HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n");
            response.is_some_and(|response| response.status == 200).then_some(())
        };
        wait_until("diana serve to be ready", LONG, is_ready)
            .unwrap_or_else(|error| panic!("{error}\n{}", diana.output.lock()));
    }

    /// Starts it without waiting until it is ready.
    pub(crate) fn launch(folder: TempDir, rules: &str) -> Self {
        Self::launch_by(folder, rules, Stderr::Read, serve)
    }

    fn launch_by(folder: TempDir, rules: &str, stderr: Stderr, command: impl FnOnce(&Path) -> Command) -> Self {
        let [listen, tls, admin] = [(); 3].map(|()| Port::claim().unwrap());
        let output = Arc::new(Mutex::new(String::new()));
        let file = folder.path().join("diana.yaml");
        std::fs::write(&file, text(rules, &listen, &tls, &admin, folder.path())).unwrap();
        let mut child = spawn(&mut command(&file));
        collect_output(child.stdout.take().unwrap(), &output);
        let mut unread = child.stderr.take();
        if let Some(stderr) = unread.take_if(|_| stderr == Stderr::Read) {
            collect_output(stderr, &output);
        }
        Self { child, listen, tls, admin, folder, output, _unread: unread }
    }

    /// Returns its port.
    pub(crate) fn port(&self) -> u16 {
        self.listen.number()
    }

    /// Returns its TLS port.
    pub(crate) fn tls_port(&self) -> u16 {
        self.tls.number()
    }

    /// Returns the port of its admin server.
    pub(crate) fn admin_port(&self) -> u16 {
        self.admin.number()
    }

    /// Returns its folder, which has `diana.yaml`.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Sends a GET to the admin server.
    pub(crate) fn admin(&self, path: &str) -> ClientResponse {
        send_request(self.admin_port(), &format!("GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")).unwrap()
    }

    /// Returns one of its metrics, by name and labels.
    pub(crate) fn metric(&self, name: &str) -> f64 {
        let metrics = self.admin("/metrics").text();
        let line = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("no {name} in\n{metrics}")).parse().unwrap()
    }

    /// Replaces the rules in its file.
    pub(crate) fn rewrite(&self, rules: &str) {
        let text = text(rules, &self.listen, &self.tls, &self.admin, self.folder());
        let new = self.folder().join("diana.new");
        std::fs::write(&new, text).unwrap();
        std::fs::rename(new, self.folder().join("diana.yaml")).unwrap();
    }

    /// Returns its output so far.
    pub(crate) fn output(&self) -> String {
        self.output.lock().clone()
    }

    /// Returns the number of its process.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns its memory, in bytes.
    pub(crate) fn memory(&self) -> u64 {
        self.memory_of("VmRSS:")
    }

    /// Returns its memory without that of its code, of which a debug build maps megabytes when it first runs.
    pub(crate) fn own_memory(&self) -> u64 {
        self.memory_of("RssAnon:")
    }

    fn memory_of(&self, kind: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(kind)).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Sends the stop signal, without waiting.
    pub(crate) fn request_stop(&self) {
        self.signal(Signal::TERM);
    }

    /// Sends SIGKILL, and waits for its exit.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Starts it again after it has exited, with the same file and the same ports.
    pub(crate) fn restart(&mut self) {
        self.child = spawn(&mut serve(&self.folder.path().join("diana.yaml")));
        collect_output(self.child.stdout.take().unwrap(), &self.output);
        collect_output(self.child.stderr.take().unwrap(), &self.output);
        self.wait_until_ready();
    }

    /// Waits until it has exited.
    pub(crate) fn wait_for_exit(&mut self) -> ExitStatus {
        wait_until("diana serve to exit", LONG, || self.child.try_wait().unwrap())
            .unwrap_or_else(|error| panic!("{error}\n{}", self.output.lock()))
    }
}

impl Drop for Diana {
    fn drop(&mut self) {
        if self.child.try_wait().is_ok_and(|status| status.is_none()) {
            let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
            let _ = wait_until("diana serve to exit", LONG, || self.child.try_wait().ok().flatten());
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
        if std::thread::panicking() {
            let output = self.output.lock();
            let from = output.len().saturating_sub(4_000);
            eprintln!("its output:\n{}", output.get(from..).unwrap_or(&output));
        }
    }
}

/// Returns the command that serves a file.
pub(crate) fn serve(file: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_diana"));
    command.args(["serve", "--config"]).arg(file);
    command
}

fn spawn(command: &mut Command) -> Child {
    if !command.get_envs().any(|(name, _)| name == "RUST_LOG") {
        command.env("RUST_LOG", "debug");
    }
    let command = command.stdin(Stdio::null());
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    child.unwrap_or_else(|error| panic!("{}", start_error(command, &error)))
}

fn text(rules: &str, listen: &Port, tls: &Port, admin: &Port, folder: &Path) -> String {
    let address = |port: &Port| format!("127.0.0.1:{}", port.number());
    let text = rules.replace("$LISTEN", &address(listen)).replace("$TLS", &address(tls));
    let text = text.replace("$FOLDER", &folder.display().to_string());
    if text.contains("$ADMIN") {
        return text.replace("$ADMIN", &address(admin));
    }
    format!("admin: {{listen: '{}'}}\n{text}", address(admin))
}

fn collect_output(stream: impl Read + Send + 'static, output: &Arc<Mutex<String>>) {
    let output = Arc::clone(output);
    std::thread::spawn(move || {
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            let mut output = output.lock();
            output.push_str(&line);
            output.push('\n');
        }
    });
}
