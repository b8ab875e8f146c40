//! The name of a state on Redis.
//!
//! ```text
//!  diana:each-account:{alice}
//!  prefix limit       key, as the hash tag
//! ```
//!
//! All limits of one key have the same hash tag, so a Redis Cluster stores them on one node, where one script can
//! decide over them. Limit and key can't be confused, regardless of their content: `:`, `{`, `}` and `%` are escaped in the
//! limit's name, and the rest is the key. A key longer than [`MAX_KEY_BYTES`] is replaced by its SHA-256, so that
//! clients can't fill Redis with long keys. Only keys with a SHA-256 collision would share a count.

use sha2::{Digest, Sha256};
use std::fmt::Write;

/// The maximum length in bytes of a key that is stored unhashed.
pub(crate) const MAX_KEY_BYTES: usize = 128;

/// The common prefix of all keys of one limit.
#[derive(Clone, Debug)]
pub(crate) struct KeySpace {
    stem: Box<str>,
}

impl KeySpace {
    /// Returns the key space of the limit with this name.
    pub(crate) fn new(prefix: &str, limit: &str) -> Self {
        let mut stem = format!("{prefix}:");
        for character in limit.chars() {
            match character {
                ':' | '{' | '}' | '%' => {
                    // Writing to a `String` does not fail.
                    let _ = write!(stem, "%{:02x}", u32::from(character));
                }
                other => stem.push(other),
            }
        }
        stem.push(':');
        Self { stem: stem.into() }
    }

    /// Returns the name of the state of `key`.
    pub(crate) fn name(&self, key: &[u8]) -> Vec<u8> {
        let mut name = Vec::with_capacity(self.stem.len() + key.len().min(MAX_KEY_BYTES) + 2);
        name.extend_from_slice(self.stem.as_bytes());
        if key.len() <= MAX_KEY_BYTES {
            name.push(b'{');
            name.extend_from_slice(key);
        } else {
            // An unhashed key begins with the brace, so the two forms are distinct.
            name.extend_from_slice(b"#{");
            for byte in Sha256::digest(key) {
                name.extend_from_slice(&[hex(byte >> 4), hex(byte & 0xf)]);
            }
        }
        name.push(b'}');
        name
    }
}

/// Returns the Redis Cluster slot of a name: determined by its hash tag, if it has one that is not empty.
pub(crate) fn slot(name: &[u8]) -> u16 {
    let tag = name.iter().position(|byte| *byte == b'{').and_then(|open| {
        let rest = name.get(open + 1..)?;
        let close = rest.iter().position(|byte| *byte == b'}')?;
        rest.get(..close).filter(|tag| !tag.is_empty())
    });
    crc16::State::<crc16::XMODEM>::calculate(tag.unwrap_or(name)) % 16_384
}

fn hex(nibble: u8) -> u8 {
    match nibble {
        0..=9 => b'0' + nibble,
        _ => b'a' + nibble - 10,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_and_keys_are_distinct_whatever_they_contain() {
        let name = |limit, key: &str| String::from_utf8(KeySpace::new("diana", limit).name(key.as_bytes())).unwrap();
        assert_eq!(name("each-account", "alice"), "diana:each-account:{alice}");
        assert_eq!(name("a:b", ""), "diana:a%3ab:{}");
        assert_ne!(name("a", "b}:{c"), name("a:{b}", "c"));
        assert_ne!(name("a", "#x"), name("a:#", "x"));
    }

    #[test]
    fn a_long_key_is_hashed() {
        let name = |length: usize| KeySpace::new("diana", "a").name(&vec![b'k'; length]).len();
        assert_eq!(name(MAX_KEY_BYTES), "diana:a:{}".len() + MAX_KEY_BYTES);
        assert_eq!(name(MAX_KEY_BYTES + 1), "diana:a:#{}".len() + 64);
        assert_eq!(name(1_000_000), "diana:a:#{}".len() + 64);
    }

    #[test]
    fn slots_are_those_of_redis() {
        // CLUSTER KEYSLOT returns these numbers.
        assert_eq!(slot(b"foo"), 12_182);
        assert_eq!(slot(b"diana:each-account:{foo}"), 12_182);
        assert_eq!(slot(b"{}foo"), slot(b"{}foo"));
        assert_eq!(slot(b"123456789"), 12_739);
    }
}
