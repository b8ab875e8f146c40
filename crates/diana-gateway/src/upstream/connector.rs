//! Opens connections to upstreams.

use super::UpstreamError;
use diana_metrics::{UpstreamConnection, UpstreamShard};
use diana_net::Protocol;
use diana_net::descriptors::{self, User};
use diana_rules::upstream_url::{Scheme, Upstream};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName};
use socket2::SockRef;
use std::io;
use std::mem::MaybeUninit;
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Opens connections to upstreams.
#[derive(Clone)]
pub(crate) struct Connector {
    tls: TlsConnector,
    timeout: Duration,
}

/// A connection to an upstream.
pub(crate) struct UpstreamIo {
    stream: Stream,
    /// Counts it as open.
    _counted: UpstreamConnection,
}

enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Connector {
    pub(crate) fn new(tls: rustls::ClientConfig, timeout: Duration) -> Self {
        let mut tls = tls;
        tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Self { tls: TlsConnector::from(Arc::new(tls)), timeout }
    }

    /// Returns the timeout for opening a connection.
    pub(super) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Connects, including the TLS handshake, within the timeout.
    pub(super) async fn connect(
        &self,
        upstream: &Upstream,
        counts: &Arc<UpstreamShard>,
    ) -> Result<(UpstreamIo, Protocol), UpstreamError> {
        match tokio::time::timeout(self.timeout, self.connect_to(upstream)).await {
            Ok(Ok((stream, protocol))) => Ok((UpstreamIo { stream, _counted: counts.connection_opened() }, protocol)),
            Ok(Err(error)) => Err(UpstreamError::Unreachable(error.to_string())),
            Err(_) => Err(UpstreamError::TimedOut),
        }
    }

    async fn connect_to(&self, upstream: &Upstream) -> io::Result<(Stream, Protocol)> {
        let socket = TcpStream::connect((&*upstream.host, upstream.port)).await?;
        if descriptors::is_reserved(&socket, User::Upstreams) {
            return Err(io::Error::other("too few file descriptors left"));
        }
        socket.set_nodelay(true)?;
        match upstream.scheme {
            Scheme::Http => Ok((Stream::Plain(socket), Protocol::Http1)),
            Scheme::H2c => Ok((Stream::Plain(socket), Protocol::Http2)),
            Scheme::Https => {
                let name = ServerName::try_from(upstream.host.clone()).map_err(io::Error::other)?;
                let stream = self.tls.connect(name, socket).await?;
                let protocol =
                    if stream.get_ref().1.alpn_protocol() == Some(b"h2") { Protocol::Http2 } else { Protocol::Http1 };
                Ok((Stream::Tls(Box::new(stream)), protocol))
            }
            other => Err(io::Error::other(format!("unsupported scheme `{other}`"))),
        }
    }
}

impl UpstreamIo {
    /// Creates a connection without TLS over a socket.
    #[cfg(test)]
    pub(super) fn plain(socket: TcpStream) -> Self {
        let counts = Arc::<UpstreamShard>::default();
        Self { stream: Stream::Plain(socket), _counted: counts.connection_opened() }
    }

    /// Returns `true` if bytes, the end, or an error are pending on the socket. Asks the kernel, not the runtime.
    pub(super) fn has_unread(&self) -> bool {
        let socket = match &self.stream {
            Stream::Plain(stream) => stream,
            Stream::Tls(stream) => stream.get_ref().0,
        };
        let peeked = SockRef::from(socket).peek(&mut [MaybeUninit::uninit()]);
        !peeked.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    }
}

impl AsyncRead for UpstreamIo {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().stream {
            Stream::Plain(stream) => Pin::new(stream).poll_read(context, buffer),
            Stream::Tls(stream) => Pin::new(&mut **stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for UpstreamIo {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match &mut self.get_mut().stream {
            Stream::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
            Stream::Tls(stream) => Pin::new(&mut **stream).poll_write(context, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut self.get_mut().stream {
            Stream::Plain(stream) => Pin::new(stream).poll_write_vectored(context, slices),
            Stream::Tls(stream) => Pin::new(&mut **stream).poll_write_vectored(context, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match &self.stream {
            Stream::Plain(stream) => stream.is_write_vectored(),
            Stream::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().stream {
            Stream::Plain(stream) => Pin::new(stream).poll_flush(context),
            Stream::Tls(stream) => Pin::new(&mut **stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().stream {
            Stream::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            Stream::Tls(stream) => Pin::new(&mut **stream).poll_shutdown(context),
        }
    }
}

/// Builds the TLS configuration that verifies upstreams: with the system's CA certificates and those of a file.
pub(crate) fn tls_config(ca_file: Option<&Path>) -> Result<rustls::ClientConfig, String> {
    let mut roots = rustls::RootCertStore::empty();
    // A machine without CA certificates can still use plain upstreams, and the file's certificates.
    static NATIVE: OnceLock<Vec<CertificateDer<'static>>> = OnceLock::new();
    let native = NATIVE.get_or_init(|| rustls_native_certs::load_native_certs().certs);
    roots.add_parsable_certificates(native.iter().cloned());
    if let Some(file) = ca_file {
        let invalid = |reason: &dyn std::fmt::Display| format!("{}: {reason}", file.display());
        let certificates = CertificateDer::pem_file_iter(file).map_err(|error| invalid(&error))?;
        let mut count = 0;
        for certificate in certificates {
            let certificate = certificate.map_err(|error| invalid(&error))?;
            roots.add(certificate).map_err(|error| invalid(&error))?;
            count += 1;
        }
        if count == 0 {
            return Err(invalid(&"no certificate found"));
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config.map_err(|error| error.to_string())?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}
