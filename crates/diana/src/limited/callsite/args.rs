//! The named arguments that a call passes to the rule of its function.

use crate::limited::Caller;
use diana_rules::{Attribute, Attributes};
use smallvec::SmallVec;
use std::borrow::Cow;
use std::fmt::{self, Write};
use std::net::IpAddr;

/// Named arguments: their texts are concatenated, on the stack if they are short.
#[derive(Clone, Debug, Default)]
pub struct Args {
    texts: SmallVec<[u8; 64]>,
    /// The names, and where their texts start.
    names: SmallVec<[(&'static str, usize); 4]>,
}

impl Args {
    /// Creates an empty list.
    #[inline]
    pub fn new() -> Self {
        Self::default()
    }

    /// Starts the text of this name.
    #[inline]
    pub fn name(&mut self, name: &'static str) {
        self.names.push((name, self.texts.len()));
    }

    /// Appends literal text.
    #[inline]
    pub fn text(&mut self, text: &str) {
        self.texts.extend_from_slice(text.as_bytes());
    }

    /// Appends the value of one pair of braces.
    #[inline]
    pub fn part(&mut self, part: impl fmt::Display) {
        // If `Display` fails, the text so far is used.
        let _failed = write!(self, "{part}");
    }

    fn unlisted(&self, is_listed: &dyn Fn(&str) -> bool) -> Option<&'static str> {
        self.names.iter().map(|(name, _)| *name).find(|name| !is_listed(name))
    }

    fn get(&self, name: &str) -> Option<Cow<'_, str>> {
        let index = self.names.iter().position(|(known, _)| *known == name)?;
        let (_, start) = *self.names.get(index)?;
        let end = self.names.get(index + 1).map_or(self.texts.len(), |(_, start)| *start);
        self.texts.get(start..end).map(String::from_utf8_lossy)
    }
}

impl Write for Args {
    #[inline]
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.text(text);
        Ok(())
    }
}

/// A call, as the attributes that a rule reads.
pub(super) struct Call<'a> {
    pub(super) args: &'a Args,
    pub(super) caller: Option<&'a Caller>,
    pub(super) function: &'static str,
}

impl Attributes for Call<'_> {
    fn get(&self, attribute: &Attribute) -> Option<Cow<'_, str>> {
        match attribute {
            Attribute::Named(name) => {
                let of_caller = || self.caller.and_then(|caller| caller.get(name)).map(Cow::Borrowed);
                self.args.get(name).or_else(of_caller)
            }
            Attribute::Ip => self.ip().map(|ip| Cow::Owned(ip.to_string())),
            // The path of a request corresponds to the function of a call.
            Attribute::Path => Some(Cow::Borrowed(self.function)),
            _ => None,
        }
    }

    fn unknown_argument(&self, is_asked: &dyn Fn(&str) -> bool) -> Option<&str> {
        self.args.unlisted(is_asked)
    }

    fn ip(&self) -> Option<IpAddr> {
        self.caller.and_then(Caller::ip)
    }
}
