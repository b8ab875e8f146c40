//! An admin server that answers with recorded responses, and remembers the requests.

use parking_lot::Mutex;
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// Returns the status and the body of the response to a request line, such as `GET /status`.
type Respond = dyn Fn(&str) -> (u16, String) + Send + Sync;

/// The server; it stops on drop.
pub(crate) struct FakeAdmin {
    port: u16,
    requests: Arc<Mutex<Vec<String>>>,
    is_stopping: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl FakeAdmin {
    /// Answers as the contract of the admin API says, with the files in `tests/top`.
    pub(crate) fn recorded() -> Self {
        Self::on(0, recorded)
    }

    /// Answers on a port, or on any if it is 0.
    pub(crate) fn on(port: u16, respond: impl Fn(&str) -> (u16, String) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let (requests, is_stopping) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
        let (recorded, stop, respond) = (Arc::clone(&requests), Arc::clone(&is_stopping), Arc::new(respond));
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if stop.load(Ordering::SeqCst) {
                    return;
                }
                let (recorded, respond) = (Arc::clone(&recorded), Arc::clone(&respond));
                std::thread::spawn(move || serve(stream, &recorded, &*respond));
            }
        });
        Self { port, requests, is_stopping, thread: Some(thread) }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Returns the requests so far: each request line, and the value of `Authorization` after it.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.requests.lock().clone()
    }
}

impl Drop for FakeAdmin {
    fn drop(&mut self) {
        self.is_stopping.store(true, Ordering::SeqCst);
        // It waits for a connection.
        let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port));
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Answers one request, then closes the connection.
fn serve(stream: TcpStream, requests: &Mutex<Vec<String>>, respond: &Respond) {
    let mut lines = BufReader::new(&stream).lines().map_while(Result::ok);
    let Some(first) = lines.next() else { return };
    let mut request = first.trim_end_matches(" HTTP/1.1").to_owned();
    for line in lines.take_while(|line| !line.is_empty()) {
        if let Some(value) = line.strip_prefix("authorization: ") {
            request.push_str(&format!(" {value}"));
        }
    }
    let (status, body) = respond(first.trim_end_matches(" HTTP/1.1"));
    requests.lock().push(request);
    let head = format!("HTTP/1.1 {status} X\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
    // The client may be gone.
    let _ = (&stream).write_all(format!("{head}{body}").as_bytes());
}

/// The contract of the admin API.
pub(crate) fn recorded(request: &str) -> (u16, String) {
    let file = |name: &str| (200, std::fs::read_to_string(super::folder("top").join(name)).unwrap());
    match request.split(['?', ' ']).nth(1).unwrap_or_default() {
        "/status" => file("status.json"),
        "/rules" => file("rules.json"),
        "/top" => file("top.json"),
        "/history" => file("history.json"),
        "/what-if" => file("what_if.json"),
        "/peek" | "/reset" | "/refund" => file("peek.json"),
        _ => (404, r#"{"status": 404, "detail": "unknown path, expected one of GET /"}"#.to_owned()),
    }
}
