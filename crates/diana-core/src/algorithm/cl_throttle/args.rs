//! The arguments of `CL.THROTTLE` as text, with the error messages of redis-cell.

use super::{ClThrottle, ClThrottleError};

/// The maximum length of an invalid argument in an error message.
const MAX_ECHO: usize = 256;

impl ClThrottle {
    /// Parses the arguments after the key: `max_burst count period [quantity]`. Integers are those that Rust's `i64`
    /// parses: `+1` and `007` are valid, ` 1` and `1.0` are not.
    pub fn from_args<A: AsRef<[u8]>>(args: &[A]) -> Result<Self, ClThrottleError> {
        let (parameters, quantity) = match args {
            [max_burst, count, period] => ([max_burst, count, period], None),
            [max_burst, count, period, quantity] => ([max_burst, count, period], Some(quantity)),
            _ => return Err(ClThrottleError::Usage),
        };
        let [max_burst, count, period] = parameters.map(|argument| parse(argument.as_ref()));
        let (max_burst, count, period) = (max_burst?, count?, period?);
        let quantity = quantity.map_or(Ok(1), |argument| parse(argument.as_ref()))?;
        Self::new(max_burst, count, period, quantity)
    }
}

#[inline]
fn parse(argument: &[u8]) -> Result<i64, ClThrottleError> {
    // Almost all arguments are a few digits, and this is a fifth of the time of what follows.
    if let 1..=9 = argument.len()
        && let Some(number) = argument.iter().try_fold(0, |number, byte| match byte {
            b'0'..=b'9' => Some(number * 10 + i64::from(byte - b'0')),
            _ => None,
        })
    {
        return Ok(number);
    }
    parse_any(argument)
}

fn parse_any(argument: &[u8]) -> Result<i64, ClThrottleError> {
    let number = std::str::from_utf8(argument).ok().and_then(|text| text.parse().ok());
    number.ok_or_else(|| ClThrottleError::NotAnInteger(echo(argument)))
}

/// Returns an argument in an error message, as redis-cell shows it: up to the first NUL, with line breaks as blanks, without
/// those at the end.
#[cold]
fn echo(argument: &[u8]) -> String {
    let end = argument.iter().position(|byte| *byte == 0).unwrap_or(argument.len());
    let shown = argument.get(..end.min(MAX_ECHO)).unwrap_or_default();
    let text = String::from_utf8_lossy(shown);
    text.trim_end_matches(['\r', '\n']).replace(['\r', '\n'], " ")
}
