//! A call of one message and one response, without tonic: its streams, codecs and buffers cost more than a decision.
//!
//! Envoy's services are called this way. tonic serves health and reflection, and its [`Status`] is used here, too.

use super::call::CallBody;
use super::{Allowed, EnvoyState, MAX_MESSAGE};
use bytes::{BufMut, Bytes, BytesMut};
use diana::{Clock, SystemClock};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue, Response};
use http_body_util::{BodyExt, Full};
use prost::Message;
use std::convert::Infallible;
use std::time::Duration;
use tonic::Status;
use tonic::body::Body;

/// Before each message: whether it is compressed, and its length.
const PREFIX: usize = 5;
const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");
const GRPC_ENCODING: HeaderName = HeaderName::from_static("grpc-encoding");

/// Answers a call: `decide` gets its message, and how long the caller waits for the response.
pub(super) async fn answer<Q, R, F>(
    state: &EnvoyState,
    headers: HeaderMap,
    body: CallBody,
    decide: impl FnOnce(Q, Option<Duration>) -> F,
) -> Response<Body>
where
    Q: Message + Default,
    R: Message,
    F: Future<Output = Result<(R, Allowed), Status>>,
{
    let request = match read(&headers, body).await {
        Ok(request) => request,
        Err(status) => {
            state.metrics().failed();
            return status.into_http();
        }
    };
    let start = SystemClock.now();
    let result = decide(request, deadline(&headers)).await;
    state.metrics().answered(SystemClock.now().since(start));
    match result {
        Ok((message, allowed)) => {
            match allowed {
                Allowed::Yes => state.metrics().allowed(),
                Allowed::No => state.metrics().denied(),
            }
            response(&message)
        }
        Err(status) => {
            state.metrics().failed();
            status.into_http()
        }
    }
}

/// Returns how long the caller of a call waits for the response, if it says so.
fn deadline(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(GRPC_TIMEOUT)?.to_str().ok()?;
    let (number, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    // At most 8 digits, by the specification.
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

/// Reads the message of a call.
async fn read<M: Message + Default>(
    headers: &HeaderMap,
    mut body: impl hyper::body::Body<Data = Bytes, Error = Status> + Unpin,
) -> Result<M, Status> {
    if let Some(encoding) = headers.get(GRPC_ENCODING).filter(|encoding| *encoding != "identity") {
        return Err(Status::unimplemented(format!("unsupported encoding {encoding:?}: send messages uncompressed")));
    }
    let mut received = Bytes::new();
    while let Some(frame) = body.frame().await {
        if let Ok(data) = frame?.into_data() {
            received = match received.is_empty() {
                true => data,
                false => append(received, &data),
            };
            check_length(&received)?;
        }
        if body.is_end_stream() {
            break;
        }
    }
    let missing = || Status::internal("the call has no message, or only a part of it");
    let length = announced_length(&received).ok_or_else(missing)?;
    let message = received.get(PREFIX..PREFIX + length).ok_or_else(missing)?;
    M::decode(message).map_err(|error| Status::internal(error.to_string()))
}

#[cold]
fn append(received: Bytes, data: &[u8]) -> Bytes {
    let mut both = received.try_into_mut().unwrap_or_else(|shared| BytesMut::from(&shared[..]));
    both.extend_from_slice(data);
    both.freeze()
}

/// Rejects a message as soon as its prefix announces that it is compressed or too long.
fn check_length(received: &[u8]) -> Result<(), Status> {
    if received.first().is_some_and(|flag| *flag != 0) {
        return Err(Status::internal("the message is compressed, but the call has no `grpc-encoding`"));
    }
    match announced_length(received) {
        Some(length) if length > MAX_MESSAGE => {
            Err(Status::out_of_range(format!("the message has {length} bytes: at most {MAX_MESSAGE} are accepted")))
        }
        Some(length) if received.len() > PREFIX + length => {
            Err(Status::internal("the call has several messages: expected one"))
        }
        _ => Ok(()),
    }
}

/// The length of the message, once its prefix has been received.
fn announced_length(received: &[u8]) -> Option<usize> {
    let [_, length @ ..] = received.first_chunk::<PREFIX>()?;
    usize::try_from(u32::from_be_bytes(*length)).ok()
}

/// Returns the response to a call that succeeded.
fn response(message: &impl Message) -> Response<Body> {
    let length = message.encoded_len();
    let mut data = BytesMut::with_capacity(PREFIX + length);
    data.put_u8(0);
    // A response has at most some kilobytes for each of its descriptors.
    data.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
    message.encode_raw(&mut data);
    let mut trailers = HeaderMap::with_capacity(1);
    trailers.insert(GRPC_STATUS, HeaderValue::from_static("0"));
    let body = Full::new(data.freeze()).with_trailers(std::future::ready(Some(Ok::<_, Infallible>(trailers))));
    let mut response = Response::new(Body::new(body));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;
    use hyper::body::Frame;
    use proptest::prelude::*;
    use prost_types::Duration as Sample;

    const SAMPLE: Sample = Sample { seconds: 1_234_567, nanos: 89 };

    fn sent(message: &Sample) -> Vec<u8> {
        let mut bytes = vec![0];
        bytes.put_u32(u32::try_from(message.encoded_len()).unwrap());
        message.encode_raw(&mut bytes);
        bytes
    }

    /// Reads what is sent in pieces of these lengths, and then the rest.
    fn received(sent: &[u8], pieces: &[usize], headers: &HeaderMap) -> Result<Sample, String> {
        let mut rest = Bytes::copy_from_slice(sent);
        let mut frames = pieces.iter().map(|length| rest.split_to((*length).min(rest.len()))).collect::<Vec<_>>();
        frames.push(rest);
        let frames = frames.into_iter().map(|data| Ok::<_, Status>(Frame::data(data)));
        let body = http_body_util::StreamBody::new(futures_util::stream::iter(frames));
        let result = read::<Sample>(headers, body).now_or_never().unwrap();
        result.map_err(|status| format!("{:?}: {}", status.code(), status.message()))
    }

    fn error(sent: &[u8]) -> String {
        received(sent, &[], &HeaderMap::new()).unwrap_err()
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
        assert_eq!(
            error(&[0, 0xff, 0xff, 0xff, 0xff]),
            "OutOfRange: the message has 4294967295 bytes: at most 1048576 are accepted"
        );
    }

    #[test]
    fn other_encodings_are_not_implemented() {
        let headers = |encoding| HeaderMap::from_iter([(GRPC_ENCODING, HeaderValue::from_static(encoding))]);
        let error = received(&sent(&SAMPLE), &[], &headers("gzip")).unwrap_err();
        assert_eq!(error, "Unimplemented: unsupported encoding \"gzip\": send messages uncompressed");
        assert_eq!(received(&sent(&SAMPLE), &[], &headers("identity")), Ok(SAMPLE));
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
