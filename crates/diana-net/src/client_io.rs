//! A client's connection, as HTTP/1 and HTTP/2 read and write it.
//!
//! It starts with the bytes that were already read to detect the protocol, and reports reads and writes to the timeouts
//! of the connection and the metrics.

use crate::connection::Connection;
use crate::{ClientSocket, Rewind};
use std::fmt;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::server::TlsStream;

/// A client's connection.
pub struct ClientIo {
    stream: Stream,
    connection: Arc<Connection>,
}

/// The transport of a connection.
pub(crate) enum Stream {
    Plain(Rewind<ClientSocket>),
    Tls(Box<Rewind<TlsStream<Rewind<ClientSocket>>>>),
}

impl fmt::Debug for ClientIo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientIo").field("peer", &self.connection.info.peer).finish_non_exhaustive()
    }
}

impl ClientIo {
    pub(crate) fn new(stream: Stream, connection: Arc<Connection>) -> Self {
        Self { stream, connection }
    }

    fn record_write(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        match &written {
            Poll::Pending => self.connection.timeouts.write_blocked(),
            Poll::Ready(Ok(length)) => {
                self.connection.timeouts.wrote();
                self.connection.worker.metrics.bytes_out.add(*length as u64);
            }
            Poll::Ready(Err(_)) => {}
        }
        written
    }
}

impl AsyncRead for ClientIo {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        let read = match &mut this.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_read(context, buffer),
            Stream::Tls(stream) => Pin::new(&mut **stream).poll_read(context, buffer),
        };
        let length = buffer.filled().len() - before;
        if length > 0 {
            this.connection.timeouts.read();
            this.connection.worker.metrics.bytes_in.add(length as u64);
        }
        read
    }
}

impl AsyncWrite for ClientIo {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = match &mut this.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
            Stream::Tls(stream) => Pin::new(&mut **stream).poll_write(context, bytes),
        };
        this.record_write(written)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = match &mut this.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_write_vectored(context, slices),
            Stream::Tls(stream) => Pin::new(&mut **stream).poll_write_vectored(context, slices),
        };
        this.record_write(written)
    }

    fn is_write_vectored(&self) -> bool {
        match &self.stream {
            Stream::Plain(stream) => stream.is_write_vectored(),
            Stream::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let stream = match &mut this.stream {
            // Nothing is buffered.
            Stream::Plain(_) => return Poll::Ready(Ok(())),
            Stream::Tls(stream) => &mut **stream,
        };
        let written =
            |stream: &Rewind<TlsStream<Rewind<ClientSocket>>>| stream.get_ref().get_ref().0.get_ref().written();
        let before = written(stream);
        let flushed = Pin::new(&mut *stream).poll_flush(context);
        // TLS accepts bytes while the client reads none, so only the socket shows whether it does.
        let timeouts = &this.connection.timeouts;
        if flushed.is_ready() || written(stream) > before {
            timeouts.wrote();
        }
        if flushed.is_pending() {
            timeouts.write_blocked();
        }
        flushed
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().stream {
            Stream::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            Stream::Tls(stream) => Pin::new(&mut **stream).poll_shutdown(context),
        }
    }
}
