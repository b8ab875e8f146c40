//! `CL.THROTTLE key max_burst count period [quantity]`

use super::{Command, ReplyBuffer, Session, Step};
use diana::{ClThrottle, ClThrottleError};

/// The arguments are longer than this only if someone tries.
const MAX_RAW: usize = 128;

/// The parameters of a client's last call, which are most often those of the next one: to compare them is a tenth of
/// parsing them.
#[derive(Debug, Default)]
pub(in crate::resp) struct LastCall {
    raw: Vec<u8>,
    /// The length of `max_burst`, and the number of arguments.
    shape: (usize, usize),
    call: Option<ClThrottle>,
}

impl LastCall {
    #[inline]
    fn parse(&mut self, command: Command<'_>) -> Result<ClThrottle, ClThrottleError> {
        let Some(raw) = command.raw(2) else { return parse(command) };
        let shape = (command.arg(2).len(), command.len());
        match self.call {
            Some(call) if self.shape == shape && self.raw == raw => Ok(call),
            _ => self.parse_new(command, raw, shape),
        }
    }

    fn parse_new(
        &mut self,
        command: Command<'_>,
        raw: &[u8],
        shape: (usize, usize),
    ) -> Result<ClThrottle, ClThrottleError> {
        let call = parse(command)?;
        self.call = None;
        if raw.len() <= MAX_RAW {
            self.raw.clear();
            self.raw.extend_from_slice(raw);
            (self.shape, self.call) = (shape, Some(call));
        }
        Ok(call)
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
    let call = match session.last_call.parse(command) {
        Ok(call) => call,
        Err(error) => {
            replies.error(&format!("Cell error: Store error: {error}"));
            return Step::Done;
        }
    };
    match session.engine.throttle(session.space, command.arg(1), &call).now() {
        Ok(answer) => {
            replies.throttle(&answer);
            Step::Done
        }
        Err(future) => Step::Throttle(future),
    }
}
