//! `cargo xtask recording`: runs the first file of the README and writes the session to `docs/images/terminal.svg`.
//!
//! The commands and their output are real; only the ports differ, and only errors are logged. Every command has a
//! deadline, and the server ends with this program.

mod svg;

use crate::test::cargo_command;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// The longest time for the server to start, and for one command.
const DEADLINE: Duration = Duration::from_secs(20);

/// How often `diana top` is asked until it has seen the burst.
const ATTEMPTS: usize = 20;

/// The addresses of the README's file, which the session shows.
const LISTEN: &str = "0.0.0.0:8080";
const GATEWAY: &str = "127.0.0.1:8080";
const ADMIN: &str = "127.0.0.1:9090";

/// The size of the SVG is limited, since the README loads it.
const MAX_SIZE: usize = 60_000;

/// What is typed before the server runs, and after.
const BEFORE: [&str; 2] = ["diana check diana.yaml", "diana explain diana.yaml /search --ip 203.0.113.7"];
const SERVE: &str = "diana serve --config diana.yaml";
/// A greedy client, another one, and what the first is answered now.
const CLIENTS: [&str; 3] = [
    "curl -sw '%{http_code}\\n' -o /dev/null '127.0.0.1:8080/search?n=[1-30]' | uniq -c",
    "curl -sw '%{http_code}\\n' -o /dev/null '127.0.0.1:8080/search?n=[1-5]' --interface 127.0.0.2 | uniq -c",
    "curl -si 127.0.0.1:8080/search | grep -iE '^(HTTP|retry-after|ratelimit)'",
];
const TOP: &str = "diana top --once";
const PEEK: &str = "diana peek each-client 127.0.0.1";

/// A command, and what it printed.
#[derive(Debug)]
struct Step {
    command: String,
    output: String,
}

/// A running `diana serve`.
struct Server {
    child: Child,
    /// What it printed when it started.
    banner: String,
    gateway: String,
    admin: String,
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn run() -> ExitCode {
    match record() {
        Ok(size) => {
            println!("docs/images/terminal.svg: {size} bytes");
            ExitCode::SUCCESS
        }
        Err(problem) => {
            eprintln!("recording: {problem}");
            ExitCode::FAILURE
        }
    }
}

fn record() -> Result<usize, String> {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let programs = build()?;
    let folder = repository.join("target/recording");
    std::fs::create_dir_all(&folder).map_err(|error| format!("can't create {}: {error}", folder.display()))?;
    let readme = read(&repository.join("README.md"))?;
    let rules = first_yaml(&readme).ok_or("README.md has no block of YAML")?;
    write(&folder.join("diana.yaml"), rules)?;

    let mut shell = Shell { folder: folder.clone(), programs, replaced: Vec::new() };
    let mut steps = BEFORE.map(|command| shell.run(command)).into_iter().collect::<Result<Vec<_>, _>>()?;

    write(&folder.join("served.yaml"), &on_free_ports(rules)?)?;
    let server = shell.serve("served.yaml")?;
    shell.replaced = vec![(GATEWAY, server.gateway.clone()), (ADMIN, server.admin.clone())];
    let banner = server.banner.replace(&server.gateway, LISTEN).replace(&server.admin, ADMIN);
    steps.push(Step { command: format!("{SERVE} &"), output: banner });
    for command in CLIENTS {
        steps.push(shell.run(command)?);
    }
    steps.push(shell.run_until(TOP, |output| output.contains("127.0.0.1 ") && output.contains("127.0.0.2 "))?);
    steps.push(shell.run(PEEK)?);
    drop(server);

    let svg = svg::of(&steps);
    if svg.len() > MAX_SIZE {
        return Err(format!("the recording has {} bytes; at most {MAX_SIZE} are allowed", svg.len()));
    }
    write(&repository.join("docs/images/terminal.svg"), &svg)?;
    Ok(svg.len())
}

/// Builds the program and returns its folder.
fn build() -> Result<PathBuf, String> {
    let args = ["build", "--quiet", "--package", "diana-server", "--bin", "diana", "--message-format=json"];
    let output = cargo_command().args(args).stderr(Stdio::inherit()).output();
    let output = output.map_err(|error| format!("can't start cargo: {error}"))?;
    let messages = String::from_utf8_lossy(&output.stdout);
    let messages = messages.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let program = messages.filter_map(|message| message["executable"].as_str().map(PathBuf::from)).next_back();
    program.and_then(|program| Some(program.parent()?.to_owned())).ok_or_else(|| "can't build diana".to_owned())
}

/// Returns the first YAML of a page.
fn first_yaml(page: &str) -> Option<&str> {
    page.split_once("\n```yaml\n")?.1.split_once("```").map(|(rules, _)| rules)
}

/// The README's file on free ports of this machine, with an upstream of its own.
fn on_free_ports(rules: &str) -> Result<String, String> {
    let mut rules = rules.to_owned();
    for (from, to) in [(LISTEN, "127.0.0.1:0"), ("upstream: http://127.0.0.1:3000", "echo: true")] {
        if !rules.contains(from) {
            return Err(format!("the first file of README.md has no `{from}`"));
        }
        rules = rules.replace(from, to);
    }
    Ok(format!("{rules}admin: {{listen: 127.0.0.1:0}}\n"))
}

/// Runs commands as they are typed, with other ports.
struct Shell {
    folder: PathBuf,
    programs: PathBuf,
    /// The addresses that are shown, and the real ones.
    replaced: Vec<(&'static str, String)>,
}

impl Shell {
    fn command(&self, program: &str) -> Command {
        let path = format!("{}:/usr/bin:/bin", self.programs.display());
        let mut command = Command::new(program);
        command.current_dir(&self.folder).env_clear().env("PATH", path).env("DIANA_LOG", "error").stdin(Stdio::null());
        command
    }

    /// Runs a command and fails if it fails, or takes too long.
    fn run(&self, command: &str) -> Result<Step, String> {
        let real = self.replaced.iter().fold(command.to_owned(), |text, (shown, real)| text.replace(shown, real));
        let mut shell = self.command("timeout");
        if let Some((_, admin)) = self.replaced.iter().find(|(shown, _)| *shown == ADMIN) {
            shell.env("DIANA_ADMIN", format!("http://{admin}"));
        }
        let output = shell.args([&DEADLINE.as_secs().to_string(), "sh", "-c", &format!("{{ {real}; }} 2>&1")]).output();
        let output = output.map_err(|error| format!("can't start a shell: {error}"))?;
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        if !output.status.success() {
            return Err(format!("`{real}`: {}\n{printed}", output.status));
        }
        let printed = self.replaced.iter().fold(printed, |text, (shown, real)| text.replace(&**real, shown));
        Ok(Step { command: command.to_owned(), output: printed })
    }

    /// Repeats a command until its output is complete.
    fn run_until(&self, command: &str, is_complete: impl Fn(&str) -> bool) -> Result<Step, String> {
        let mut last = None;
        for _ in 0..ATTEMPTS {
            let step = self.run(command)?;
            if is_complete(&step.output) {
                return Ok(step);
            }
            last = Some(step);
            pause();
        }
        Err(format!("`{command}` does not show both clients: {last:?}"))
    }

    /// Starts the server, and reads its start message, which ends with an empty line.
    fn serve(&self, file: &str) -> Result<Server, String> {
        let mut command = self.command("diana");
        command.args(["serve", "--config", file]).stdout(Stdio::null()).stderr(Stdio::piped());
        let child = command.spawn().map_err(|error| format!("can't start diana: {error}"))?;
        let mut server = Server { child, banner: String::new(), gateway: String::new(), admin: String::new() };
        let stderr = server.child.stderr.take().ok_or("diana has no standard error")?;
        let (sender, lines) = mpsc::channel();
        // It reads to the end, so that the server never waits for its reader.
        std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                // Nobody listens after the start message.
                let _ = sender.send(line);
            }
        });
        loop {
            let line = lines.recv_timeout(DEADLINE).map_err(|_| format!("diana did not start:\n{}", server.banner))?;
            if line.is_empty() {
                break;
            }
            server.banner.push_str(&line);
            server.banner.push('\n');
        }
        server.gateway = after(&server.banner, "Diana serves on ")?;
        server.admin = after(&server.banner, "http://")?;
        Ok(server)
    }
}

/// The address after a mark in the start message.
fn after(banner: &str, mark: &str) -> Result<String, String> {
    let rest = banner.split_once(mark).ok_or_else(|| format!("no `{mark}` in the start message:\n{banner}"))?.1;
    Ok(rest.chars().take_while(|character| character.is_ascii_digit() || matches!(character, '.' | ':')).collect())
}

#[allow(clippy::disallowed_methods, reason = "the program's top list is updated in the background")]
fn pause() {
    std::thread::sleep(Duration::from_millis(500));
}

fn read(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|error| format!("can't read {}: {error}", path.display()))
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    std::fs::write(path, text).map_err(|error| format!("can't write {}: {error}", path.display()))
}
