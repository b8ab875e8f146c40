//! The messages that the load needs: of Envoy's rate limit service, and of throttlecrab's.

/// A request.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct RateLimitRequest {
    #[prost(string, tag = "1")]
    pub(crate) domain: String,
    #[prost(message, repeated, tag = "2")]
    pub(crate) descriptors: Vec<Descriptor>,
}

/// A descriptor.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Descriptor {
    #[prost(message, repeated, tag = "1")]
    pub(crate) entries: Vec<Entry>,
}

/// An entry.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Entry {
    #[prost(string, tag = "1")]
    pub(crate) key: String,
    #[prost(string, tag = "2")]
    pub(crate) value: String,
}

/// A response.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct RateLimitResponse {
    /// 1 is OK.
    #[prost(int32, tag = "1")]
    pub(crate) overall_code: i32,
    #[prost(message, repeated, tag = "2")]
    pub(crate) statuses: Vec<DescriptorStatus>,
}

/// The status of a descriptor.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct DescriptorStatus {
    #[prost(int32, tag = "1")]
    pub(crate) code: i32,
    #[prost(uint32, tag = "3")]
    pub(crate) limit_remaining: u32,
}

/// A request of throttlecrab.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ThrottleRequest {
    #[prost(string, tag = "1")]
    pub(crate) key: String,
    #[prost(int32, tag = "2")]
    pub(crate) max_burst: i32,
    #[prost(int32, tag = "3")]
    pub(crate) count_per_period: i32,
    #[prost(int32, tag = "4")]
    pub(crate) period: i32,
    #[prost(int32, tag = "5")]
    pub(crate) quantity: i32,
}

/// A response of throttlecrab.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ThrottleResponse {
    #[prost(bool, tag = "1")]
    pub(crate) allowed: bool,
    #[prost(int32, tag = "3")]
    pub(crate) remaining: i32,
}

/// The path of throttlecrab's call.
pub(crate) const THROTTLE: &str = "/throttlecrab.RateLimiter/Throttle";
/// The path of Envoy's call.
pub(crate) const SHOULD_RATE_LIMIT: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
