//! Serves a connection: its first bytes, then HTTP/1 or HTTP/2 until it ends, a timeout expires, or the worker shuts down.

use crate::ClientSocket;
use crate::client_io::{ClientIo, Stream};
use crate::connection::{Admission, ConnGuard, ConnTimeouts, Connection, Protocol, SHUTDOWN_GRACE};
use crate::first_bytes::{self, Accepted};
use crate::handler::Handler;
use crate::http1::{EndDetection, ServerConnection};
use crate::http2::Http2;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio_rustls::TlsAcceptor;

/// Serves one connection until it ends.
///
/// Every idle connection has this future. So it is split, since what accepting a connection needs is not kept while it is served;
/// and its parts are blocks, which use their arguments in place, where an `async fn` would keep a second copy of each.
#[allow(clippy::manual_async_fn, reason = "its arguments would be stored twice")]
pub(crate) fn serve<H: Handler>(
    handler: Arc<H>,
    guard: ConnGuard,
    socket: ClientSocket,
    peer: SocketAddr,
    tls: Option<TlsAcceptor>,
) -> impl Future<Output = ()> + Send {
    async move {
        let Some((connection, stream, protocol, watched)) = accept(guard, socket, peer, tls).await else { return };
        let ended = match protocol {
            Protocol::Http1 => serve_http1(handler, connection, stream, watched).await,
            Protocol::Http2 => Box::pin(serve_http2(handler, connection, stream)).await,
        };
        if let Err(error) = ended {
            tracing::debug!("a connection of {peer} failed: {error}");
        }
    }
}

/// Accepts a connection: reads its first bytes, until a timeout expires. Also returns the socket.
#[allow(clippy::manual_async_fn, reason = "its arguments would be stored twice")]
fn accept(
    guard: ConnGuard,
    socket: ClientSocket,
    peer: SocketAddr,
    tls: Option<TlsAcceptor>,
) -> impl Future<Output = Option<(Arc<Connection>, Stream, Protocol, ClientSocket)>> + Send {
    async move {
        let worker = Arc::clone(guard.worker());
        let timeouts = ConnTimeouts::new(worker.deadlines.add(), Arc::clone(&worker.settings));
        let watched = socket.clone();
        let is_refused = guard.admission() == Admission::Refused;
        let accepted = {
            let mut is_deadline_set = false;
            let mut handshake = pin!(first_bytes::open(socket, peer, &worker.settings, tls.as_ref()));
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
        match accepted {
            Ok(Some(Accepted { stream, info, protocol })) => {
                Some((Arc::new(Connection { worker, info, timeouts, guard }), stream, protocol, watched))
            }
            Ok(None) => None,
            Err(error) => {
                tracing::debug!("the handshake with {peer} failed: {error}");
                worker.metrics.connections_rejected.increment();
                None
            }
        }
    }
}

/// Serves the requests of an HTTP/1 connection.
fn serve_http1<H: Handler>(
    handler: Arc<H>,
    connection: Arc<Connection>,
    stream: Stream,
    socket: ClientSocket,
) -> impl Future<Output = Result<(), String>> + Send {
    // The socket of a TLS connection may stay open after the end of its stream.
    let end_detection = if ClientSocket::DETECTS_END && matches!(stream, Stream::Plain(_)) {
        EndDetection::External
    } else {
        EndDetection::ByReading
    };
    let io = ClientIo::new(stream, Arc::clone(&connection));
    let mut http1 = ServerConnection::new(handler, io, Arc::clone(&connection), end_detection);
    async move {
        let ended =
            drive(Pin::new(&mut http1), &connection, ServerConnection::<H>::graceful_shutdown, Some(socket)).await;
        if ended.is_ok() {
            http1.finish();
        }
        ended.map_err(|error| error.to_string())
    }
}

/// Serves the requests of an HTTP/2 connection.
async fn serve_http2<H: Handler>(handler: Arc<H>, connection: Arc<Connection>, stream: Stream) -> Result<(), String> {
    connection.timeouts.set_http2();
    let io = ClientIo::new(stream, Arc::clone(&connection));
    let mut http2 = pin!(Http2::new(handler, io, Arc::clone(&connection)));
    // HTTP/2 reads all the time, so it detects the end of the stream itself.
    let ended = drive(http2.as_mut(), &connection, Http2::<H>::graceful_shutdown, None).await;
    ended.map_err(|error| error.to_string())
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
            // The connection has been polled once, so all buffered bytes have been read.
            if shutdown == Shutdown::No && (is_refused || timeouts.deadline().deadlines().is_stopping()) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RequestBody;
    use crate::handler::Answer;
    use bytes::Bytes;
    use http::request::Parts;
    use http_body_util::Full;

    struct Unused;

    impl Handler for Unused {
        type Body = Full<Bytes>;

        fn serve(
            self: &Arc<Self>,
            _connection: &Arc<Connection>,
            _head: Parts,
            _body: RequestBody,
            _keep: impl FnOnce(&mut Parts),
        ) -> Answer<Full<Bytes>> {
            unreachable!("no request is served")
        }
    }

    /// Every idle connection has one.
    #[test]
    fn the_future_of_a_connection_is_small() {
        fn size_of_result<A, B, C, D, E, F>(_: impl Fn(A, B, C, D, E) -> F) -> usize {
            size_of::<F>()
        }
        let size = size_of_result(serve::<Unused>);
        assert!(size <= 544, "{size} bytes");
    }
}
