//! What was logged lately, so that one bad key that many ask for does not fill the log.

use diana_core::Timestamp;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::time::Duration;

/// For how long the same is not told again.
const AGAIN_AFTER: Duration = Duration::from_secs(60);
/// How many different things are remembered; beyond that nothing is told until one of them is forgotten.
const MOST: usize = 256;

/// What was told, and when.
#[derive(Debug, Default)]
pub(crate) struct LogThrottle {
    lately: Mutex<HashMap<String, Timestamp>>,
}

impl LogThrottle {
    /// Whether `what` is to be told at `now`: it was not, lately.
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
