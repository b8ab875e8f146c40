//! Names with values, as queries and cookies have them, and the value of one name.
//!
//! Services differ in how they read names. Express 4 and PHP take `[key]`, `key[]`, `key[0]` and `key[a]` for `key`; nginx and ASP.NET
//! compare names without case. A pair that only some services read as the name that is asked for has the value [`SEVERAL`]: the
//! request has that name, and nobody can tell with which value. So no spelling makes a request one without a key. The same holds for
//! every name, if there are more pairs than services read.

use diana::rules::SEVERAL;
use std::borrow::Cow;
use std::collections::HashMap;

/// What is at most so long is read again each time: that costs less than an index.
pub(crate) const SHORT: usize = 256;

/// So many pairs are looked at. Express, PHP and others stop at 1000 as well.
const MOST: usize = 1_000;

/// A name and its value.
type Pair<'a> = (Cow<'a, str>, Cow<'a, str>);

/// Pairs by the name that they may be about.
#[derive(Clone, Debug, Default)]
pub(crate) struct PairIndex<'a> {
    groups: HashMap<Cow<'a, str>, Vec<Pair<'a>>>,
    /// Whether there are more pairs than are looked at, so that nobody can tell what is there.
    is_cut: bool,
}

impl<'a> PairIndex<'a> {
    pub(crate) fn new<V: FnOnce() -> Cow<'a, str>>(mut pairs: impl Iterator<Item = (Cow<'a, str>, V)>) -> Self {
        let mut index = Self::default();
        for (name, value) in pairs.by_ref().take(MOST) {
            index.groups.entry(group_of(&name)).or_default().push((name, value()));
        }
        index.is_cut = pairs.next().is_some();
        index
    }

    /// As [`value`].
    pub(crate) fn get(&self, name: &str) -> Option<Cow<'_, str>> {
        if self.is_cut {
            return Some(Cow::Borrowed(SEVERAL));
        }
        let group = self.groups.get(&*group_of(&Cow::Borrowed(name)))?;
        value(group.iter().map(|(own, value)| (Cow::Borrowed(&**own), || Cow::Borrowed(&**value))), name)
    }
}

/// The value of one name; [`SEVERAL`] if services may read different ones. Values of other names are not asked for.
pub(crate) fn value<'a, V: FnOnce() -> Cow<'a, str>>(
    pairs: impl Iterator<Item = (Cow<'a, str>, V)>,
    name: &str,
) -> Option<Cow<'a, str>> {
    only(pairs.filter_map(|(own, value)| {
        if own == name { Some(value()) } else { may_be(&own, name).then_some(Cow::Borrowed(SEVERAL)) }
    }))
}

/// What is there under one name; [`SEVERAL`] if it is there with different values.
pub(crate) fn only<'a>(mut values: impl Iterator<Item = Cow<'a, str>>) -> Option<Cow<'a, str>> {
    let first = values.next()?;
    let is_one = first != SEVERAL && values.all(|value| value == first);
    Some(if is_one { first } else { Cow::Borrowed(SEVERAL) })
}

/// Whether some service takes `own`, which is written otherwise, for `name`.
fn may_be(own: &str, name: &str) -> bool {
    if !own.contains('[') {
        return own.eq_ignore_ascii_case(name);
    }
    let mut own = steps(own);
    steps(name).all(|step| own.next().is_some_and(|own| own.eq_ignore_ascii_case(step)))
}

/// The name under which all spellings of a name are found.
fn group_of<'a>(name: &Cow<'a, str>) -> Cow<'a, str> {
    let is_plain = |name: &str| !name.bytes().any(|byte| byte.is_ascii_uppercase() || matches!(byte, b'[' | b']'));
    match name {
        Cow::Borrowed(name) if is_plain(name) => Cow::Borrowed(name),
        name => Cow::Owned(steps(name).next().unwrap_or(name).to_ascii_lowercase()),
    }
}

/// The parts of a name between its brackets, without places in a list: `filter`, `type` of `filter[type][0]`.
fn steps(name: &str) -> impl Iterator<Item = &str> {
    let mut steps = name.split(['[', ']']).filter(|step| !step.is_empty());
    let first = steps.next();
    first.into_iter().chain(steps.filter(|step| !step.bytes().all(|byte| byte.is_ascii_digit())))
}
