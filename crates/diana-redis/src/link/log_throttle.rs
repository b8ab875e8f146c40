//! Recently logged messages, so that one bad key with many requests does not fill the log.

use diana_core::Timestamp;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::time::Duration;

/// How long the same message is suppressed.
const SUPPRESS_FOR: Duration = Duration::from_secs(60);
/// How many different messages are tracked; if there are more, no new message is logged until one of them expires.
const MAX_MESSAGES: usize = 256;

/// The messages that were logged, and when.
#[derive(Debug, Default)]
pub(crate) struct LogThrottle {
    recent: Mutex<HashMap<String, Timestamp>>,
}

impl LogThrottle {
    /// Returns `true` if `message` is to be logged at `now`, because it was not logged recently.
    pub(crate) fn should_log(&self, message: &str, now: Timestamp) -> bool {
        let mut recent = self.recent.lock();
        if recent.get(message).is_some_and(|logged_at| now.since(*logged_at) < SUPPRESS_FOR) {
            return false;
        }
        if recent.len() >= MAX_MESSAGES {
            recent.retain(|_, logged_at| now.since(*logged_at) < SUPPRESS_FOR);
        }
        let has_room = recent.len() < MAX_MESSAGES;
        if has_room {
            recent.insert(message.to_owned(), now);
        }
        has_room
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_logged_once_a_minute_and_the_number_of_messages_is_bounded() {
        let log_throttle = LogThrottle::default();
        let at = Timestamp::from_secs;
        assert!(log_throttle.should_log("a", at(100)));
        assert!(!log_throttle.should_log("a", at(159)));
        assert!(log_throttle.should_log("a", at(160)));
        let all = (0..1_000).filter(|number| log_throttle.should_log(&number.to_string(), at(161))).count();
        assert_eq!(all, MAX_MESSAGES - 1);
        assert!(log_throttle.should_log("b", at(300)));
    }
}
