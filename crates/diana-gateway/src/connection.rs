//! A client's connection: it is served until it ends. Also the properties that apply to all its requests, its timeouts,
//! and the file descriptors that connections may use.

mod coarse_timer;
mod timeouts;

pub(crate) use coarse_timer::{Deadline, Deadlines, StartTime, Ticker};
pub(crate) use timeouts::ConnTimeouts;

use crate::http1::{EndDetection, Http1};
use crate::http2::Http2;
use crate::listener::first_bytes::{self, Accepted};
use crate::listener::{Admission, ClientIo, ConnGuard, Stream};
use crate::worker::WorkerState;
use diana_http::{RequestScheme, is_trusted_proxy};
use diana_net::ClientSocket;
use http::uri::Scheme;
use ipnet::IpNet;
use std::future::poll_fn;
use std::net::{IpAddr, SocketAddr};
use std::pin::{Pin, pin};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio_rustls::TlsAcceptor;

/// How long an idle client connection stays open at shutdown: a request may already be in transit.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(1);

/// A client's connection, with the state that its requests share.
pub(crate) struct Connection {
    pub(crate) worker: Arc<WorkerState>,
    pub(crate) conn_info: ConnInfo,
    pub(crate) timeouts: ConnTimeouts,
    /// Counts the connection as open while any owner exists, including an upgraded connection.
    pub(crate) guard: ConnGuard,
}

/// The HTTP version of a connection, of a client or to an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Http1,
    Http2,
}

/// The properties of a client's connection.
#[derive(Debug)]
pub(crate) struct ConnInfo {
    /// The remote address: that of the client, or of a proxy in front of the gateway.
    pub(crate) peer: IpAddr,
    /// Whether forwarding headers from the peer are trusted.
    pub(crate) trust: PeerTrust,
    scheme: Scheme,
    /// The scheme of its requests for rules.
    pub(crate) request_scheme: RequestScheme,
    /// Built when the first request is forwarded: under attack, most connections have none.
    forwarded: OnceLock<Box<ForwardedHeaders>>,
}

/// The forwarding headers that describe the peer to upstreams.
#[derive(Debug)]
pub(crate) struct ForwardedHeaders {
    /// The peer's address, for `X-Forwarded-For`.
    pub(crate) forwarded_for: String,
    /// `for=...;proto=...`, for `Forwarded`.
    pub(crate) forwarded: String,
    /// For `X-Forwarded-Proto`.
    pub(crate) proto: String,
    /// These three as HTTP/1 header lines, which almost every request of an untrusted client needs.
    pub(crate) lines: String,
}

/// Whether the peer's forwarding headers are trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PeerTrust {
    Trusted,
    Untrusted,
}

impl ConnInfo {
    pub(crate) fn new(peer: SocketAddr, trusted: &[IpNet], scheme: Scheme) -> Self {
        let peer = peer.ip().to_canonical();
        let trust = if is_trusted_proxy(peer, trusted) { PeerTrust::Trusted } else { PeerTrust::Untrusted };
        let own = RequestScheme::of(scheme.as_str());
        let request_scheme = if trust == PeerTrust::Trusted { own.or_forwarded() } else { own };
        Self { peer, trust, scheme, request_scheme, forwarded: OnceLock::new() }
    }

    /// Returns the forwarding headers that describe the peer to upstreams.
    pub(crate) fn forwarded(&self) -> &ForwardedHeaders {
        self.forwarded.get_or_init(|| Box::new(ForwardedHeaders::new(self.peer, &self.scheme)))
    }
}

impl ForwardedHeaders {
    fn new(peer: IpAddr, scheme: &Scheme) -> Self {
        let forwarded = match peer {
            IpAddr::V4(ip) => format!("for={ip};proto={scheme}"),
            IpAddr::V6(ip) => format!("for=\"[{ip}]\";proto={scheme}"),
        };
        let lines = format!("x-forwarded-for: {peer}\r\nforwarded: {forwarded}\r\nx-forwarded-proto: {scheme}\r\n");
        Self { forwarded_for: peer.to_string(), forwarded, proto: scheme.to_string(), lines }
    }
}

/// Serves one connection until it ends.
pub(crate) async fn serve(guard: ConnGuard, socket: ClientSocket, peer: SocketAddr, tls: Option<TlsAcceptor>) {
    let worker = Arc::clone(guard.worker());
    let gateway = &worker.gateway;
    let timeouts = ConnTimeouts::new(worker.deadlines.add(), Arc::clone(gateway));
    let watched = socket.clone();
    let is_refused = guard.admission() == Admission::Refused;
    let accepted = {
        let mut is_deadline_set = false;
        let mut handshake = pin!(first_bytes::open(socket, peer, gateway, tls.as_ref()));
        poll_fn(|context| {
            if let Poll::Ready(accepted) = handshake.as_mut().poll(context) {
                return Poll::Ready(accepted);
            }
            if (is_refused || worker.deadlines.is_stopping()) && !is_deadline_set {
                is_deadline_set = true;
                timeouts.set_shutdown_deadline(SHUTDOWN_GRACE);
            }
            timeouts.deadline().poll(context).map(|()| Ok(None))
        })
        .await
    };
    let Accepted { stream, conn_info, protocol } = match accepted {
        Ok(Some(accepted)) => accepted,
        Ok(None) => return,
        Err(error) => {
            tracing::debug!("the handshake with {peer} failed: {error}");
            worker.metrics.connection_rejected();
            return;
        }
    };
    // The socket of a TLS connection may stay open after the end of its stream.
    let end_detection = if ClientSocket::DETECTS_END && matches!(stream, Stream::Plain(_)) {
        EndDetection::External
    } else {
        EndDetection::ByReading
    };
    let connection = Arc::new(Connection { worker, conn_info, timeouts, guard });
    let io = ClientIo::new(stream, Arc::clone(&connection));
    let ended = match protocol {
        Protocol::Http1 => {
            let mut http1 = Http1::new(io, Arc::clone(&connection), end_detection);
            let stop = Http1::graceful_shutdown;
            let ended = drive(Pin::new(&mut http1), &connection, stop, Some(watched)).await;
            if ended.is_ok() {
                http1.finish();
            }
            ended.map_err(|error| error.to_string())
        }
        Protocol::Http2 => {
            connection.timeouts.set_http2();
            let mut http2 = Box::pin(Http2::new(io, Arc::clone(&connection)));
            // HTTP/2 reads all the time, so it sees the end of the stream itself.
            let ended = drive(http2.as_mut(), &connection, Http2::graceful_shutdown, None).await;
            ended.map_err(|error| error.to_string())
        }
    };
    if let Err(error) = ended {
        tracing::debug!("a connection of {peer} failed: {error}");
    }
}

/// Drives a connection until it ends, its client disconnects from `socket` during a request, a timeout expires, or the
/// worker shuts down. At shutdown it ends after the requests in flight. If there are none, it waits up to [`SHUTDOWN_GRACE`] for a
/// request that the client sent before it could know. A connection that is refused ends in the same way.
async fn drive<C: Future<Output = Result<(), E>>, E>(
    mut protocol: Pin<&mut C>,
    connection: &Connection,
    stop: impl Fn(Pin<&mut C>),
    socket: Option<ClientSocket>,
) -> Result<(), E> {
    let timeouts = &connection.timeouts;
    let is_refused = connection.guard.admission() == Admission::Refused;
    let mut shutdown = Shutdown::No;
    // Many connections never have a request that takes time, so it is created when there is one.
    let mut client_disconnected = None;
    let mut poll_disconnected = move |context: &mut Context<'_>| {
        let Some(socket) = &socket else { return Poll::Pending };
        client_disconnected.get_or_insert_with(|| Box::pin(socket.clone().closed())).as_mut().poll(context)
    };
    poll_fn(|context| {
        loop {
            if let Poll::Ready(ended) = protocol.as_mut().poll(context) {
                return Poll::Ready(ended);
            }
            if timeouts.is_serving() && poll_disconnected(context).is_ready() {
                return Poll::Ready(Ok(()));
            }
            let is_late = timeouts.deadline().poll(context).is_ready();
            // The connection has been polled once, so all buffered bytes have been seen.
            if shutdown == Shutdown::No && (is_refused || timeouts.deadline().all().is_stopping()) {
                if timeouts.is_serving() || timeouts.is_http2() {
                    shutdown = Shutdown::Closing;
                    stop(protocol.as_mut());
                } else {
                    shutdown = Shutdown::Grace { started: timeouts.started() };
                    timeouts.set_shutdown_deadline(SHUTDOWN_GRACE);
                }
                continue;
            }
            if shutdown == Shutdown::Closing && timeouts.is_http2() && !timeouts.is_serving() {
                // Graceful shutdown waits for a PING ack, which not every client sends.
                shutdown = Shutdown::Done;
                timeouts.set_shutdown_deadline(SHUTDOWN_GRACE);
            }
            match shutdown {
                // No request arrived, or the last one did.
                Shutdown::Grace { started } if is_late || started != timeouts.started() => {
                    shutdown = Shutdown::Closing;
                    stop(protocol.as_mut());
                    if is_late {
                        // A client that has sent part of a head may never send the rest.
                        timeouts.set_shutdown_deadline(SHUTDOWN_GRACE);
                    }
                }
                _ if is_late => return Poll::Ready(Ok(())),
                _ => return Poll::Pending,
            }
        }
    })
    .await
}

/// How far the shutdown of a connection has progressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shutdown {
    No,
    /// The connection is idle and waits for a last request; `started` is the number of requests so far.
    Grace {
        started: u32,
    },
    /// The connection ends as soon as possible.
    Closing,
    /// All requests are answered; only the connection's end is awaited.
    Done,
}
