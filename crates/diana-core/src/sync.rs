//! The only source of locks, atomics and threads, so that model checkers can replace them.
//!
//! `--cfg loom` checks the interleavings of the atomic paths, memory orders included; `--cfg shuttle` runs the table
//! and the waiters under many random schedules. Ordinary builds use parking_lot and std.

#[cfg(not(any(loom, shuttle)))]
pub(crate) use self::plain::*;

#[cfg(not(any(loom, shuttle)))]
mod plain {
    pub(crate) use parking_lot::{Mutex, MutexGuard};
    pub(crate) use std::sync::Arc;
    pub(crate) use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};
    pub(crate) use std::thread;
}

#[cfg(shuttle)]
pub(crate) use self::shuttled::*;

#[cfg(shuttle)]
mod shuttled {
    pub(crate) use super::unpoisoned::{Mutex, MutexGuard};
    pub(crate) use shuttle::sync::Arc;
    pub(crate) use shuttle::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};
    pub(crate) use shuttle::thread;
}

#[cfg(loom)]
pub(crate) use self::loomed::*;

#[cfg(loom)]
mod loomed {
    pub(crate) use super::unpoisoned::{Mutex, MutexGuard};
    pub(crate) use loom::sync::Arc;
    pub(crate) use loom::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};

    pub(crate) mod thread {
        pub(crate) use loom::thread::*;

        /// Loom has no time: a parked thread waits until it is unparked.
        pub(crate) fn park_timeout(_timeout: std::time::Duration) {
            park();
        }
    }
}

/// The model checkers' mutexes with parking_lot's API: a panic ends the check, so poisoning is irrelevant.
#[cfg(any(loom, shuttle))]
mod unpoisoned {
    #[cfg(loom)]
    use loom::sync as checked;
    #[cfg(shuttle)]
    use shuttle::sync as checked;

    pub(crate) use checked::MutexGuard;

    #[derive(Debug, Default)]
    pub(crate) struct Mutex<T>(checked::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(checked::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
        }
    }
}
