//! The first bytes of a connection: an optional PROXY header, optional TLS, and the HTTP version.
//!
//! They are read once, into one buffer, which is handed to the next reader: no byte is read twice, and a short request
//! costs one read in total.

use crate::client_io::Stream;
use crate::connection::{ConnInfo, Protocol};
use crate::proxy_protocol::{self, Header};
use crate::{ClientSocket, Rewind, ServerSettings, read_shared};
use bytes::{Bytes, BytesMut};
use diana_http::is_trusted_proxy;
use http::uri::Scheme;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Poll, ready};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio_rustls::TlsAcceptor;

/// The HTTP/2 connection preface. No HTTP/1 request starts with it.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// The size of the buffer for a PROXY header, and for what follows it.
const FIRST_READ: usize = 4 << 10;

/// A connection whose protocol is known.
pub(crate) struct Accepted {
    pub(crate) stream: Stream,
    pub(crate) info: ConnInfo,
    pub(crate) protocol: Protocol,
}

/// Reads the start of a connection. Returns `None` if it ended before that.
#[allow(clippy::manual_async_fn, reason = "its arguments would be stored twice")]
pub(crate) fn open<'a>(
    mut socket: ClientSocket,
    mut peer: SocketAddr,
    settings: &'a ServerSettings,
    tls: Option<&'a TlsAcceptor>,
) -> impl Future<Output = io::Result<Option<Accepted>>> + Send + use<'a> {
    async move {
        let mut first = Bytes::new();
        if settings.proxy_protocol {
            let Some((client, rest)) = Box::pin(read_proxy_header(&mut socket, peer, settings)).await? else {
                return Ok(None);
            };
            peer = client;
            first = rest;
        }
        // The properties of a connection are created when its first bytes have arrived: many connections are silent.
        let info = move || {
            let scheme = if tls.is_some() { Scheme::HTTPS } else { Scheme::HTTP };
            ConnInfo::new(peer, &settings.http.trusted_proxies, scheme)
        };
        let Some(tls) = tls else {
            let Some((protocol, first)) = detect_protocol(&mut socket, first).await? else { return Ok(None) };
            return Ok(Some(Accepted { stream: Stream::Plain(Rewind::new(first, socket)), info: info(), protocol }));
        };
        // Boxed, as is everything but plain HTTP/1: a connection's future is as large as its largest state.
        let stream = Box::pin(tls.accept(Rewind::new(first, socket))).await?;
        let protocol =
            if stream.get_ref().1.alpn_protocol() == Some(b"h2") { Protocol::Http2 } else { Protocol::Http1 };
        let stream = Stream::Tls(Box::new(Rewind::new(Bytes::new(), stream)));
        Ok(Some(Accepted { stream, info: info(), protocol }))
    }
}

/// Reads the client's address from a trusted proxy's PROXY header. Also returns the bytes after the header.
async fn read_proxy_header(
    socket: &mut ClientSocket,
    peer: SocketAddr,
    settings: &ServerSettings,
) -> io::Result<Option<(SocketAddr, Bytes)>> {
    if !is_trusted_proxy(peer.ip(), &settings.http.trusted_proxies) {
        return Err(io::Error::other(format!("{peer} is not a trusted proxy")));
    }
    let mut read = BytesMut::with_capacity(FIRST_READ);
    loop {
        match proxy_protocol::parse(&read) {
            Header::Complete { length, client } => {
                let rest = read.split_off(length).freeze();
                return Ok(Some((client.unwrap_or(peer), rest)));
            }
            Header::Invalid => return Err(io::Error::other(format!("{peer} sent an invalid PROXY header"))),
            Header::Partial if read.len() > proxy_protocol::MAX_LENGTH => {
                return Err(io::Error::other(format!("the PROXY header of {peer} is too long")));
            }
            Header::Partial => {}
        }
        if socket.read_buf(&mut read).await? == 0 {
            return Ok(None);
        }
    }
}

/// Detects the HTTP version. Also returns the bytes read.
///
/// Nothing is allocated before the first bytes arrive: many connections may be silent.
async fn detect_protocol<I: AsyncRead + Unpin>(stream: &mut I, first: Bytes) -> io::Result<Option<(Protocol, Bytes)>> {
    let mut bytes = BytesMut::from(first);
    poll_fn(|context| {
        loop {
            let length = bytes.len().min(PREFACE.len());
            if length > 0 && bytes[..length] != PREFACE[..length] {
                return Poll::Ready(Ok(Some((Protocol::Http1, std::mem::take(&mut bytes).freeze()))));
            }
            if length == PREFACE.len() {
                return Poll::Ready(Ok(Some((Protocol::Http2, std::mem::take(&mut bytes).freeze()))));
            }
            let is_end = read_shared(|buffer| {
                ready!(Pin::new(&mut *stream).poll_read(context, buffer))?;
                bytes.extend_from_slice(buffer.filled());
                Poll::Ready(io::Result::Ok(buffer.filled().is_empty()))
            });
            if ready!(is_end)? {
                return Poll::Ready(Ok(None));
            }
        }
    })
    .await
}
