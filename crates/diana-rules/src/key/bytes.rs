//! The bytes of a key, appended to a reusable buffer.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Marks a part that a call does not pass. Texts are UTF-8, in which this byte does not occur.
pub(super) const UNKNOWN: u8 = 0xFE;

/// The bytes of one key, or of several concatenated keys.
pub type KeyBytes = Vec<u8>;

/// Runs `write`, and prefixes its output with the length: `4:free`.
pub(super) fn with_length<E>(key: &mut KeyBytes, write: impl FnOnce(&mut KeyBytes) -> Result<(), E>) -> Result<(), E> {
    let start = key.len();
    write(key)?;
    // The length is only known afterwards, so it is appended, then rotated to the front.
    let length = key.len() - start;
    decimal(key, length);
    key.push(b':');
    key[start..].rotate_left(length);
    Ok(())
}

/// Iterates over length-prefixed parts. Stops at the first malformed one.
pub(super) fn parts(mut key: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let colon = key.iter().position(|byte| *byte == b':')?;
        let length = std::str::from_utf8(key.get(..colon)?).ok()?.parse::<usize>().ok()?;
        let (part, rest) = key.get(colon + 1..)?.split_at_checked(length)?;
        key = rest;
        Some(part)
    })
}

/// The prefix lengths of an address that make up a key, for IPv4 and IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrefixLengths {
    pub(super) v4: u8,
    pub(super) v6: u8,
}

impl PrefixLengths {
    /// The default: all of IPv4, and the /64 of IPv6 that one customer has.
    pub(super) const DEFAULT: Self = Self { v4: 32, v6: 64 };

    /// Writes the address with all bits after the prefix set to zero.
    pub(super) fn write(self, address: IpAddr, key: &mut KeyBytes) {
        // An IPv4-mapped IPv6 address is the same client.
        match address.to_canonical() {
            IpAddr::V4(address) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(self.v4.min(32))).unwrap_or(0);
                let octets = Ipv4Addr::from_bits(address.to_bits() & mask).octets();
                // On the hot path, so all of it is appended at once.
                let (mut text, mut length) = ([b'.'; 16], 0);
                for octet in octets {
                    length = write_octet(&mut text, length, octet) + 1;
                }
                key.extend_from_slice(&text[..length - 1]);
            }
            IpAddr::V6(address) => {
                use std::io::Write;
                let mask = u128::MAX.checked_shl(128 - u32::from(self.v6.min(128))).unwrap_or(0);
                // Writing to memory can't fail.
                let _ = write!(key, "{}", Ipv6Addr::from_bits(address.to_bits() & mask));
            }
        }
    }
}

/// Writes one octet of an address at an offset; returns the offset after it.
fn write_octet(text: &mut [u8; 16], mut at: usize, octet: u8) -> usize {
    let mut put = |digit: u8| {
        text[at] = b'0' + digit;
        at += 1;
    };
    if octet >= 100 {
        put(octet / 100);
    }
    if octet >= 10 {
        put(octet / 10 % 10);
    }
    put(octet % 10);
    at
}

/// Writes a number. On the hot path; the standard library's formatting takes three times as long.
fn decimal(key: &mut KeyBytes, number: usize) {
    let mut digits = [0; 20];
    let (mut at, mut rest) = (digits.len(), number);
    loop {
        at -= 1;
        digits[at] = b'0' + u8::try_from(rest % 10).unwrap_or(0);
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    key.extend_from_slice(&digits[at..]);
}
