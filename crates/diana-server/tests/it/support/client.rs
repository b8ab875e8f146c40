//! A client that sends arbitrary bytes, and reads the responses without trusting them.

use socket2::{Domain, Protocol, Socket, Type};
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};

use super::program::LONG;

/// A connection to a gateway.
pub(crate) struct Client {
    stream: TcpStream,
    read: Vec<u8>,
}

/// A complete response.
#[derive(Clone, Debug)]
pub(crate) struct ClientResponse {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    pub(crate) trailers: Vec<(String, String)>,
}

/// Sends a request over a new connection; `None` if there is no response.
pub(crate) fn send_request(port: u16, request: &str) -> Option<ClientResponse> {
    let mut client = Client::try_connect(port).ok()?;
    client.try_send(request).ok()?;
    client.try_response()
}

/// Sends a GET for a path.
pub(crate) fn get(port: u16, path: &str) -> ClientResponse {
    send_request(port, &format!("GET {path} HTTP/1.1\r\nhost: example.com\r\n\r\n")).unwrap()
}

/// Sends a GET for a path with more headers, each with its line end.
pub(crate) fn get_with(port: u16, path: &str, headers: &str) -> ClientResponse {
    send_request(port, &format!("GET {path} HTTP/1.1\r\nhost: example.com\r\n{headers}\r\n")).unwrap()
}

impl Client {
    pub(crate) fn connect(port: u16) -> Self {
        Self::try_connect(port).unwrap()
    }

    pub(crate) fn try_connect(port: u16) -> io::Result<Self> {
        Self::of(TcpStream::connect((Ipv4Addr::LOCALHOST, port))?)
    }

    /// Connects from this address.
    pub(crate) fn connect_from(from: [u8; 4], port: u16) -> Self {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP)).unwrap();
        socket.bind(&SocketAddr::new(IpAddr::from(from), 0).into()).unwrap();
        socket.connect(&SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port).into()).unwrap();
        Self::of(socket.into()).unwrap()
    }

    fn of(stream: TcpStream) -> io::Result<Self> {
        stream.set_read_timeout(Some(LONG))?;
        stream.set_write_timeout(Some(LONG))?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, read: Vec::new() })
    }

    pub(crate) fn stream(&self) -> &TcpStream {
        &self.stream
    }

    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) -> &mut Self {
        self.try_send(bytes).unwrap();
        self
    }

    pub(crate) fn try_send(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        self.stream.write_all(bytes.as_ref())
    }

    /// Sends a GET for a path, and reads the response.
    pub(crate) fn get(&mut self, path: &str) -> ClientResponse {
        self.send(format!("GET {path} HTTP/1.1\r\nhost: example.com\r\n\r\n")).response()
    }

    /// Reads the next response.
    pub(crate) fn response(&mut self) -> ClientResponse {
        self.try_response().expect("the connection ended before a complete response")
    }

    /// Reads the next response; `None` if the connection ends before.
    pub(crate) fn try_response(&mut self) -> Option<ClientResponse> {
        let mut response = self.head()?;
        let is_empty = response.status < 200 || matches!(response.status, 204 | 304);
        if !is_empty {
            self.body(&mut response)?;
        }
        Some(response)
    }

    /// Reads only the head of the next response, as after HEAD.
    pub(crate) fn head(&mut self) -> Option<ClientResponse> {
        let head = self.until(b"\r\n\r\n")?;
        let head = String::from_utf8_lossy(&head).into_owned();
        let (line, fields) = head.split_once("\r\n")?;
        let status = line.split(' ').nth(1)?.parse().ok()?;
        Some(ClientResponse { status, headers: parsed(fields), body: Vec::new(), trailers: Vec::new() })
    }

    fn body(&mut self, response: &mut ClientResponse) -> Option<()> {
        if response.header("transfer-encoding").is_some_and(|coding| coding.contains("chunked")) {
            loop {
                let piece = self.chunk()?;
                if piece.is_empty() {
                    break;
                }
                response.body.extend(piece);
            }
            let mut trailers = String::new();
            loop {
                let line = self.until(b"\r\n")?;
                if line == b"\r\n" {
                    break;
                }
                trailers.push_str(&String::from_utf8_lossy(&line));
            }
            response.trailers = parsed(&trailers);
        } else if let Some(length) = response.header("content-length") {
            response.body = self.exactly(length.parse().ok()?)?;
        } else {
            response.body = self.rest();
        }
        Some(())
    }

    /// Reads the next chunk of a body; the last one is empty.
    pub(crate) fn chunk(&mut self) -> Option<Vec<u8>> {
        let line = String::from_utf8(self.until(b"\r\n")?).ok()?;
        let length = usize::from_str_radix(line.trim().split(';').next()?, 16).ok()?;
        if length == 0 {
            return Some(Vec::new());
        }
        let mut piece = self.exactly(length + 2)?;
        piece.truncate(length);
        Some(piece)
    }

    /// Reads this many bytes.
    pub(crate) fn exactly(&mut self, length: usize) -> Option<Vec<u8>> {
        while self.read.len() < length {
            self.more().filter(|read| *read > 0)?;
        }
        Some(self.read.drain(..length).collect())
    }

    fn until(&mut self, end: &[u8]) -> Option<Vec<u8>> {
        loop {
            if let Some(at) = self.read.windows(end.len()).position(|bytes| bytes == end) {
                return Some(self.read.drain(..at + end.len()).collect());
            }
            self.more().filter(|read| *read > 0)?;
        }
    }

    /// Reads until the peer closes the connection, in any way. Fails if it does not.
    pub(crate) fn rest(&mut self) -> Vec<u8> {
        while self.more().expect("the connection stays open") > 0 {}
        std::mem::take(&mut self.read)
    }

    /// Reads something. Returns its length, 0 at the end, `None` after a timeout.
    fn more(&mut self) -> Option<usize> {
        let mut buffer = [0; 64 << 10];
        match self.stream.read(&mut buffer) {
            Ok(length) => {
                self.read.extend_from_slice(&buffer[..length]);
                Some(length)
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => None,
            Err(_) => Some(0),
        }
    }
}

impl ClientResponse {
    /// Returns the first header of this name.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        find(&self.headers, name)
    }

    /// Returns the first trailer of this name.
    pub(crate) fn trailer(&self, name: &str) -> Option<&str> {
        find(&self.trailers, name)
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

pub(crate) fn find<'a>(headers: &'a [(String, String)], name: &str) -> Option<&'a str> {
    headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
}

/// Parses lines of headers, with their names in lower case.
pub(crate) fn parsed(lines: &str) -> Vec<(String, String)> {
    let fields = lines.lines().filter_map(|line| line.split_once(':'));
    fields.map(|(name, value)| (name.to_lowercase(), value.trim().to_owned())).collect()
}
