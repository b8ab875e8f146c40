//! The source of one name of `identity`: `header(x-account-id)`, `jwt(sub)`, `cel("...")`.

use crate::attributes::Attribute;
use crate::expression::{Expression, InvalidExpression};
use diana_document::Problem;
use diana_document::Span;
use diana_document::map_reader::nearest;

/// The source of a value.
#[derive(Clone, Debug)]
pub(super) enum Source {
    Of(Attribute),
    Expression(Expression),
}

/// The attribute that has the token.
#[derive(Clone, Debug)]
pub(super) struct TokenSource(Attribute);

const WORDS: [&str; 3] = ["ip", "host", "method"];
const WITH_NAME: [&str; 5] = ["header", "cookie", "query", "jwt", "cel"];
const EXPECTED: &str = "expected header(x), cookie(x), query(x), jwt(x), ip, host, method, or cel(\"...\")";

/// The problem, and a suggested fix; for an expression, also the byte offset of the problem.
#[derive(Debug)]
pub(super) struct InvalidSource {
    what: String,
    expected: String,
    within: Option<(String, usize)>,
}

impl InvalidSource {
    fn new(what: impl Into<String>, expected: impl Into<String>) -> Self {
        Self { what: what.into(), expected: expected.into(), within: None }
    }

    /// Creates the problem for the text at `span`.
    pub(super) fn at(self, span: Span) -> Problem {
        let problem = Problem::new(span, self.what).expected(self.expected);
        match self.within {
            Some((text, at)) => problem.within(&text, at),
            None => problem,
        }
    }
}

impl Source {
    pub(super) fn read(text: &str) -> Result<Self, InvalidSource> {
        let text = text.trim();
        let Some((word, inside)) = text.strip_suffix(')').and_then(|text| text.split_once('(')) else {
            return match text {
                "ip" => Ok(Self::Of(Attribute::Ip)),
                "host" => Ok(Self::Of(Attribute::Host)),
                "method" => Ok(Self::Of(Attribute::Method)),
                _ => Err(unknown(text)),
            };
        };
        let (word, name) = (word.trim(), inside.trim());
        if !WITH_NAME.contains(&word) {
            return Err(unknown(word));
        }
        if name.is_empty() {
            return Err(InvalidSource::new(format!("missing name in `{word}()`"), format!("expected `{word}(NAME)`")));
        }
        Ok(Self::Of(match word {
            "header" => Attribute::Header(name.to_ascii_lowercase().into()),
            "cookie" => Attribute::Cookie(name.into()),
            "query" => Attribute::Query(name.into()),
            "jwt" => Attribute::Jwt(name.into()),
            _ => return expression(name).map(Self::Expression),
        }))
    }

    /// The attributes that it reads.
    pub(super) fn attributes(&self) -> impl Iterator<Item = &Attribute> {
        let (single, read) = match self {
            Self::Of(attribute) => (Some(attribute), None),
            Self::Expression(expression) => (None, Some(expression.attributes())),
        };
        single.into_iter().chain(read.into_iter().flatten())
    }

    /// Returns `true` if it reads a claim of the token.
    pub(super) fn needs_tokens(&self) -> bool {
        self.attributes().any(|attribute| matches!(attribute, Attribute::Jwt(_)))
    }
}

impl TokenSource {
    /// The default: the `Authorization` header.
    pub(super) fn default_header() -> Self {
        Self(Attribute::Header("authorization".into()))
    }

    pub(super) fn read(text: &str) -> Result<Self, InvalidSource> {
        match Source::read(text)? {
            Source::Of(source @ (Attribute::Header(_) | Attribute::Cookie(_) | Attribute::Query(_))) => {
                Ok(Self(source))
            }
            _ => Err(InvalidSource::new(
                format!("invalid token source `{text}`"),
                "expected header(x), cookie(x) or query(x)",
            )),
        }
    }

    pub(super) fn attribute(&self) -> &Attribute {
        &self.0
    }
}

/// Parses the expression between the quotes of `cel("...")`. It can use the request but no names, so that no name
/// depends on itself.
fn expression(quoted: &str) -> Result<Expression, InvalidSource> {
    let text = ['"', '\''].iter().find_map(|quote| quoted.strip_prefix(*quote)?.strip_suffix(*quote));
    let text =
        text.ok_or_else(|| InvalidSource::new("the expression of `cel` must be in quotes", "expected cel(\"...\")"))?;
    let expression = Expression::of_request_only(text).map_err(|error: InvalidExpression| {
        let invalid =
            InvalidSource::new(error.what(), error.hint().unwrap_or("expected a CEL expression over `request`"));
        InvalidSource { within: error.at().map(|at| (text.to_owned(), at)), ..invalid }
    })?;
    if let Some(parameter) = expression.attributes().find(|attribute| matches!(attribute, Attribute::Param(_))) {
        let what = format!("`{parameter}` is not available in `identity`");
        return Err(InvalidSource::new(what, "use `by: param(NAME)` in a rule"));
    }
    Ok(expression)
}

fn unknown(word: &str) -> InvalidSource {
    let known = WORDS.iter().chain(&WITH_NAME).copied().collect::<Vec<_>>();
    let expected = match nearest(word, &known) {
        Some("cel") => "did you mean `cel(\"...\")`?".to_owned(),
        Some(meant) if WITH_NAME.contains(&meant) => format!("did you mean `{meant}(NAME)`?"),
        Some(meant) => format!("did you mean `{meant}`?"),
        None => EXPECTED.to_owned(),
    };
    InvalidSource::new(format!("unknown source `{word}`"), expected)
}
