//! The parser of commands: RESP arrays of bulk strings, as RESP 2 and 3 have them, and inline commands.
//!
//! # How it works
//! The parser works on the bytes that have arrived, and copies none of them: a [`Command`] is a list of ranges. If a
//! command is incomplete, the parser keeps what it has found so far, as offsets from the start of the command, and goes
//! on there when more bytes have arrived. So each byte is looked at once, however the input is split.
//!
//! # What always holds (tests)
//! - Any bytes, split in any way, give the same commands and the same error.
//! - Nothing is allocated for a length that a client merely announces.

mod quotes;

use quotes::unquote;
use std::ops::Range;

/// The maximum length of a line with a number.
const MAX_NUMBER_LINE: usize = 32;
const LINE_END: &[u8] = b"\r\n";

/// The bounds of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bounds {
    /// The maximum number of arguments, including the command's name.
    arguments: usize,
    /// The maximum length of one argument.
    argument: usize,
    /// The maximum length of all arguments together.
    command: usize,
    /// The maximum length of an inline command.
    line: usize,
    is_authenticated: bool,
}

impl Bounds {
    /// The bounds of clients that may use every command.
    pub(super) const AUTHENTICATED: Self =
        Self { arguments: 1_024, argument: 64 << 10, command: 256 << 10, line: 64 << 10, is_authenticated: true };
    /// The bounds of clients that have not sent the password yet: as in Redis.
    pub(super) const UNAUTHENTICATED: Self =
        Self { arguments: 10, argument: 16 << 10, command: 32 << 10, line: 16 << 10, is_authenticated: false };
}

/// Bytes that are not a command. The connection can't be used further.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub(super) enum ProtocolError {
    #[error("too big inline request")]
    LineTooLong,
    #[error("too many arguments in an inline request")]
    TooManyWords,
    #[error("unbalanced quotes in request")]
    UnbalancedQuotes,
    #[error("too big count string")]
    NumberTooLong,
    #[error("invalid multibulk length")]
    ArrayLength,
    #[error("unauthenticated multibulk length")]
    UnauthenticatedArrayLength,
    #[error("expected a command, got the byte {0:#04x}: is this TLS?")]
    NotACommand(u8),
    #[error("expected '$', got '{}'", char::from(*.0).escape_default())]
    NotABulk(u8),
    #[error("invalid bulk length")]
    BulkLength,
    #[error("unauthenticated bulk length")]
    UnauthenticatedBulkLength,
    #[error("expected CRLF after a bulk string")]
    NoLineEnd,
    #[error("command is longer than {} bytes", Bounds::AUTHENTICATED.command)]
    CommandTooLong,
}

/// A complete command: its arguments, of which the first one is its name. Never empty.
#[derive(Clone, Copy, Debug)]
pub(super) struct Command<'a> {
    bytes: &'a [u8],
    ranges: &'a [Range<usize>],
    /// Whether nothing separates the arguments.
    is_joined: bool,
}

impl<'a> Command<'a> {
    /// Creates a command whose arguments follow each other in `bytes`.
    pub(super) fn joined(bytes: &'a [u8], ranges: &'a [Range<usize>]) -> Self {
        Self { bytes, ranges, is_joined: true }
    }

    /// Returns the number of arguments, including the name.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.ranges.len()
    }

    /// Returns the argument at `index`; empty if there is none.
    #[inline]
    pub(super) fn arg(&self, index: usize) -> &'a [u8] {
        self.get(index).unwrap_or_default()
    }

    #[inline]
    pub(super) fn get(&self, index: usize) -> Option<&'a [u8]> {
        self.bytes.get(self.ranges.get(index)?.clone())
    }

    /// Returns the arguments after the first `skipped` ones.
    pub(super) fn args(&self, skipped: usize) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let bytes = self.bytes;
        self.ranges.iter().skip(skipped).map(move |range| bytes.get(range.clone()).unwrap_or_default())
    }

    /// Returns the bytes of the command before the length of the argument at `index`, and after that argument; `None` unless it
    /// was sent as an array.
    pub(super) fn around(&self, index: usize) -> Option<(&'a [u8], &'a [u8])> {
        if self.is_joined || self.bytes.first() != Some(&b'*') {
            return None;
        }
        let (before, argument) = (self.ranges.get(index.checked_sub(1)?)?, self.ranges.get(index)?);
        let end = self.ranges.last()?.end + LINE_END.len();
        let start = before.end + LINE_END.len() + 1; // `$`
        Some((self.bytes.get(..start)?, self.bytes.get(argument.end..end)?))
    }

    /// Returns the memory that a copy of the arguments takes: their bytes, and where each one is.
    pub(super) fn size(&self) -> usize {
        self.ranges.iter().map(ExactSizeIterator::len).sum::<usize>() + size_of_val(self.ranges)
    }
}

/// The parser of one connection.
#[derive(Debug, Default)]
pub(super) struct Parser {
    expected: Expected,
    /// The offset at which to continue, from the start of the command.
    position: usize,
    /// The arguments found so far.
    ranges: Vec<Range<usize>>,
    /// The bytes of their arguments.
    size: usize,
    /// The arguments of an inline command with quotes, which are not in the input as such.
    unquoted: Vec<u8>,
    is_unquoted: bool,
}

/// The part of a command that the next byte belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Expected {
    #[default]
    Start,
    /// An inline command, of which this many bytes contain no line end.
    Inline(usize),
    /// The length of an argument, of which this many are missing.
    BulkLength(usize),
    /// An argument of this length, of which this many are missing.
    Bulk { length: usize, missing: usize },
}

impl Parser {
    /// Parses the next command of `input`, which starts where the last one ended. Returns the number of its bytes, or
    /// `None` if it is incomplete: then the next call must have the same bytes at its start.
    ///
    /// A command of no arguments is complete, and has no name: skip it.
    #[inline]
    pub(super) fn parse(&mut self, input: &[u8], bounds: &Bounds) -> Result<Option<usize>, ProtocolError> {
        if self.is_at_start() {
            match input.first() {
                None => return Ok(None),
                Some(b'*') => match self.array_length(input, bounds)? {
                    None => return Ok(None),
                    Some(0) => return Ok(Some(std::mem::take(&mut self.position))),
                    Some(length) => self.expected = Expected::BulkLength(length),
                },
                Some(first) if first.is_ascii_graphic() || first.is_ascii_whitespace() => {
                    self.clear();
                    self.expected = Expected::Inline(0);
                }
                // Another protocol, such as TLS: a line in it must not become a command.
                Some(first) => return Err(ProtocolError::NotACommand(*first)),
            }
        }
        if let Expected::Inline(scanned) = self.expected {
            return self.inline(input, scanned, bounds);
        }
        self.bulks(input, bounds)
    }

    /// Returns `true` if no part of the next command has been parsed.
    #[inline]
    pub(super) fn is_at_start(&self) -> bool {
        self.expected == Expected::Start
    }

    /// Returns the command that was parsed last, in the same `input`.
    #[inline]
    pub(super) fn command<'a>(&'a self, input: &'a [u8]) -> Command<'a> {
        let bytes = if self.is_unquoted { &self.unquoted } else { input };
        Command { bytes, ranges: &self.ranges, is_joined: self.is_unquoted }
    }

    /// Returns the memory of the parsed command.
    #[inline]
    pub(super) fn memory(&self) -> usize {
        self.ranges.capacity() * size_of::<Range<usize>>() + self.unquoted.capacity()
    }

    #[inline]
    fn clear(&mut self) {
        (self.position, self.size, self.is_unquoted) = (0, 0, false);
        self.ranges.clear();
    }

    /// Reads the length of the array, which may be 0 or negative for none.
    #[inline]
    fn array_length(&mut self, input: &[u8], bounds: &Bounds) -> Result<Option<usize>, ProtocolError> {
        let Some((number, end)) = number(input, 1)? else { return Ok(None) };
        let number = number.ok_or(ProtocolError::ArrayLength)?;
        self.clear();
        self.position = end;
        let length = usize::try_from(number).unwrap_or(0);
        if length <= bounds.arguments {
            return Ok(Some(length));
        }
        Err(if bounds.is_authenticated {
            ProtocolError::ArrayLength
        } else {
            ProtocolError::UnauthenticatedArrayLength
        })
    }

    /// Reads the arguments of an array.
    #[inline]
    fn bulks(&mut self, input: &[u8], bounds: &Bounds) -> Result<Option<usize>, ProtocolError> {
        let (mut missing, mut length) = match self.expected {
            Expected::BulkLength(missing) => (missing, None),
            Expected::Bulk { length, missing } => (missing, Some(length)),
            Expected::Start | Expected::Inline(_) => return Ok(None),
        };
        let mut position = self.position;
        loop {
            let known = match length {
                Some(known) => known,
                None => match self.bulk_length(input, position, bounds)? {
                    Some((known, start)) => {
                        position = start;
                        known
                    }
                    None => {
                        (self.position, self.expected) = (position, Expected::BulkLength(missing));
                        return Ok(None);
                    }
                },
            };
            let end = position + known;
            match input.get(end..end + 2) {
                Some(b"\r\n") => {}
                Some(_) => return Err(ProtocolError::NoLineEnd),
                None => {
                    (self.position, self.expected) = (position, Expected::Bulk { length: known, missing });
                    return Ok(None);
                }
            }
            self.ranges.push(position..end);
            (position, length, missing) = (end + 2, None, missing - 1);
            if missing == 0 {
                (self.position, self.expected) = (0, Expected::Start);
                return Ok(Some(position));
            }
        }
    }

    /// Reads the length of an argument, and where it starts; `None` if its line is incomplete.
    #[inline]
    fn bulk_length(
        &mut self,
        input: &[u8],
        position: usize,
        bounds: &Bounds,
    ) -> Result<Option<(usize, usize)>, ProtocolError> {
        match input.get(position) {
            None => return Ok(None),
            Some(b'$') => {}
            Some(other) => return Err(ProtocolError::NotABulk(*other)),
        }
        let Some((number, start)) = number(input, position + 1)? else { return Ok(None) };
        let length = number.and_then(|number| usize::try_from(number).ok()).ok_or(ProtocolError::BulkLength)?;
        if length > bounds.argument {
            return Err(match bounds.is_authenticated {
                true => ProtocolError::BulkLength,
                false => ProtocolError::UnauthenticatedBulkLength,
            });
        }
        self.size += length;
        if self.size > bounds.command {
            return Err(ProtocolError::CommandTooLong);
        }
        Ok(Some((length, start)))
    }

    /// Reads a command on one line, which ends with LF or CRLF.
    fn inline(&mut self, input: &[u8], scanned: usize, bounds: &Bounds) -> Result<Option<usize>, ProtocolError> {
        let newline = input.iter().skip(scanned).position(|byte| *byte == b'\n').map(|offset| scanned + offset);
        let Some(end) = newline.filter(|end| *end <= bounds.line) else {
            if input.len() > bounds.line {
                return Err(ProtocolError::LineTooLong);
            }
            self.expected = Expected::Inline(input.len());
            return Ok(None);
        };
        self.expected = Expected::Start;
        let line = input.get(..end).unwrap_or_default();
        self.words(line.strip_suffix(b"\r").unwrap_or(line), bounds)?;
        Ok(Some(end + 1))
    }

    /// Adds a word of a line.
    fn word(&mut self, range: Range<usize>, bounds: &Bounds) -> Result<(), ProtocolError> {
        if self.ranges.len() >= bounds.arguments {
            return Err(ProtocolError::TooManyWords);
        }
        self.ranges.push(range);
        Ok(())
    }

    /// Splits a line into words, as Redis does: `"a\x00b"` and `'a b'` are words as well.
    fn words(&mut self, line: &[u8], bounds: &Bounds) -> Result<(), ProtocolError> {
        if !line.iter().any(|byte| matches!(byte, b'"' | b'\'')) {
            let mut start = 0;
            for word in line.split(u8::is_ascii_whitespace) {
                if !word.is_empty() {
                    self.word(start..start + word.len(), bounds)?;
                }
                start += word.len() + 1;
            }
            return Ok(());
        }
        self.unquoted.clear();
        self.is_unquoted = true;
        let mut rest = line;
        loop {
            rest = rest.trim_ascii_start();
            if rest.is_empty() {
                return Ok(());
            }
            let start = self.unquoted.len();
            rest = unquote(rest, &mut self.unquoted)?;
            self.word(start..self.unquoted.len(), bounds)?;
        }
    }
}

/// Reads the number at `start`: returns it, or `None` if it is invalid, and where the next line starts.
/// `None` if the line is incomplete.
#[inline]
fn number(input: &[u8], start: usize) -> Result<Option<(Option<i64>, usize)>, ProtocolError> {
    let line = input.get(start..).unwrap_or_default();
    // Most numbers have one or two digits.
    match line {
        [a @ b'0'..=b'9', b'\r', b'\n', ..] => return Ok(Some((Some(i64::from(a - b'0')), start + 3))),
        [a @ b'0'..=b'9', b @ b'0'..=b'9', b'\r', b'\n', ..] => {
            return Ok(Some((Some(i64::from(a - b'0') * 10 + i64::from(b - b'0')), start + 4)));
        }
        _ => {}
    }
    let Some(end) = line.iter().take(MAX_NUMBER_LINE).position(|byte| *byte == b'\r') else {
        return if line.len() >= MAX_NUMBER_LINE { Err(ProtocolError::NumberTooLong) } else { Ok(None) };
    };
    match line.get(end + 1) {
        None => Ok(None),
        Some(b'\n') => {
            let digits = line.get(..end).and_then(|digits| std::str::from_utf8(digits).ok());
            // Redis accepts no `+`.
            let number = digits.filter(|digits| !digits.starts_with('+')).and_then(|digits| digits.parse().ok());
            Ok(Some((number, start + end + 2)))
        }
        Some(_) => Ok(Some((None, start + end + 2))),
    }
}

#[cfg(test)]
mod tests;
