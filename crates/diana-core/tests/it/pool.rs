//! A pool of resources: created when needed, reused, never more than its size, served in order, and no permit is lost.

mod database;
#[cfg(feature = "async")]
mod futures;
#[cfg(feature = "async")]
mod source;
mod threads;

use diana_core::{ManualClock, Pool, PoolError, Pooled};
use proptest::prelude::*;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Duration;

/// Counts the resources that exist, and those that were created.
#[derive(Clone, Debug, Default)]
pub(crate) struct Factory {
    live: Arc<AtomicUsize>,
    created: Arc<AtomicUsize>,
}

#[derive(Debug)]
pub(crate) struct Resource {
    number: usize,
    is_usable: bool,
    live: Arc<AtomicUsize>,
}

impl Factory {
    pub(crate) fn create(&self) -> Resource {
        self.live.fetch_add(1, Ordering::SeqCst);
        let number = self.created.fetch_add(1, Ordering::SeqCst) + 1;
        Resource { number, is_usable: true, live: Arc::clone(&self.live) }
    }

    fn get(&self, pool: &Pool<Resource>) -> Result<Pooled<Resource>, PoolError<&'static str>> {
        pool.try_get(|| Ok(self.create()))
    }

    pub(crate) fn live(&self) -> usize {
        self.live.load(Ordering::SeqCst)
    }
}

impl Drop for Resource {
    fn drop(&mut self) {
        self.live.fetch_sub(1, Ordering::SeqCst);
    }
}

fn pool(size: u64) -> Pool<Resource> {
    Pool::new("database", size).unwrap().with_resource_name("connection")
}

#[test]
fn resources_are_created_when_needed_and_used_again() {
    let (pool, factory) = (pool(3), Factory::default());
    assert_eq!((pool.size(), pool.in_use(), pool.idle(), factory.live()), (3, 0, 0, 0));
    let (first, second) = (factory.get(&pool).unwrap(), factory.get(&pool).unwrap());
    assert_eq!((first.number, second.number, pool.in_use(), pool.idle()), (1, 2, 2, 0));
    drop(first);
    drop(second);
    assert_eq!((pool.in_use(), pool.idle(), factory.live()), (0, 2, 2));
    // The one that was used last is used next, so that the others stay idle.
    assert_eq!(factory.get(&pool).unwrap().number, 2);
    let held = (factory.get(&pool).unwrap(), factory.get(&pool).unwrap(), factory.get(&pool).unwrap());
    assert_eq!((held.0.number, held.1.number, held.2.number), (2, 1, 3));
    let other = pool.clone();
    drop(pool);
    assert_eq!((other.in_use(), factory.live()), (3, 3));
    drop((held, other));
    assert_eq!(factory.live(), 0);
}

#[test]
fn errors_name_the_pool_and_its_numbers() {
    let (pool, factory) = (pool(1).with_max_waiting(32).with_clock(ManualClock::new()), Factory::default());
    let held = factory.get(&pool).unwrap();
    let create = || Ok::<_, &str>(factory.create());
    let error = pool.blocking_get_timeout(Duration::from_millis(200), create).unwrap_err();
    assert_eq!(
        error.to_string(),
        "pool `database`: no connection free within 200 ms (1 in use, 0 waiting, at most 32 may wait)"
    );
    let error = pool.try_get(create).unwrap_err();
    assert_eq!(error.to_string(), "pool `database`: no connection free (1 in use, 0 waiting, at most 32 may wait)");
    drop(held);
    pool.clear_idle();
    let error = pool.try_get(|| Err("connection refused")).unwrap_err();
    assert_eq!(error.to_string(), "pool `database`: can't create a connection: connection refused");
    assert_eq!((pool.in_use(), factory.live()), (0, 0));
    // A full queue is not a timeout.
    let pool = pool.with_max_waiting(0);
    let _held = factory.get(&pool).unwrap();
    let error = pool.blocking_get_timeout(Duration::from_millis(1_500), create).unwrap_err();
    assert_eq!(error.to_string(), "pool `database`: no connection free (1 in use, 0 waiting, at most 0 may wait)");
    assert!(Pool::<Resource>::new("database", 0).is_err());
}

#[test]
fn an_error_or_a_panic_of_the_factory_loses_no_permit() {
    let (pool, factory) = (pool(1), Factory::default());
    for _ in 0..3 {
        assert!(matches!(pool.try_get(|| Err("refused")), Err(PoolError::Create { error: "refused", .. })));
        let panicked = catch_unwind(AssertUnwindSafe(|| pool.try_get::<()>(|| panic!("out of sockets"))));
        assert!(panicked.is_err());
        assert_eq!((pool.in_use(), pool.idle()), (0, 0));
    }
    assert_eq!(factory.get(&pool).unwrap().number, 1);
}

#[test]
fn a_broken_resource_is_discarded() {
    let (pool, factory) = (pool(2).with_check(|resource| resource.is_usable), Factory::default());
    factory.get(&pool).unwrap().discard();
    assert_eq!((pool.idle(), pool.in_use(), factory.live()), (0, 0, 0));
    // Its user panicked: nobody knows in which state it is.
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let _resource = factory.get(&pool).unwrap();
        panic!("in the middle of a transaction");
    }));
    assert!(panicked.is_err());
    assert_eq!((pool.idle(), pool.in_use(), factory.live()), (0, 0, 0));
    // It broke while it was idle.
    let (mut third, fourth) = (factory.get(&pool).unwrap(), factory.get(&pool).unwrap());
    third.is_usable = false;
    drop((fourth, third));
    assert_eq!((pool.idle(), factory.get(&pool).unwrap().number, factory.live()), (2, 4, 1));
}

#[test]
fn idle_resources_over_the_maximum_are_dropped() {
    let (pool, factory) = (pool(3).with_max_idle(1), Factory::default());
    let held = [(); 3].map(|()| factory.get(&pool).unwrap());
    drop(held);
    assert_eq!((pool.idle(), pool.in_use(), factory.live()), (1, 0, 1));
    pool.clear_idle();
    assert_eq!((pool.idle(), factory.live()), (0, 0));
}

#[test]
fn a_resized_pool_closes_what_it_has_over_its_size() {
    let (pool, factory) = (pool(3), Factory::default());
    let held = [(); 3].map(|()| factory.get(&pool).unwrap());
    pool.resize(1).unwrap();
    assert_eq!((pool.size(), pool.in_use(), factory.live()), (1, 3, 3));
    drop(held);
    assert_eq!((pool.in_use(), pool.idle(), factory.live()), (0, 1, 1));
    pool.resize(2).unwrap();
    let held = (factory.get(&pool).unwrap(), factory.get(&pool).unwrap());
    assert!(factory.get(&pool).is_err());
    drop(held);
    // Those that were idle for longer are closed.
    pool.resize(1).unwrap();
    assert_eq!((pool.idle(), factory.live()), (1, 1));
    assert!(pool.resize(0).is_err());
    assert_eq!(pool.size(), 1);
}

#[test]
fn resources_that_are_idle_for_too_long_are_closed_at_the_next_use() {
    let clock = ManualClock::new();
    let pool = pool(3).with_clock(clock.clone()).with_idle_timeout(Duration::from_secs(60));
    let factory = Factory::default();
    let (first, second) = (factory.get(&pool).unwrap(), factory.get(&pool).unwrap());
    drop(first);
    clock.advance(Duration::from_secs(59));
    drop(second);
    assert_eq!((pool.idle(), factory.live()), (2, 2));
    clock.advance(Duration::from_secs(1));
    assert_eq!(factory.get(&pool).unwrap().number, 2);
    assert_eq!((pool.idle(), factory.live()), (1, 1));
    clock.advance(Duration::from_secs(60));
    assert_eq!(factory.get(&pool).unwrap().number, 3);
}

#[test]
fn waiting_requests_are_served_in_order_or_time_out() {
    let (pool, factory) = (pool(1), Factory::default());
    let held = factory.get(&pool).unwrap();
    let (served, order) = mpsc::channel();
    std::thread::scope(|scope| {
        for number in 0..4 {
            let (pool, factory, served) = (&pool, &factory, served.clone());
            scope.spawn(move || {
                let resource = pool.blocking_get(|| Ok::<_, &str>(factory.create())).unwrap();
                served.send((number, resource.number)).unwrap();
            });
            while pool.waiting() <= number {
                std::thread::yield_now();
            }
        }
        let create = || Ok::<_, &str>(factory.create());
        let late = pool.blocking_get_timeout(Duration::from_millis(1), create).unwrap_err();
        assert_eq!(
            late.to_string(),
            "pool `database`: no connection free within 1 ms (1 in use, 4 waiting, at most 10000 may wait)"
        );
        assert!(factory.get(&pool).is_err());
        drop(held);
        assert_eq!(order.iter().take(4).collect::<Vec<_>>(), [(0, 1), (1, 1), (2, 1), (3, 1)]);
    });
    assert_eq!((pool.in_use(), pool.idle(), factory.live()), (0, 1, 1));
}

/// A step of a user of the pool.
#[derive(Clone, Copy, Debug)]
enum Step {
    Get,
    Return(usize),
    Break(usize),
    Discard(usize),
    Refuse,
    Panic,
    ClearIdle,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => Just(Step::Get),
        2 => any::<usize>().prop_map(Step::Return),
        1 => any::<usize>().prop_map(Step::Break),
        1 => any::<usize>().prop_map(Step::Discard),
        1 => Just(Step::Refuse),
        1 => Just(Step::Panic),
        1 => Just(Step::ClearIdle),
    ]
}

proptest! {
    /// Whatever users do, the resources are those in use and the idle ones, and not more than the size.
    #[test]
    fn never_more_resources_exist_than_the_size(
        size in 1_u64..5,
        max_idle in 0_usize..5,
        steps in prop::collection::vec(step(), 0..60),
    ) {
        let factory = Factory::default();
        let pool = pool(size).with_max_idle(max_idle).with_check(|resource| resource.is_usable);
        let mut held = Vec::new();
        let size = usize::try_from(size).unwrap();
        for step in steps {
            let chosen = |index: usize, held: &mut Vec<Pooled<Resource>>| {
                (!held.is_empty()).then(|| held.swap_remove(index % held.len()))
            };
            let (used, idle) = (held.len(), pool.idle());
            match step {
                Step::Get => {
                    let got = factory.get(&pool);
                    prop_assert_eq!(got.is_ok(), used < size);
                    held.extend(got);
                }
                Step::Return(index) => drop(chosen(index, &mut held)),
                Step::Break(index) => {
                    if let Some(mut resource) = chosen(index, &mut held) {
                        resource.is_usable = false;
                    }
                }
                Step::Discard(index) => {
                    if let Some(resource) = chosen(index, &mut held) {
                        resource.discard();
                        prop_assert_eq!(pool.idle(), idle);
                    }
                }
                Step::Refuse => held.extend(pool.try_get(|| Err("refused"))),
                Step::Panic => {
                    let got = catch_unwind(AssertUnwindSafe(|| pool.try_get::<()>(|| std::panic::resume_unwind(Box::new(())))));
                    held.extend(got.into_iter().flatten());
                }
                Step::ClearIdle => pool.clear_idle(),
            }
            prop_assert_eq!(pool.in_use(), held.len() as u64);
            prop_assert_eq!(factory.live(), held.len() + pool.idle());
            prop_assert!(factory.live() <= size && pool.idle() <= max_idle);
        }
        drop(held);
        drop(pool);
        prop_assert_eq!(factory.live(), 0);
    }
}

/// The number of the essays: 100 connections for each application.
#[test]
fn an_application_has_100_connections_and_the_next_request_times_out() {
    let pool = Pool::new("orders", 100).unwrap();
    let connect = || Ok::<_, &str>(());
    let held = (0..100).map(|_| pool.blocking_get(connect).unwrap()).collect::<Vec<_>>();
    assert!(pool.blocking_get_timeout(Duration::ZERO, connect).is_err());
    drop(held);
    assert!(pool.blocking_get(connect).is_ok());
}
