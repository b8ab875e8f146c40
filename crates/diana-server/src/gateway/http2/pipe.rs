//! A body on its way into an HTTP/2 stream, as fast as the other side takes it.

use super::memory::{Piece, Queue};
use bytes::Bytes;
use h2::{Reason, SendStream};
use http_body::Body;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// Why a body was not sent to its end.
#[derive(Debug)]
pub(in crate::gateway) enum PipeError<E> {
    /// The other side has reset the stream, or its connection is gone.
    Reset,
    /// The body broke off. The stream is reset.
    Body(E),
}

/// Sends what there is of a body. Ready when all of it is queued.
///
/// A piece is read only when the other side gives window for it and the queue has room: no more than that is kept in memory.
/// While the body has nothing to send, no window is reserved, since it is shared with the other streams.
pub(in crate::gateway) fn poll_send<B: Body<Data = Bytes> + Unpin>(
    body: &mut B,
    stream: &mut SendStream<Piece>,
    queue: &Queue,
    context: &mut Context<'_>,
) -> Poll<Result<(), PipeError<B::Error>>> {
    loop {
        if stream.poll_reset(context).is_ready() {
            return Poll::Ready(Err(PipeError::Reset));
        }
        ready!(queue.poll_room(context));
        stream.reserve_capacity(1);
        while stream.capacity() == 0 {
            match ready!(stream.poll_capacity(context)) {
                Some(Ok(_)) => {}
                Some(Err(_)) | None => return Poll::Ready(Err(PipeError::Reset)),
            }
        }
        let frame = match Pin::new(&mut *body).poll_frame(context) {
            Poll::Ready(frame) => frame,
            Poll::Pending => {
                stream.reserve_capacity(0);
                return Poll::Pending;
            }
        };
        let frame = match frame {
            Some(Ok(frame)) => frame,
            Some(Err(error)) => {
                stream.send_reset(Reason::INTERNAL_ERROR);
                return Poll::Ready(Err(PipeError::Body(error)));
            }
            None => {
                stream.reserve_capacity(0);
                return Poll::Ready(send(stream, Bytes::new(), queue, true));
            }
        };
        match frame.into_data() {
            Ok(data) => {
                let is_last = body.is_end_stream();
                if let Err(error) = send(stream, data, queue, is_last) {
                    return Poll::Ready(Err(error));
                }
                if is_last {
                    return Poll::Ready(Ok(()));
                }
            }
            Err(frame) => {
                if let Ok(trailers) = frame.into_trailers() {
                    stream.reserve_capacity(0);
                    let sent = stream.send_trailers(trailers);
                    return Poll::Ready(sent.map_err(|_| PipeError::Reset));
                }
            }
        }
    }
}

fn send<E>(stream: &mut SendStream<Piece>, data: Bytes, queue: &Queue, is_last: bool) -> Result<(), PipeError<E>> {
    stream.send_data(Piece::new(data, queue), is_last).map_err(|_| PipeError::Reset)
}
