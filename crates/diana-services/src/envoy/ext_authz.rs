//! Envoy's external authorization, version 3: Envoy sends the head of each request, so the rules of a gateway apply
//! unchanged.

use super::call::CallBody;
use super::field_count::{LEAF, NestedFields};
use super::proto::auth::check_response::HttpResponse;
use super::proto::auth::{
    AttributeContext, CheckRequest, CheckResponse, DeniedHttpResponse, OkHttpResponse, attribute_context,
};
use super::proto::envoy::config::core::v3::address::Address;
use super::proto::envoy::config::core::v3::header_value_option::HeaderAppendAction;
use super::proto::envoy::config::core::v3::{HeaderValueOption, SocketAddress};
use super::proto::envoy::r#type::v3::HttpStatus;
use super::proto::google::rpc;
use super::unary_call::{MessageError, UnaryCall};
use super::{Allowed, EnvoyState, descriptor_status, within};
use bytes::Bytes;
use diana_http::head::{RejectedRequest, parse_target, prepare_described};
use diana_http::{HttpAttributes, RequestPermit, RequestScheme};
use diana_net::ClientBounds;
use http::header::{CONTENT_LENGTH, HOST, HeaderName, HeaderValue};
use http::request::Parts;
use http::{HeaderMap, Method, Response as HttpMessage, StatusCode, Version};
use http_body_util::{BodyExt, Empty, Full};
use std::net::IpAddr;
use tonic::{Code, Status};

/// The messages in a [`CheckRequest`]: attributes, of them the source and the request, of that its head with headers in either
/// form.
pub(super) const CHECK_FIELDS: NestedFields =
    NestedFields(&[(1, NestedFields(&[(1, SOURCE), (4, NestedFields(&[(2, HEAD)]))]))]);
const SOURCE: NestedFields = NestedFields(&[(1, NestedFields(&[(1, LEAF)]))]);
const HEAD: NestedFields = NestedFields(&[(3, LEAF), (13, NestedFields(&[(1, LEAF)]))]);

/// The fields of a header in a message: itself, its name, and its value.
const FIELDS_OF_HEADER: usize = 3;
/// The other fields of a message, at most: pseudo-headers, and what Envoy adds. With much room for newer ones.
const OTHER_FIELDS: usize = 256;
/// The bytes beside the head, at most: metadata, a certificate.
const OTHER_BYTES: usize = 256 << 10;
/// The bytes that HTTP/1 has around the value of a header: `: `, and the end of the line.
const SEPARATORS: usize = 4;
const TOO_MANY_HEADERS: RejectedRequest =
    RejectedRequest { status: StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, detail: "too many headers" };

const HEAD_TOO_LONG: RejectedRequest = RejectedRequest { detail: "request head too long", ..TOO_MANY_HEADERS };

/// The path of the service's only call.
pub(super) const CHECK: &str = "/envoy.service.auth.v3.Authorization/Check";

impl EnvoyState {
    /// Decides about the request that a caller describes.
    pub(super) async fn check(
        &self,
        call: &mut UnaryCall<CallBody>,
        caller: IpAddr,
    ) -> Result<(CheckResponse, Allowed), Status> {
        let max_fields = OTHER_FIELDS + FIELDS_OF_HEADER * self.options.settings.bounds.headers;
        let max_length = self.options.settings.bounds.header + OTHER_BYTES;
        let request = match call.message::<CheckRequest>(max_length, &CHECK_FIELDS, max_fields).await {
            Ok(request) => request,
            Err(MessageError::TooLong) => return Ok((rejected(HEAD_TOO_LONG).await, Allowed::No)),
            Err(MessageError::TooManyFields) => return Ok((rejected(TOO_MANY_HEADERS).await, Allowed::No)),
            Err(MessageError::Failed(code, message)) => return Err(Status::new(code, message)),
        };
        let deadline = call.deadline;
        let attributes = request.attributes.ok_or_else(|| Status::invalid_argument("no attributes"))?;
        // Without an address, as for a client on a Unix socket, all requests of an Envoy count as one client, rather than as
        // none.
        let peer = peer(&attributes).unwrap_or(caller);
        let http = attributes.request.and_then(|request| request.http);
        let http = http.ok_or_else(|| Status::invalid_argument("the attributes have no HTTP request"))?;
        let scheme = scheme(&http.scheme);
        let prepared = head(http, &self.options.settings.bounds).and_then(|mut head| {
            let client = self.filter.client(&head.headers, peer);
            prepare_described(&mut head, &self.options.settings.heads(), &self.filter).map(|()| (head, client))
        });
        let (head, client) = match prepared {
            Ok(prepared) => prepared,
            Err(rejected) => return Ok((self::rejected(rejected).await, Allowed::No)),
        };
        let check = self.filter.check_attributes(&HttpAttributes::of_head(&head, Some(client)).with_scheme(scheme));
        let checked = within(deadline, check).await?;
        let verdict = checked.as_ref().map_or_else(|denial| denial.verdict(), RequestPermit::verdict);
        diana_http::log(verdict, &head, Some(client), "envoy");
        // A request over a limit can't be rerouted from here.
        let denial = match checked {
            Ok(mut permit) => {
                if let Err(forbidden) = self.filter.check_permission(&head, Some(client)) {
                    // The request is counted, as in the gateway.
                    permit.begin();
                    return Ok((denied(forbidden.status(), forbidden).await, Allowed::No));
                }
                let response = permit.finish(HttpMessage::new(Empty::<Bytes>::new()));
                return Ok((allowed(response.headers()), Allowed::Yes));
            }
            Err(denial) => denial,
        };
        if self.options.denies_when_down && self.engine.is_fallback(denial.verdict()) {
            return Err(Status::unavailable("the shared store is unreachable, and `when_down` is `deny`"));
        }
        // The response's status is 200 for a gRPC call. Envoy sends 200 itself to a client of gRPC.
        let status = denial.status();
        Ok((denied(status, denial.into_response()).await, Allowed::No))
    }
}

/// Answers a call about a request that the gateway would reject. It is not an error: Envoy would let the request pass, if
/// `failure_mode_allow` is set.
async fn rejected(RejectedRequest { status, detail }: RejectedRequest) -> CheckResponse {
    denied(status, diana_http::problem_response(status, detail)).await
}

/// Returns the address of the client, or of the last proxy before Envoy.
fn peer(attributes: &AttributeContext) -> Option<IpAddr> {
    let Address::SocketAddress(SocketAddress { address }) =
        attributes.source.as_ref()?.address.as_ref()?.address.as_ref()?;
    address.parse().ok()
}

/// Returns the scheme of the request: Envoy's `X-Forwarded-Proto`, else the scheme of the attributes. The latter is the `:scheme`
/// that a client of HTTP/2 chooses; Envoy sets the former for clients that it does not trust.
fn scheme(attribute: &str) -> RequestScheme {
    let transport = if attribute.is_empty() { RequestScheme::default() } else { RequestScheme::of(attribute) };
    transport.or_forwarded()
}

/// Returns the head of the request that Envoy describes, or why the gateway would reject it.
fn head(http: attribute_context::HttpRequest, bounds: &ClientBounds) -> Result<Parts, RejectedRequest> {
    let invalid = |detail| RejectedRequest { status: StatusCode::BAD_REQUEST, detail };
    // The gateway counts the same for its bound.
    let mut length = http.method.len() + http.path.len() + http.host.len();
    if length > bounds.header {
        return Err(HEAD_TOO_LONG);
    }
    let (mut head, ()) = http::Request::new(()).into_parts();
    head.method = Method::from_bytes(http.method.as_bytes()).map_err(|_| invalid("invalid method"))?;
    head.uri = parse_target(http.path.as_bytes(), &head.method).ok_or(invalid("invalid path"))?;
    head.version = Version::HTTP_11;
    // `:path` and others are in fields of their own.
    let is_field = |name: &str| !name.starts_with(':');
    let mut add = |name: &str, value: &[u8]| -> Result<(), RejectedRequest> {
        length += name.len() + value.len() + SEPARATORS;
        if length > bounds.header {
            return Err(HEAD_TOO_LONG);
        }
        // A map has a maximum of its own, over which it panics.
        if head.headers.len() >= bounds.headers {
            return Err(TOO_MANY_HEADERS);
        }
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| invalid("invalid header name"))?;
        head.headers.append(name, HeaderValue::from_bytes(value).map_err(|_| invalid("invalid header"))?);
        Ok(())
    };
    for header in http.header_map.into_iter().flat_map(|map| map.headers).filter(|header| is_field(&header.key)) {
        let value = if header.raw_value.is_empty() { header.value.as_bytes() } else { &header.raw_value };
        add(&header.key, value)?;
    }
    for (name, value) in http.headers.iter().filter(|(name, _)| is_field(name)) {
        match is_joined(name, value) {
            true => value.split(',').try_for_each(|value| add(name, value.trim_ascii().as_bytes()))?,
            false => add(name, value.as_bytes())?,
        }
    }
    if !http.host.is_empty() {
        head.headers.insert(HOST, HeaderValue::from_str(&http.host).map_err(|_| invalid("invalid host"))?);
    }
    Ok(head)
}

/// Returns `true` if a value may be that of a repeated header: without `encode_raw_headers`, Envoy joins its values by commas.
/// The joined text would be a key of the client's choice; several values are one key, whatever they are.
///
/// Values of these fields may have a comma themselves, and hardly any rule counts by them; nor is a list of addresses or
/// cookies a key.
fn is_joined(name: &str, value: &str) -> bool {
    const LISTS: [&str; 17] = [
        "baggage",
        "cache-control",
        "connection",
        "cookie",
        "date",
        "dnt",
        "expect",
        "forwarded",
        "pragma",
        "priority",
        "range",
        "te",
        "tracestate",
        "upgrade",
        "user-agent",
        "via",
        "warning",
    ];
    const PREFIXES: [&str; 5] = ["accept", "access-control-", "if-", "sec-", "x-forwarded-"];
    let has_one_token = |value: &str| {
        let scheme = value.split(' ').next().unwrap_or_default();
        ["basic", "bearer"].iter().any(|known| known.eq_ignore_ascii_case(scheme))
    };
    value.contains(',')
        && match name {
            "authorization" | "proxy-authorization" => has_one_token(value),
            name => !LISTS.contains(&name) && !PREFIXES.iter().any(|prefix| name.starts_with(prefix)),
        }
}

fn allowed(headers: &HeaderMap) -> CheckResponse {
    CheckResponse {
        status: Some(rpc::Status { code: Code::Ok.into(), message: String::new() }),
        http_response: Some(HttpResponse::OkResponse(OkHttpResponse { response_headers_to_add: options(headers) })),
    }
}

async fn denied(status: StatusCode, response: HttpMessage<Full<Bytes>>) -> CheckResponse {
    let (mut head, body) = response.into_parts();
    // Envoy computes it.
    head.headers.remove(CONTENT_LENGTH);
    let body = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    let denied = DeniedHttpResponse {
        status: Some(HttpStatus { code: i32::from(status.as_u16()) }),
        headers: options(&head.headers),
        body: String::from_utf8_lossy(&body).into_owned(),
    };
    CheckResponse {
        status: Some(rpc::Status { code: Code::ResourceExhausted.into(), message: String::new() }),
        http_response: Some(HttpResponse::DeniedResponse(denied)),
    }
}

fn options(headers: &HeaderMap) -> Vec<HeaderValueOption> {
    let append_action = HeaderAppendAction::AppendIfExistsOrAdd.into();
    let headers = descriptor_status::headers(headers).into_iter();
    headers.map(|header| HeaderValueOption { header: Some(header), append_action }).collect()
}
