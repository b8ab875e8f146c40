//! The parameters of a query.
//!
//! Parameters are separated by `&`. Some services (Rack 2, old Pythons) take `;` for a separator, too, so what stands before or
//! behind a `;` that is not escaped can be read in two ways: its value is [`SEVERAL`], which is one key for all such requests.

use crate::attributes::only;
use diana::rules::SEVERAL;
use percent_encoding::percent_decode_str;
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::OnceLock;

/// A query that is at most so long is read again each time: that costs less than to remember it.
const SHORT: usize = 256;

/// The query of one request. A long one is parsed once, however many rules ask for its parameters.
#[derive(Clone, Debug, Default)]
pub(crate) struct Query<'a> {
    text: &'a str,
    /// What is there under each name.
    parameters: OnceLock<HashMap<Cow<'a, str>, Cow<'a, str>>>,
}

impl<'a> Query<'a> {
    pub(crate) fn new(text: Option<&'a str>) -> Self {
        Self { text: text.unwrap_or_default(), parameters: OnceLock::new() }
    }

    /// The value of a parameter; [`SEVERAL`] if it is there with different values.
    pub(crate) fn get(&self, name: &str) -> Option<Cow<'_, str>> {
        if self.text.len() <= SHORT {
            return only(pairs(self.text).filter(|(own, _)| *own == name).map(|(_, value)| value));
        }
        self.parameters.get_or_init(|| parameters(self.text)).get(name).map(|value| Cow::Borrowed(&**value))
    }
}

/// What is there under each name.
fn parameters(text: &str) -> HashMap<Cow<'_, str>, Cow<'_, str>> {
    let mut parameters = HashMap::<Cow<'_, str>, Cow<'_, str>>::new();
    for (name, value) in pairs(text) {
        let first = parameters.entry(name).or_insert_with(|| value.clone());
        if *first != value {
            *first = Cow::Borrowed(SEVERAL);
        }
    }
    parameters
}

/// Every name with its value.
fn pairs(text: &str) -> impl Iterator<Item = (Cow<'_, str>, Cow<'_, str>)> {
    text.split('&').flat_map(|part| {
        let is_ambiguous = part.contains(';');
        part.split(';').map(move |pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decoded(name), if is_ambiguous { Cow::Borrowed(SEVERAL) } else { decoded(value) })
        })
    })
}

/// A name or a value of a query.
fn decoded(text: &str) -> Cow<'_, str> {
    if !text.bytes().any(|byte| byte == b'%' || byte == b'+') {
        return Cow::Borrowed(text);
    }
    let spaced = text.replace('+', " ");
    Cow::Owned(percent_decode_str(&spaced).decode_utf8_lossy().into_owned())
}
