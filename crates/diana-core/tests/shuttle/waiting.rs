//! Wait queues: no waiter is lost, none overtakes, and the queue stays within its bound.

use crate::{TestClock, check};
use diana_core::{Clock, Concurrency, FixedWindow, KeyedLimiter, Limiter, Quota, Timestamp};
use shuttle::sync::atomic::{AtomicU64, Ordering};
use shuttle::sync::{Arc, Mutex};
use shuttle::thread;
use std::time::Duration;

fn doors(places: u64) -> Arc<KeyedLimiter<str>> {
    Arc::new(KeyedLimiter::with_algorithm(Concurrency::new(places).unwrap()).with_clock(TestClock::new()))
}

#[test]
fn whoever_waits_for_a_place_gets_in_when_one_is_given_back() {
    check(|| {
        let (door, inside) = (doors(1), Arc::new(AtomicU64::new(0)));
        let guests = [0, 1, 2].map(|_| {
            let (door, inside) = (Arc::clone(&door), Arc::clone(&inside));
            thread::spawn(move || {
                for _ in 0..2 {
                    let receipt = door.blocking_acquire("door", 1).unwrap().receipt;
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two inside");
                    inside.fetch_sub(1, Ordering::SeqCst);
                    door.refund("door", &receipt);
                }
            })
        });
        guests.into_iter().for_each(|guest| guest.join().unwrap());
        assert_eq!(door.status("door").remaining, 1);
    });
}

#[test]
fn guards_and_resets_wake_whoever_waits() {
    check(|| {
        let door = doors(1);
        let receipt = door.check("door").receipt();
        assert!(receipt.is_some());
        let guest = {
            let door = Arc::clone(&door);
            thread::spawn(move || assert!(door.blocking_acquire("door", 1).is_ok()))
        };
        let passer_by = {
            let door = Arc::clone(&door);
            thread::spawn(move || drop(door.try_hold("other door").unwrap()))
        };
        door.reset("door");
        guest.join().unwrap();
        passer_by.join().unwrap();
    });
}

#[test]
fn raising_the_limit_wakes_those_at_every_door() {
    check(|| {
        let door = doors(1);
        let held = ["front", "back"].map(|name| door.check(name).receipt().unwrap());
        let guests = ["front", "back"].map(|name| {
            let door = Arc::clone(&door);
            thread::spawn(move || assert!(door.blocking_acquire(name, 1).is_ok()))
        });
        door.set(Concurrency::new(2).unwrap());
        guests.into_iter().for_each(|guest| guest.join().unwrap());
        assert_eq!(held.len(), 2);
    });
}

#[test]
fn whoever_gives_up_makes_way_for_those_behind() {
    check(|| {
        let door = doors(1);
        let held = door.check("door").receipt().unwrap();
        let hasty = {
            let door = Arc::clone(&door);
            thread::spawn(move || {
                if let Ok(grant) = door.blocking_acquire_timeout("door", 1, Duration::from_millis(10)) {
                    door.refund("door", &grant.receipt);
                }
            })
        };
        let patient = [0, 1].map(|_| {
            let door = Arc::clone(&door);
            thread::spawn(move || {
                let receipt = door.blocking_acquire("door", 1).unwrap().receipt;
                door.refund("door", &receipt);
            })
        });
        door.refund("door", &held);
        hasty.join().unwrap();
        patient.into_iter().for_each(|guest| guest.join().unwrap());
        assert_eq!(door.status("door").remaining, 1);
    });
}

#[test]
fn first_come_first_served() {
    check(|| {
        let limiter = Arc::new(Limiter::with_algorithm(Concurrency::new(1).unwrap()).with_clock(TestClock::new()));
        let held = limiter.check().receipt().unwrap();
        let order = Arc::new(Mutex::new(Vec::new()));
        let guests = [0, 1, 2].map(|number| {
            let guest = {
                let (limiter, order) = (Arc::clone(&limiter), Arc::clone(&order));
                thread::spawn(move || {
                    let receipt = limiter.blocking_acquire(1).unwrap().receipt;
                    order.lock().unwrap().push(number);
                    limiter.refund(&receipt);
                })
            };
            // The next one starts when this one is queued.
            while limiter.waiting() <= number {
                thread::yield_now();
            }
            guest
        });
        let impatient = {
            let limiter = Arc::clone(&limiter);
            thread::spawn(move || limiter.check().receipt().map(|receipt| limiter.refund(&receipt)).is_some())
        };
        limiter.refund(&held);
        guests.into_iter().for_each(|guest| guest.join().unwrap());
        impatient.join().unwrap();
        assert_eq!(*order.lock().unwrap(), [0, 1, 2]);
        assert_eq!((limiter.waiting(), limiter.status().remaining), (0, 1));
    });
}

#[test]
fn the_line_is_no_longer_than_it_may_be() {
    check(|| {
        let limiter =
            Limiter::with_algorithm(Concurrency::new(1).unwrap()).with_clock(TestClock::new()).with_max_waiting(1);
        let limiter = Arc::new(limiter);
        let held = limiter.check().receipt().unwrap();
        let guests = [0, 1, 2].map(|_| {
            let limiter = Arc::clone(&limiter);
            thread::spawn(move || {
                let acquired = limiter.blocking_acquire(1);
                assert!(limiter.waiting() <= 1);
                acquired
                    .inspect(|grant| {
                        limiter.refund(&grant.receipt);
                    })
                    .is_ok()
            })
        });
        // The first one is queued; the others arrive after it and are denied, or arrive when it has left the queue.
        while limiter.waiting() == 0 {
            thread::yield_now();
        }
        limiter.refund(&held);
        let served = guests.into_iter().map(|guest| guest.join().unwrap()).filter(|served| *served).count();
        assert!((1..=3).contains(&served));
        assert_eq!((limiter.waiting(), limiter.status().remaining), (0, 1));
    });
}

#[test]
fn those_who_wait_for_the_next_window_are_spread_over_windows() {
    check(|| {
        let clock = TestClock::new();
        let window = FixedWindow::new(Quota::per_second(1).unwrap());
        let limiter = Arc::new(KeyedLimiter::<str>::with_algorithm(window).with_clock(clock.clone()));
        let seconds = Arc::new(Mutex::new(Vec::new()));
        let guests = [0, 1, 2].map(|_| {
            let (limiter, seconds) = (Arc::clone(&limiter), Arc::clone(&seconds));
            thread::spawn(move || {
                let receipt = limiter.blocking_acquire("alice", 1).unwrap().receipt;
                seconds.lock().unwrap().push(receipt.at().as_nanos() / 1_000_000_000);
            })
        });
        guests.into_iter().for_each(|guest| guest.join().unwrap());
        let mut seconds = seconds.lock().unwrap().clone();
        seconds.sort_unstable();
        seconds.dedup();
        assert_eq!(seconds.len(), 3, "two were granted in one window");
        assert!(clock.now() >= Timestamp::from_secs(seconds[0] + 2));
    });
}
