//! Client connections that the bench holds itself: HTTP/1, the same over TLS, and HTTP/2. Each requests `/open`.

use super::{BODY, Gateway, Protocol};
use bytes::Bytes;
use h2::client::SendRequest;
use http::{Request, StatusCode, Version};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Runtime;

/// The response timeout, after which the run fails.
pub const LONG: Duration = Duration::from_secs(30);

/// A connection, for whatever protocol.
pub trait Call {
    /// Sends a request, and waits for the whole response. Fails if it is not the upstream's.
    fn call(&mut self) -> io::Result<()>;
}

/// Opens connections.
pub struct Opener {
    tls: Arc<ClientConfig>,
    runtime: Rc<Runtime>,
}

impl Opener {
    /// Creates one that trusts the certificates signed by `authority`, a PEM file.
    pub fn new(authority: &Path) -> Self {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(authority).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let tls = Arc::new(config.with_root_certificates(roots).with_no_client_auth());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
        Self { tls, runtime: Rc::new(runtime) }
    }

    /// Opens a connection; with TLS or HTTP/2, the handshake may be completed by the first call.
    pub fn open(&self, gateway: &Gateway, protocol: Protocol) -> io::Result<Box<dyn Call>> {
        let port = gateway.port(protocol);
        Ok(match protocol {
            Protocol::Http1 => Box::new(Connection::open(port)?),
            Protocol::Tls => {
                let name = ServerName::from(std::net::IpAddr::from(Ipv4Addr::LOCALHOST));
                let client = ClientConnection::new(Arc::clone(&self.tls), name).map_err(io::Error::other)?;
                Box::new(Connection { stream: StreamOwned::new(client, connect(port)?), received: Vec::new() })
            }
            Protocol::H2c => Box::new(Http2Connection::open(Rc::clone(&self.runtime), port)?),
        })
    }
}

fn connect(port: u16) -> io::Result<TcpStream> {
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(LONG))?;
    Ok(stream)
}

/// A keep-alive connection, with at most one active request.
pub struct Connection<S> {
    stream: S,
    received: Vec<u8>,
}

/// How much of a response was received.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Received {
    Part,
    All,
}

impl Connection<TcpStream> {
    /// Opens one without TLS.
    pub fn open(port: u16) -> io::Result<Self> {
        Ok(Self { stream: connect(port)?, received: Vec::new() })
    }

    /// Returns its stream, to wait until it is readable.
    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }
}

impl<S: Read + Write> Connection<S> {
    /// Sends a request for `/open`.
    pub fn send(&mut self) -> io::Result<()> {
        self.received.clear();
        self.stream.write_all(b"GET /open HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    }

    /// Reads the available part of the response, or waits for some. Fails if it is not the upstream's response.
    pub fn receive(&mut self) -> io::Result<Received> {
        let mut buffer = [0; 4_096];
        let read = self.stream.read(&mut buffer)?;
        self.received.extend_from_slice(&buffer[..read]);
        let is_ok = self.received.starts_with(b"HTTP/1.1 200 ") || self.received.len() < 13;
        if read == 0 || !is_ok {
            return Err(io::Error::other(format!(
                "unexpected response: {:?}",
                String::from_utf8_lossy(&self.received)
            )));
        }
        Ok(if self.received.ends_with(BODY.as_bytes()) { Received::All } else { Received::Part })
    }
}

impl<S: Read + Write> Call for Connection<S> {
    fn call(&mut self) -> io::Result<()> {
        self.send()?;
        while self.receive()? != Received::All {}
        Ok(())
    }
}

/// An HTTP/2 connection. Its task runs only while a connection of the same runtime is called, and keeps to itself what
/// the server sends meanwhile.
struct Http2Connection {
    runtime: Rc<Runtime>,
    requests: SendRequest<Bytes>,
}

impl Http2Connection {
    fn open(runtime: Rc<Runtime>, port: u16) -> io::Result<Self> {
        let requests = runtime.block_on(async {
            let stream = tokio::net::TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
            stream.set_nodelay(true)?;
            let (requests, connection) = h2::client::handshake(stream).await.map_err(io::Error::other)?;
            tokio::spawn(connection);
            Ok::<_, io::Error>(requests)
        })?;
        Ok(Self { runtime, requests })
    }
}

impl Call for Http2Connection {
    fn call(&mut self) -> io::Result<()> {
        let requests = self.requests.clone();
        self.runtime.block_on(async {
            let request =
                Request::get("http://127.0.0.1/open").version(Version::HTTP_2).body(()).map_err(io::Error::other)?;
            let mut requests = requests.ready().await.map_err(io::Error::other)?;
            let (response, _) = requests.send_request(request, true).map_err(io::Error::other)?;
            let (head, mut body) = response.await.map_err(io::Error::other)?.into_parts();
            let mut received = Vec::new();
            while let Some(chunk) = body.data().await {
                let chunk = chunk.map_err(io::Error::other)?;
                body.flow_control().release_capacity(chunk.len()).map_err(io::Error::other)?;
                received.extend_from_slice(&chunk);
            }
            if head.status != StatusCode::OK || received != BODY.as_bytes() {
                return Err(io::Error::other(format!("unexpected response: {head:?}")));
            }
            Ok(())
        })
    }
}
