//! An upgraded connection, such as a WebSocket: copies bytes in both directions until both sides are done.

use crate::upstream::UpstreamBody;
use bytes::{Bytes, BytesMut};
use diana_http::{COST_HEADER, RequestPermit, ThrottledBody};
use diana_net::{Connection, OnUpgrade, WorkerState};
use http::Response;
use http::header::{CONNECTION, HeaderValue};
use http_body::{Body, Frame};
use http_body_util::BodyExt;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf, copy_bidirectional, split};

/// The read size of a throttled connection.
const READ_SIZE: usize = 8 << 10;

/// Responds with `101 Switching Protocols` and copies bytes from then on.
///
/// The permits of the request (`concurrent`) are held until the upgraded connection ends.
pub(crate) fn open(
    connection: Arc<Connection>,
    client: OnUpgrade,
    response: Response<UpstreamBody>,
    permit: RequestPermit,
) -> Response<()> {
    let (mut head, body) = response.into_parts();
    head.headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    head.headers.remove(COST_HEADER);
    if let Some(upstream) = body.into_connection() {
        tokio::spawn(async move {
            let Some(client) = client.upgraded().await else { return };
            copy(&connection.worker, &permit, client, upstream.into_io()).await;
        });
    }
    Response::from_parts(head, ())
}

/// Copies bytes in both directions until both sides are done, no bytes have moved for `timeouts.tunnel`, or the gateway
/// shuts down.
async fn copy(
    worker: &WorkerState,
    permit: &RequestPermit,
    client: impl AsyncRead + AsyncWrite + Unpin,
    upstream: impl AsyncRead + AsyncWrite + Unpin,
) {
    let activity = AtomicU64::new(0);
    let mut client = ActivityIo { stream: client, activity: &activity };
    let mut upstream = ActivityIo { stream: upstream, activity: &activity };
    if permit.is_throttled() {
        let ((from_client, to_client), (from_upstream, to_upstream)) = (split(client), split(upstream));
        let up = copy_throttled(permit.request_body(StreamBody::of(from_client)), to_upstream);
        let down = copy_throttled(permit.response_body(StreamBody::of(from_upstream)), to_client);
        watch(worker, &activity, pin!(async { tokio::try_join!(up, down) })).await;
    } else {
        watch(worker, &activity, pin!(copy_bidirectional(&mut client, &mut upstream))).await;
    }
}

/// Runs the copy while bytes move and the gateway does not shut down.
async fn watch(worker: &WorkerState, activity: &AtomicU64, mut copying: Pin<&mut impl Future>) {
    let timeout = worker.settings.timeouts.tunnel;
    let deadline = worker.deadlines.add();
    deadline.set(timeout);
    let mut last = 0;
    std::future::poll_fn(|context| {
        if copying.as_mut().poll(context).is_ready() || worker.deadlines.is_stopping() {
            return Poll::Ready(());
        }
        let current = activity.load(Ordering::Relaxed);
        if current != last {
            last = current;
            deadline.set(timeout);
        }
        deadline.poll(context)
    })
    .await;
}

/// Writes all frames to a stream, and then shuts it down.
async fn copy_throttled<R: AsyncRead + Unpin>(
    mut from: ThrottledBody<StreamBody<R>>,
    mut to: impl AsyncWrite + Unpin,
) -> io::Result<()> {
    while let Some(frame) = from.frame().await {
        if let Ok(data) = frame?.into_data() {
            to.write_all(&data).await?;
            to.flush().await?;
        }
    }
    to.shutdown().await
}

/// A stream as a body, so that rules can throttle it.
struct StreamBody<R> {
    stream: R,
    buffer: BytesMut,
}

impl<R> StreamBody<R> {
    fn of(stream: R) -> Self {
        Self { stream, buffer: BytesMut::new() }
    }
}

impl<R: AsyncRead + Unpin> Body for StreamBody<R> {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let Self { stream, buffer } = self.get_mut();
        buffer.reserve(READ_SIZE);
        let read = ready!(pin!(stream.read_buf(buffer)).poll(context))?;
        Poll::Ready((read > 0).then(|| Ok(Frame::data(buffer.split().freeze()))))
    }
}

/// A stream that counts reads and writes.
struct ActivityIo<'a, I> {
    stream: I,
    activity: &'a AtomicU64,
}

impl<I: AsyncRead + Unpin> AsyncRead for ActivityIo<'_, I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        if read.is_ready() {
            self.activity.fetch_add(1, Ordering::Relaxed);
        }
        read
    }
}

impl<I: AsyncWrite + Unpin> AsyncWrite for ActivityIo<'_, I> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        if written.is_ready() {
            self.activity.fetch_add(1, Ordering::Relaxed);
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
