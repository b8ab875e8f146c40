//! Gateways that share: their counts on a real Redis, also one that is killed or frozen under load, and their rules in a real etcd.
//!
//! No test depends on the time: windows are of an hour or a day and open with their first request, so that none ends while it is
//! counted; and what others do is waited for.

mod away;
mod centre;
mod exact;
mod fleet;
mod load;
mod places;
mod queued;
