//! SipHash-1-3, the hash of std's `HashMap`, for short keys that are hashed in one piece.
//!
//! A keyed hash is needed: the store keeps only the hashes, so clients must not be able to make keys collide. std's own
//! implementation collects its input byte by byte in a buffer, since it doesn't know what follows. A rate limiter's key
//! is nearly always one text: it is read in whole words, which takes half the instructions for a text of 12 bytes.
//!
//! # What always holds (the test below)
//! - With the same keys, all hashes are those of std's implementation.

use std::hash::{BuildHasher, Hasher};

/// The two keys of the hash.
#[derive(Clone, Debug)]
pub(crate) struct SipKeys(u64, u64);

impl SipKeys {
    /// Creates the hash with these keys.
    pub(crate) fn new([first, second]: [u64; 2]) -> Self {
        Self(first, second)
    }

    /// Returns the keys.
    pub(crate) fn get(&self) -> [u64; 2] {
        [self.0, self.1]
    }

    /// Returns new random keys. They are fixed under the model checkers, which must be able to repeat a run.
    pub(crate) fn random() -> Self {
        if cfg!(any(loom, shuttle)) {
            return Self(0, 0);
        }
        // std has no other source of random numbers; its own keys are random for each process.
        let random = std::hash::RandomState::new();
        Self(random.hash_one(0), random.hash_one(1))
    }
}

impl BuildHasher for SipKeys {
    type Hasher = SipHasher;

    #[inline(always)]
    fn build_hasher(&self) -> SipHasher {
        let Self(k0, k1) = *self;
        SipHasher {
            v0: k0 ^ 0x736f_6d65_7073_6575,
            v1: k1 ^ 0x646f_7261_6e64_6f6d,
            v2: k0 ^ 0x6c79_6765_6e65_7261,
            v3: k1 ^ 0x7465_6462_7974_6573,
            tail: 0,
            len: 0,
        }
    }
}

/// The state of the hash.
#[derive(Debug)]
pub(crate) struct SipHasher {
    v0: u64,
    v1: u64,
    v2: u64,
    v3: u64,
    /// The last `len % 8` bytes, which are not a whole word yet.
    tail: u64,
    len: usize,
}

impl SipHasher {
    #[inline(always)]
    fn round(&mut self) {
        self.v0 = self.v0.wrapping_add(self.v1);
        self.v2 = self.v2.wrapping_add(self.v3);
        self.v1 = self.v1.rotate_left(13) ^ self.v0;
        self.v3 = self.v3.rotate_left(16) ^ self.v2;
        self.v0 = self.v0.rotate_left(32).wrapping_add(self.v3);
        self.v2 = self.v2.wrapping_add(self.v1);
        self.v3 = self.v3.rotate_left(21) ^ self.v0;
        self.v1 = self.v1.rotate_left(17) ^ self.v2;
        self.v2 = self.v2.rotate_left(32);
    }

    #[inline(always)]
    fn compress(&mut self, word: u64) {
        self.v3 ^= word;
        self.round();
        self.v0 ^= word;
    }

    /// Appends the lowest `count` bytes of `value`, 8 at most; the others are 0.
    #[inline(always)]
    fn append(&mut self, value: u64, count: usize) {
        let used = self.len % 8;
        self.len += count;
        self.tail |= value << (8 * used);
        if used + count >= 8 {
            self.compress(self.tail);
            // The whole of `value` was written if the tail was empty.
            self.tail = value.checked_shr(bits(8 - used)).unwrap_or(0);
        }
    }

    /// Appends bytes after others that were not whole words: for keys of several parts.
    #[inline(never)]
    fn append_bytes(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks();
        for word in words {
            self.append(u64::from_le_bytes(*word), 8);
        }
        self.append(last_bytes(rest), rest.len());
    }
}

impl Hasher for SipHasher {
    #[inline(always)]
    fn write(&mut self, bytes: &[u8]) {
        if !self.len.is_multiple_of(8) {
            return self.append_bytes(bytes);
        }
        for word in bytes.as_chunks().0 {
            self.compress(u64::from_le_bytes(*word));
        }
        self.tail = last_bytes(bytes);
        self.len += bytes.len();
    }

    #[inline(always)]
    fn write_u8(&mut self, number: u8) {
        self.append(u64::from(number), 1);
    }

    #[inline(always)]
    fn write_u32(&mut self, number: u32) {
        self.append(u64::from(number.to_le()), 4);
    }

    #[inline(always)]
    fn write_u64(&mut self, number: u64) {
        self.append(number.to_le(), 8);
    }

    #[inline(always)]
    fn finish(&self) -> u64 {
        let Self { v0, v1, v2, v3, tail, len } = *self;
        let mut last = Self { v0, v1, v2, v3, tail, len };
        // The highest byte is the length, modulo 256.
        last.compress(((len as u64) << 56) | tail);
        last.v2 ^= 0xff;
        last.round();
        last.round();
        last.round();
        last.v0 ^ last.v1 ^ last.v2 ^ last.v3
    }
}

/// Returns the bytes after the last whole word of `bytes`, as a number. It reads words that overlap, rather than single bytes.
#[inline(always)]
fn last_bytes(bytes: &[u8]) -> u64 {
    let count = bytes.len() % 8;
    if let Some(last) = bytes.last_chunk() {
        return u64::from_le_bytes(*last).checked_shr(bits(8 - count)).unwrap_or(0);
    }
    if let (Some(first), Some(last)) = (bytes.first_chunk(), bytes.last_chunk()) {
        let (first, last) = (u32::from_le_bytes(*first), u32::from_le_bytes(*last));
        return u64::from(first) | u64::from(last) << bits(count - 4);
    }
    // One to three bytes.
    let byte = |index: usize| bytes.get(index).map_or(0, |byte| u64::from(*byte) << bits(index));
    byte(0) | byte(count / 2) | byte(count.saturating_sub(1))
}

/// Returns the number of bits of `bytes` bytes, at most 8.
#[inline(always)]
#[allow(clippy::cast_possible_truncation, reason = "at most 8")]
fn bits(bytes: usize) -> u32 {
    8 * bytes as u32
}

#[cfg(test)]
mod tests {
    use super::SipKeys;
    use std::hash::{BuildHasher, DefaultHasher, Hash, Hasher};

    /// Hashes with std's implementation; without `RandomState`, its keys are 0.
    fn of_std(key: &(impl Hash + ?Sized)) -> u64 {
        let mut hasher = DefaultHasher::new();
        key.hash(&mut hasher);
        hasher.finish()
    }

    fn ours(key: &(impl Hash + ?Sized)) -> u64 {
        SipKeys(0, 0).hash_one(key)
    }

    #[test]
    fn texts_of_every_length_have_the_hashes_of_std() {
        let text: String = (0..600_u32).map(|index| char::from(b'!' + u8::try_from(index * 7 % 90).unwrap())).collect();
        for end in 0..text.len() {
            let text = &text[..end];
            assert_eq!(ours(text), of_std(text), "{end} bytes");
            assert_eq!(ours(text.as_bytes()), of_std(text.as_bytes()), "{end} bytes");
            let (mut bytes, mut expected) = (SipKeys(0, 0).build_hasher(), DefaultHasher::new());
            bytes.write(text.as_bytes());
            expected.write(text.as_bytes());
            assert_eq!(bytes.finish(), expected.finish(), "{end} bytes");
        }
    }

    #[test]
    fn keys_of_several_parts_have_the_hashes_of_std() {
        let text = "abcdefghijklmnopqrstuvwxyz";
        for (start, end) in (0..=26).flat_map(|start| (start..=26).map(move |end| (start, end))) {
            let (a, b) = (&text[..start], &text[start..end]);
            assert_eq!(ours(&(a, b)), of_std(&(a, b)), "{start}..{end}");
            let mixed = (a, 0x0102_0304_u32, u64::MAX - 5, b, 7_u8, -3_i16, 1_u128 << 100, [b; 2]);
            assert_eq!(ours(&mixed), of_std(&mixed), "{start}..{end}");
        }
        assert_eq!(ours(&u64::MAX), of_std(&u64::MAX));
    }

    #[test]
    fn hashes_depend_on_both_keys() {
        let hashes = [SipKeys(0, 0), SipKeys(1, 0), SipKeys(0, 1)].map(|keys| keys.hash_one("key"));
        assert!(hashes[0] != hashes[1] && hashes[1] != hashes[2] && hashes[0] != hashes[2], "{hashes:?}");
        assert_ne!(SipKeys::random().hash_one("key"), SipKeys::random().hash_one("key"));
    }

    /// The first vectors of the reference implementation, with `cROUNDS` 1 and `dROUNDS` 3.
    #[test]
    fn the_whole_key_is_used_as_in_the_reference() {
        let keys = SipKeys(0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908);
        assert_eq!(keys.build_hasher().finish().to_le_bytes(), [0xdc, 0xc4, 0x0f, 0x05, 0x58, 0x01, 0xac, 0xab]);
    }
}
