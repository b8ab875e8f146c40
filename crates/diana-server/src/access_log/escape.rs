//! What clients send, made fit for a line.
//!
//! Whatever it is, it stays within its quotes and its line, shows no control character to the terminal of whoever reads it, and
//! has a bounded length.

use std::io::Write;

/// The most bytes of one text that are logged.
pub(super) const LONGEST: usize = 4096;

/// Writes a text between quotes as JSON has it. Bytes that are no UTF-8 become U+FFFD, and so the line is always JSON.
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
                // Those that are no control characters for JSON are for terminals and pages, too.
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

/// Writes a text between quotes as nginx and Apache do: what is no printable ASCII is `\xHH`.
pub(super) fn text(text: &[u8], line: &mut Vec<u8>) {
    line.push(b'"');
    escape(text, line);
    end(text, line);
}

/// Writes a text as [`text`] does, without quotes and without a bound: for a part of one.
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
    if text.len() > LONGEST {
        line.extend_from_slice(b"...");
    }
    line.push(b'"');
}

fn cut(text: &[u8]) -> &[u8] {
    &text[..text.len().min(LONGEST)]
}

/// Whether a character does something to a terminal or to the order of a line, or ends it.
fn is_control(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{2028}' | '\u{2029}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}
