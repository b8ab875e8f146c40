//! The part of a server to which a limit applies, as paths and a condition.
//!
//! nginx selects *one* location for a request and applies its limits; Diana applies all rules that match. So the
//! selection is represented as an ordered list, of which the first matching entry is taken: exact ones, `^~`, regular
//! expressions, and prefixes by descending length. Some entries have the limit and others do not, and the condition for
//! a path follows from the list alone: from its end, each entry with the limit adds "or it matches", each without adds
//! "and it does not match".

use super::limit_directives::Use;
use super::notes::Notes;
use super::scope::{Limits, Location, LocationKind, Server};
use crate::expression::{Expression, PATH, unsupported_regex};
use crate::rule_file::is_plain_path;

/// One entry of the list.
#[derive(Debug)]
pub(super) struct Item<'a> {
    matcher: Matcher,
    pub(super) limits: &'a Limits,
    /// The location's path, as written.
    pub(super) label: &'a str,
    kind: Option<LocationKind>,
}

impl Item<'_> {
    /// Returns the location's name in the configuration.
    pub(super) fn described(&self) -> String {
        let sign = match self.kind {
            None => return "server".to_owned(),
            Some(LocationKind::Prefix) => "",
            Some(LocationKind::PrefixFirst) => "^~ ",
            Some(LocationKind::Exact) => "= ",
            Some(LocationKind::Regex) => "~ ",
            Some(LocationKind::RegexAnyCase) => "~* ",
        };
        format!("location {sign}{}", self.label)
    }
}

/// The paths that an entry matches.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Matcher {
    Every,
    Exact(String),
    Prefix(String),
    /// Another condition under this prefix; an empty prefix means anywhere.
    When(String, Expression),
}

/// The paths to which a limit applies.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct LocationSet {
    /// Globs; empty means every path.
    pub(super) paths: Vec<String>,
    /// A condition within them.
    pub(super) when: Expression,
}

/// Returns the locations of a server in the order in which nginx selects them.
pub(super) fn choices<'a>(server: &'a Server, notes: &mut Notes) -> Vec<Item<'a>> {
    let mut items = order(&server.locations, notes);
    // With a `location /`, no path remains for the server itself.
    if !items.iter().any(|item| item.matcher == Matcher::Every) {
        items.push(Item { matcher: Matcher::Every, limits: &server.limits, label: "", kind: None });
    }
    items
}

/// Orders one level of locations, with those nested in them.
fn order<'a>(locations: &'a [Location], notes: &mut Notes) -> Vec<Item<'a>> {
    let (mut exact, mut first, mut patterns, mut prefixes) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    sort(locations, notes, &mut exact, &mut first, &mut patterns, &mut prefixes);
    if patterns.is_empty() {
        prefixes.append(&mut first);
    } else {
        // `^~` takes effect only where it is the longest of all prefixes.
        for item in &mut first {
            let Matcher::Prefix(path) = &item.matcher else { continue };
            let longer_prefixes = prefixes.iter().filter_map(|other: &Item<'_>| match &other.matcher {
                Matcher::Prefix(prefix) if prefix.len() > path.len() && prefix.starts_with(path) => Some(prefix),
                _ => None,
            });
            let longer_prefixes =
                longer_prefixes.fold(Expression::False, |all, prefix| all.or(Expression::starts_with(PATH, prefix)));
            if longer_prefixes != Expression::False {
                item.matcher =
                    Matcher::When(path.clone(), Expression::starts_with(PATH, path).and(longer_prefixes.not()));
            }
        }
        first.sort_by_key(|item| std::cmp::Reverse(item.label.len()));
    }
    prefixes.sort_by_key(|item| std::cmp::Reverse(item.label.len()));
    let mut items = exact.into_iter().chain(first).chain(patterns).chain(prefixes).collect::<Vec<_>>();
    for item in items.iter_mut().filter(|item| item.matcher == Matcher::Prefix("/".to_owned())) {
        item.matcher = Matcher::Every;
    }
    items
}

/// Sorts locations by kind. nginx finds nested prefixes like those beside them, since they are longer.
fn sort<'a>(
    locations: &'a [Location],
    notes: &mut Notes,
    exact: &mut Vec<Item<'a>>,
    first: &mut Vec<Item<'a>>,
    patterns: &mut Vec<Item<'a>>,
    prefixes: &mut Vec<Item<'a>>,
) {
    let mut own_patterns = Vec::new();
    for location in locations {
        let item =
            |matcher| Item { matcher, limits: &location.limits, label: &location.text, kind: Some(location.kind) };
        let text = location.text.clone();
        match location.kind {
            LocationKind::Exact => exact.push(item(Matcher::Exact(text))),
            LocationKind::Prefix => prefixes.push(item(Matcher::Prefix(text))),
            LocationKind::PrefixFirst => first.push(item(Matcher::Prefix(text))),
            LocationKind::Regex | LocationKind::RegexAnyCase => {
                let pattern = match location.kind {
                    LocationKind::Regex => text,
                    _ => format!("(?i){text}"),
                };
                let matcher = match unsupported_regex(&pattern) {
                    None => Expression::matches(PATH, &pattern),
                    Some(problem) => {
                        let what = format!(
                            "`{pattern}` is not supported in `matches`, so no rule matches this location: {problem}; rewrite it"
                        );
                        notes.add(location.position, "location", what);
                        Expression::False
                    }
                };
                for inner in order(&location.nested, notes) {
                    let matcher = matcher.clone().and(inner.matcher.expression());
                    own_patterns
                        .push(Item { matcher: Matcher::When(inner.matcher.prefix().to_owned(), matcher), ..inner });
                }
                own_patterns.push(item(Matcher::When(String::new(), matcher)));
                continue;
            }
        }
        let before = patterns.len();
        sort(&location.nested, notes, exact, first, patterns, prefixes);
        // Patterns nested in a prefix apply only under it.
        for inner in
            patterns.iter_mut().skip(before).filter(|inner| !inner.matcher.prefix().starts_with(&location.text))
        {
            let under_prefix = Expression::starts_with(PATH, &location.text);
            inner.matcher = Matcher::When(location.text.clone(), under_prefix.and(inner.matcher.expression()));
        }
    }
    // Nested patterns precede those of the outer level.
    patterns.append(&mut own_patterns);
}

impl Matcher {
    fn expression(&self) -> Expression {
        match self {
            Self::Every => Expression::True,
            Self::Exact(path) => Expression::equals(PATH, path),
            Self::Prefix(prefix) => Expression::starts_with(PATH, prefix),
            Self::When(_, expression) => expression.clone(),
        }
    }

    /// Returns equivalent globs; `None` if there are none.
    fn globs(&self) -> Option<Vec<String>> {
        match self {
            Self::Every => Some(Vec::new()),
            Self::Exact(path) => is_plain_path(path).then(|| vec![path.clone()]),
            Self::Prefix(prefix) if !is_plain_path(prefix) => None,
            Self::Prefix(prefix) if prefix.ends_with('/') => Some(vec![format!("{prefix}**")]),
            Self::Prefix(prefix) => Some(vec![format!("{prefix}*"), format!("{prefix}*/**")]),
            Self::When(..) => None,
        }
    }

    /// Returns the common prefix of all matching paths.
    fn prefix(&self) -> &str {
        match self {
            Self::Every => "",
            Self::Exact(text) | Self::Prefix(text) | Self::When(text, _) => text,
        }
    }

    /// Returns whether `other` certainly matches every path that it matches.
    fn is_within(&self, other: &Self) -> bool {
        match (self, other) {
            (_, Self::Every) => true,
            (Self::Every, _) => false,
            (_, Self::Prefix(prefix)) => self.prefix().starts_with(prefix),
            _ => self == other,
        }
    }

    /// Returns whether `other` certainly matches no path that it matches.
    fn is_apart(&self, other: &Self) -> bool {
        let (a, b) = (self.prefix(), other.prefix());
        match (self, other) {
            (Self::Exact(_), Self::Exact(_)) => a != b,
            (Self::Exact(_), _) => !a.starts_with(b),
            (_, Self::Exact(_)) => !b.starts_with(a),
            _ => !a.starts_with(b) && !b.starts_with(a),
        }
    }
}

/// Returns the paths among `items` to which a limit applies; `None` if there are none, an error if no condition can
/// express them.
pub(super) fn location_set(items: &[Item<'_>], limit: &Use) -> Result<Option<LocationSet>, String> {
    let labels = labels(items, limit);
    if !labels.contains(&true) {
        return Ok(None);
    }
    if !labels.contains(&false) {
        return Ok(Some(LocationSet { paths: Vec::new(), when: Expression::True }));
    }
    if let Some((paths, inside)) = with_globs(items, &labels) {
        return Ok(Some(LocationSet { paths, when: fold(&inside, NoMatch::Holds)? }));
    }
    Ok(Some(LocationSet { paths: Vec::new(), when: condition(items, limit)? }))
}

/// Returns the same as one condition, without globs.
pub(super) fn condition(items: &[Item<'_>], limit: &Use) -> Result<Expression, String> {
    let labelled = items.iter().zip(labels(items, limit)).collect::<Vec<_>>();
    fold(&labelled, NoMatch::Not)
}

fn labels(items: &[Item<'_>], limit: &Use) -> Vec<bool> {
    items.iter().map(|item| item.limits.iter().any(|other| other.limit == *limit)).collect()
}

/// Entries, each with whether it has the limit.
type Labelled<'a> = Vec<(&'a Item<'a>, bool)>;

/// Returns the globs of the outermost entries that have the limit, and the entries within them; `None` if globs can't
/// express it.
fn with_globs<'a>(items: &'a [Item<'a>], labels: &[bool]) -> Option<(Vec<String>, Labelled<'a>)> {
    let labelled = || items.iter().zip(labels.iter().copied());
    let mut outermost: Vec<&Matcher> = Vec::new();
    // Shorter prefixes come later in the list, and exact ones first: from its end, the outermost is found first.
    for (item, _) in labelled().rev().filter(|(_, holds)| *holds) {
        if !outermost.iter().any(|outer| item.matcher.is_within(outer)) {
            // `^~` comes before longer plain prefixes within it.
            outermost.retain(|outer| !outer.is_within(&item.matcher));
            outermost.push(&item.matcher);
        }
    }
    let mut paths = Vec::new();
    for outer in outermost.iter().rev() {
        paths.extend(outer.globs()?);
    }
    if outermost.contains(&&Matcher::Every) {
        paths.clear();
    }
    let last = items.iter().rposition(|item| outermost.contains(&&item.matcher))?;
    let is_inside = |item: &Item<'_>| {
        let is_within = outermost.iter().any(|outer| item.matcher.is_within(outer));
        let is_apart = || outermost.iter().all(|outer| item.matcher.is_apart(outer));
        is_within || (matches!(item.matcher, Matcher::When(..)) && !is_apart())
    };
    Some((paths, labelled().take(last + 1).filter(|(item, _)| is_inside(item)).collect()))
}

/// The maximum number of entries among which redundant ones are removed, which takes quadratic time.
const MAX_REDUCED: usize = 300;
/// The number of times that entries with and without the limit may alternate: conditions are nested as deep.
const MAX_ALTERNATIONS: usize = 24;

/// The result if no entry matches.
#[derive(Clone, Copy, PartialEq, Eq)]
enum NoMatch {
    Holds,
    Not,
}

/// Converts an ordered list to a condition.
fn fold(items: &[(&Item<'_>, bool)], no_match: NoMatch) -> Result<Expression, String> {
    let needed = needed(items, no_match);
    let runs = needed.chunk_by(|a, b| a.1 == b.1).collect::<Vec<_>>();
    if runs.len() > MAX_ALTERNATIONS {
        return Err("locations with and without the limit alternate too often for one condition".to_owned());
    }
    let rest = if no_match == NoMatch::Holds { Expression::True } else { Expression::False };
    Ok(runs.into_iter().rev().fold(rest, |rest, run| {
        let any = run.iter().fold(Expression::False, |any, (item, _)| any.or(item.matcher.expression()));
        if run.first().is_some_and(|(_, holds)| *holds) { any.or(rest) } else { any.not().and(rest) }
    }))
}

/// Removes redundant entries: those whose paths would all reach a later entry with the same result, if the entries
/// between match none of them.
fn needed<'a>(items: &[(&'a Item<'a>, bool)], no_match: NoMatch) -> Labelled<'a> {
    if items.len() > MAX_REDUCED {
        return items.to_vec();
    }
    let mut needed: Labelled<'a> = Vec::new();
    for (item, holds) in items.iter().rev() {
        let decides = needed.iter().rev().find_map(|(later, also)| match holds == also {
            true => item.matcher.is_within(&later.matcher).then_some(false),
            false => (!item.matcher.is_apart(&later.matcher)).then_some(true),
        });
        if decides.unwrap_or(*holds != (no_match == NoMatch::Holds)) {
            needed.push((item, *holds));
        }
    }
    needed.reverse();
    needed
}

#[cfg(test)]
mod tests;
