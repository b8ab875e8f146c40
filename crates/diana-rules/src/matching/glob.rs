//! `*` in a text: any number of characters. Matched in at most two passes over the text for each star, without
//! recursion.

use std::fmt;

/// A text that may contain stars.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Glob {
    text: Box<str>,
    has_star: bool,
}

impl Glob {
    pub(crate) fn new(text: &str) -> Self {
        Self { text: text.into(), has_star: text.contains('*') }
    }

    /// Returns the text, if it has no stars.
    pub(crate) fn literal(&self) -> Option<&str> {
        (!self.has_star).then_some(&*self.text)
    }

    pub(crate) fn matches(&self, text: &str) -> bool {
        if !self.has_star {
            return *self.text == *text;
        }
        covers(self.text.as_bytes(), text.as_bytes(), |part| *part == b'*', |part, byte| part == byte)
    }
}

impl fmt::Display for Glob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Returns `true` if a pattern with stars covers all of `items`.
///
/// A star first matches nothing, and one item more each time the pattern after it does not match. Only the last star
/// needs to be remembered: any items that an earlier one could match, the last one can match as well.
pub(crate) fn covers<P, T>(
    pattern: &[P],
    items: &[T],
    is_star: impl Fn(&P) -> bool,
    fits: impl Fn(&P, &T) -> bool,
) -> bool {
    let (mut at, mut item) = (0, 0);
    let mut last_star: Option<(usize, usize)> = None;
    while item < items.len() {
        match pattern.get(at) {
            Some(part) if is_star(part) => {
                last_star = Some((at, item));
                at += 1;
            }
            Some(part) if fits(part, &items[item]) => {
                at += 1;
                item += 1;
            }
            _ => {
                let Some((star, taken)) = last_star else { return false };
                (at, item) = (star + 1, taken + 1);
                last_star = Some((star, item));
            }
        }
    }
    pattern[at..].iter().all(is_star)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_matches_any_characters() {
        let matches = |glob: &str, text: &str| Glob::new(glob).matches(text);
        assert!(matches("*.pdf", "a.pdf") && matches("*.pdf", ".pdf") && !matches("*.pdf", "a.pdf.exe"));
        assert!(matches("a*b*c", "abc") && matches("a*b*c", "axbxbxc") && !matches("a*b*c", "axc"));
        assert!(matches("*", "") && matches("**", "x") && matches("", "") && !matches("", "x"));
        assert!(matches("v1", "v1") && !matches("v1", "v10"));
    }

    #[test]
    fn the_worst_pattern_takes_bounded_time() {
        // Quadratic time over 60,000 characters would be noticeable: this is at most (pattern × text).
        let glob = Glob::new(&"a*".repeat(50));
        assert!(!Glob::new(&format!("{glob}b")).matches(&"a".repeat(60_000)));
    }
}
