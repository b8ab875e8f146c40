//! The access log: a line for each request, whatever clients send and however slowly it is read.

use diana_core::Timestamp;
use diana_metrics::Outcome;
use diana_net::access_log::{AccessLog, LimitedBy, LogEntry, LogFormat};
use diana_testing::wait_until;
use parking_lot::{Condvar, Mutex};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

/// Records writes, and can be blocked.
#[derive(Clone, Debug, Default)]
struct Sink(Arc<Written>);

/// The written bytes, whether writes are blocked, and a signal for changes.
type Written = (Mutex<(Vec<u8>, bool)>, Condvar);

impl Sink {
    fn block(&self) {
        self.0.0.lock().1 = true;
    }

    fn resume(&self) {
        self.0.0.lock().1 = false;
        self.0.1.notify_all();
    }

    fn text(&self) -> String {
        String::from_utf8(self.0.0.lock().0.clone()).unwrap()
    }
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut state = self.0.0.lock();
        self.0.1.wait_while(&mut state, |(_, is_blocked)| *is_blocked);
        state.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn denied() -> LogEntry<'static> {
    LogEntry {
        at: Timestamp::from_millis(1_794_773_572_345),
        client: Some([203, 0, 113, 7].into()),
        method: "POST",
        target: "/login?x=1",
        host: Some(b"api.example.com"),
        status: 503,
        bytes_out: 162,
        bytes_in: 12,
        took: Duration::from_micros(45),
        user_agent: Some(b"curl/8.5"),
        outcome: Outcome::Denied,
        rule: Some(LimitedBy { rule: "each-account", key: Some("alice") }),
        retry_after: Some(Duration::from_millis(200)),
        ..LogEntry::default()
    }
}

fn forwarded() -> LogEntry<'static> {
    LogEntry {
        outcome: Outcome::Forwarded,
        status: 200,
        version: http::Version::HTTP_2,
        referer: Some(b"https://example.com/"),
        wait: Duration::from_millis(12),
        upstream: Some("http://10.0.0.1:80"),
        upstream_took: Some(Duration::from_micros(3_400)),
        took: Duration::from_micros(15_500),
        bytes_in: 0,
        retry_after: None,
        shadow_rules: &[LimitedBy { rule: "watched", key: Some("203.0.113.7") }],
        is_fallback: true,
        request_id: Some(b"r-1"),
        traceparent: Some(b"00-ab-cd-01"),
        ..denied()
    }
}

/// Returns the log of these entries.
fn written(format: LogFormat, entries: &[LogEntry<'_>]) -> String {
    let sink = Sink::default();
    let log = AccessLog::start(format, sink.clone()).unwrap();
    entries.iter().for_each(|entry| log.log(entry));
    drop(log);
    sink.text()
}

#[test]
fn text_lines_are_the_combined_format_with_extra_fields() {
    assert_eq!(
        written(LogFormat::Text, &[denied(), forwarded(), LogEntry::default()]),
        "203.0.113.7 - - [15/Nov/2026:20:12:52 +0000] \"POST /login?x=1 HTTP/1.1\" 503 162 \"-\" \"curl/8.5\" \
         outcome=denied time=0.045ms rule=each-account key=\"alice\" retry_after=200.000ms bytes_in=12 \
         host=\"api.example.com\"\n\
         203.0.113.7 - - [15/Nov/2026:20:12:52 +0000] \"POST /login?x=1 HTTP/2.0\" 200 162 \"https://example.com/\" \"curl/8.5\" \
         outcome=forwarded time=15.500ms rule=each-account key=\"alice\" shadow_rule=watched shadow_key=\"203.0.113.7\" \
         fallback=true wait=12.000ms upstream=http://10.0.0.1:80 upstream_time=3.400ms host=\"api.example.com\" \
         request_id=\"r-1\" traceparent=\"00-ab-cd-01\"\n\
         - - - [01/Jan/1970:00:00:00 +0000] \"  HTTP/1.1\" 0 0 \"-\" \"-\" outcome=forwarded time=0.000ms\n"
    );
}

#[test]
fn json_lines_are_objects() {
    let lines = written(LogFormat::Json, &[denied(), forwarded()]);
    let lines = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()).collect::<Vec<_>>();
    assert_eq!(
        lines[0],
        json!({"time": "2026-11-15T20:12:52.345Z", "client": "203.0.113.7", "method": "POST", "host": "api.example.com",
               "target": "/login?x=1", "user_agent": "curl/8.5", "rule": "each-account", "key": "alice",
               "version": "HTTP/1.1", "status": 503, "outcome": "denied", "ms": 0.045, "bytes_in": 12, "bytes_out": 162,
               "retry_after_ms": 200.0})
    );
    assert_eq!((&lines[1]["wait_ms"], &lines[1]["upstream_ms"]), (&json!(12.0), &json!(3.4)));
    assert_eq!(lines[1]["upstream"], "http://10.0.0.1:80");
    assert_eq!(lines[1]["shadow"], json!([{"rule": "watched", "key": "203.0.113.7"}]));
    assert_eq!((&lines[1]["fallback"], &lines[1]["request_id"]), (&json!(true), &json!("r-1")));
}

#[test]
fn clients_cannot_forge_lines() {
    let forged = "x\" 200 0\n127.0.0.1 - - \"\r\x1b[31m\u{202e}\u{7f}\\";
    let entry = LogEntry { target: forged, user_agent: Some(b"\xff\x00\n"), host: Some(forged.as_bytes()), ..denied() };
    let text = written(LogFormat::Text, &[entry]);
    assert!(
        text.contains(r#""POST x\" 200 0\x0a127.0.0.1 - - \"\x0d\x1b[31m\xe2\x80\xae\x7f\\ HTTP/1.1" 503"#),
        "{text}"
    );
    assert!(text.contains(r#""\xff\x00\x0a""#), "{text}");
    let json = written(LogFormat::Json, &[entry]);
    let line = serde_json::from_str::<Value>(&json).unwrap();
    assert_eq!((&line["target"], &line["user_agent"]), (&json!(forged), &json!("\u{fffd}\0\n")));
    assert!(!json.trim_end().contains(|character: char| character.is_control() || character == '\u{202e}'), "{json:?}");
}

#[test]
fn long_texts_are_truncated() {
    let long = "ä".repeat(100_000);
    let entry = LogEntry { target: &long, user_agent: Some(long.as_bytes()), host: Some(long.as_bytes()), ..denied() };
    let text = written(LogFormat::Text, &[entry]);
    assert!(text.len() < 3 * 4 * 4096 + 1000 && text.contains("... HTTP/1.1"), "{}", text.len());
    let json = written(LogFormat::Json, &[entry]);
    assert!(json.len() < 3 * 4096 + 1000, "{}", json.len());
    assert!(serde_json::from_str::<Value>(&json).unwrap()["target"].as_str().unwrap().ends_with("..."), "{json}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_bytes_make_one_valid_line(
        target in any::<String>(), agent in any::<Vec<u8>>(), host in any::<Vec<u8>>(), rule in any::<String>()
    ) {
        let (user_agent, host) = (Some(&*agent), Some(&*host));
        let by = LimitedBy { rule: &rule, key: Some(&target) };
        let (rule, shadow_rules) = (Some(by), &[by, by][..]);
        let (request_id, traceparent) = (Some(&*agent), Some(&*agent));
        let entry =
            LogEntry { target: &target, user_agent, host, rule, shadow_rules, request_id, traceparent, ..denied() };
        let json = written(LogFormat::Json, &[entry]);
        prop_assert_eq!(json.matches('\n').count(), 1);
        let line = serde_json::from_str::<Value>(&json).unwrap();
        prop_assert_eq!(line["target"].as_str().unwrap(), &target);
        let agent = String::from_utf8_lossy(&agent);
        prop_assert_eq!(line["user_agent"].as_str().unwrap(), &*agent);
        prop_assert_eq!(line["key"].as_str().unwrap(), &target);
        prop_assert_eq!(line["shadow"][1]["key"].as_str().unwrap(), &target);
        let text = written(LogFormat::Text, &[entry]);
        prop_assert!(text.trim_end_matches('\n').bytes().all(|byte| (b' '..=b'~').contains(&byte)), "{}", text);
    }
}

#[test]
fn lines_are_written_promptly() {
    let sink = Sink::default();
    let log = AccessLog::start(LogFormat::Text, sink.clone()).unwrap();
    for count in 1..=3 {
        log.log(&denied());
        let lines = || (sink.text().lines().count() == count).then_some(());
        wait_until("the line", Duration::from_secs(60), lines).unwrap();
    }
}

#[test]
fn concurrent_workers_lose_no_lines() {
    let sink = Sink::default();
    let log = AccessLog::start(LogFormat::Json, sink.clone()).unwrap();
    let drops = log.drops();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let log = log.clone();
            scope.spawn(move || (0..500).for_each(|_| log.log(&denied())));
        }
    });
    drop(log);
    let text = sink.text();
    assert_eq!((text.lines().count(), drops.count()), (2_000, 0));
    assert!(text.lines().all(|line| serde_json::from_str::<Value>(line).is_ok()));
}

#[test]
fn logging_never_waits_for_the_reader() {
    let sink = Sink::default();
    sink.block();
    let log = AccessLog::start(LogFormat::Text, sink.clone()).unwrap();
    let drops = log.drops();
    // More than the buffer holds; logging never waits.
    for _ in 0..40_000 {
        log.log(&denied());
    }
    let dropped = drops.count();
    assert!(dropped > 0 && dropped < 40_000, "{dropped}");
    sink.resume();
    drop(log);
    let lines = sink.text().lines().count();
    assert_eq!(lines as u64 + drops.count(), 40_000, "each line is written or counted");
}

#[test]
fn counts_lines_dropped_by_write_errors() {
    struct Broken;
    impl Write for Broken {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::BrokenPipe.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Err(io::ErrorKind::BrokenPipe.into())
        }
    }
    let log = AccessLog::start(LogFormat::Text, Broken).unwrap();
    let drops = log.drops();
    (0..10).for_each(|_| log.log(&denied()));
    drop(log);
    assert_eq!(drops.count(), 10);
}
