//! Reading: a stream whose first bytes were read before, and one buffer for all connections of a thread.

use bytes::Bytes;
use std::cell::RefCell;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The number of bytes read at once into the buffer that all connections of a thread share.
pub const SHARED_READ: usize = 8 << 10;

thread_local! {
    static SHARED: RefCell<Box<[u8]>> = RefCell::new(vec![0; SHARED_READ].into_boxed_slice());
}

/// Calls `read` with the buffer that all connections of this thread share: a connection that waits for bytes needs none of
/// its own.
#[inline]
pub fn read_shared<T>(read: impl FnOnce(&mut ReadBuf<'_>) -> T) -> T {
    SHARED.with_borrow_mut(|buffer| read(&mut ReadBuf::new(buffer)))
}

/// A stream whose first bytes have already been read.
#[derive(Debug)]
pub struct Rewind<I> {
    first: Bytes,
    stream: I,
}

impl<I> Rewind<I> {
    /// Returns these bytes to the stream that they were read from.
    pub fn new(first: Bytes, stream: I) -> Self {
        Self { first, stream }
    }

    /// Returns the stream.
    pub fn get_ref(&self) -> &I {
        &self.stream
    }
}

impl<I: AsyncRead + Unpin> AsyncRead for Rewind<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.first.is_empty() {
            return Pin::new(&mut self.stream).poll_read(context, buffer);
        }
        let length = self.first.len().min(buffer.remaining());
        buffer.put_slice(&self.first.split_to(length));
        if self.first.is_empty() {
            self.first = Bytes::new(); // an idle connection must not keep the buffer
        }
        Poll::Ready(Ok(()))
    }
}

impl<I: AsyncWrite + Unpin> AsyncWrite for Rewind<I> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
