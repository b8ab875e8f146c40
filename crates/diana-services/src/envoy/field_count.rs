//! Counts the fields of a message before it is decoded: a message of 1 MiB may have half a million fields, each of which is
//! an allocation.

use prost::encoding::{WireType, decode_key, decode_varint};

/// The fields of a message that are messages themselves, by their numbers.
pub(super) struct NestedFields(pub(super) &'static [(u32, Self)]);

/// A message without messages in it.
pub(super) const LEAF: NestedFields = NestedFields(&[]);

impl NestedFields {
    /// Returns the number of fields of a message, with those of the messages in it; `None` if it has more than `max`. Stops
    /// where the message is malformed, which decoding reports.
    pub(super) fn count_up_to(&self, max: usize, message: &[u8]) -> Option<usize> {
        let mut rest = max;
        self.count(message, &mut rest)?;
        Some(max - rest)
    }

    /// Subtracts the number of fields from `rest`; `None` if there are more.
    fn count(&self, mut message: &[u8], rest: &mut usize) -> Option<()> {
        while let Ok((number, kind)) = decode_key(&mut message) {
            *rest = rest.checked_sub(1)?;
            let length = match kind {
                WireType::Varint => decode_varint(&mut message).map(|_| 0),
                WireType::ThirtyTwoBit => Ok(4),
                WireType::SixtyFourBit => Ok(8),
                WireType::LengthDelimited => decode_varint(&mut message),
                // The fields of the group follow.
                WireType::StartGroup | WireType::EndGroup => Ok(0),
            };
            let field = length.ok().and_then(|length| message.split_at_checked(usize::try_from(length).ok()?));
            let Some((field, after)) = field else { return Some(()) };
            message = after;
            if kind == WireType::LengthDelimited
                && let Some((_, nested)) = self.0.iter().find(|(known, _)| *known == number)
            {
                nested.count(field, rest)?;
            }
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::envoy::ext_authz::CHECK_FIELDS;
    use crate::envoy::proto::auth::{AttributeContext, CheckRequest, attribute_context};
    use crate::envoy::proto::envoy::extensions::common::ratelimit::v3::{RateLimitDescriptor, rate_limit_descriptor};
    use crate::envoy::proto::ratelimit::RateLimitRequest;
    use crate::envoy::rate_limit::RATE_LIMIT_FIELDS;
    use prost::Message;

    fn count(fields: &NestedFields, message: &[u8]) -> usize {
        let count = fields.count_up_to(usize::MAX, message).unwrap();
        assert_eq!(fields.count_up_to(count, message), Some(count));
        assert_eq!(count.checked_sub(1).and_then(|less| fields.count_up_to(less, message)), None);
        count
    }

    #[test]
    fn every_header_counts_with_its_name_and_its_value() {
        let with_headers = |headers: usize| {
            let headers = (0..headers).map(|number| (number.to_string(), "1".to_owned())).collect();
            let http = attribute_context::HttpRequest { headers, ..Default::default() };
            let request = Some(attribute_context::Request { http: Some(http) });
            let attributes = Some(AttributeContext { request, source: None });
            count(&CHECK_FIELDS, &CheckRequest { attributes }.encode_to_vec())
        };
        // The attributes, the request and its head.
        assert_eq!([0, 1, 10].map(with_headers), [3, 6, 33]);
    }

    #[test]
    fn every_entry_counts_with_its_key_and_its_value() {
        let entry = rate_limit_descriptor::Entry { key: "key".to_owned(), value: "value".to_owned() };
        let descriptor = RateLimitDescriptor { entries: vec![entry; 5], ..Default::default() };
        let request = RateLimitRequest { domain: "d".to_owned(), descriptors: vec![descriptor; 7], hits_addend: 1 };
        assert_eq!(count(&RATE_LIMIT_FIELDS, &request.encode_to_vec()), 2 + 7 * (1 + 5 * 3));
    }

    #[test]
    fn any_bytes_are_counted_without_a_panic() {
        for bytes in
            [&[][..], &[0xff; 64], &[0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f], &[0x0a, 5, 1], &[0x0b; 9], &[0x0d, 1]]
        {
            assert!(count(&CHECK_FIELDS, bytes) <= bytes.len());
        }
    }
}
