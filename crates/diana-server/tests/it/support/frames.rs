//! HTTP/2 frame by frame, to send what a correct client would not.

use super::program::LONG;
use diana_testing::{Port, wait_until};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const CONTINUATION: u8 = 9;

pub(crate) const ACK: u8 = 1;
pub(crate) const END_STREAM: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;

/// The fields of a head with status 200, and of one with status 400.
pub(crate) const OK: [u8; 1] = [0x88];
pub(crate) const BAD_REQUEST: [u8; 1] = [0x8c];

/// A connection that may violate HTTP/2.
pub(crate) struct Frames {
    stream: TcpStream,
}

#[derive(Clone, Debug)]
pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    #[allow(dead_code, reason = "a failing test prints it")]
    pub(crate) stream: u32,
    pub(crate) payload: Vec<u8>,
}

impl Frames {
    /// Connects, and sends the preface with these settings.
    pub(crate) fn connect(port: u16, settings: &[(u16, u32)]) -> Self {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        stream.set_write_timeout(Some(LONG)).unwrap();
        let mut frames = Self { stream };
        let settings = settings.iter().flat_map(|(id, value)| [&id.to_be_bytes()[..], &value.to_be_bytes()].concat());
        frames.stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").unwrap();
        frames.send(SETTINGS, 0, 0, &settings.collect::<Vec<_>>()).unwrap();
        frames
    }

    /// Waits until the peer has read everything sent so far. Frames that arrive meanwhile are dropped.
    pub(crate) fn wait_for_peer(&mut self) {
        self.send(PING, 0, 0, b"read it?").unwrap();
        while self.next_of(PING).unwrap().flags != ACK {}
    }

    /// Sends `WINDOW_UPDATE`.
    pub(crate) fn give_window(&mut self, stream: u32, bytes: u32) {
        self.send(WINDOW_UPDATE, 0, stream, &bytes.to_be_bytes()).unwrap();
    }

    pub(crate) fn send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> io::Result<()> {
        self.stream.write_all(&frame(kind, flags, stream, payload))
    }

    pub(crate) fn send_raw(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Reads the next frame; `None` at the end of the connection. Fails if neither comes.
    pub(crate) fn next(&mut self) -> Option<Frame> {
        let mut head = [0; 9];
        self.read(&mut head)?;
        let [a, b, c, kind, flags, d, e, f, g] = head;
        let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
        self.read(&mut payload)?;
        if (kind, flags) == (PING, 0) {
            // A peer that sends GOAWAY waits for this ack, to know that everything before it has arrived.
            let _ = self.send(PING, ACK, 0, &payload);
        }
        Some(Frame { kind, flags, stream: u32::from_be_bytes([d, e, f, g]), payload })
    }

    fn read(&mut self, into: &mut [u8]) -> Option<()> {
        match self.stream.read_exact(into) {
            Ok(()) => Some(()),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                panic!("the connection stays open without a frame")
            }
            Err(_) => None,
        }
    }

    /// Reads the next frame of this type, or GOAWAY; `None` at the end of the connection.
    pub(crate) fn next_of(&mut self, kind: u8) -> Option<Frame> {
        loop {
            let frame = self.next()?;
            if frame.kind == kind || frame.kind == GOAWAY {
                return Some(frame);
            }
        }
    }
}

/// An HTTP/2 upstream, frame by frame.
pub(crate) struct FrameUpstream {
    port: Port,
    listener: TcpListener,
}

impl FrameUpstream {
    pub(crate) fn start() -> Self {
        let port = Port::claim().unwrap();
        let listener = port.listen().unwrap();
        listener.set_nonblocking(true).unwrap();
        Self { port, listener }
    }

    pub(crate) fn url(&self) -> String {
        format!("h2c://127.0.0.1:{}", self.port.number())
    }

    /// Accepts the next connection, and sets its maximum of concurrent streams.
    pub(crate) fn accept(&self, streams: u32) -> Frames {
        let accepted = || self.listener.accept().ok();
        let (mut stream, _) = wait_until("a connection to the upstream", LONG, accepted).unwrap();
        stream.set_nonblocking(false).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        stream.set_write_timeout(Some(LONG)).unwrap();
        stream.read_exact(&mut [0; 24]).unwrap();
        let mut frames = Frames { stream };
        frames.allow(streams);
        frames
    }

    /// Returns whether a connection waits to be accepted.
    pub(crate) fn has_more(&self) -> bool {
        self.listener.accept().is_ok()
    }
}

impl Frames {
    /// Sets the maximum of concurrent streams.
    pub(crate) fn allow(&mut self, streams: u32) {
        let setting = [&3_u16.to_be_bytes()[..], &streams.to_be_bytes()].concat();
        self.send(SETTINGS, 0, 0, &setting).unwrap();
    }

    /// Sends GOAWAY with this last stream.
    pub(crate) fn go_away(&mut self, last: u32) {
        self.send(GOAWAY, 0, 0, &[last.to_be_bytes(), [0; 4]].concat()).unwrap();
    }
}

/// Returns the bytes of a frame.
pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// Encodes fields as HPACK literals, without compression.
pub(crate) fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        string(&mut block, name);
        string(&mut block, value);
    }
    block
}

/// Returns the fields of a GET.
pub(crate) fn get(path: &str) -> Vec<u8> {
    block(&[(":method", "GET"), (":scheme", "http"), (":authority", "example.com"), (":path", path)])
}

fn string(block: &mut Vec<u8>, text: &str) {
    let mut length = text.len();
    if length < 127 {
        block.push(u8::try_from(length).unwrap());
    } else {
        block.push(127);
        length -= 127;
        while length >= 128 {
            block.push(u8::try_from(length % 128).unwrap() | 128);
            length /= 128;
        }
        block.push(u8::try_from(length).unwrap());
    }
    block.extend_from_slice(text.as_bytes());
}
