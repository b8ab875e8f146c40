//! A connection that became something else, such as a WebSocket: bytes both ways until one side has had enough.

use super::leave::{COST, Leave};
use super::out_body::OutBody;
use super::service::Connection;
use super::site::Site;
use super::upstream::UpstreamBody;
use super::visit::Visit;
use http::Response;
use http::header::{CONNECTION, HeaderValue};
use http_body_util::Full;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Tells the client that its connection has become what it asked for, and carries bytes from then on.
///
/// The request is not over before the tunnel is: what it holds (`concurrent`) is held as long.
pub(super) fn open(
    connection: Arc<Connection>,
    client: OnUpgrade,
    response: Response<UpstreamBody>,
    leave: Leave,
    visit: Visit,
) -> Response<OutBody> {
    let (mut head, body) = response.into_parts();
    head.headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    head.headers.remove(COST);
    if let Some(upstream) = body.into_connection() {
        tokio::spawn(async move {
            let _leave = leave;
            let Ok(client) = client.await else { return };
            let timeout = connection.site.gateway.timeouts.tunnel;
            carry(&connection.site, TokioIo::new(client), upstream.into_io(), timeout).await;
        });
    }
    Response::from_parts(head, OutBody::own(Full::default(), visit))
}

/// Carries bytes both ways until both sides are done, nothing has moved for `timeout`, or the gateway stops.
async fn carry(
    site: &Site,
    client: impl AsyncRead + AsyncWrite + Unpin,
    upstream: impl AsyncRead + AsyncWrite + Unpin,
    timeout: Duration,
) {
    let moved = AtomicU64::new(0);
    let mut client = Noticed { stream: client, moved: &moved };
    let mut upstream = Noticed { stream: upstream, moved: &moved };
    let mut carrying = pin!(tokio::io::copy_bidirectional(&mut client, &mut upstream));
    let deadline = site.deadlines.add();
    deadline.set(timeout);
    let mut seen = 0;
    std::future::poll_fn(|context| {
        if carrying.as_mut().poll(context).is_ready() || site.deadlines.is_stopping() {
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

/// A stream of which is noticed when bytes move.
struct Noticed<'a, I> {
    stream: I,
    moved: &'a AtomicU64,
}

impl<I: AsyncRead + Unpin> AsyncRead for Noticed<'_, I> {
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

impl<I: AsyncWrite + Unpin> AsyncWrite for Noticed<'_, I> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
