//! The writer of replies, in RESP 2 or RESP 3.

use diana::Answer;

/// The version of the protocol, which a client selects with `HELLO`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Protocol {
    #[default]
    Resp2,
    Resp3,
}

impl Protocol {
    pub(super) fn number(self) -> i64 {
        match self {
            Self::Resp2 => 2,
            Self::Resp3 => 3,
        }
    }
}

/// Replies that are to be sent.
#[derive(Debug, Default)]
pub(super) struct ReplyBuffer {
    bytes: Vec<u8>,
    last: LastLines,
    pub(super) protocol: Protocol,
    pub(super) counts: ReplyCounts,
}

/// The numbers of replies since they were last recorded.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ReplyCounts {
    pub(super) allowed: u64,
    pub(super) denied: u64,
    pub(super) errors: u64,
}

impl ReplyCounts {
    /// Counts a decision.
    #[inline]
    pub(super) fn decision(&mut self, is_allowed: bool) {
        self.allowed += u64::from(is_allowed);
        self.denied += u64::from(!is_allowed);
    }
}

impl ReplyBuffer {
    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Returns the memory that the replies take.
    #[inline]
    pub(super) fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Removes all replies, and keeps at most `capacity` bytes of memory.
    pub(super) fn clear(&mut self, capacity: usize) {
        self.bytes.clear();
        self.bytes.shrink_to(capacity);
    }

    /// Removes and returns the replies from `start` on.
    pub(super) fn split_off(&mut self, start: usize) -> Vec<u8> {
        self.bytes.split_off(start.min(self.bytes.len()))
    }

    /// Adds replies that were removed.
    pub(super) fn append(&mut self, replies: &[u8]) {
        self.bytes.extend_from_slice(replies);
    }

    /// Writes `+OK`.
    pub(super) fn ok(&mut self) {
        self.simple("OK");
    }

    /// Writes a simple string, which must have no line breaks.
    pub(super) fn simple(&mut self, text: &str) {
        self.line(b'+', text.as_bytes());
    }

    /// Writes an error. Line breaks become blanks, as in Redis.
    pub(super) fn error(&mut self, text: &str) {
        self.counts.errors += 1;
        self.bytes.push(b'-');
        let text = text.trim_end_matches(['\r', '\n']);
        self.bytes.extend(text.bytes().map(|byte| if matches!(byte, b'\r' | b'\n') { b' ' } else { byte }));
        self.bytes.extend_from_slice(b"\r\n");
    }

    #[inline]
    pub(super) fn integer(&mut self, number: i64) {
        self.number(b':', number);
    }

    /// Writes the answer of `CL.THROTTLE`.
    #[inline]
    pub(super) fn cl_throttle(&mut self, answer: &Answer) {
        self.counts.decision(answer.is_granted());
        self.five_integers(answer.to_integers());
    }

    /// Writes five integers, the most frequent reply: the middle one differs in most of them, the others seldom.
    #[inline]
    fn five_integers(&mut self, [first, second, middle, fourth, fifth]: [i64; 5]) {
        self.last.update([first, second], [fourth, fifth]);
        let LastLines { before, after, .. } = &self.last;
        // Copies of a constant length take a few instructions, so each is as long as the longest one, and cut afterwards.
        let end = self.bytes.len() + before.length;
        self.bytes.extend_from_slice(&before.bytes);
        self.bytes.truncate(end);
        let mut lines = LineBuffer { bytes: [0; 128], start: MIDDLE };
        lines.bytes[MIDDLE..MIDDLE + AFTER].copy_from_slice(&after.bytes);
        lines.prepend_digits(middle);
        let start = lines.start.min(MIDDLE);
        self.bytes.extend_from_slice(&lines.bytes[start..start + MIDDLE + AFTER]);
        self.bytes.truncate(end + MIDDLE - start + after.length);
    }

    /// Writes a string of any bytes.
    pub(super) fn bulk(&mut self, bytes: &[u8]) {
        self.length(b'$', bytes.len());
        self.bytes.extend_from_slice(bytes);
        self.bytes.extend_from_slice(b"\r\n");
    }

    /// Writes a text for people to read.
    pub(super) fn verbatim(&mut self, text: &str) {
        match self.protocol {
            Protocol::Resp2 => self.bulk(text.as_bytes()),
            Protocol::Resp3 => {
                self.length(b'=', text.len() + 4);
                self.bytes.extend_from_slice(b"txt:");
                self.bytes.extend_from_slice(text.as_bytes());
                self.bytes.extend_from_slice(b"\r\n");
            }
        }
    }

    pub(super) fn null(&mut self) {
        self.bytes.extend_from_slice(match self.protocol {
            Protocol::Resp2 => b"$-1\r\n",
            Protocol::Resp3 => b"_\r\n",
        });
    }

    /// Writes the head of a list of `length` replies.
    #[inline]
    pub(super) fn array(&mut self, length: usize) {
        self.length(b'*', length);
    }

    /// Writes the head of a map of `length` pairs of replies; a list in RESP 2.
    pub(super) fn map(&mut self, length: usize) {
        match self.protocol {
            Protocol::Resp2 => self.length(b'*', length * 2),
            Protocol::Resp3 => self.length(b'%', length),
        }
    }

    /// Writes the head of a set of `length` replies; a list in RESP 2.
    pub(super) fn set(&mut self, length: usize) {
        match self.protocol {
            Protocol::Resp2 => self.length(b'*', length),
            Protocol::Resp3 => self.length(b'~', length),
        }
    }

    #[inline]
    fn length(&mut self, kind: u8, length: usize) {
        self.number(kind, i64::try_from(length).unwrap_or(i64::MAX));
    }

    #[inline]
    fn number(&mut self, kind: u8, number: i64) {
        let mut line = LineBuffer::<{ MAX_NUMBER.next_power_of_two() }>::default();
        line.prepend_number(kind, number);
        self.bytes.extend_from_slice(line.as_bytes());
    }

    fn line(&mut self, kind: u8, text: &[u8]) {
        self.bytes.push(kind);
        self.bytes.extend_from_slice(text);
        self.bytes.extend_from_slice(b"\r\n");
    }
}

/// The longest number: its kind, a sign, 19 digits, and CRLF.
const MAX_NUMBER: usize = 23;

/// The longest lines before the middle one of five integers: the head of the list, two numbers, and a kind.
const BEFORE: usize = 4 + 2 * MAX_NUMBER + 1;
/// The longest lines after the digits of the middle one: CRLF, and two numbers.
const AFTER: usize = 2 + 2 * MAX_NUMBER;
/// The room for the digits of the middle one.
const MIDDLE: usize = 24;

/// The last list of five integers but for the middle one: those of a client's calls are most often the same.
#[derive(Debug)]
struct LastLines {
    before: Lines<BEFORE>,
    after: Lines<AFTER>,
}

/// The lines of two numbers.
#[derive(Debug)]
struct Lines<const SIZE: usize> {
    numbers: [i64; 2],
    bytes: [u8; SIZE],
    length: usize,
}

impl Default for LastLines {
    fn default() -> Self {
        let (mut before, mut after) = (Lines::new([0; 2]), Lines::new([0; 2]));
        before.set_before([0; 2]);
        after.set_after([0; 2]);
        Self { before, after }
    }
}

impl LastLines {
    #[inline]
    fn update(&mut self, before: [i64; 2], after: [i64; 2]) {
        if self.before.numbers != before {
            self.before.set_before(before);
        }
        if self.after.numbers != after {
            self.after.set_after(after);
        }
    }
}

impl<const SIZE: usize> Lines<SIZE> {
    fn new(numbers: [i64; 2]) -> Self {
        Self { numbers, bytes: [0; SIZE], length: 0 }
    }

    fn set(&mut self, numbers: [i64; 2], lines: &[u8]) {
        (self.numbers, self.length) = (numbers, lines.len().min(SIZE));
        self.bytes.iter_mut().zip(lines).for_each(|(byte, line)| *byte = *line);
    }

    /// Sets `*5`, both numbers, and the kind of the next.
    fn set_before(&mut self, [first, second]: [i64; 2]) {
        let mut lines = LineBuffer::<{ BEFORE.next_power_of_two() }>::default();
        lines.prepend(b':');
        lines.prepend_number(b':', second);
        lines.prepend_number(b':', first);
        b"*5\r\n".iter().rev().for_each(|byte| lines.prepend(*byte));
        self.set([first, second], lines.as_bytes());
    }

    /// Sets the end of the line before, and both numbers.
    fn set_after(&mut self, [fourth, fifth]: [i64; 2]) {
        let mut lines = LineBuffer::<{ AFTER.next_power_of_two() }>::default();
        lines.prepend_number(b':', fifth);
        lines.prepend_number(b':', fourth);
        b"\r\n".iter().rev().for_each(|byte| lines.prepend(*byte));
        self.set([fourth, fifth], lines.as_bytes());
    }
}

/// The digits of the numbers below 100.
const PAIRS: [[u8; 2]; 100] = {
    let mut pairs = [[0; 2]; 100];
    let mut number = 0;
    while number < pairs.len() {
        #[allow(clippy::cast_possible_truncation, reason = "less than 10")]
        let digits = [b'0' + (number / 10) as u8, b'0' + (number % 10) as u8];
        pairs[number] = digits;
        number += 1;
    }
    pairs
};

/// A few lines, before they are copied to the replies at once. They are written from the last one to the first, since the last
/// digit of a number is the first that is known.
///
/// `SIZE` is a power of two, so that an index is brought into the range by a single instruction.
struct LineBuffer<const SIZE: usize> {
    bytes: [u8; SIZE],
    start: usize,
}

impl<const SIZE: usize> Default for LineBuffer<SIZE> {
    #[inline]
    fn default() -> Self {
        const { assert!(SIZE.is_power_of_two(), "a power of two") };
        Self { bytes: [0; SIZE], start: SIZE }
    }
}

impl<const SIZE: usize> LineBuffer<SIZE> {
    #[inline]
    fn as_bytes(&self) -> &[u8] {
        self.bytes.get(self.start..).unwrap_or_default()
    }

    /// Adds a byte before the others, for which there must be room.
    #[inline]
    fn prepend(&mut self, byte: u8) {
        self.start = self.start.wrapping_sub(1) % SIZE;
        self.bytes[self.start] = byte;
    }

    #[inline]
    fn prepend_number(&mut self, kind: u8, number: i64) {
        self.prepend(b'\n');
        self.prepend(b'\r');
        self.prepend_digits(number);
        self.prepend(kind);
    }

    /// Adds a number before the others, with its sign.
    #[inline]
    fn prepend_digits(&mut self, number: i64) {
        let mut rest = number.unsigned_abs();
        while rest >= 10 {
            let [tens, ones] = PAIRS[(rest % 100) as usize];
            rest /= 100;
            self.prepend(ones);
            self.prepend(tens);
        }
        if rest > 0 || number == 0 {
            self.prepend(b'0' + (rest % 10) as u8);
        }
        if number < 0 {
            self.prepend(b'-');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(protocol: Protocol, write: impl FnOnce(&mut ReplyBuffer)) -> String {
        let mut replies = ReplyBuffer { protocol, ..ReplyBuffer::default() };
        write(&mut replies);
        String::from_utf8(replies.as_bytes().to_vec()).unwrap()
    }

    #[test]
    fn integers_are_written_in_full() {
        for number in [0, 9, 10, -1, -10, 1_234_567, i64::MAX, i64::MIN] {
            assert_eq!(written(Protocol::Resp2, |replies| replies.integer(number)), format!(":{number}\r\n"));
        }
        let five = written(Protocol::Resp3, |replies| replies.five_integers([0, 16, 15, -1, 2]));
        let longest = written(Protocol::Resp3, |replies| replies.five_integers([i64::MIN; 5]));
        assert_eq!(longest, format!("*5\r\n{}", format!(":{}\r\n", i64::MIN).repeat(5)));
        assert_eq!(five, "*5\r\n:0\r\n:16\r\n:15\r\n:-1\r\n:2\r\n");
    }

    #[test]
    fn five_integers_do_not_depend_on_the_reply_before() {
        let numbers = [0, 1, -1, 16, 1_000_001, i64::MAX, i64::MIN];
        let lists = (0..5).flat_map(|place| numbers.map(|number| (place, number))).map(|(place, number)| {
            let mut list = [0, 16, 15, -1, 2];
            list[place] = number;
            list
        });
        let lists = lists.collect::<Vec<_>>();
        let expected = |list: &[i64; 5]| format!("*5\r\n{}", list.map(|number| format!(":{number}\r\n")).concat());
        for before in &lists {
            for list in &lists {
                let both = written(Protocol::Resp2, |replies| {
                    replies.five_integers(*before);
                    replies.five_integers(*list);
                });
                assert_eq!(both, expected(before) + &expected(list));
            }
        }
    }

    #[test]
    fn the_protocol_selects_the_types() {
        let both = |write: fn(&mut ReplyBuffer)| [written(Protocol::Resp2, write), written(Protocol::Resp3, write)];
        assert_eq!(both(ReplyBuffer::null), ["$-1\r\n", "_\r\n"]);
        assert_eq!(both(|replies| replies.map(2)), ["*4\r\n", "%2\r\n"]);
        assert_eq!(both(|replies| replies.set(2)), ["*2\r\n", "~2\r\n"]);
        assert_eq!(both(|replies| replies.verbatim("a")), ["$1\r\na\r\n", "=5\r\ntxt:a\r\n"]);
        assert_eq!(both(|replies| replies.bulk(b"")), ["$0\r\n\r\n"; 2]);
    }

    #[test]
    fn an_error_is_one_line() {
        let text = written(Protocol::Resp2, |replies| replies.error("ERR a\r\nb\r\n\r\n"));
        assert_eq!(text, "-ERR a  b\r\n");
    }
}
