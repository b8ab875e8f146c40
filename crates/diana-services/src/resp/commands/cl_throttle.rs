//! `CL.THROTTLE key max_burst count period [quantity]`

use super::{Command, ReplyBuffer, Session, Step};
use diana::{ClThrottle, ClThrottleError};

/// The bytes before and after the key are longer than this only if someone tries.
const MAX_TEMPLATE: usize = 128;

/// A client's last call. The next one is most often the same with another key, and is then recognised by its bytes: that takes
/// a tenth of parsing it.
///
/// ```text
///   *5\r\n$11\r\nCL.THROTTLE\r\n$   5\r\nalice   \r\n$2\r\n15\r\n$2\r\n30\r\n$2\r\n60\r\n
///   └──────── before ────────┘              └──────────────── after ────────────────┘
/// ```
#[derive(Debug, Default)]
pub(in crate::resp) struct LastCall {
    before: Vec<u8>,
    after: Vec<u8>,
    call: Option<ClThrottle>,
}

impl LastCall {
    /// Returns the key of the call at the start of `input` and the bytes after the call, if it equals the last one but for its
    /// key.
    #[inline]
    fn matching<'a>(&self, input: &'a [u8]) -> Option<(&'a [u8], &'a [u8])> {
        // Keys of 100 bytes or more are left to the parser.
        let (length, rest) = match input.strip_prefix(self.before.as_slice())? {
            [a @ b'0'..=b'9', b'\r', b'\n', rest @ ..] => (usize::from(a - b'0'), rest),
            [a @ b'0'..=b'9', b @ b'0'..=b'9', b'\r', b'\n', rest @ ..] => {
                (usize::from(a - b'0') * 10 + usize::from(b - b'0'), rest)
            }
            _ => return None,
        };
        let (key, rest) = rest.split_at_checked(length)?;
        Some((key, rest.strip_prefix(self.after.as_slice())?))
    }

    fn remember(&mut self, command: Command<'_>, call: ClThrottle) {
        self.call = None;
        if let Some((before, after)) = command.around(1)
            && before.len().max(after.len()) <= MAX_TEMPLATE
        {
            self.before.clear();
            self.before.extend_from_slice(before);
            self.after.clear();
            self.after.extend_from_slice(after);
            self.call = Some(call);
        }
    }
}

impl Session {
    /// Executes the commands at the start of `input` as long as they are `CL.THROTTLE` like the last one, decided by the counts of
    /// this process, and the replies have less than `max_replies` bytes. Returns the length of these commands. No part of the
    /// first one may have been parsed.
    pub(in crate::resp) fn repeat_cl_throttle(
        &self,
        input: &[u8],
        replies: &mut ReplyBuffer,
        max_replies: usize,
    ) -> usize {
        let Some(call) = &self.last_call.call else { return 0 };
        if input.is_empty() || self.transaction.is_some() || !self.is_authenticated {
            return 0;
        }
        // Commands that arrived together are decided at one time.
        let Some(now) = self.engine.cl_throttle_now(self.space) else { return 0 };
        let mut rest = input;
        while replies.len() < max_replies
            && let Some((key, next)) = self.last_call.matching(rest)
        {
            replies.cl_throttle(&now.cl_throttle(key, call));
            rest = next;
        }
        input.len() - rest.len()
    }

    #[inline]
    fn cl_throttle(&self, key: &[u8], call: &ClThrottle, replies: &mut ReplyBuffer) -> Step {
        match self.engine.cl_throttle(self.space, key, call).now() {
            Ok(answer) => {
                replies.cl_throttle(&answer);
                Step::Done
            }
            Err(future) => Step::ClThrottle(future),
        }
    }
}

fn parse(command: Command<'_>) -> Result<ClThrottle, ClThrottleError> {
    match command.len() {
        5 => ClThrottle::from_args(&[command.arg(2), command.arg(3), command.arg(4)]),
        6 => ClThrottle::from_args(&[command.arg(2), command.arg(3), command.arg(4), command.arg(5)]),
        _ => Err(ClThrottleError::Usage),
    }
}

pub(super) fn cl_throttle(session: &mut Session, command: Command<'_>, replies: &mut ReplyBuffer) -> Step {
    match parse(command) {
        Ok(call) => {
            session.last_call.remember(command, call);
            session.cl_throttle(command.arg(1), &call, replies)
        }
        Err(error) => {
            replies.error(&format!("Cell error: Store error: {error}"));
            Step::Done
        }
    }
}
