//! The PROXY protocol, versions 1 and 2: a load balancer's header about the client, before the client's own bytes.
//!
//! It is read only with `proxy_protocol: true`, and is then required: a connection without it is not from the load
//! balancer.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The longest header accepted: covers version 1, and version 2 with extra fields (TLVs) of the load balancer.
pub const MAX_LENGTH: usize = 2_048;

const V2: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
/// The longest line of version 1.
const V1_MAX_LENGTH: usize = 107;

/// The result of parsing the start of a connection.
#[derive(Debug, PartialEq, Eq)]
pub enum Header {
    /// The header is incomplete.
    Partial,
    /// A complete header.
    Complete {
        /// The header's length in bytes.
        length: usize,
        /// The client's address, if the header has one; it has none if the load balancer connects for itself (a health
        /// check).
        client: Option<SocketAddr>,
    },
    /// The bytes are not a valid PROXY header.
    Invalid,
}

/// Parses the bytes received so far.
pub fn parse(bytes: &[u8]) -> Header {
    let starts_with = |prefix: &[u8]| {
        let length = bytes.len().min(prefix.len());
        bytes.get(..length) == prefix.get(..length)
    };
    if starts_with(V2) {
        return if bytes.len() < 16 { Header::Partial } else { version_2(bytes) };
    }
    if starts_with(b"PROXY ") {
        return version_1(bytes);
    }
    Header::Invalid
}

fn version_1(bytes: &[u8]) -> Header {
    let Some(end) = bytes.windows(2).take(V1_MAX_LENGTH).position(|pair| pair == b"\r\n") else {
        return if bytes.len() < V1_MAX_LENGTH { Header::Partial } else { Header::Invalid };
    };
    let length = end + 2;
    let Some(line) = bytes.get(..end).and_then(|line| std::str::from_utf8(line).ok()) else { return Header::Invalid };
    let mut words = line.split(' ').skip(1);
    let family = words.next();
    if family == Some("UNKNOWN") {
        return Header::Complete { length, client: None };
    }
    let (Some(source), Some(_), Some(port), Some(_), None) =
        (words.next(), words.next(), words.next(), words.next(), words.next())
    else {
        return Header::Invalid;
    };
    let address = match family {
        Some("TCP4") => source.parse().ok().map(IpAddr::V4),
        Some("TCP6") => source.parse().ok().map(IpAddr::V6),
        _ => None,
    };
    match (address, port.parse()) {
        (Some(address), Ok(port)) => Header::Complete { length, client: Some(SocketAddr::new(address, port)) },
        _ => Header::Invalid,
    }
}

fn version_2(bytes: &[u8]) -> Header {
    let &[version_and_command, family, high, low] = &bytes[12..16] else { return Header::Invalid };
    let rest = usize::from(u16::from_be_bytes([high, low]));
    let length = 16 + rest;
    if version_and_command >> 4 != 2 || version_and_command & 0xf > 1 || length > MAX_LENGTH {
        return Header::Invalid;
    }
    let Some(rest) = bytes.get(16..length) else { return Header::Partial };
    // The command LOCAL: the load balancer connects for itself.
    if version_and_command & 0xf == 0 {
        return Header::Complete { length, client: None };
    }
    let port = |at: usize| Some(u16::from_be_bytes(rest.get(at..at + 2)?.try_into().ok()?));
    let client = match family >> 4 {
        1 => rest
            .get(..4)
            .and_then(|ip| <[u8; 4]>::try_from(ip).ok())
            .map(Ipv4Addr::from)
            .zip(port(8))
            .map(|(ip, port)| SocketAddr::new(ip.into(), port)),
        2 => rest
            .get(..16)
            .and_then(|ip| <[u8; 16]>::try_from(ip).ok())
            .map(Ipv6Addr::from)
            .zip(port(32))
            .map(|(ip, port)| SocketAddr::new(ip.into(), port)),
        _ => return Header::Complete { length, client: None },
    };
    match client {
        Some(client) => Header::Complete { length, client: Some(client) },
        None => Header::Invalid,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(text: &str) -> Option<SocketAddr> {
        Some(text.parse().unwrap())
    }

    #[test]
    fn parses_version_1() {
        let line = b"PROXY TCP4 203.0.113.7 10.0.0.1 4711 80\r\nGET / HTTP/1.1\r\n";
        assert_eq!(parse(line), Header::Complete { length: 41, client: client("203.0.113.7:4711") });
        let line = b"PROXY TCP6 2001:db8::7 ::1 4711 80\r\n";
        assert_eq!(parse(line), Header::Complete { length: 36, client: client("[2001:db8::7]:4711") });
        assert_eq!(parse(b"PROXY UNKNOWN any text\r\n"), Header::Complete { length: 24, client: None });
    }

    #[test]
    fn an_incomplete_header_is_partial() {
        let line = b"PROXY TCP4 203.0.113.7 10.0.0.1 4711 80\r\n";
        for length in 0..line.len() {
            assert_eq!(parse(&line[..length]), Header::Partial, "{length}");
        }
    }

    #[test]
    fn parses_version_2() {
        let mut header = V2.to_vec();
        header.extend([0x21, 0x11, 0, 12 + 3, 203, 0, 113, 7, 10, 0, 0, 1, 0x12, 0x67, 0, 80, 4, 0, 0]);
        for length in 0..header.len() {
            assert_eq!(parse(&header[..length]), Header::Partial, "{length}");
        }
        assert_eq!(parse(&header), Header::Complete { length: 31, client: client("203.0.113.7:4711") });
        header[12] = 0x20;
        assert_eq!(parse(&header), Header::Complete { length: 31, client: None });
    }

    #[test]
    fn rejects_invalid_headers() {
        let invalid: [&[u8]; 7] = [
            b"GET / HTTP/1.1\r\n",
            b"PROXY TCP4 203.0.113.7 10.0.0.1 4711\r\n",
            b"PROXY TCP4 2001:db8::7 10.0.0.1 4711 80\r\n",
            b"PROXY TCP4 203.0.113.7 10.0.0.1 471100 80\r\n",
            b"PROXY TCP4 203.0.113.7 10.0.0.1 1 80 extra\r\n",
            b"\r\n\r\n\0\r\nQUIT\n\x31\x11\0\x0c",
            b"\r\n\r\n\0\r\nQUIT\n\x21\x11\xff\xff",
        ];
        for bytes in invalid {
            assert_eq!(parse(bytes), Header::Invalid, "{}", bytes.escape_ascii());
        }
        assert_eq!(parse(&[b'P'; 1]), Header::Partial);
        let long = [b"PROXY TCP4 ".as_slice(), &[b'1'; 200]].concat();
        assert_eq!(parse(&long), Header::Invalid);
    }
}
