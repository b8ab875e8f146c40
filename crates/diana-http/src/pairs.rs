//! Name-value pairs, as in queries and cookies, and the lookup of a name.
//!
//! Services differ in how they read names. Express 4 and PHP treat `[key]`, `key[]`, `key[0]` and `key[a]` as `key`;
//! nginx and ASP.NET compare names case-insensitively. A pair that only some services read as the requested name has
//! the value [`SEVERAL`]: the request has that name, with an ambiguous value. So no spelling makes a request one
//! without a key. The same applies to every name if there are more pairs than services read.

use diana::rules::attributes::SEVERAL;
use std::borrow::Cow;
use std::collections::HashMap;

/// Inputs up to this length are parsed at each lookup, which is cheaper than an index.
pub(crate) const SHORT: usize = 256;

/// The maximum number of pairs that are read. Express, PHP and others stop at 1000 as well.
const MAX_PAIRS: usize = 1_000;

/// A name and its value.
type Pair<'a> = (Cow<'a, str>, Cow<'a, str>);

/// Pairs by the names that services may read them as.
#[derive(Clone, Debug, Default)]
pub(crate) struct PairIndex<'a> {
    groups: HashMap<Cow<'a, str>, Vec<Pair<'a>>>,
    /// Whether there are more pairs than are read, so that the rest is unknown.
    is_truncated: bool,
}

impl<'a> PairIndex<'a> {
    pub(crate) fn new<V: FnOnce() -> Cow<'a, str>>(mut pairs: impl Iterator<Item = (Cow<'a, str>, V)>) -> Self {
        let mut index = Self::default();
        for (name, value) in pairs.by_ref().take(MAX_PAIRS) {
            index.groups.entry(group_of(&name)).or_default().push((name, value()));
        }
        index.is_truncated = pairs.next().is_some();
        index
    }

    /// Returns the value of a name, like [`value`].
    pub(crate) fn get(&self, name: &str) -> Option<Cow<'_, str>> {
        if self.is_truncated {
            return Some(Cow::Borrowed(SEVERAL));
        }
        let group = self.groups.get(&*group_of(&Cow::Borrowed(name)))?;
        value(group.iter().map(|(other, value)| (Cow::Borrowed(&**other), || Cow::Borrowed(&**value))), name)
    }
}

/// Returns the value of one name; [`SEVERAL`] if services may read different ones. Values of other names are not
/// decoded.
pub(crate) fn value<'a, V: FnOnce() -> Cow<'a, str>>(
    pairs: impl Iterator<Item = (Cow<'a, str>, V)>,
    name: &str,
) -> Option<Cow<'a, str>> {
    value_or_several(pairs.filter_map(|(other, value)| {
        if other == name { Some(value()) } else { may_match(&other, name).then_some(Cow::Borrowed(SEVERAL)) }
    }))
}

/// Returns the value of one name; [`SEVERAL`] if it has different values.
pub(crate) fn value_or_several<'a>(mut values: impl Iterator<Item = Cow<'a, str>>) -> Option<Cow<'a, str>> {
    let first = values.next()?;
    let is_one = first != SEVERAL && values.all(|value| value == first);
    Some(if is_one { first } else { Cow::Borrowed(SEVERAL) })
}

/// Returns `true` if some service treats `other`, a different spelling, as `name`.
fn may_match(other: &str, name: &str) -> bool {
    if !other.contains('[') {
        return other.eq_ignore_ascii_case(name);
    }
    let mut other = steps(other);
    steps(name).all(|step| other.next().is_some_and(|other| other.eq_ignore_ascii_case(step)))
}

/// Returns the index key that all spellings of a name share.
fn group_of<'a>(name: &Cow<'a, str>) -> Cow<'a, str> {
    let is_plain = |name: &str| !name.bytes().any(|byte| byte.is_ascii_uppercase() || matches!(byte, b'[' | b']'));
    match name {
        Cow::Borrowed(name) if is_plain(name) => Cow::Borrowed(name),
        name => Cow::Owned(steps(name).next().unwrap_or(name).to_ascii_lowercase()),
    }
}

/// Returns the parts of a name between its brackets, without list indexes: `filter`, `type` of `filter[type][0]`.
fn steps(name: &str) -> impl Iterator<Item = &str> {
    let mut steps = name.split(['[', ']']).filter(|step| !step.is_empty());
    let first = steps.next();
    first.into_iter().chain(steps.filter(|step| !step.bytes().all(|byte| byte.is_ascii_digit())))
}
