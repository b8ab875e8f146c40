//! The first bytes of a connection: a header of the PROXY protocol perhaps, TLS perhaps, and which HTTP the client speaks.
//!
//! They are read once, into one buffer, and handed on to whoever reads next: no byte is read twice, and a short request costs
//! one read in all.

use super::client_io::{Rewind, Stream};
use super::conn_info::{ConnInfo, is_trusted};
use super::proxy_protocol::{self, Header};
use super::socket::Socket;
use bytes::{Bytes, BytesMut};
use diana_rules::Gateway;
use http::uri::Scheme;
use std::io;
use std::net::SocketAddr;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio_rustls::TlsAcceptor;

/// How an HTTP/2 connection begins. No method begins like this.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// How much is read at first: more than most requests are.
const FIRST_READ: usize = 4 << 10;

/// A connection whose first bytes are known.
pub(super) struct Accepted {
    pub(super) stream: Stream,
    pub(super) conn_info: ConnInfo,
    pub(super) speaks: Protocol,
}

/// Which HTTP a client speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    Http1,
    Http2,
}

/// Reads the beginning of a connection; nothing if it ended before that.
pub(super) async fn open(
    socket: Socket,
    peer: SocketAddr,
    gateway: &Gateway,
    tls: Option<&TlsAcceptor>,
) -> io::Result<Option<Accepted>> {
    let mut socket = socket;
    let (mut peer, mut first) = (peer, Bytes::new());
    if gateway.proxy_protocol {
        let Some((client, rest)) = Box::pin(introduced(&mut socket, peer, gateway)).await? else { return Ok(None) };
        peer = client;
        first = rest;
    }
    let scheme = if tls.is_some() { Scheme::HTTPS } else { Scheme::HTTP };
    let conn_info = ConnInfo::new(peer, &gateway.trusted_proxies, scheme);
    let Some(tls) = tls else {
        let Some((speaks, first)) = speaks(&mut socket, first).await? else { return Ok(None) };
        return Ok(Some(Accepted { stream: Stream::Plain(Rewind::new(first, socket)), conn_info, speaks }));
    };
    // In a box, as is all that is not for plain HTTP/1: a connection is as large as the largest thing that it may be at.
    let stream = Box::pin(tls.accept(Rewind::new(first, socket))).await?;
    let speaks = if stream.get_ref().1.alpn_protocol() == Some(b"h2") { Protocol::Http2 } else { Protocol::Http1 };
    Ok(Some(Accepted { stream: Stream::Tls(Box::new(Rewind::new(Bytes::new(), stream))), conn_info, speaks }))
}

/// What a trusted proxy says about the client, and what came behind that.
async fn introduced(
    socket: &mut Socket,
    peer: SocketAddr,
    gateway: &Gateway,
) -> io::Result<Option<(SocketAddr, Bytes)>> {
    if !is_trusted(peer.ip(), &gateway.trusted_proxies) {
        return Err(io::Error::other(format!("{peer} is no trusted proxy, and only those are expected here")));
    }
    let mut read = BytesMut::with_capacity(FIRST_READ);
    loop {
        match proxy_protocol::read(&read) {
            Header::Whole { length, client } => {
                let rest = read.split_off(length).freeze();
                return Ok(Some((client.unwrap_or(peer), rest)));
            }
            Header::Wrong => return Err(io::Error::other(format!("{peer} sent no good PROXY header"))),
            Header::Partial if read.len() > proxy_protocol::LONGEST => {
                return Err(io::Error::other(format!("the PROXY header of {peer} is too long")));
            }
            Header::Partial => {}
        }
        if socket.read_buf(&mut read).await? == 0 {
            return Ok(None);
        }
    }
}

/// Which HTTP a client speaks, and the bytes that told.
async fn speaks<I: AsyncRead + Unpin>(stream: &mut I, first: Bytes) -> io::Result<Option<(Protocol, Bytes)>> {
    let mut read = BytesMut::from(first);
    if read.is_empty() {
        read.reserve(FIRST_READ);
    }
    loop {
        let length = read.len().min(PREFACE.len());
        if length > 0 && read[..length] != PREFACE[..length] {
            return Ok(Some((Protocol::Http1, read.freeze())));
        }
        if length == PREFACE.len() {
            return Ok(Some((Protocol::Http2, read.freeze())));
        }
        if stream.read_buf(&mut read).await? == 0 {
            return Ok(None);
        }
    }
}
