//! Detects that a client has disconnected: a client's socket, shared by the code that reads and writes it and by the
//! code that waits for its end.
//!
//! An HTTP/1 connection is read only when more bytes are needed: not while a byte of the next request is in its buffer, nor
//! while the rest of a body is not consumed. That does not notice a client that disconnects then, and the request stays
//! in its queue. So [`ClientSocket::closed`] waits for the end of the stream, however many bytes are unread before it.
//! (An end that is behind more bytes than fit into the receive buffer has not arrived yet. It arrives when the bytes are
//! read, or the client's system gives up.)

use socket2::SockRef;
use std::io::{self, IoSlice};
use std::net::Shutdown;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;

/// A client's socket. Cloning is cheap; clones share the socket, and one task uses all of them.
#[derive(Clone, Debug)]
pub struct ClientSocket(Arc<SharedSocket>);

#[derive(Debug)]
struct SharedSocket {
    stream: TcpStream,
    /// The number of bytes written. TLS accepts more bytes than the socket does.
    written: AtomicU64,
}

impl ClientSocket {
    /// Whether [`closed`](Self::closed) detects the end of the stream on this system.
    pub const DETECTS_END: bool = cfg!(any(target_os = "linux", target_os = "android"));

    /// Takes a socket that was accepted.
    pub fn new(stream: TcpStream) -> Self {
        Self(Arc::new(SharedSocket { stream, written: AtomicU64::new(0) }))
    }

    /// Returns how many bytes have been written.
    #[inline]
    pub fn written(&self) -> u64 {
        self.0.written.load(Ordering::Relaxed)
    }

    /// Returns when the client has closed the connection, or its sending half, or has reset it.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    pub async fn closed(self) {
        // `PRIORITY` waits for urgent data, which is not registered for, or for the end of the stream (`EPOLLRDHUP`).
        // `READABLE` would return as long as anything is unread.
        let _ = self.0.stream.ready(Interest::PRIORITY).await;
    }

    /// On other systems, only reading detects the end.
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    pub async fn closed(self) {
        std::future::pending().await
    }
}

impl AsyncRead for ClientSocket {
    #[inline]
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let stream = &self.0.stream;
        loop {
            // First, so that the task yields to others now and then, however fast the client sends.
            ready!(stream.poll_read_ready(context))?;
            let room = buffer.remaining();
            let mut has_read = false;
            let tried = stream.try_io(Interest::READABLE, || {
                let length = stream.try_read_buf(buffer)?;
                has_read = true;
                // A short read: the socket is empty. `WouldBlock` clears the readiness, which saves the read that would
                // find out.
                if (1..room).contains(&length) { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(()) }
            });
            match tried {
                _ if has_read => return Poll::Ready(Ok(())),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                tried => return Poll::Ready(tried),
            }
        }
    }
}

impl ClientSocket {
    #[inline]
    fn poll_try(
        &self,
        context: &mut Context<'_>,
        mut write: impl FnMut(&TcpStream) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        loop {
            match write(&self.0.stream) {
                // Registers only now: it costs more than a check of the readiness.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    ready!(self.0.stream.poll_write_ready(context))?;
                }
                written => {
                    self.0.written.fetch_add(*written.as_ref().unwrap_or(&0) as u64, Ordering::Relaxed);
                    return Poll::Ready(written);
                }
            }
        }
    }
}

impl AsyncWrite for ClientSocket {
    #[inline]
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_try(context, |stream| stream.try_write(bytes))
    }

    #[inline]
    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_try(context, |stream| stream.try_write_vectored(slices))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    #[inline]
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    #[inline]
    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        match SockRef::from(&self.0.stream).shutdown(Shutdown::Write) {
            // The client has disconnected already.
            Err(error) if error.kind() == io::ErrorKind::NotConnected => Poll::Ready(Ok(())),
            ended => Poll::Ready(ended),
        }
    }
}
