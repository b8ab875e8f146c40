//! The value of one pair of braces, if it is the whole key.
//!
//! Every type with `Display` can be a key. But formatting a number to hash its digits costs more than the check itself,
//! so numbers and strings are used directly. The compiler selects the case at the call site (autoref specialization):
//! it looks for a method on `&&&KeyPart` first, which exists for plain types, then on `&&KeyPart`, which exists for
//! `Display` types.

use super::CallKey;
use std::borrow::Cow;
use std::fmt::Display;
use std::sync::Arc;

/// The value of one pair of braces.
#[derive(Debug)]
pub struct KeyPart<'a, T: ?Sized>(&'a T);

/// Wraps the value of one pair of braces; a type without `Display` is a compile error here.
#[inline]
pub fn part<T: Display + ?Sized>(value: &T) -> KeyPart<'_, T> {
    KeyPart(value)
}

/// Types that are used directly; a string is not even copied.
pub trait Plain {
    /// Sets the key to this value.
    fn write_to<'a>(&'a self, key: &mut CallKey<'a>);
}

/// Writes plain types.
pub trait WritePlain<'a> {
    /// Writes the value to the key.
    fn write(&self, key: &mut CallKey<'a>);
}

impl<'a, T: Plain + ?Sized> WritePlain<'a> for &&KeyPart<'a, T> {
    #[inline]
    fn write(&self, key: &mut CallKey<'a>) {
        self.0.write_to(key);
    }
}

/// Writes `Display` types.
pub trait WriteDisplay<'a> {
    /// Writes the value to the key.
    fn write(&self, key: &mut CallKey<'a>);
}

impl<'a, T: Display + ?Sized> WriteDisplay<'a> for &KeyPart<'a, T> {
    fn write(&self, key: &mut CallKey<'a>) {
        key.part(self.0);
    }
}

/// Accepts all other types, for which [`part`] has already failed: one mistake is one compile error.
pub trait WriteNothing<'a> {
    /// Writes the value to the key.
    fn write(&self, key: &mut CallKey<'a>);
}

impl<'a, T: ?Sized> WriteNothing<'a> for KeyPart<'a, T> {
    fn write(&self, _: &mut CallKey<'a>) {}
}

impl<T: Plain + ?Sized> Plain for &T {
    #[inline]
    fn write_to<'a>(&'a self, key: &mut CallKey<'a>) {
        (**self).write_to(key);
    }
}

macro_rules! plain {
    ($($of:ident: $($kind:ty),+;)+) => {
        $($(impl Plain for $kind {
            #[inline]
            fn write_to<'a>(&'a self, key: &mut CallKey<'a>) {
                key.$of((*self).into());
            }
        })+)+
    };
}

plain! {
    unsigned: u8, u16, u32, u64;
    signed: i8, i16, i32, i64;
}

impl Plain for usize {
    #[inline]
    fn write_to<'a>(&'a self, key: &mut CallKey<'a>) {
        // `usize` has at most 64 bits.
        key.unsigned(*self as u64);
    }
}

impl Plain for isize {
    #[inline]
    fn write_to<'a>(&'a self, key: &mut CallKey<'a>) {
        key.signed(*self as i64);
    }
}

macro_rules! text {
    ($($kind:ty),+) => {
        $(impl Plain for $kind {
            #[inline]
            fn write_to<'a>(&'a self, key: &mut CallKey<'a>) {
                key.borrowed(self);
            }
        })+
    };
}

text!(str, String, Box<str>, Arc<str>, Cow<'_, str>);
