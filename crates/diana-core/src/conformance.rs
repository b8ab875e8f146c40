//! The suite of behaviour that every store must pass.
//!
//! # How it works
//! Whatever a store is asked, the pure algorithm is asked as well, at the same time and in the same words; the two must
//! say the same. So a check is only a script (ask until denied, wait, give back), and what to expect of it is never
//! written down twice. A check that fails tells what was asked, what the algorithm says and what the store said; all
//! others are run nevertheless, so that whoever writes a store is told everything at once.
//!
//! ```
//! use diana_core::MemoryStore;
//! use diana_core::conformance::{self, Setup};
//! # use std::{future::Future, pin::pin, task::{Context, Poll, Waker}};
//! # // The in-process store answers at once, so there is nothing to wait for.
//! # fn block_on<F: Future>(future: F) -> F::Output {
//! #     let mut future = pin!(future);
//! #     loop {
//! #         if let Poll::Ready(done) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
//! #             return done;
//! #         }
//! #     }
//! # }
//!
//! let report = block_on(conformance::run(&Setup::default(), async || MemoryStore::default()));
//! assert!(report.passed(), "{report}");
//! ```
//!
//! # What a store is held to
//! The contract of [`LocalStore`](crate::LocalStore), point by point, for every algorithm of this crate. A store that
//! can't keep one of them says so ([`StoreError::Unsupported`](crate::StoreError::Unsupported)), and the
//! [`Setup`] leaves it out by name. A store whose time is coarser than a nanosecond says how coarse: only whole ticks
//! are asked for, and durations are compared within one.
//!
//! # What is not checked
//! How long keys are remembered after they have come back in full, what a receipt from before a reset gives back, and
//! what happens when there is no room or no connection: those are each store's own promises.

use crate::Store;
use checks::Check;
use kinds::Kind;
use pair::Pair;

mod checks;
mod kinds;
mod model;
mod pair;
mod report;
mod script;
mod setup;

pub use report::{Checked, Failure, Report};
pub use setup::Setup;

/// Puts stores that `make` makes, each of them empty, through every check.
///
/// The stores may share a server, as long as none sees the counts of another.
pub async fn run<S: Store>(setup: &Setup, make: impl AsyncFn() -> S) -> Report {
    let kinds = kinds::all().into_iter().filter(|kind| !setup.leaves_out(kind.name())).collect::<Vec<_>>();
    let mut report = Report::default();
    for check in Check::EACH {
        for kind in &kinds {
            let mut pair = Pair::new(make().await, setup);
            let result = check.run(&mut pair, std::slice::from_ref(kind)).await;
            report.add(check.name(), Some(kind), result);
        }
    }
    for check in Check::TOGETHER.iter().filter(|_| !kinds.is_empty()) {
        let mut pair = Pair::new(make().await, setup);
        let result = check.run(&mut pair, &kinds).await;
        report.add(check.name(), None, result);
    }
    report
}

/// The names of the algorithms, as [`Setup::without`] knows them.
pub fn algorithms() -> impl Iterator<Item = &'static str> {
    let mut names = kinds::all().iter().map(Kind::name).collect::<Vec<_>>();
    names.dedup();
    names.into_iter()
}
