//! A call of one message and one response, without tonic: its streams, codecs and buffers cost more than a decision.
//!
//! Envoy's services are called this way. tonic serves health and reflection, and its [`Status`] is used here, too.

use super::field_count::NestedFields;
use super::{Allowed, EnvoyState};
use bytes::{BufMut, Bytes, BytesMut};
use diana::{Clock, SystemClock, Timestamp};
use diana_net::ReservedMemory;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue, Response};
use http_body_util::BodyExt;
use hyper::body::{Frame, SizeHint};
use prost::Message;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tonic::Status;
use tonic::body::Body;

/// The length of the prefix of each message: whether it is compressed, and its length.
const PREFIX: usize = 5;
const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");
const GRPC_ENCODING: HeaderName = HeaderName::from_static("grpc-encoding");

/// The memory of a call apart from its message: the state of its stream, its future, and its response.
pub(super) const CALL_MEMORY: usize = 8 << 10;
/// The memory of a field of a message apart from its text.
const FIELD_MEMORY: usize = 64;

/// A call that is being answered.
pub(super) struct UnaryCall<B> {
    body: B,
    /// The reason why its message is not read.
    unsupported: Option<Status>,
    /// The time that the caller waits for the response, if it is in the headers.
    pub(super) deadline: Option<Duration>,
    memory: ReservedMemory,
    /// The arrival of its message.
    start: Option<Timestamp>,
}

/// A message that is not decoded.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum MessageError {
    /// The message has too many bytes.
    TooLong,
    /// The message has too many fields.
    TooManyFields,
    /// The call failed: the code and the message of the status.
    Failed(tonic::Code, String),
}

impl From<Status> for MessageError {
    fn from(status: Status) -> Self {
        Self::Failed(status.code(), status.message().to_owned())
    }
}

impl<B: hyper::body::Body<Data = Bytes, Error = Status> + Unpin> UnaryCall<B> {
    /// Begins a call. Its headers are dropped: they may be long, and its message may take long to arrive.
    pub(super) fn new(headers: &HeaderMap, body: B, memory: ReservedMemory) -> Self {
        Self { body, unsupported: unsupported(headers), deadline: deadline(headers), memory, start: None }
    }

    /// Reads and decodes the message, which may have `max_length` bytes and `max` fields.
    pub(super) async fn message<M: Message + Default>(
        &mut self,
        max_length: usize,
        fields: &NestedFields,
        max: usize,
    ) -> Result<M, MessageError> {
        let received = self.read(max_length).await?;
        self.start = Some(SystemClock.now());
        let message = received.get(PREFIX..).unwrap_or_default();
        let count = fields.count_up_to(max, message).ok_or(MessageError::TooManyFields)?;
        reserve(&mut self.memory, received.len() + message.len() + count * FIELD_MEMORY)?;
        M::decode(message).map_err(|error| Status::internal(error.to_string()).into())
    }

    /// Reads the message, with its prefix.
    async fn read(&mut self, max_length: usize) -> Result<Bytes, MessageError> {
        if let Some(status) = self.unsupported.take() {
            return Err(status.into());
        }
        let mut parts = Parts::default();
        while let Some(frame) = self.body.frame().await {
            let Ok(data) = frame?.into_data() else { continue };
            let is_last = self.body.is_end_stream();
            // Almost always, the message is a single frame.
            if is_last && parts.length == 0 {
                check_length(&data, data.len(), max_length)?;
                return if is_complete(&data) { Ok(data) } else { Err(missing().into()) };
            }
            parts.add(&data, &mut self.memory)?;
            check_length(parts.start(), parts.length, max_length)?;
            if is_last {
                break;
            }
        }
        reserve(&mut self.memory, parts.memory() + parts.length)?;
        let message = Bytes::from(parts.parts.concat());
        if is_complete(&message) { Ok(message) } else { Err(missing().into()) }
    }

    /// Returns the response to the call.
    pub(super) fn respond<R: Message>(
        self,
        state: &EnvoyState,
        result: Result<(R, Allowed), Status>,
    ) -> Response<Body> {
        if let Some(start) = self.start {
            state.metrics().answer_seconds.observe(SystemClock.now().since(start));
        }
        match result {
            Ok((message, allowed)) => {
                match allowed {
                    Allowed::Yes => state.metrics().allowed.increment(),
                    Allowed::No => state.metrics().denied.increment(),
                }
                response(&message, self.memory)
            }
            Err(status) => {
                state.metrics().failed.increment();
                status.into_http()
            }
        }
    }
}

/// Reserves the memory of a call with this much for its message.
fn reserve(memory: &mut ReservedMemory, message: usize) -> Result<(), Status> {
    if memory.resize(CALL_MEMORY + message) { Ok(()) } else { Err(no_memory()) }
}

/// Returns the status of a call for which `bounds.memory` has no room.
pub(super) fn no_memory() -> Status {
    Status::resource_exhausted("`bounds.memory` is used up by other calls")
}

fn missing() -> Status {
    Status::internal("the call has no message, or only a part of it")
}

/// Returns why the message of a call can't be read.
fn unsupported(headers: &HeaderMap) -> Option<Status> {
    let encoding = headers.get(GRPC_ENCODING).filter(|encoding| *encoding != "identity")?;
    Some(Status::unimplemented(format!("unsupported encoding {encoding:?}: send messages uncompressed")))
}

/// The parts of a message that has not arrived as a whole: copies, since a small part may keep a large buffer, of a fixed
/// length, so that nothing is moved as the message grows.
#[derive(Default)]
struct Parts {
    parts: Vec<Vec<u8>>,
    length: usize,
}

/// The length of a part. The allocator adds a page to each.
const PART: usize = 64 << 10;

impl Parts {
    #[cold]
    fn add(&mut self, mut data: &[u8], memory: &mut ReservedMemory) -> Result<(), Status> {
        while !data.is_empty() {
            let Some(last) = self.parts.last_mut().filter(|last| last.len() < PART) else {
                reserve(memory, self.memory() + PART)?;
                self.parts.push(Vec::with_capacity(PART));
                continue;
            };
            let (added, rest) = data.split_at(data.len().min(PART - last.len()));
            last.extend_from_slice(added);
            self.length += added.len();
            data = rest;
        }
        Ok(())
    }

    /// Returns the start of the message, with its prefix.
    fn start(&self) -> &[u8] {
        self.parts.first().map_or(&[], |first| first)
    }

    fn memory(&self) -> usize {
        self.parts.len() * PART
    }
}

/// Returns the time that the caller waits for the response, if it is in the headers.
fn deadline(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(GRPC_TIMEOUT)?.to_str().ok()?;
    let (number, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    // The specification allows at most 8 digits.
    let number = number.parse::<u64>().ok().filter(|_| number.len() <= 8)?;
    Some(match unit {
        "H" => Duration::from_secs(number * 3600),
        "M" => Duration::from_secs(number * 60),
        "S" => Duration::from_secs(number),
        "m" => Duration::from_millis(number),
        "u" => Duration::from_micros(number),
        "n" => Duration::from_nanos(number),
        _ => return None,
    })
}

/// Rejects a message as soon as its prefix announces that it is compressed or too long. `received` is the number of bytes
/// that have arrived.
fn check_length(start: &[u8], received: usize, max_length: usize) -> Result<(), MessageError> {
    if start.first().is_some_and(|flag| *flag != 0) {
        return Err(Status::internal("the message is compressed, but the call has no `grpc-encoding`").into());
    }
    match announced_length(start) {
        Some(length) if length > max_length => Err(MessageError::TooLong),
        Some(length) if received > PREFIX + length => {
            Err(Status::internal("the call has several messages: expected one").into())
        }
        _ => Ok(()),
    }
}

/// Returns the length of the message, once its prefix has been received.
fn announced_length(received: &[u8]) -> Option<usize> {
    let [_, length @ ..] = received.first_chunk::<PREFIX>()?;
    usize::try_from(u32::from_be_bytes(*length)).ok()
}

/// Returns `true` if all of the message was received.
fn is_complete(received: &[u8]) -> bool {
    announced_length(received).is_some_and(|length| received.len() == PREFIX + length)
}

/// Returns the response to a call that succeeded. It counts as memory of the call until the client accepts it.
fn response(message: &impl Message, memory: ReservedMemory) -> Response<Body> {
    let length = message.encoded_len();
    let mut data = BytesMut::with_capacity(PREFIX + length);
    data.put_u8(0);
    // A response has at most some kilobytes for each of its descriptors.
    data.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
    message.encode_raw(&mut data);
    let body = ResponseMessage { data: Some(data.freeze()), trailers: true, _memory: memory };
    let mut response = Response::new(Body::new(body));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    response
}

/// The response to a call: one message, and the status as trailers.
struct ResponseMessage {
    data: Option<Bytes>,
    trailers: bool,
    _memory: ReservedMemory,
}

impl hyper::body::Body for ResponseMessage {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let data = self.data.take().map(Frame::data);
        let frame = data.or_else(|| {
            std::mem::take(&mut self.trailers)
                .then(|| Frame::trailers(HeaderMap::from_iter([(GRPC_STATUS, HeaderValue::from_static("0"))])))
        });
        Poll::Ready(frame.map(Ok))
    }

    fn is_end_stream(&self) -> bool {
        !self.trailers
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.data.as_ref().map_or(0, |data| u64::try_from(data.len()).unwrap_or(u64::MAX)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::envoy::field_count::LEAF;
    use diana_net::TotalMemory;
    use futures_util::FutureExt;
    use proptest::prelude::*;
    use prost_types::Duration as Sample;
    use std::sync::Arc;

    const SAMPLE: Sample = Sample { seconds: 1_234_567, nanos: 89 };

    fn sent(message: &Sample) -> Vec<u8> {
        let mut bytes = vec![0];
        bytes.put_u32(u32::try_from(message.encoded_len()).unwrap());
        message.encode_raw(&mut bytes);
        bytes
    }

    /// Reads what is sent in pieces of these lengths, and then the rest.
    fn received(sent: &[u8], pieces: &[usize], headers: &HeaderMap) -> Result<Sample, MessageError> {
        received_with(sent, pieces, headers, usize::MAX)
    }

    /// Reads what is sent like `received`, with this much memory.
    fn received_with(
        sent: &[u8],
        pieces: &[usize],
        headers: &HeaderMap,
        memory: usize,
    ) -> Result<Sample, MessageError> {
        let mut rest = Bytes::copy_from_slice(sent);
        let mut frames = pieces.iter().map(|length| rest.split_to((*length).min(rest.len()))).collect::<Vec<_>>();
        frames.push(rest);
        let frames = frames.into_iter().map(|data| Ok::<_, Status>(Frame::data(data)));
        let body = http_body_util::StreamBody::new(futures_util::stream::iter(frames));
        let memory = Arc::new(TotalMemory::new(memory)).reserve(CALL_MEMORY).unwrap();
        UnaryCall::new(headers, body, memory).message(1 << 20, &LEAF, 2).now_or_never().unwrap()
    }

    fn error(sent: &[u8]) -> String {
        let MessageError::Failed(code, message) = received(sent, &[], &HeaderMap::new()).unwrap_err() else {
            return "too long".to_owned();
        };
        format!("{code:?}: {message}")
    }

    proptest! {
        #[test]
        fn a_message_may_arrive_in_any_pieces(pieces in prop::collection::vec(0_usize..8, 0..8)) {
            prop_assert_eq!(received(&sent(&SAMPLE), &pieces, &HeaderMap::new()), Ok(SAMPLE));
        }
    }

    #[test]
    fn what_is_not_one_message_is_an_error() {
        let whole = sent(&SAMPLE);
        assert_eq!(error(b""), "Internal: the call has no message, or only a part of it");
        assert_eq!(error(&whole[..3]), "Internal: the call has no message, or only a part of it");
        assert_eq!(error(&whole[..whole.len() - 1]), "Internal: the call has no message, or only a part of it");
        assert_eq!(error(&whole.repeat(2)), "Internal: the call has several messages: expected one");
        assert!(error(&[0, 0, 0, 0, 1, 0xff]).starts_with("Internal: failed to decode Protobuf message"));
        assert_eq!(error(&[1, 0, 0, 0, 0]), "Internal: the message is compressed, but the call has no `grpc-encoding`");
        assert_eq!(error(&[0, 0xff, 0xff, 0xff, 0xff]), "too long");
    }

    #[test]
    fn other_encodings_are_not_implemented() {
        let headers = |encoding| HeaderMap::from_iter([(GRPC_ENCODING, HeaderValue::from_static(encoding))]);
        let error = received(&sent(&SAMPLE), &[], &headers("gzip")).unwrap_err();
        let text = "unsupported encoding \"gzip\": send messages uncompressed".to_owned();
        assert_eq!(error, MessageError::Failed(tonic::Code::Unimplemented, text));
        assert_eq!(received(&sent(&SAMPLE), &[], &headers("identity")), Ok(SAMPLE));
    }

    #[test]
    fn fields_and_memory_are_bounded() {
        let repeated = sent(&SAMPLE)[PREFIX..].repeat(2);
        let prefix = [&[0, 0, 0, 0], &[u8::try_from(repeated.len()).unwrap()][..]].concat();
        let message = [prefix, repeated].concat();
        assert_eq!(received(&message, &[], &HeaderMap::new()), Err(MessageError::TooManyFields));
        let no_memory = MessageError::from(no_memory());
        assert_eq!(received_with(&sent(&SAMPLE), &[], &HeaderMap::new(), CALL_MEMORY + 8), Err(no_memory));
    }

    #[test]
    fn deadlines_have_units() {
        let of = |text| deadline(&HeaderMap::from_iter([(GRPC_TIMEOUT, HeaderValue::from_static(text))]));
        assert_eq!(of("2S"), Some(Duration::from_secs(2)));
        assert_eq!(of("15m"), Some(Duration::from_millis(15)));
        assert_eq!(of("1H"), Some(Duration::from_secs(3_600)));
        for invalid in ["", "S", "2", "123456789S", "-1S", "2x"] {
            assert_eq!(of(invalid), None, "{invalid}");
        }
    }
}
