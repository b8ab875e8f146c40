//! Conditions in Diana's expression language, as importers write them into `when`.
//!
//! Importers only need true, false, a few tests of the request, and their combinations. Constants are folded and chains
//! are flattened, so that the result resembles what a person would write. This file has all names of the language that
//! importers use.

use std::fmt;

/// A condition.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Expression {
    True,
    False,
    /// One test, as text.
    Test(String),
    Not(Box<Self>),
    And(Vec<Self>),
    Or(Vec<Self>),
}

/// The subject of a test.
pub(crate) const PATH: &str = "request.path";
pub(crate) const HOST: &str = "request.host";
pub(crate) const METHOD: &str = "request.method";

/// Returns a header, cookie or query parameter; `map` is `headers`, `cookies` or `query`.
pub(crate) fn entry(map: &str, name: &str) -> String {
    format!("request.{map}[{}]", text(name))
}

/// Quotes a text for the language.
pub(crate) fn text(value: &str) -> String {
    let mut quoted = String::from('"');
    for character in value.chars() {
        match character {
            '"' | '\\' => quoted.extend(['\\', character]),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            c if c.is_control() => quoted.push_str(&format!("\\u{:04X}", u32::from(c))),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

impl Expression {
    pub(crate) fn equals(subject: &str, value: &str) -> Self {
        Self::Test(format!("{subject} == {}", text(value)))
    }

    /// Tests whether it is one of several values.
    pub(crate) fn one_of(subject: &str, values: &[String]) -> Self {
        match values {
            [] => Self::False,
            [value] => Self::equals(subject, value),
            _ => Self::Test(format!(
                "{subject} in [{}]",
                values.iter().map(|value| text(value)).collect::<Vec<_>>().join(", ")
            )),
        }
    }

    pub(crate) fn starts_with(subject: &str, value: &str) -> Self {
        Self::Test(format!("{subject}.startsWith({})", text(value)))
    }

    pub(crate) fn ends_with(subject: &str, value: &str) -> Self {
        Self::Test(format!("{subject}.endsWith({})", text(value)))
    }

    /// Tests whether a regular expression matches in it.
    pub(crate) fn matches(subject: &str, pattern: &str) -> Self {
        Self::Test(format!("{subject}.matches({})", text(pattern)))
    }

    pub(crate) fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::False, _) | (_, Self::False) => Self::False,
            (Self::True, other) | (other, Self::True) => other,
            (Self::Not(a), Self::Not(b)) => a.or(*b).not(),
            (Self::Not(a), Self::And(mut rest)) => match rest.first() {
                // `!a && !b && c` is easier to read as `!(a || b) && c`.
                Some(Self::Not(_)) => {
                    let first = Self::Not(a).and(rest.remove(0));
                    rest.insert(0, first);
                    Self::And(rest)
                }
                _ => {
                    rest.insert(0, Self::Not(a));
                    Self::And(rest)
                }
            },
            (Self::And(mut a), Self::And(b)) => {
                a.extend(b);
                Self::And(a)
            }
            (Self::And(mut a), b) => {
                a.push(b);
                Self::And(a)
            }
            (a, Self::And(mut b)) => {
                b.insert(0, a);
                Self::And(b)
            }
            (a, b) => Self::And(vec![a, b]),
        }
    }

    pub(crate) fn or(self, other: Self) -> Self {
        match (self, other) {
            (Self::True, _) | (_, Self::True) => Self::True,
            (Self::False, other) | (other, Self::False) => other,
            (Self::Or(mut a), Self::Or(b)) => {
                a.extend(b);
                Self::Or(a)
            }
            (Self::Or(mut a), b) => {
                a.push(b);
                Self::Or(a)
            }
            (a, Self::Or(mut b)) => {
                b.insert(0, a);
                Self::Or(b)
            }
            (a, b) => Self::Or(vec![a, b]),
        }
    }

    pub(crate) fn not(self) -> Self {
        match self {
            Self::True => Self::False,
            Self::False => Self::True,
            Self::Not(inner) => *inner,
            other => Self::Not(Box::new(other)),
        }
    }

    fn is_call(&self) -> bool {
        matches!(self, Self::Test(test) if test.ends_with(')') && !test.contains(" == ") && !test.contains(" in ["))
    }

    /// Returns the text for a rule; `None` if it is always true.
    pub(crate) fn to_condition(&self) -> Option<String> {
        (*self != Self::True).then(|| self.to_string())
    }
}

impl fmt::Display for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::True => f.write_str("true"),
            Self::False => f.write_str("false"),
            Self::Test(test) => f.write_str(test),
            // A call needs no parentheses.
            Self::Not(inner) if inner.is_call() => write!(f, "!{inner}"),
            Self::Not(inner) => write!(f, "!({inner})"),
            Self::And(parts) => joined(parts, " && ", f),
            Self::Or(parts) => joined(parts, " || ", f),
        }
    }
}

/// Joins the parts; parts with joins of their own are in parentheses.
fn joined(parts: &[Expression], join: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    for (index, part) in parts.iter().enumerate() {
        if index > 0 {
            f.write_str(join)?;
        }
        match part {
            Expression::And(_) | Expression::Or(_) => write!(f, "({part})")?,
            _ => write!(f, "{part}")?,
        }
    }
    Ok(())
}

/// Returns why a regular expression can't be used, if so: nginx's are Perl's, with look-around and backreferences,
/// which expressions don't support.
pub(crate) fn unsupported_regex(pattern: &str) -> Option<String> {
    let error = regex_syntax::Parser::new().parse(pattern).err()?;
    Some(match error {
        regex_syntax::Error::Parse(error) => error.kind().to_string(),
        regex_syntax::Error::Translate(error) => error.kind().to_string(),
        _ => "not supported".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is(test: &str) -> Expression {
        Expression::Test(test.to_owned())
    }

    #[test]
    fn constants_are_folded() {
        let a = is("a");
        assert_eq!(Expression::True.and(a.clone()), a);
        assert_eq!(Expression::False.or(a.clone()), a);
        assert_eq!(Expression::False.and(a.clone()), Expression::False);
        assert_eq!(Expression::True.or(a.clone()), Expression::True);
        assert_eq!(a.clone().not().not(), a);
        assert_eq!(Expression::True.to_condition(), None);
    }

    #[test]
    fn chains_are_flat_with_minimal_parentheses() {
        assert_eq!(is("a").not().and(is("b").not()).to_string(), "!(a || b)");
        assert_eq!(is("a").not().and(is("b").not()).and(is("c")).to_string(), "!(a || b) && c");
        assert_eq!(is("a").not().and(is("b").or(is("c").not())).to_string(), "!(a) && (b || !(c))");
        assert_eq!(is("a").or(is("b")).or(is("c")).to_string(), "a || b || c");
    }

    #[test]
    fn texts_are_quoted() {
        assert_eq!(Expression::matches(PATH, r#"\.php$"#).to_string(), r#"request.path.matches("\\.php$")"#);
        assert_eq!(text("a\"b\n\u{1}"), r#""a\"b\n\u0001""#);
        assert_eq!(entry("headers", "x-plan"), r#"request.headers["x-plan"]"#);
    }

    #[test]
    fn perl_only_patterns_are_rejected() {
        assert_eq!(unsupported_regex(r"^/(?<id>\d+)/.*\.(jpg|png)$"), None);
        assert!(unsupported_regex(r"^/(?!static)").is_some());
        assert!(unsupported_regex(r"(a)\1").is_some());
    }
}
