//! The parameters of a query.
//!
//! Parameters are separated by `&`. Some services (Rack 2, old Pythons) treat `;` as a separator, too, so the pairs
//! next to an unescaped `;` are ambiguous: their value is [`SEVERAL`], which is one key for all such requests.

use crate::pairs::{PairIndex, SHORT, value};
use diana::rules::attributes::SEVERAL;
use percent_encoding::percent_decode_str;
use std::borrow::Cow;
use std::sync::OnceLock;

/// The query of one request. A long one is parsed once, for any number of lookups.
#[derive(Clone, Debug, Default)]
pub(crate) struct Query<'a> {
    text: &'a str,
    index: OnceLock<PairIndex<'a>>,
}

impl<'a> Query<'a> {
    pub(crate) fn new(text: Option<&'a str>) -> Self {
        Self { text: text.unwrap_or_default(), index: OnceLock::new() }
    }

    /// Returns the value of a parameter; [`SEVERAL`] if services may read different ones.
    pub(crate) fn get(&self, name: &str) -> Option<Cow<'_, str>> {
        if self.text.len() <= SHORT {
            return value(pairs(self.text), name);
        }
        self.index.get_or_init(|| PairIndex::new(pairs(self.text))).get(name)
    }
}

/// Returns every name, with a function for its value.
fn pairs<'a>(text: &'a str) -> impl Iterator<Item = (Cow<'a, str>, impl FnOnce() -> Cow<'a, str>)> {
    text.split('&').filter(|part| !part.is_empty()).flat_map(|part| {
        let is_ambiguous = part.contains(';');
        part.split(';').filter(|pair| !pair.is_empty()).map(move |pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decoded(name), move || if is_ambiguous { Cow::Borrowed(SEVERAL) } else { decoded(value) })
        })
    })
}

/// Decodes a name or a value of a query.
fn decoded(text: &str) -> Cow<'_, str> {
    if !text.bytes().any(|byte| byte == b'%' || byte == b'+') {
        return Cow::Borrowed(text);
    }
    let spaced = text.replace('+', " ");
    Cow::Owned(percent_decode_str(&spaced).decode_utf8_lossy().into_owned())
}
