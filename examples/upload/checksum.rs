//! The number of bytes, and a checksum to compare them: FNV-1a.

use std::fmt;

/// A length and a checksum, byte by byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Checksum {
    length: u64,
    sum: u64,
}

impl Default for Checksum {
    fn default() -> Self {
        Self { length: 0, sum: 0xcbf2_9ce4_8422_2325 }
    }
}

impl Checksum {
    pub(crate) fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.length += 1;
            self.sum = (self.sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    pub(crate) fn length(&self) -> u64 {
        self.length
    }
}

impl fmt::Display for Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.sum)
    }
}
