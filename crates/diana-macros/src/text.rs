//! Texts with expressions in braces: `"{user.id}"`, `"{tenant}/{order.item()}"`.
//!
//! The braces contain Rust expressions over the function's arguments; the compiler checks them, and errors point at the
//! text. As in `format!`, doubled braces are literal.

use proc_macro2::Span;
use syn::{Error, Expr, LitStr, Result};

/// A part of a text.
pub(crate) enum Piece {
    /// Literal text.
    Same(String),
    /// An expression.
    Differs(Box<Expr>),
}

/// Parses a text.
pub(crate) fn pieces(literal: &LitStr) -> Result<Vec<Piece>> {
    let text = literal.value();
    let fail = |problem: String| Error::new(literal.span(), problem);
    let (mut pieces, mut same) = (Vec::new(), String::new());
    let mut rest = text.as_str();
    while let Some(at) = rest.find(['{', '}']) {
        same.push_str(&rest[..at]);
        let brace = &rest[at..];
        if let Some(after) = brace.strip_prefix("{{").or_else(|| brace.strip_prefix("}}")) {
            same.push_str(&brace[..1]);
            rest = after;
            continue;
        }
        let Some(inside) = brace.strip_prefix('{') else {
            return Err(fail("`}` closes nothing; for a brace itself write `}}`".to_owned()));
        };
        let end = closing(inside).ok_or_else(|| {
            fail("`{` is not closed; for a brace itself write `{{`, else as in `\"{user.id}\"`".to_owned())
        })?;
        if !same.is_empty() {
            pieces.push(Piece::Same(std::mem::take(&mut same)));
        }
        pieces.push(Piece::Differs(Box::new(expression(&inside[..end], literal)?)));
        rest = &inside[end + 1..];
    }
    same.push_str(rest);
    if !same.is_empty() {
        pieces.push(Piece::Same(same));
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
    let place = literal.span().resolved_at(Span::call_site());
    LitStr::new(source, place).parse().map_err(|error| {
        let problem = format!(
            "`{{{source}}}`: {error}; in braces goes an argument, its fields and methods, as `{{user.id}}` or `{{order.item()}}`"
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

    fn read(text: &str) -> String {
        match pieces(&LitStr::new(text, Span::call_site())) {
            Err(error) => error.to_string(),
            Ok(pieces) => {
                let shown = pieces.iter().map(|piece| match piece {
                    Piece::Same(text) => format!("{text:?}"),
                    Piece::Differs(expression) => expression.to_token_stream().to_string(),
                });
                shown.collect::<Vec<_>>().join(" ")
            }
        }
    }

    #[test]
    fn tells_what_is_the_same_from_what_differs() {
        assert_eq!(read(""), "");
        assert_eq!(read("login"), r#""login""#);
        assert_eq!(read("{id}"), "id");
        assert_eq!(read("{user.id}"), "user . id");
        assert_eq!(read("a {x} b{y.z()}"), r#""a " x " b" y . z ()"#);
        assert_eq!(read("{{{id}}}"), r#""{" id "}""#);
        assert_eq!(read("{match x { _ => 1 }}!"), r#"match x { _ => 1 } "!""#);
    }

    #[test]
    fn says_what_is_wrong() {
        assert!(read("{id").starts_with("`{` is not closed"), "{}", read("{id"));
        assert!(read("id}").starts_with("`}` closes nothing"), "{}", read("id}"));
        assert!(read("{}").starts_with("`{}`: "), "{}", read("{}"));
        assert!(read("{id:?}").starts_with("`{id:?}`: "), "{}", read("{id:?}"));
    }
}
