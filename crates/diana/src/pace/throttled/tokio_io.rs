//! Tokio's `AsyncRead` and `AsyncWrite`.

use super::{MAX_READ, Throttled};
use std::io::{IoSlice, Result};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

impl<T: AsyncRead> AsyncRead for Throttled<T> {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<Result<()>> {
        let this = self.project();
        let Some(reading) = this.reading else { return this.io.poll_read(context, into) };
        if reading.rest().is_empty() {
            let mut pending = false;
            reading.fill(into.remaining().min(MAX_READ), |buffer| {
                let mut buffer = ReadBuf::new(buffer);
                match this.io.poll_read(context, &mut buffer) {
                    Poll::Ready(read) => read.map(|()| buffer.filled().len()),
                    Poll::Pending => {
                        pending = true;
                        Ok(0)
                    }
                }
            })?;
            if pending {
                reading.permits.record_idle();
                return Poll::Pending;
            }
        }
        let wanted = reading.wanted(into.remaining());
        if wanted == 0 {
            return Poll::Ready(Ok(()));
        }
        let paid = ready!(reading.permits.poll_chunk(context, wanted))?;
        let passed = reading.pass(paid);
        into.put_slice(passed);
        let length = passed.len();
        // A later poll may have a smaller buffer than the one that started to wait.
        reading.permits.transferred(length);
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncWrite> AsyncWrite for Throttled<T> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, from: &[u8]) -> Poll<Result<usize>> {
        let this = self.project();
        let Some(permits) = this.writing else { return this.io.poll_write(context, from) };
        if from.is_empty() {
            return this.io.poll_write(context, from);
        }
        let paid = ready!(permits.poll_chunk(context, from.len()))?;
        let result = this.io.poll_write(context, from.get(..paid).unwrap_or(from));
        match &result {
            Poll::Ready(Ok(written)) => permits.transferred(*written),
            Poll::Ready(Err(_)) => permits.transferred(0),
            // A blocked writer refunds its permits if possible, and acquires them again later.
            Poll::Pending => permits.blocked(),
        }
        result
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        from: &[IoSlice<'_>],
    ) -> Poll<Result<usize>> {
        if self.writing.is_none() {
            return self.project().io.poll_write_vectored(context, from);
        }
        // Writes are split into chunks anyway, so the first non-empty slice is enough.
        let first = from.iter().find(|slice| !slice.is_empty()).map_or(&[][..], |slice| slice);
        self.poll_write(context, first)
    }

    fn is_write_vectored(&self) -> bool {
        self.writing.is_none() && self.io.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        self.project().io.poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        let this = self.project();
        // A cancelled write is not polled again.
        if let Some(permits) = this.writing {
            permits.cancel_wait();
        }
        this.io.poll_shutdown(context)
    }
}
