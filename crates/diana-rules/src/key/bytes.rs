//! The bytes of a key. They are written behind each other into a buffer that is used again and again.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Stands for what a call does not tell; texts are UTF-8, in which it does not occur.
pub(super) const UNKNOWN: u8 = 0xFE;

/// The bytes of a key, or of several one behind the other.
pub type KeyBytes = Vec<u8>;

/// Writes what `write` writes, with its length in front: `4:free`.
pub(super) fn with_length<E>(key: &mut KeyBytes, write: impl FnOnce(&mut KeyBytes) -> Result<(), E>) -> Result<(), E> {
    let start = key.len();
    write(key)?;
    // It is not known before how long it will be, so the length is written behind, and turned to the front.
    let length = key.len() - start;
    decimal(key, length);
    key.push(b':');
    key[start..].rotate_left(length);
    Ok(())
}

/// What was written with its length in front, one by one. What was not written so ends it.
pub(super) fn parts(mut key: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let colon = key.iter().position(|byte| *byte == b':')?;
        let length = std::str::from_utf8(key.get(..colon)?).ok()?.parse::<usize>().ok()?;
        let (part, rest) = key.get(colon + 1..)?.split_at_checked(length)?;
        key = rest;
        Some(part)
    })
}

/// The shares of an address that make up a key: so many bits of IPv4, and of IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Share {
    pub(super) v4: u8,
    pub(super) v6: u8,
}

impl Share {
    /// What counts where nothing is said: all of IPv4, and the part of IPv6 that one customer has.
    pub(super) const USUAL: Self = Self { v4: 32, v6: 64 };

    /// Writes the first bits of an address, as an address.
    pub(super) fn write(self, address: IpAddr, key: &mut KeyBytes) {
        // The same client, whichever way it came.
        match address.to_canonical() {
            IpAddr::V4(address) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(self.v4.min(32))).unwrap_or(0);
                let octets = Ipv4Addr::from_bits(address.to_bits() & mask).octets();
                // On every request's way, so all of it goes to the key at once.
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

/// Writes a part of an address at a place; tells the place behind it.
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

/// Writes a number: the formatting of the standard library takes three times as long, and this is on every request's way.
fn decimal(key: &mut KeyBytes, number: usize) {
    let mut digits = [0; 20];
    let (mut at, mut left) = (digits.len(), number);
    loop {
        at -= 1;
        digits[at] = b'0' + u8::try_from(left % 10).unwrap_or(0);
        left /= 10;
        if left == 0 {
            break;
        }
    }
    key.extend_from_slice(&digits[at..]);
}
