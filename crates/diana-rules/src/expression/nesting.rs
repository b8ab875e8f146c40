//! Checks the length and the nesting depth of a text before it is parsed.
//!
//! The parser recurses for each bracket and each `?`, and a stack overflow aborts the process. So text that nests too
//! deep is rejected here, by a loop. String literals and comments are skipped; if this and the parser ever disagree
//! about the end of a literal, the parser's own limit and its big stack still apply.

use super::error::InvalidExpression;

/// The maximum length of an expression, in bytes.
pub(super) const MAX_LENGTH: usize = 4096;
/// The maximum nesting depth of brackets and conditionals.
pub(super) const MAX_NESTING: usize = 32;

/// Rejects a text that is too long or nests too deep.
pub(super) fn scan(text: &str) -> Result<(), InvalidExpression> {
    if text.len() > MAX_LENGTH {
        let what = format!("the expression is too long: {} bytes", text.len());
        return Err(InvalidExpression::new(None, what).expected(format!("expected at most {MAX_LENGTH}")));
    }
    let bytes = text.as_bytes();
    // One count for each open bracket: the bracket itself, and the conditionals that began inside it.
    let mut open = vec![0];
    let mut depth = 0_usize;
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' | b'\'' => {
                at = after_text(bytes, at);
                continue;
            }
            b'/' if bytes.get(at + 1) == Some(&b'/') => {
                at += bytes.iter().skip(at).take_while(|byte| **byte != b'\n').count();
                continue;
            }
            b'(' | b'[' | b'{' => {
                open.push(1);
                depth += 1;
            }
            b')' | b']' | b'}' => depth = depth.saturating_sub(open.pop().unwrap_or(0)),
            b'?' => {
                match open.last_mut() {
                    Some(choices) => *choices += 1,
                    None => open.push(1),
                }
                depth += 1;
            }
            _ => {}
        }
        if depth > MAX_NESTING {
            let what = format!("brackets and conditionals are nested more than {MAX_NESTING} deep");
            return Err(InvalidExpression::new(Some(at), what).expected("use a simpler expression"));
        }
        at += 1;
    }
    Ok(())
}

/// Returns the offset after the literal that begins at `start`: `"..."`, `'...'`, `"""..."""`, each optionally prefixed
/// by `r`.
fn after_text(bytes: &[u8], start: usize) -> usize {
    let quote = bytes.get(start).copied().unwrap_or_default();
    let is_quote = |at: usize| bytes.get(at) == Some(&quote);
    let is_raw =
        start.checked_sub(1).and_then(|before| bytes.get(before)).is_some_and(|byte| matches!(byte, b'r' | b'R'));
    let quotes = if is_quote(start + 1) && is_quote(start + 2) { 3 } else { 1 };
    let mut at = start + quotes;
    while at < bytes.len() {
        if !is_raw && bytes.get(at) == Some(&b'\\') {
            at += 2;
        } else if (0..quotes).all(|further| is_quote(at + further)) {
            return at + quotes;
        } else {
            at += 1;
        }
    }
    bytes.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depth_ignores_texts_and_comments() {
        let nested = |open: &str, close: &str, times| format!("{}1{}", open.repeat(times), close.repeat(times));
        assert!(scan(&nested("(", ")", MAX_NESTING)).is_ok());
        for deep in
            [nested("(", ")", 33), nested("[", "]", 33), nested("a ? (", ") : 1", 17), nested("a ? 1 : ", "", 33)]
        {
            assert!(scan(&deep).is_err(), "{deep}");
        }
        let brackets = "(".repeat(40);
        for text in ["'_'", "\"_\"", "'''_ ' _'''", "r'_'", r"'\'_'", "// _\n1", "'a' == '_'"] {
            assert!(scan(&text.replace('_', &brackets)).is_ok(), "{text}");
        }
        // A raw literal ends at its quote, even after a backslash.
        assert!(scan(&format!(r"r'\' == {brackets}")).is_err());
        assert!(scan(&format!("'' + {brackets}")).is_err());
        // An unmatched closing bracket does not reduce the depth.
        assert!(scan(&format!("{}{brackets}", ")".repeat(40))).is_err());
        assert!(scan(&format!("{}{}", ")".repeat(40), "?".repeat(40))).is_err());
        assert!(scan(&"a".repeat(MAX_LENGTH + 1)).is_err());
    }

    #[test]
    fn adjacent_brackets_are_not_deep() {
        assert!(scan(&"(a ? b : c) + ".repeat(100)).is_ok());
    }
}
