//! Pools: never more resources than the size, every request is served in order or times out, and no permit is lost.

use crate::{TestClock, check};
use diana_core::Pool;
use shuttle::sync::atomic::{AtomicU64, Ordering};
use shuttle::sync::{Arc, Mutex};
use shuttle::thread;
use std::time::Duration;

/// Counts the resources that exist.
struct Resource(Arc<AtomicU64>);

impl Drop for Resource {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Creates a resource, slowly: other threads run meanwhile.
fn create(live: &Arc<AtomicU64>, size: u64) -> Result<Resource, ()> {
    assert!(live.fetch_add(1, Ordering::SeqCst) < size, "more resources than permits");
    let resource = Resource(Arc::clone(live));
    thread::yield_now();
    Ok(resource)
}

fn pool(size: u64) -> Pool<Resource> {
    Pool::new("database", size).unwrap().with_clock(TestClock::new())
}

#[test]
fn never_more_resources_exist_than_the_size() {
    check(|| {
        const SIZE: u64 = 2;
        let (pool, live) = (pool(SIZE).with_max_idle(1), Arc::new(AtomicU64::new(0)));
        let users = [0, 1, 2, 3].map(|number| {
            let (pool, live) = (pool.clone(), Arc::clone(&live));
            thread::spawn(move || {
                for turn in 0..2 {
                    // Every factory fails once, and every other resource breaks.
                    let failed = pool.blocking_get(|| if turn == 0 { Err(()) } else { create(&live, SIZE) });
                    drop(failed);
                    let resource = pool.blocking_get(|| create(&live, SIZE)).unwrap();
                    thread::yield_now();
                    if number % 2 == 0 {
                        resource.discard();
                    }
                }
            })
        });
        users.into_iter().for_each(|user| user.join().unwrap());
        assert_eq!((pool.in_use(), pool.waiting()), (0, 0));
        assert_eq!(live.load(Ordering::SeqCst), pool.idle() as u64);
        assert!(pool.idle() <= 1);
    });
}

#[test]
fn requests_are_served_in_order() {
    check(|| {
        let (pool, live) = (pool(1), Arc::new(AtomicU64::new(0)));
        let held = pool.try_get(|| create(&live, 1)).unwrap();
        let order = Arc::new(Mutex::new(Vec::new()));
        let waiters = [0, 1, 2].map(|number| {
            let waiter = {
                let (pool, live, order) = (pool.clone(), Arc::clone(&live), Arc::clone(&order));
                thread::spawn(move || {
                    let resource = pool.blocking_get(|| create(&live, 1)).unwrap();
                    order.lock().unwrap().push(number);
                    // The next one is served whether this one is returned or not.
                    if number == 1 {
                        resource.discard();
                    }
                })
            };
            // The next one starts when this one is queued.
            while pool.waiting() <= number {
                thread::yield_now();
            }
            waiter
        });
        drop(held);
        waiters.into_iter().for_each(|waiter| waiter.join().unwrap());
        assert_eq!(*order.lock().unwrap(), [0, 1, 2]);
        assert_eq!((pool.in_use(), pool.idle()), (0, 1));
    });
}

#[test]
fn a_request_that_times_out_loses_no_permit() {
    check(|| {
        let (pool, live) = (pool(1), Arc::new(AtomicU64::new(0)));
        let held = pool.try_get(|| create(&live, 1)).unwrap();
        let users = [Some(Duration::from_millis(10)), None].map(|timeout| {
            let (pool, live) = (pool.clone(), Arc::clone(&live));
            thread::spawn(move || match timeout {
                Some(timeout) => drop(pool.blocking_get_timeout(timeout, || create(&live, 1))),
                None => drop(pool.blocking_get(|| create(&live, 1)).unwrap()),
            })
        });
        drop(held);
        users.into_iter().for_each(|user| user.join().unwrap());
        assert_eq!((pool.in_use(), pool.waiting(), pool.idle()), (0, 0, 1));
        assert_eq!(live.load(Ordering::SeqCst), 1);
    });
}
