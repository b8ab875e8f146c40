//! The behaviour suite that every store must pass.
//!
//! # How it works
//! Every operation on the store is also applied to the pure algorithm, with the same arguments at the same time; both
//! must give the same answer. So a check is only a script (ask until denied, wait, refund), and its expected results
//! are never written twice. A failed check reports the operation, the expected answer and the store's answer; all other
//! checks run nevertheless, so that all failures are reported at once.
//!
//! ```
//! use diana_core::MemoryStore;
//! use diana_core::conformance::{self, SuiteOptions};
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
//! let report = block_on(conformance::run(&SuiteOptions::default(), async || MemoryStore::default()));
//! assert!(report.passed(), "{report}");
//! ```
//!
//! # What is checked
//! The contract of [`LocalStore`](crate::LocalStore), point by point, for every algorithm of this crate. A store that
//! does not support one of them returns [`StoreError::Unsupported`](crate::StoreError::Unsupported), and the
//! [`SuiteOptions`] exclude it by name. For a store whose time is coarser than a nanosecond they have its tick: only whole
//! ticks are used, and durations are compared within one.
//!
//! # What is not checked
//! How long keys are stored after they are full again, what a receipt from before a reset refunds, and what happens
//! without free memory or a connection: those are specific to each store.

use crate::Store;
use algorithm_cases::Case;
use checks::Check;
use pair::Pair;

mod algorithm_cases;
mod checks;
mod model;
mod pair;
mod report;
mod script;
mod suite_options;

pub use report::{Checked, Failure, Report};
pub use suite_options::SuiteOptions;

/// Runs every check on stores that `make` creates, each of them empty.
///
/// The stores may share a server, as long as none sees the counts of another.
pub async fn run<S: Store>(options: &SuiteOptions, make: impl AsyncFn() -> S) -> Report {
    let cases = algorithm_cases::cases().into_iter().filter(|case| !options.excludes(case.name())).collect::<Vec<_>>();
    let mut report = Report::default();
    for check in Check::EACH {
        for case in &cases {
            let mut pair = Pair::new(make().await, options);
            let result = check.run(&mut pair, std::slice::from_ref(case)).await;
            report.add(check.name(), Some(case), result);
        }
    }
    for check in Check::SEVERAL.iter().filter(|_| !cases.is_empty()) {
        let mut pair = Pair::new(make().await, options);
        let result = check.run(&mut pair, &cases).await;
        report.add(check.name(), None, result);
    }
    report
}

/// Returns the names of the algorithms, as [`SuiteOptions::without`] accepts them.
pub fn algorithms() -> impl Iterator<Item = &'static str> {
    let mut names = algorithm_cases::cases().iter().map(Case::name).collect::<Vec<_>>();
    names.dedup();
    names.into_iter()
}
