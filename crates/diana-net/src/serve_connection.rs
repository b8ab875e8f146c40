//! Serves a connection: its first bytes, then HTTP/1 or HTTP/2 until it ends, a timeout expires, or the worker shuts down.

use crate::ClientSocket;
use crate::client_io::{ClientIo, Stream};
use crate::connection::{Admission, ConnGuard, ConnTimeouts, Connection, Protocol, SHUTDOWN_GRACE};
use crate::first_bytes::{self, Accepted};
use crate::handler::Handler;
use crate::http1::{EndDetection, Http1};
use crate::http2::Http2;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio_rustls::TlsAcceptor;

/// Serves one connection until it ends.
pub(crate) async fn serve<H: Handler>(
    handler: Arc<H>,
    guard: ConnGuard,
    socket: ClientSocket,
    peer: SocketAddr,
    tls: Option<TlsAcceptor>,
) {
    let worker = Arc::clone(guard.worker());
    let settings = &worker.settings;
    let timeouts = ConnTimeouts::new(worker.deadlines.add(), Arc::clone(settings));
    let watched = socket.clone();
    let is_refused = guard.admission() == Admission::Refused;
    let accepted = {
        let mut is_deadline_set = false;
        let mut handshake = pin!(first_bytes::open(socket, peer, settings, tls.as_ref()));
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
    let Accepted { stream, info, protocol } = match accepted {
        Ok(Some(accepted)) => accepted,
        Ok(None) => return,
        Err(error) => {
            tracing::debug!("the handshake with {peer} failed: {error}");
            worker.metrics.connections_rejected.increment();
            return;
        }
    };
    // The socket of a TLS connection may stay open after the end of its stream.
    let end_detection = if ClientSocket::DETECTS_END && matches!(stream, Stream::Plain(_)) {
        EndDetection::External
    } else {
        EndDetection::ByReading
    };
    let connection = Arc::new(Connection { worker, info, timeouts, guard });
    let io = ClientIo::new(stream, Arc::clone(&connection));
    let ended = match protocol {
        Protocol::Http1 => {
            let mut http1 = Http1::new(handler, io, Arc::clone(&connection), end_detection);
            let stop = Http1::<H>::graceful_shutdown;
            let ended = drive(Pin::new(&mut http1), &connection, stop, Some(watched)).await;
            if ended.is_ok() {
                http1.finish();
            }
            ended.map_err(|error| error.to_string())
        }
        Protocol::Http2 => {
            connection.timeouts.set_http2();
            let mut http2 = Box::pin(Http2::new(handler, io, Arc::clone(&connection)));
            // HTTP/2 reads all the time, so it detects the end of the stream itself.
            let ended = drive(http2.as_mut(), &connection, Http2::<H>::graceful_shutdown, None).await;
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
