//! Recently logged messages, so that one bad key with many requests does not fill the log.

use diana_core::Timestamp;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::time::Duration;

/// How long the same message is suppressed.
const AGAIN_AFTER: Duration = Duration::from_secs(60);
/// How many different messages are tracked; if there are more, no new message is logged until one of them expires.
const MOST: usize = 256;

/// The messages that were logged, and when.
#[derive(Debug, Default)]
pub(crate) struct LogThrottle {
    lately: Mutex<HashMap<String, Timestamp>>,
}

impl LogThrottle {
    /// Returns `true` if `what` is to be logged at `now`, because it was not logged recently.
    pub(crate) fn is_news(&self, what: &str, now: Timestamp) -> bool {
        let mut lately = self.lately.lock();
        if lately.get(what).is_some_and(|told| now.since(*told) < AGAIN_AFTER) {
            return false;
        }
        if lately.len() >= MOST {
            lately.retain(|_, told| now.since(*told) < AGAIN_AFTER);
        }
        let has_room = lately.len() < MOST;
        if has_room {
            lately.insert(what.to_owned(), now);
        }
        has_room
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_is_told_once_a_minute_and_not_too_much_in_all() {
        let log_throttle = LogThrottle::default();
        let at = Timestamp::from_secs;
        assert!(log_throttle.is_news("a", at(100)));
        assert!(!log_throttle.is_news("a", at(159)));
        assert!(log_throttle.is_news("a", at(160)));
        let all = (0..1_000).filter(|number| log_throttle.is_news(&number.to_string(), at(161))).count();
        assert_eq!(all, MOST - 1);
        assert!(log_throttle.is_news("b", at(300)));
    }
}
