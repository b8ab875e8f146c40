//! The program's own log: it never blocks other threads, a client can't fill it, and with `--json-log` all of it is
//! JSON.

use crate::support::client::{Client, get, send_request};
use crate::support::frames::{self, Frames, PING};
use crate::support::program::{Diana, LONG, Stderr, serve};
use crate::support::upstream::{AfterResponse, Upstream};
use crate::support::{diana_in, err, folder, out};
use diana_server::program_log::{BURST, LogFilter, ProgramLog, ProgramLogFormat};
use diana_testing::{Port, wait_until};
use parking_lot::{Condvar, Mutex};
use serde_json::Value;
use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

/// A reader that the test controls.
#[derive(Clone, Default)]
struct Reader(Arc<Shared>);

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    is_reading: bool,
    read: Vec<u8>,
}

impl Reader {
    fn read(&self) {
        self.0.state.lock().is_reading = true;
        self.0.changed.notify_all();
    }

    fn text(&self) -> String {
        String::from_utf8(self.0.state.lock().read.clone()).unwrap()
    }
}

impl Write for Reader {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut state = self.0.state.lock();
        while !state.is_reading {
            self.0.changed.wait(&mut state);
        }
        state.read.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn logging_never_waits_for_the_reader_and_drops_are_counted() {
    let reader = Reader::default();
    let log = ProgramLog::start(ProgramLogFormat::Text, reader.clone()).unwrap();
    // Ten times what fits.
    let line = format!("{}\n", "x".repeat(999));
    for _ in 0..10_000 {
        (&log).write_all(line.as_bytes()).unwrap();
    }
    let dropped = log.drops().count();
    // A buffer has 1,048 of these lines. One is full, and the thread has taken another that was empty, full, or between.
    assert!((10_000 - 2 * 1_048..=10_000 - 1_048).contains(&dropped), "{dropped}");
    assert!(!log.flush(Duration::from_millis(1)), "nothing has been read");
    reader.read();
    assert!(log.flush(LONG));
    let text = reader.text();
    assert_eq!(text.lines().count() as u64, 10_000 - dropped);
    assert!(text.lines().all(|read| read.len() == 999), "no line may be truncated");
}

#[test]
fn a_repeated_warning_is_logged_a_few_times() {
    let reader = Reader::default();
    reader.read();
    let log = ProgramLog::start(ProgramLogFormat::Text, reader.clone()).unwrap();
    tracing::dispatcher::with_default(&log.dispatch(LogFilter::parse("diana=info,it=info").unwrap()), || {
        for number in 0..10_000 {
            tracing::warn!(target: "it", number, "again and again");
        }
        tracing::warn!(target: "it", "something else");
        tracing::warn!(target: "h2", "of a library");
        for number in 0..100 {
            tracing::info!(target: "it", number, "no warning");
        }
    });
    assert!(log.flush(LONG));
    let text = reader.text();
    let count = |what: &str| text.lines().filter(|line| line.contains(what)).count() as u64;
    // A second may have passed meanwhile, or several.
    assert!((BURST..BURST + 60).contains(&count("again and again")), "{text}");
    assert_eq!((count("something else"), count("of a library"), count("no warning")), (1, 0, 100));
}

/// Regression: a worker that logged waited for the reader of standard error, and then even SIGTERM did.
#[test]
fn an_unread_standard_error_blocks_no_request() {
    let nowhere = Port::claim().unwrap();
    let rules = format!(
        "gateway: {{listen: $LISTEN, upstream: 'http://127.0.0.1:{}', workers: 1}}\nrules: []\n",
        nowhere.number()
    );
    // A line for each request, and more than a pipe holds.
    let mut diana = Diana::serve_by(&rules, Stderr::Unread, |file| {
        let mut command = serve(file);
        command.env("DIANA_LOG", "debug");
        command
    });
    let mut client = Client::connect(diana.port());
    for _ in 0..3_000 {
        assert_eq!(client.get("/").status, 502);
    }
    assert_eq!(diana.admin("/healthz").status, 200);
    diana.request_stop();
    assert!(diana.wait_for_exit().success());
}

/// Regression: each of these was a line.
#[test]
fn client_frames_and_requests_are_not_logged() {
    let upstream = Upstream::start(|_| Ok(AfterResponse::Close));
    let diana = Diana::serve(&format!(
        "gateway: {{listen: $LISTEN, upstream: '{}'}}\nrules: [{{name: few, match: {{path: /few}}, limit: 1/h}}]\n",
        upstream.url()
    ));
    let before = diana.output().lines().count();
    let mut http2 = Frames::connect(diana.port(), &[]);
    let acks: Vec<u8> = (0..1_000).flat_map(|_| frames::frame(PING, 1, 0, b"uncalled")).collect();
    for _ in 0..20 {
        if http2.send_raw(&acks).is_err() {
            break;
        }
    }
    let mut client = Client::connect(diana.port());
    for _ in 0..300 {
        // An upstream that fails each time, a rule that denies, and invalid requests.
        assert_eq!(client.get("/").status, 502);
        assert!([502, 503].contains(&client.get("/few").status));
        assert_eq!(get(diana.port(), "/x/../y").status, 400);
        let _ = send_request(diana.port(), "NO HTTP\r\n\r\n");
        let _ =
            send_request(diana.port(), "GET / HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n");
    }
    // This is logged after all of that.
    diana.rewrite("gateway: {listen: $LISTEN}\nrules: [{name: few, by: unknown-key, limit: 1/h}]\n");
    wait_until("the last line", LONG, || diana.output().contains("unknown-key").then_some(())).unwrap();
    let output = diana.output();
    let lines = output.lines().count() - before;
    assert!(lines < 30, "{lines} lines:\n{output}");
}

#[test]
fn with_json_log_every_line_is_json() {
    let mut diana = Diana::serve_by("gateway: {listen: $LISTEN}\nrules: []\n", Stderr::Read, |file| {
        let mut command = serve(file);
        command.arg("--json-log");
        command
    });
    let port = diana.port().to_string();
    diana.request_stop();
    assert!(diana.wait_for_exit().success());
    let is_complete = || diana.output().contains("stopped").then_some(());
    wait_until("the last line", LONG, is_complete).unwrap();
    let output = diana.output();
    let lines = output.lines().map(serde_json::from_str::<Value>).collect::<Result<Vec<_>, _>>();
    let lines = lines.unwrap_or_else(|error| panic!("{error}\n{output}"));
    let serving = lines.iter().find(|line| line["fields"]["message"] == "serving").unwrap();
    assert!(serving["fields"]["listen"].as_str().unwrap().ends_with(&port), "{serving}");

    // Errors at the start, too.
    let failed = diana_in(&folder("nginx"), &["serve", "--json-log", "--config", "nowhere.yaml"], "", &[]);
    assert_eq!(failed.status.code(), Some(1));
    let line = serde_json::from_str::<Value>(&err(&failed)).unwrap();
    assert!(line["fields"]["message"].as_str().unwrap().contains("nowhere.yaml"), "{line}");
    assert_eq!(line["level"], "ERROR");
}

#[test]
fn an_unknown_log_level_is_an_error() {
    for level in ["foo", "h2", "diana=loud", "7"] {
        let output = diana_in(&folder("nginx"), &["serve"], "", &[("DIANA_LOG", level)]);
        assert_eq!((output.status.code(), out(&output)), (Some(2), String::new()));
        let output = err(&output);
        assert!(output.starts_with("error: DIANA_LOG: unknown log level `"), "{output}");
        assert!(output.contains(level) && output.contains("debug"), "{output}");
        let output = diana_in(&folder("nginx"), &["serve", "--json-log"], "", &[("DIANA_LOG", level)]);
        assert!(serde_json::from_str::<Value>(&err(&output)).is_ok(), "{}", err(&output));
    }
}
