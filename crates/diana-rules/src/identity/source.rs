//! Where one name of `identity` comes from: `header(x-account-id)`, `jwt(sub)`, `cel("...")`.

use crate::attributes::Attribute;
use crate::expression::{Expression, InvalidExpression};
use crate::fields::nearest;

/// Where a value comes from.
#[derive(Clone, Debug)]
pub(super) enum Source {
    Of(Attribute),
    Expression(Expression),
}

/// Where a token can be.
#[derive(Clone, Debug)]
pub(super) struct Place(Attribute);

const WORDS: [&str; 3] = ["ip", "host", "method"];
const WITH_NAME: [&str; 5] = ["header", "cookie", "query", "jwt", "cel"];
const EXPECTED: &str = "header(x), cookie(x), query(x), jwt(x), ip, host, method, or cel(\"...\")";

/// What is wrong, and what would do.
pub(super) type Wrong = (String, String);

impl Source {
    pub(super) fn read(text: &str) -> Result<Self, Wrong> {
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
            return Err((format!("`{word}()` has no name"), format!("`{word}(NAME)`")));
        }
        Ok(Self::Of(match word {
            "header" => Attribute::Header(name.to_ascii_lowercase().into()),
            "cookie" => Attribute::Cookie(name.into()),
            "query" => Attribute::Query(name.into()),
            "jwt" => Attribute::Jwt(name.into()),
            _ => return expression(name).map(Self::Expression),
        }))
    }

    /// Whether it needs a claim of the token.
    pub(super) fn needs_tokens(&self) -> bool {
        match self {
            Self::Of(attribute) => matches!(attribute, Attribute::Jwt(_)),
            Self::Expression(expression) => expression.attributes().any(|asked| matches!(asked, Attribute::Jwt(_))),
        }
    }
}

impl Place {
    /// Where tokens usually are.
    pub(super) fn usual() -> Self {
        Self(Attribute::Header("authorization".into()))
    }

    pub(super) fn read(text: &str) -> Result<Self, Wrong> {
        match Source::read(text)? {
            Source::Of(place @ (Attribute::Header(_) | Attribute::Cookie(_) | Attribute::Query(_))) => Ok(Self(place)),
            _ => Err((format!("no token is found in `{text}`"), "header(x), cookie(x) or query(x)".to_owned())),
        }
    }

    pub(super) fn attribute(&self) -> &Attribute {
        &self.0
    }
}

/// The expression between the quotes of `cel("...")`. It sees the request and no names, so that none can depend on itself.
fn expression(quoted: &str) -> Result<Expression, Wrong> {
    let text = ['"', '\''].iter().find_map(|quote| quoted.strip_prefix(*quote)?.strip_suffix(*quote));
    let text = text.ok_or_else(|| ("the expression of `cel` has no quotes".to_owned(), "cel(\"...\")".to_owned()))?;
    Expression::of_request_only(text).map_err(|error: InvalidExpression| {
        let at = error.at().map(|at| format!(", at byte {at} of the expression")).unwrap_or_default();
        (format!("{}{at}", error.what()), error.hint().unwrap_or("a CEL expression over `request`").to_owned())
    })
}

fn unknown(word: &str) -> Wrong {
    let known = WORDS.iter().chain(&WITH_NAME).copied().collect::<Vec<_>>();
    let expected = match nearest(word, &known) {
        Some("cel") => "did you mean `cel(\"...\")`?".to_owned(),
        Some(meant) if WITH_NAME.contains(&meant) => format!("did you mean `{meant}(NAME)`?"),
        Some(meant) => format!("did you mean `{meant}`?"),
        None => EXPECTED.to_owned(),
    };
    (format!("`{word}` is nothing that a request is known by"), expected)
}
