//! The messages of Envoy's rate limit service and of gRPC's health check, written down from the public API: the field numbers are not those of
//! the program's own files, but must be the same.

use prost::{Enumeration, Message};
use std::collections::HashMap;

#[derive(Clone, PartialEq, Message)]
pub(super) struct RateLimitRequest {
    #[prost(string, tag = "1")]
    pub(super) domain: String,
    #[prost(message, repeated, tag = "2")]
    pub(super) descriptors: Vec<Descriptor>,
    #[prost(uint32, tag = "3")]
    pub(super) hits_addend: u32,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Descriptor {
    #[prost(message, repeated, tag = "1")]
    pub(super) entries: Vec<Entry>,
    #[prost(message, optional, tag = "2")]
    pub(super) limit: Option<Override>,
    /// A `google.protobuf.UInt64Value`.
    #[prost(message, optional, tag = "3")]
    pub(super) hits_addend: Option<u64>,
    #[prost(bool, tag = "4")]
    pub(super) is_negative_hits: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Entry {
    #[prost(string, tag = "1")]
    pub(super) key: String,
    #[prost(string, tag = "2")]
    pub(super) value: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Override {
    #[prost(uint32, tag = "1")]
    pub(super) requests_per_unit: u32,
    #[prost(enumeration = "Unit", tag = "2")]
    pub(super) unit: i32,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct RateLimitResponse {
    #[prost(enumeration = "Code", tag = "1")]
    pub(super) overall_code: i32,
    #[prost(message, repeated, tag = "2")]
    pub(super) statuses: Vec<DescriptorStatus>,
    #[prost(message, repeated, tag = "3")]
    pub(super) response_headers_to_add: Vec<HeaderValue>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct DescriptorStatus {
    #[prost(enumeration = "Code", tag = "1")]
    pub(super) code: i32,
    #[prost(message, optional, tag = "2")]
    pub(super) current_limit: Option<CurrentLimit>,
    #[prost(uint32, tag = "3")]
    pub(super) limit_remaining: u32,
    #[prost(message, optional, tag = "4")]
    pub(super) duration_until_reset: Option<Seconds>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct CurrentLimit {
    #[prost(uint32, tag = "1")]
    pub(super) requests_per_unit: u32,
    #[prost(enumeration = "Unit", tag = "2")]
    pub(super) unit: i32,
    #[prost(string, tag = "3")]
    pub(super) name: String,
}

/// A `google.protobuf.Duration`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Seconds {
    #[prost(int64, tag = "1")]
    pub(super) seconds: i64,
    #[prost(int32, tag = "2")]
    pub(super) nanos: i32,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct HeaderValue {
    #[prost(string, tag = "1")]
    pub(super) key: String,
    #[prost(string, tag = "2")]
    pub(super) value: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub(super) enum Code {
    Unknown = 0,
    Ok = 1,
    OverLimit = 2,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub(super) enum Unit {
    Unknown = 0,
    Second = 1,
    Minute = 2,
    Hour = 3,
    Day = 4,
    Month = 5,
    Year = 6,
    Week = 7,
}

/// A `grpc.health.v1.HealthCheckRequest`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct HealthRequest {
    #[prost(string, tag = "1")]
    pub(super) service: String,
}

/// A `grpc.health.v1.HealthCheckResponse`; the status is 1 if it serves.
#[derive(Clone, PartialEq, Message)]
pub(super) struct HealthResponse {
    #[prost(int32, tag = "1")]
    pub(super) status: i32,
}

/// A `grpc.reflection.v1.ServerReflectionRequest`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ReflectionRequest {
    #[prost(string, tag = "7")]
    pub(super) list_services: String,
}

/// A `grpc.reflection.v1.ServerReflectionResponse`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ReflectionResponse {
    #[prost(message, optional, tag = "6")]
    pub(super) list: Option<ReflectedServices>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ReflectedServices {
    #[prost(message, repeated, tag = "1")]
    pub(super) service: Vec<ReflectedService>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ReflectedService {
    #[prost(string, tag = "1")]
    pub(super) name: String,
}

/// An `envoy.service.auth.v3.CheckRequest`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct CheckRequest {
    #[prost(message, optional, tag = "1")]
    pub(super) attributes: Option<CheckAttributes>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct CheckAttributes {
    #[prost(message, optional, tag = "1")]
    pub(super) source: Option<Peer>,
    #[prost(message, optional, tag = "4")]
    pub(super) request: Option<CheckedRequest>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Peer {
    #[prost(message, optional, tag = "1")]
    pub(super) address: Option<Address>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Address {
    #[prost(message, optional, tag = "1")]
    pub(super) socket_address: Option<SocketAddress>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct SocketAddress {
    #[prost(string, tag = "2")]
    pub(super) address: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct CheckedRequest {
    #[prost(message, optional, tag = "2")]
    pub(super) http: Option<CheckedHttp>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct CheckedHttp {
    #[prost(string, tag = "2")]
    pub(super) method: String,
    #[prost(map = "string, string", tag = "3")]
    pub(super) headers: HashMap<String, String>,
    #[prost(string, tag = "4")]
    pub(super) path: String,
    #[prost(string, tag = "5")]
    pub(super) host: String,
    #[prost(string, tag = "6")]
    pub(super) scheme: String,
}

/// An `envoy.service.auth.v3.CheckResponse`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct CheckResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) status: Option<RpcStatus>,
    #[prost(message, optional, tag = "2")]
    pub(super) denied_response: Option<DeniedHttp>,
    #[prost(message, optional, tag = "3")]
    pub(super) ok_response: Option<OkHttp>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct RpcStatus {
    #[prost(int32, tag = "1")]
    pub(super) code: i32,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct DeniedHttp {
    #[prost(message, optional, tag = "1")]
    pub(super) status: Option<RpcStatus>,
    #[prost(message, repeated, tag = "2")]
    pub(super) headers: Vec<HeaderOption>,
    #[prost(string, tag = "3")]
    pub(super) body: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct OkHttp {
    #[prost(message, repeated, tag = "6")]
    pub(super) response_headers_to_add: Vec<HeaderOption>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct HeaderOption {
    #[prost(message, optional, tag = "1")]
    pub(super) header: Option<HeaderValue>,
}
