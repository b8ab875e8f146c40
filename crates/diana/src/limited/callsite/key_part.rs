//! What stands in one pair of braces, if it is the whole key.
//!
//! Whatever has `Display` can be a key. But writing a number to hash its digits costs more than the check itself, so numbers
//! and texts are taken as they are. Which of the two it is, the compiler finds out where the attribute stands: it looks for
//! a method on `&&&KeyPart` first, which is there for what is plain, then on `&&KeyPart`, which is there for all that can be shown.

use super::Key;
use std::borrow::Cow;
use std::fmt::Display;
use std::sync::Arc;

/// What stands in one pair of braces.
#[derive(Debug)]
pub struct KeyPart<'a, T: ?Sized>(&'a T);

/// What stands in one pair of braces; it must have a text, and the compiler says so here if it has none.
#[inline]
pub fn part<T: Display + ?Sized>(value: &T) -> KeyPart<'_, T> {
    KeyPart(value)
}

/// What is taken as it is; a text is not even copied.
pub trait Plain {
    /// Writes it.
    fn put<'a>(&'a self, key: &mut Key<'a>);
}

/// Writes what is plain.
pub trait OfPlain<'a> {
    /// Writes it.
    fn write(&self, key: &mut Key<'a>);
}

impl<'a, T: Plain + ?Sized> OfPlain<'a> for &&KeyPart<'a, T> {
    #[inline]
    fn write(&self, key: &mut Key<'a>) {
        self.0.put(key);
    }
}

/// Writes what can be shown.
pub trait OfShown<'a> {
    /// Writes it.
    fn write(&self, key: &mut Key<'a>);
}

impl<'a, T: Display + ?Sized> OfShown<'a> for &KeyPart<'a, T> {
    fn write(&self, key: &mut Key<'a>) {
        key.part(self.0);
    }
}

/// Writes what can't be shown, which [`part`] has told by then: one mistake is one error.
pub trait OfAnything<'a> {
    /// Writes it.
    fn write(&self, key: &mut Key<'a>);
}

impl<'a, T: ?Sized> OfAnything<'a> for KeyPart<'a, T> {
    fn write(&self, _: &mut Key<'a>) {}
}

impl<T: Plain + ?Sized> Plain for &T {
    #[inline]
    fn put<'a>(&'a self, key: &mut Key<'a>) {
        (**self).put(key);
    }
}

macro_rules! plain {
    ($($of:ident: $($kind:ty),+;)+) => {
        $($(impl Plain for $kind {
            #[inline]
            fn put<'a>(&'a self, key: &mut Key<'a>) {
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
    fn put<'a>(&'a self, key: &mut Key<'a>) {
        // No machine has more than 64 bits of address.
        key.unsigned(*self as u64);
    }
}

impl Plain for isize {
    #[inline]
    fn put<'a>(&'a self, key: &mut Key<'a>) {
        key.signed(*self as i64);
    }
}

macro_rules! text {
    ($($kind:ty),+) => {
        $(impl Plain for $kind {
            #[inline]
            fn put<'a>(&'a self, key: &mut Key<'a>) {
                key.borrowed(self);
            }
        })+
    };
}

text!(str, String, Box<str>, Arc<str>, Cow<'_, str>);
