//! Words of inline commands, with the quotes and escapes of Redis: `"a\x00b"`, `'a b'`.

use super::ProtocolError;

/// Appends the first word of `line` to `word`, and returns the rest of the line.
pub(super) fn unquote<'a>(line: &'a [u8], word: &mut Vec<u8>) -> Result<&'a [u8], ProtocolError> {
    let mut rest = line;
    loop {
        rest = match rest {
            [] => return Ok(rest),
            [byte, ..] if byte.is_ascii_whitespace() => return Ok(rest),
            [b'"', quoted @ ..] => return end_of_word(double_quoted(quoted, word)?),
            [b'\'', quoted @ ..] => return end_of_word(single_quoted(quoted, word)?),
            [byte, rest @ ..] => {
                word.push(*byte);
                rest
            }
        };
    }
}

/// Checks that a closing quote ends the word.
fn end_of_word(rest: &[u8]) -> Result<&[u8], ProtocolError> {
    let is_end = rest.first().is_none_or(u8::is_ascii_whitespace);
    if is_end { Ok(rest) } else { Err(ProtocolError::UnbalancedQuotes) }
}

fn double_quoted<'a>(quoted: &'a [u8], word: &mut Vec<u8>) -> Result<&'a [u8], ProtocolError> {
    let mut rest = quoted;
    loop {
        rest = match rest {
            [] => return Err(ProtocolError::UnbalancedQuotes),
            [b'"', rest @ ..] => return Ok(rest),
            [b'\\', b'x', high, low, rest @ ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                word.push(hex(*high) << 4 | hex(*low));
                rest
            }
            [b'\\', escaped, rest @ ..] => {
                word.push(match escaped {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'b' => 8,
                    b'a' => 7,
                    other => *other,
                });
                rest
            }
            [byte, rest @ ..] => {
                word.push(*byte);
                rest
            }
        };
    }
}

fn single_quoted<'a>(quoted: &'a [u8], word: &mut Vec<u8>) -> Result<&'a [u8], ProtocolError> {
    let mut rest = quoted;
    loop {
        rest = match rest {
            [] => return Err(ProtocolError::UnbalancedQuotes),
            [b'\'', rest @ ..] => return Ok(rest),
            [b'\\', b'\'', rest @ ..] => {
                word.push(b'\'');
                rest
            }
            [byte, rest @ ..] => {
                word.push(*byte);
                rest
            }
        };
    }
}

fn hex(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        _ => (digit | 0x20) - b'a' + 10,
    }
}
