//! A connection that became something else, such as a WebSocket: bytes both ways until one side has had enough.

use super::leave::{COST, Leave};
use super::request_log::RequestTracker;
use super::response_body::ResponseBody;
use super::service::Connection;
use super::upstream::UpstreamBody;
use super::worker_state::WorkerState;
use bytes::{Bytes, BytesMut};
use diana_http::ThrottledBody;
use http::Response;
use http::header::{CONNECTION, HeaderValue};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, Full};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf, copy_bidirectional, split};

/// How much is read at once of a tunnel that is slowed down.
const PIECE: usize = 8 << 10;

/// Tells the client that its connection has become what it asked for, and carries bytes from then on.
///
/// The request is not over before the tunnel is: what it holds (`concurrent`) is held as long.
pub(super) fn open(
    connection: Arc<Connection>,
    client: OnUpgrade,
    response: Response<UpstreamBody>,
    leave: Leave,
    tracker: RequestTracker,
) -> Response<ResponseBody> {
    let (mut head, body) = response.into_parts();
    head.headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    head.headers.remove(COST);
    if let Some(upstream) = body.into_connection() {
        tokio::spawn(async move {
            let Ok(client) = client.await else { return };
            carry(&connection.worker, &leave, TokioIo::new(client), upstream.into_io()).await;
        });
    }
    Response::from_parts(head, ResponseBody::own(Full::default(), tracker))
}

/// Carries bytes both ways until both sides are done, nothing has moved for as long as a tunnel may be silent, or the gateway
/// stops.
async fn carry(
    worker: &WorkerState,
    leave: &Leave,
    client: impl AsyncRead + AsyncWrite + Unpin,
    upstream: impl AsyncRead + AsyncWrite + Unpin,
) {
    let moved = AtomicU64::new(0);
    let mut client = ActivityIo { stream: client, moved: &moved };
    let mut upstream = ActivityIo { stream: upstream, moved: &moved };
    if leave.is_slowed() {
        let ((from_client, to_client), (from_upstream, to_upstream)) = (split(client), split(upstream));
        let up = pour(leave.request_body(Pieces::of(from_client)), to_upstream);
        let down = pour(leave.response_body(Pieces::of(from_upstream)), to_client);
        watch(worker, &moved, pin!(async { tokio::try_join!(up, down) })).await;
    } else {
        watch(worker, &moved, pin!(copy_bidirectional(&mut client, &mut upstream))).await;
    }
}

/// Lets bytes be carried as long as they move, and the gateway does not stop.
async fn watch(worker: &WorkerState, moved: &AtomicU64, mut carrying: Pin<&mut impl Future>) {
    let timeout = worker.gateway.timeouts.tunnel;
    let deadline = worker.deadlines.add();
    deadline.set(timeout);
    let mut seen = 0;
    std::future::poll_fn(|context| {
        if carrying.as_mut().poll(context).is_ready() || worker.deadlines.is_stopping() {
            return Poll::Ready(());
        }
        let now = moved.load(Ordering::Relaxed);
        if now != seen {
            seen = now;
            deadline.set(timeout);
        }
        deadline.poll(context)
    })
    .await;
}

/// Pours all pieces into a stream, and then ends it.
async fn pour<R: AsyncRead + Unpin>(
    mut from: ThrottledBody<Pieces<R>>,
    mut to: impl AsyncWrite + Unpin,
) -> io::Result<()> {
    while let Some(frame) = from.frame().await {
        if let Ok(piece) = frame?.into_data() {
            to.write_all(&piece).await?;
            to.flush().await?;
        }
    }
    to.shutdown().await
}

/// A stream in pieces, as rules that slow bodies down want it.
struct Pieces<R> {
    stream: R,
    buffer: BytesMut,
}

impl<R> Pieces<R> {
    fn of(stream: R) -> Self {
        Self { stream, buffer: BytesMut::new() }
    }
}

impl<R: AsyncRead + Unpin> Body for Pieces<R> {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let Self { stream, buffer } = self.get_mut();
        buffer.reserve(PIECE);
        let read = ready!(pin!(stream.read_buf(buffer)).poll(context))?;
        Poll::Ready((read > 0).then(|| Ok(Frame::data(buffer.split().freeze()))))
    }
}

/// A stream of which is noticed when bytes move.
struct ActivityIo<'a, I> {
    stream: I,
    moved: &'a AtomicU64,
}

impl<I: AsyncRead + Unpin> AsyncRead for ActivityIo<'_, I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        if read.is_ready() {
            self.moved.fetch_add(1, Ordering::Relaxed);
        }
        read
    }
}

impl<I: AsyncWrite + Unpin> AsyncWrite for ActivityIo<'_, I> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        if written.is_ready() {
            self.moved.fetch_add(1, Ordering::Relaxed);
        }
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
