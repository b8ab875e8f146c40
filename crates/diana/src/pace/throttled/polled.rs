//! Tokio's `AsyncRead` and `AsyncWrite`.

use super::super::pay::give_back;
use super::{MOST_READ, Throttled};
use std::io::Result;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

impl<T: AsyncRead> AsyncRead for Throttled<T> {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<Result<()>> {
        let this = self.project();
        let Some(reading) = this.reading else { return this.io.poll_read(context, into) };
        if reading.rest().is_empty() {
            let mut pending = false;
            reading.fill(into.remaining().min(MOST_READ), |buffer| {
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
                return Poll::Pending;
            }
        }
        let wanted = reading.wanted(into.remaining());
        if wanted == 0 {
            return Poll::Ready(Ok(()));
        }
        let receipt = ready!(reading.till.poll_piece(context, wanted))?;
        let passed = reading.pass(receipt.cost().get(), into.remaining());
        into.put_slice(passed);
        // A later poll may have less room than the one that began to wait.
        let moved = u64::try_from(passed.len()).unwrap_or(u64::MAX);
        give_back(&reading.till.limiter, &receipt, moved);
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncWrite> AsyncWrite for Throttled<T> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, from: &[u8]) -> Poll<Result<usize>> {
        let this = self.project();
        let Some(till) = this.writing else { return this.io.poll_write(context, from) };
        if from.is_empty() {
            return this.io.poll_write(context, from);
        }
        let receipt = ready!(till.poll_piece(context, from.len()))?;
        let length = usize::try_from(receipt.cost().get()).unwrap_or(usize::MAX);
        let written = this.io.poll_write(context, from.get(..length).unwrap_or(from));
        // A writer that is stuck keeps no permits: it takes them again when it can go on.
        let moved = match &written {
            Poll::Ready(Ok(moved)) => u64::try_from(*moved).unwrap_or(u64::MAX),
            Poll::Ready(Err(_)) | Poll::Pending => 0,
        };
        give_back(&till.limiter, &receipt, moved);
        written
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        self.project().io.poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        self.project().io.poll_shutdown(context)
    }
}
