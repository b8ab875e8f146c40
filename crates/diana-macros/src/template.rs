//! Texts with expressions in braces: `"{user.id}"`, `"{tenant}/{order.item()}"`.
//!
//! The braces contain Rust expressions over the function's arguments; the compiler checks them, and errors point at the
//! text. As in `format!`, doubled braces are literal.

use proc_macro2::Span;
use syn::{Error, Expr, LitStr, Result};

/// A part of a text.
pub(crate) enum Piece {
    /// Literal text.
    Literal(String),
    /// An expression.
    Expr(Box<Expr>),
}

/// Parses a text.
pub(crate) fn pieces(literal: &LitStr) -> Result<Vec<Piece>> {
    let text = literal.value();
    let fail = |problem: String| Error::new(literal.span(), problem);
    let (mut pieces, mut literal_text) = (Vec::new(), String::new());
    let mut rest = text.as_str();
    while let Some(at) = rest.find(['{', '}']) {
        literal_text.push_str(&rest[..at]);
        let brace = &rest[at..];
        if let Some(after) = brace.strip_prefix("{{").or_else(|| brace.strip_prefix("}}")) {
            literal_text.push_str(&brace[..1]);
            rest = after;
            continue;
        }
        let Some(inside) = brace.strip_prefix('{') else {
            return Err(fail("unmatched `}`; write `}}` for a literal brace".to_owned()));
        };
        let end = closing(inside).ok_or_else(|| {
            fail("unclosed `{`; write `{{` for a literal brace, or an expression such as `\"{user.id}\"`".to_owned())
        })?;
        if !literal_text.is_empty() {
            pieces.push(Piece::Literal(std::mem::take(&mut literal_text)));
        }
        pieces.push(Piece::Expr(Box::new(expression(&inside[..end], literal)?)));
        rest = &inside[end + 1..];
    }
    literal_text.push_str(rest);
    if !literal_text.is_empty() {
        pieces.push(Piece::Literal(literal_text));
    }
    Ok(pieces)
}

/// Returns the position of the brace that closes the one before `inside`.
fn closing(inside: &str) -> Option<usize> {
    let mut open = 0_usize;
    inside.char_indices().find_map(|(at, c)| {
        match c {
            '{' => open += 1,
            '}' if open == 0 => return Some(at),
            '}' => open -= 1,
            _ => {}
        }
        None
    })
}

fn expression(source: &str, literal: &LitStr) -> Result<Expr> {
    // Errors point at the text, but as generated code: otherwise the compiler suggests to replace all of it by a
    // field's name.
    let span = literal.span().resolved_at(Span::call_site());
    LitStr::new(source, span).parse().map_err(|error| {
        let problem = format!(
            "invalid expression `{{{source}}}`: {error}; expected an argument, its field or method, as in `{{user.id}}`"
        );
        Error::new(literal.span(), problem)
    })
}

#[cfg(test)]
mod tests {
    use super::{Piece, pieces};
    use proc_macro2::Span;
    use quote::ToTokens;
    use syn::LitStr;

    fn parse(text: &str) -> String {
        match pieces(&LitStr::new(text, Span::call_site())) {
            Err(error) => error.to_string(),
            Ok(pieces) => {
                let formatted = pieces.iter().map(|piece| match piece {
                    Piece::Literal(text) => format!("{text:?}"),
                    Piece::Expr(expression) => expression.to_token_stream().to_string(),
                });
                formatted.collect::<Vec<_>>().join(" ")
            }
        }
    }

    #[test]
    fn splits_literals_and_expressions() {
        assert_eq!(parse(""), "");
        assert_eq!(parse("login"), r#""login""#);
        assert_eq!(parse("{id}"), "id");
        assert_eq!(parse("{user.id}"), "user . id");
        assert_eq!(parse("a {x} b{y.z()}"), r#""a " x " b" y . z ()"#);
        assert_eq!(parse("{{{id}}}"), r#""{" id "}""#);
        assert_eq!(parse("{match x { _ => 1 }}!"), r#"match x { _ => 1 } "!""#);
    }

    #[test]
    fn reports_syntax_errors() {
        assert!(parse("{id").starts_with("unclosed `{`;"), "{}", parse("{id"));
        assert!(parse("id}").starts_with("unmatched `}`;"), "{}", parse("id}"));
        assert!(parse("{}").starts_with("invalid expression `{}`: "), "{}", parse("{}"));
        assert!(parse("{id:?}").starts_with("invalid expression `{id:?}`: "), "{}", parse("{id:?}"));
    }
}
