//! Parts of Redis that go down and come up, and what the log has about it: one warning when the first part goes down,
//! and one when all are up again, with the duration. A cluster has many parts, and one node takes down a third of them.

use super::LinkInner;
use super::breaker::{Breaker, Outage};
use diana_core::{Clock, Timestamp};

impl LinkInner {
    /// Takes a part down, if this is still the generation in which it failed.
    pub(super) fn take_down(&self, breaker: &Breaker, generation: u64, reason: &str) {
        let since = self.clock.now();
        let mut outage = self.outage.lock();
        if breaker.take_down(generation, Outage { since, reason: reason.to_owned() }) {
            self.log_outage(&mut outage, since, reason);
            self.wake.notify_one();
        }
    }

    /// Logs the beginning of an outage, unless a part was down before.
    pub(super) fn log_outage(&self, outage: &mut Option<Timestamp>, since: Timestamp, reason: &str) {
        let redis = self.target.redacted();
        if outage.is_some() {
            tracing::info!(redis, reason, "another part of Redis is unreachable");
            return;
        }
        *outage = Some(since);
        tracing::warn!(redis, reason, "Redis is unreachable");
    }

    /// Brings a part up again, and logs the end of the outage if it was the last one.
    pub(super) fn restore(&self, breaker: &Breaker) {
        let mut outage = self.outage.lock();
        if breaker.bring_up().is_none() {
            return;
        }
        self.counters.restart_decrease_timer();
        if let Some(since) = outage.take_if(|_| self.is_all_up()) {
            let lasted = self.clock.now().since(since);
            tracing::warn!(redis = self.target.redacted(), ?lasted, "Redis is reachable again");
        }
    }

    /// Logs another reason why a part is still down; once for all parts with the same reason.
    pub(super) fn log_still_down(&self, breaker: &Breaker, reason: &str) {
        if breaker.explain(reason) && self.log_throttle.should_log(reason, self.clock.now()) {
            tracing::info!(redis = self.target.redacted(), reason, "Redis is still unreachable");
        }
    }

    /// Logs a warning, unless the same reason was logged recently.
    pub(super) fn warn_throttled(&self, reason: &str, message: &str) {
        if self.log_throttle.should_log(reason, self.clock.now()) {
            tracing::warn!(redis = self.target.redacted(), reason, "{message}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Link, Target};
    use std::time::Duration;

    #[test]
    fn an_outage_lasts_from_the_first_part_that_goes_down_to_the_last_that_comes_up() {
        let target = Target::parse("redis+cluster://127.0.0.1:1").unwrap();
        let link = Link::new(target, "diana", Duration::from_secs(1), 1).inner;
        // Before the first connection, nothing has been logged.
        link.breakers.iter().for_each(|breaker| link.restore(breaker));
        assert!(link.is_all_up() && link.outage.lock().is_none());
        let [first, second, ..] = &link.breakers[..] else { panic!("a cluster has many parts") };
        for _ in 0..2 {
            let down = |breaker: &super::Breaker| link.take_down(breaker, breaker.up().unwrap(), "connection closed");
            down(first);
            let began = link.outage.lock().unwrap();
            down(second);
            assert_eq!(*link.outage.lock(), Some(began));
            link.restore(first);
            assert_eq!(*link.outage.lock(), Some(began), "the second part is still down");
            link.restore(second);
            link.restore(second);
            assert_eq!(*link.outage.lock(), None);
        }
    }
}
