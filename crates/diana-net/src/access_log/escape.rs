//! Escapes text from clients for the log.
//!
//! Escaped text cannot end its quotes or its line, contains no control characters that would affect a terminal, and has
//! a bounded length.

use std::io::Write;

/// The maximum number of logged bytes of one text.
pub(super) const MAX_LENGTH: usize = 4096;

/// Writes a text as a JSON string. Invalid UTF-8 becomes U+FFFD, so the line is always valid JSON.
pub(super) fn json(text: &[u8], line: &mut Vec<u8>) {
    line.push(b'"');
    for chunk in cut(text).utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '"' => line.extend_from_slice(b"\\\""),
                '\\' => line.extend_from_slice(b"\\\\"),
                '\n' => line.extend_from_slice(b"\\n"),
                '\r' => line.extend_from_slice(b"\\r"),
                '\t' => line.extend_from_slice(b"\\t"),
                // JSON would allow some of them, but terminals and pages interpret them.
                _ if is_control(character) => drop(write!(line, "\\u{:04x}", u32::from(character))),
                _ => line.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        if !chunk.invalid().is_empty() {
            line.extend_from_slice("\u{fffd}".as_bytes());
        }
    }
    end(text, line);
}

/// Writes a text in quotes as nginx and Apache do: all but printable ASCII becomes `\xHH`.
pub(super) fn text(text: &[u8], line: &mut Vec<u8>) {
    line.push(b'"');
    escape(text, line);
    end(text, line);
}

/// Escapes a text as [`text`] does, without quotes and without a bound: for a part of a text.
pub(super) fn escape(text: &[u8], line: &mut Vec<u8>) {
    for byte in cut(text) {
        match byte {
            b'"' | b'\\' => line.extend_from_slice(&[b'\\', *byte]),
            b' '..=b'~' => line.push(*byte),
            _ => drop(write!(line, "\\x{byte:02x}")),
        }
    }
}

fn end(text: &[u8], line: &mut Vec<u8>) {
    if text.len() > MAX_LENGTH {
        line.extend_from_slice(b"...");
    }
    line.push(b'"');
}

fn cut(text: &[u8]) -> &[u8] {
    &text[..text.len().min(MAX_LENGTH)]
}

/// Returns whether a character controls a terminal, changes the direction of text, or ends a line.
fn is_control(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{2028}' | '\u{2029}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}
