//! An upstream: plain sockets, a thread for each connection, and a record of every received byte.

use super::client::{find, parsed};
use super::program::LONG;
use diana_testing::{Port, wait_until};
use parking_lot::{Condvar, Mutex};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;

/// An upstream; on drop its connections are closed and its port is free again.
pub(crate) struct Upstream {
    port: Port,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

/// Handles one request of a connection.
type Handler = dyn Fn(&mut Exchange) -> io::Result<AfterResponse> + Send + Sync;

struct Shared {
    handler: Box<Handler>,
    received: Mutex<Vec<ReceivedRequest>>,
    streams: Mutex<Vec<TcpStream>>,
    connections: AtomicUsize,
    closed: AtomicUsize,
    stopped: AtomicBool,
}

/// A received request.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReceivedRequest {
    pub(crate) head: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    pub(crate) trailers: Vec<(String, String)>,
    /// Whether its body was complete.
    pub(crate) is_whole: bool,
}

/// Whether the connection is kept after a response.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum AfterResponse {
    KeepAlive,
    Close,
}

/// One request and its response.
pub(crate) struct Exchange {
    pub(crate) stream: TcpStream,
    pub(crate) request: ReceivedRequest,
    buffer: Vec<u8>,
    remaining: Body,
    shared: Arc<Shared>,
    /// Its index among the received requests.
    index: usize,
}

enum Body {
    Length(usize),
    Chunked,
    Done,
}

impl Upstream {
    /// Starts an upstream that responds to each request with the request itself.
    pub(crate) fn echo() -> Self {
        Self::start(|exchange| {
            exchange.body()?;
            let body = [exchange.request.head.as_bytes(), &exchange.request.body].concat();
            exchange.respond("200 OK", "", &body)
        })
    }

    pub(crate) fn start(handler: impl Fn(&mut Exchange) -> io::Result<AfterResponse> + Send + Sync + 'static) -> Self {
        let port = Port::claim().unwrap();
        let listener = port.listen().unwrap();
        let shared = Arc::new(Shared {
            handler: Box::new(handler),
            received: Mutex::default(),
            streams: Mutex::default(),
            connections: AtomicUsize::new(0),
            closed: AtomicUsize::new(0),
            stopped: AtomicBool::new(false),
        });
        let all = Arc::clone(&shared);
        let acceptor = std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if all.stopped.load(Ordering::SeqCst) {
                    return;
                }
                all.connections.fetch_add(1, Ordering::SeqCst);
                all.streams.lock().push(stream.try_clone().unwrap());
                let all = Arc::clone(&all);
                std::thread::spawn(move || {
                    let _ = all.serve(&stream);
                    let _ = stream.shutdown(Shutdown::Both);
                    all.closed.fetch_add(1, Ordering::SeqCst);
                });
            }
        });
        Self { port, shared, acceptor: Some(acceptor) }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port.number()
    }

    /// `http://127.0.0.1:PORT`.
    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port())
    }

    /// Returns all requests received so far, in order.
    pub(crate) fn received(&self) -> Vec<ReceivedRequest> {
        self.shared.received.lock().clone()
    }

    /// Returns the number of requests received so far.
    pub(crate) fn count(&self) -> usize {
        self.shared.received.lock().len()
    }

    /// Waits until this many requests were received.
    pub(crate) fn wait_for(&self, requests: usize) {
        wait_until("requests to reach the upstream", LONG, || (self.count() >= requests).then_some(())).unwrap();
    }

    /// Returns the number of accepted connections.
    pub(crate) fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::SeqCst)
    }

    /// Waits until this many of its connections are closed.
    pub(crate) fn wait_for_closed(&self, connections: usize) {
        let closed = || (self.shared.closed.load(Ordering::SeqCst) >= connections).then_some(());
        wait_until("connections to the upstream to end", LONG, closed).unwrap();
    }

    /// Returns the last received request.
    pub(crate) fn last(&self) -> ReceivedRequest {
        self.shared.received.lock().last().cloned().expect("no request reached the upstream")
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port()));
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
        for stream in self.shared.streams.lock().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

impl Shared {
    fn serve(self: &Arc<Self>, stream: &TcpStream) -> io::Result<()> {
        stream.set_nodelay(true)?;
        let mut buffer = Vec::new();
        loop {
            let mut exchange = Exchange {
                stream: stream.try_clone()?,
                request: ReceivedRequest::default(),
                buffer,
                remaining: Body::Done,
                shared: Arc::clone(self),
                index: 0,
            };
            if !exchange.head()? {
                return Ok(());
            }
            exchange.index = {
                let mut received = self.received.lock();
                received.push(exchange.request.clone());
                received.len() - 1
            };
            let after = (self.handler)(&mut exchange);
            exchange.record();
            if after? == AfterResponse::Close {
                return Ok(());
            }
            buffer = exchange.buffer;
        }
    }
}

impl ReceivedRequest {
    /// Returns the first header of this name.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        find(&self.headers, name)
    }

    /// Returns the number of headers of this name.
    pub(crate) fn count(&self, name: &str) -> usize {
        self.headers.iter().filter(|(known, _)| known == name).count()
    }

    /// `GET /path HTTP/1.1`.
    pub(crate) fn line(&self) -> &str {
        self.head.lines().next().unwrap_or_default()
    }

    /// Returns the path and the query.
    pub(crate) fn target(&self) -> &str {
        self.line().split(' ').nth(1).unwrap_or_default()
    }
}

impl Exchange {
    fn more(&mut self) -> io::Result<usize> {
        let mut buffer = [0; 64 << 10];
        let length = self.stream.read(&mut buffer)?;
        self.buffer.extend_from_slice(&buffer[..length]);
        Ok(length)
    }

    fn until(&mut self, end: &[u8]) -> io::Result<Option<Vec<u8>>> {
        loop {
            if let Some(at) = self.buffer.windows(end.len()).position(|bytes| bytes == end) {
                return Ok(Some(self.buffer.drain(..at + end.len()).collect()));
            }
            if self.more()? == 0 {
                return Ok(None);
            }
        }
    }

    fn head(&mut self) -> io::Result<bool> {
        let Some(head) = self.until(b"\r\n\r\n")? else { return Ok(false) };
        self.request.head = String::from_utf8_lossy(&head).into_owned();
        self.request.headers = parsed(self.request.head.split_once("\r\n").map_or("", |(_, fields)| fields));
        self.remaining = match (self.request.header("transfer-encoding"), self.request.header("content-length")) {
            (Some(_), _) => Body::Chunked,
            (None, Some(length)) => Body::Length(length.parse().map_err(io::Error::other)?),
            (None, None) => Body::Done,
        };
        Ok(true)
    }

    /// Reads the next part of the body, as soon as there is one; `None` at its end.
    pub(crate) fn body_part(&mut self) -> io::Result<Option<Vec<u8>>> {
        match self.remaining {
            Body::Done | Body::Length(0) => Ok(None),
            Body::Length(remaining) => {
                if self.buffer.is_empty() && self.more()? == 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                let length = remaining.min(self.buffer.len());
                self.remaining = Body::Length(remaining - length);
                Ok(Some(self.buffer.drain(..length).collect()))
            }
            Body::Chunked => {
                let line = self.until(b"\r\n")?.ok_or(io::ErrorKind::UnexpectedEof)?;
                let line = String::from_utf8_lossy(&line).into_owned();
                let length = usize::from_str_radix(line.trim(), 16).map_err(io::Error::other)?;
                if length == 0 {
                    self.remaining = Body::Done;
                    let mut trailers = String::new();
                    loop {
                        let line = self.until(b"\r\n")?.ok_or(io::ErrorKind::UnexpectedEof)?;
                        if line == b"\r\n" {
                            break;
                        }
                        trailers.push_str(&String::from_utf8_lossy(&line));
                    }
                    self.request.trailers = parsed(&trailers);
                    return Ok(None);
                }
                while self.buffer.len() < length + 2 {
                    if self.more()? == 0 {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                }
                let mut body_part: Vec<u8> = self.buffer.drain(..length + 2).collect();
                body_part.truncate(length);
                Ok(Some(body_part))
            }
        }
    }

    /// Records what was received so far. Called before the response, so that a client with the response finds the
    /// record.
    fn record(&self) {
        self.shared.received.lock()[self.index] = self.request.clone();
    }

    /// Reads the body to its end.
    pub(crate) fn body(&mut self) -> io::Result<()> {
        while let Some(body_part) = self.body_part()? {
            self.request.body.extend(body_part);
        }
        self.request.is_whole = true;
        self.record();
        Ok(())
    }

    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        self.stream.write_all(bytes.as_ref())
    }

    /// Sends a response with a body of a known length, and headers each with its line end.
    pub(crate) fn respond(&mut self, status: &str, headers: &str, body: &[u8]) -> io::Result<AfterResponse> {
        self.send(format!("HTTP/1.1 {status}\r\n{headers}content-length: {}\r\n\r\n", body.len()))?;
        if !self.request.head.starts_with("HEAD ") {
            self.send(body)?;
        }
        Ok(AfterResponse::KeepAlive)
    }
}

/// An upstream that responds when it is released.
pub(crate) struct Gate {
    pub(crate) upstream: Upstream,
    open: Arc<(Mutex<bool>, Condvar)>,
}

impl Gate {
    pub(crate) fn closed() -> Self {
        let open = Arc::new((Mutex::new(false), Condvar::new()));
        let gate = Arc::clone(&open);
        let upstream = Upstream::start(move |exchange| {
            exchange.body()?;
            let mut is_open = gate.0.lock();
            while !*is_open {
                gate.1.wait(&mut is_open);
            }
            drop(is_open);
            exchange.respond("200 OK", "", b"whole")
        });
        Self { upstream, open }
    }

    pub(crate) fn open(&self) {
        *self.open.0.lock() = true;
        self.open.1.notify_all();
    }
}
