//! Wait queues: FIFO, bounded, and nothing is lost when a request is cancelled.

use crate::support::{Decided, Decides, account, file, now, request};
use diana::TokioClock;
use diana::store::MemoryStore;
use diana::{Engine, EngineOptions, Verdict};
use futures_util::future::join_all;
use parking_lot::Mutex;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// An engine on tokio's time, which the tests pause.
fn engine(text: &str) -> Engine {
    let file = file(text);
    EngineOptions::of(&file).clock(TokioClock::new()).build(&file)
}

/// The same with a shared store.
fn shared(text: &str) -> Engine {
    let file = file(&format!("store: {{redis: 'redis://127.0.0.1'}}\n{text}"));
    EngineOptions::of(&file).clock(TokioClock::new()).build_shared(&file, MemoryStore::default())
}

/// Polls a future once.
fn poll<T>(future: std::pin::Pin<&mut impl Future<Output = T>>) -> Poll<T> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// Returns the result and the time of each of several consecutive requests.
async fn transcript(engine: &Engine, count: usize, holds: Duration) -> Vec<String> {
    let began = tokio::time::Instant::now();
    let events = Mutex::new(Vec::new());
    join_all((0..count).map(|index| {
        let events = &events;
        async move {
            let verdict = engine.queue(&request()).await;
            let at = began.elapsed().as_millis();
            let outcome = if verdict.is_granted() { "granted" } else { "denied" };
            events.lock().push(format!("{index} {outcome} at {at}ms"));
            if verdict.is_granted() {
                tokio::time::sleep(holds).await;
                verdict.finish().await;
            }
        }
    }))
    .await;
    events.into_inner()
}

#[tokio::test(start_paused = true)]
async fn permits_are_granted_in_fifo_order() {
    let rules = "rules: [{name: permits, concurrent: 2, wait: 1s}]";
    let expected = [
        "0 granted at 0ms",
        "1 granted at 0ms",
        "2 granted at 300ms",
        "3 granted at 300ms",
        "4 granted at 600ms",
        "5 granted at 600ms",
    ];
    assert_eq!(transcript(&engine(rules), 6, ms(300)).await, expected);
}

#[tokio::test(start_paused = true)]
async fn queued_requests_are_granted_in_the_next_window() {
    let rules = "rules: [{name: w, limit: 2/s, algorithm: sliding_log, wait: 1500ms}]";
    let expected = [
        "0 granted at 0ms",
        "1 granted at 0ms",
        "2 granted at 1000ms",
        "3 granted at 1000ms",
        // They would be granted a second later, which is known when they become the first.
        "4 denied at 1000ms",
        "5 denied at 1000ms",
    ];
    let events = transcript(&engine(rules), 6, Duration::ZERO).await;
    assert_eq!(events, expected);
    assert_eq!(transcript(&shared(rules), 6, Duration::ZERO).await, expected);
}

#[tokio::test(start_paused = true)]
async fn wait_and_queue_are_maximums() {
    let engine = engine("rules: [{name: permits, concurrent: 1, wait: 500ms, queue: 2}]");
    let expected = ["0 granted at 0ms", "3 denied at 0ms", "1 denied at 500ms", "2 denied at 500ms"];
    assert_eq!(transcript(&engine, 4, ms(900)).await, expected);
    let counted = engine.rules().rules()[0].counted();
    assert_eq!((counted.allowed, counted.delayed, counted.denied), (1, 0, 3));
}

#[tokio::test(start_paused = true)]
async fn each_key_has_its_own_queue() {
    let engine = engine("rules: [{name: permits, by: account, concurrent: 1, wait: 1s, queue: 1}]");
    let alice = engine.queue(&account("alice")).await;
    let waiting = engine.queue(&account("alice"));
    let mut waiting = pin!(waiting);
    assert!(poll(waiting.as_mut()).is_pending());
    // Alice's queue does not delay Bob.
    assert!(now(engine.queue(&account("bob"))).is_granted());
    assert!(!now(engine.queue(&account("alice"))).is_granted(), "her queue is full");
    drop(alice);
    assert!(waiting.await.is_granted());
    let counted = engine.rules().rules()[0].counted();
    assert_eq!((counted.allowed, counted.delayed, counted.denied), (2, 1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_request_that_does_not_queue_does_not_overtake() {
    for is_shared in [false, true] {
        let rules = "rules: [{name: permits, concurrent: 1, wait: 1s}]";
        let engine = if is_shared { shared(rules) } else { engine(rules) };
        let first = engine.queue(&request()).await;
        let mut second = pin!(engine.queue(&request()));
        assert!(poll(second.as_mut()).is_pending());
        first.finish().await;
        // A permit is free, but it belongs to the second request.
        let overtaking = now(engine.check(&request()));
        assert!(!overtaking.is_granted(), "{overtaking}");
        assert_eq!(overtaking.denied_by().unwrap().name, "permits");
        let verdict = second.await;
        assert!(verdict.is_granted(), "{verdict}");
        drop(verdict);
    }
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_request_makes_way_for_the_next() {
    let engine = engine("rules: [{name: permits, concurrent: 1, wait: 10s}, {name: all, total: 3}]");
    let first = engine.queue(&request()).await;
    let mut cancelled = Box::pin(engine.queue(&request()));
    let mut queued = Box::pin(engine.queue(&request()));
    assert!(poll(cancelled.as_mut()).is_pending() && poll(queued.as_mut()).is_pending());
    drop(first);
    // It was woken, and is cancelled before it is polled.
    drop(cancelled);
    let verdict = queued.await;
    assert!(verdict.is_granted(), "{verdict}");
    assert_eq!(verdict.to_string(), "granted, closest to `permits`: 0 of 1 left");
    drop(verdict);
    let last = engine.queue(&request()).await;
    assert_eq!(
        last.checked_limits().map(|asked| asked.answer.status().remaining).collect::<Vec<_>>(),
        [0, 0],
        "the cancelled request was charged nothing"
    );
}

#[tokio::test(start_paused = true)]
async fn a_denial_by_a_rule_without_wait_is_immediate() {
    let engine = engine("rules: [{name: permits, concurrent: 1, wait: 10s}, {name: few, limit: 1/h}]");
    let first = engine.queue(&request()).await;
    assert!(first.is_granted());
    let denied = now(engine.queue(&request()));
    assert!(denied.checked_limits().all(|asked| !asked.answer.is_granted()));
}

#[tokio::test(start_paused = true)]
async fn a_request_with_two_limits_waits_for_both() {
    let engine =
        engine("rules: [{name: own, by: account, concurrent: 1, wait: 10s}, {name: all, concurrent: 2, wait: 10s}]");
    let alice = engine.queue(&account("alice")).await;
    let bob = engine.queue(&account("bob")).await;
    let mut waiting = Box::pin(engine.queue(&account("alice")));
    assert!(poll(waiting.as_mut()).is_pending());
    drop(bob);
    assert!(poll(waiting.as_mut()).is_pending(), "alice's own permit is in use");
    let carol = engine.queue(&account("carol"));
    let mut carol = Box::pin(carol);
    let polled = poll(carol.as_mut());
    drop(alice);
    let verdict = waiting.await;
    assert!(verdict.is_granted(), "{verdict}");
    drop(verdict);
    match polled {
        Poll::Ready(verdict) => assert!(verdict.is_granted()),
        Poll::Pending => assert!(carol.await.is_granted()),
    }
}

#[tokio::test(start_paused = true)]
async fn a_permit_that_another_process_releases_is_found() {
    let rules = "rules: [{name: permits, concurrent: 1, wait: 10s}]";
    let engine = shared(rules);
    let first = engine.queue(&request()).await;
    let waiting = engine.acquire(&request()).now().expect_err("it is queued");
    let other = async {
        tokio::time::sleep(ms(500)).await;
        // As if by another process: no waiter of this process is woken.
        let asked = first.checked_limits().next().unwrap();
        let ask = diana::store::Ask::one(asked.limit, asked.key);
        let decision = diana::store::Decision::new([asked.answer]);
        diana::store::LocalStore::refund(
            engine.shared::<MemoryStore>().unwrap(),
            &[ask],
            &decision,
            diana::Timestamp::MAX,
        );
    };
    let (acquired, ()) = tokio::join!(waiting, other);
    let queued = acquired.unwrap().queued_for();
    assert!((ms(500)..ms(600)).contains(&queued), "{queued:?}");
}

/// A regression: the time in the queue was not reported.
#[tokio::test(start_paused = true)]
async fn a_verdict_reports_its_time_in_the_queue_and_the_rule() {
    let engine = engine(
        "rules:
  - {name: plenty, limit: 1000/s}
  - {name: permits, concurrent: 1, wait: 500ms}
  - {name: paced, match: {path: /paced}, every: 1s, wait: 5s}
",
    );
    // In hundredths of a second, since timers are late by up to a millisecond.
    let waited =
        |verdict: &Verdict| (verdict.queued_for().as_millis() / 10, verdict.waited_for().map(|rule| rule.name.clone()));
    let first = engine.queue(&request()).await;
    assert_eq!(waited(&first), (0, None));
    let (second, ()) = tokio::join!(engine.queue(&request()), async {
        tokio::time::sleep(ms(300)).await;
        drop(first);
    });
    assert!(second.is_granted());
    assert_eq!(waited(&second), (30, Some("permits".to_owned())));
    // A denied request has waited, too.
    let third = engine.queue(&request()).await;
    assert!(!third.is_granted());
    assert_eq!(waited(&third), (50, Some("permits".to_owned())));
    drop(second);
    // A reserved time is still to be waited for.
    let paced = diana::rules::attributes::SyntheticRequest::new("GET", "/paced");
    drop(engine.queue(&paced).await);
    let reserved = engine.queue(&paced).await;
    assert_eq!(reserved.wait(), Some(ms(1_000)));
    assert_eq!(waited(&reserved), (0, Some("paced".to_owned())));
}

#[test]
fn permits_released_on_another_thread_wake_the_first_waiter() {
    let file = file("rules: [{name: permits, concurrent: 3, wait: 60s}]");
    let engine = EngineOptions::of(&file).build(&file);
    let concurrency = Arc::new(Mutex::new((0_u32, 0_u32)));
    let threads = (0..4).map(|_| {
        let (engine, concurrency) = (engine.clone(), Arc::clone(&concurrency));
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
            runtime.block_on(join_all((0..25).map(|_| async {
                for _ in 0..20 {
                    let verdict = engine.queue(&request()).await;
                    assert!(verdict.is_granted(), "{verdict}");
                    let in_flight = {
                        let mut counts = concurrency.lock();
                        counts.0 += 1;
                        counts.1 = counts.1.max(counts.0);
                        counts.0
                    };
                    assert!(in_flight <= 3);
                    tokio::task::yield_now().await;
                    concurrency.lock().0 -= 1;
                    drop(verdict);
                }
            })));
        })
    });
    threads.collect::<Vec<_>>().into_iter().for_each(|thread| thread.join().unwrap());
    assert!(concurrency.lock().1 > 1);
    assert_eq!(engine.rules().rules()[0].counted().denied, 0);
}

/// A regression: a request that was queued for a permit which was never released was granted only at its deadline.
#[tokio::test(start_paused = true)]
async fn queued_requests_are_woken_when_the_key_is_reset() {
    for is_shared in [false, true] {
        for (limit, key) in [("concurrent: 1", None), ("limit: 1/h, algorithm: fixed_window", Some("alice"))] {
            let by = if key.is_some() { "by: account, " } else { "" };
            let rules = format!("rules: [{{name: permits, {by}{limit}, wait: 2h}}]");
            let engine = if is_shared { shared(&rules) } else { engine(&rules) };
            let began = tokio::time::Instant::now();
            let first = engine.queue(&account("alice")).await;
            let mut waiting = Box::pin(engine.queue(&account("alice")));
            assert!(poll(waiting.as_mut()).is_pending());
            engine.reset_key("permits", key.as_slice()).await.unwrap();
            let verdict = waiting.await;
            assert!(verdict.is_granted(), "{verdict}");
            assert_eq!(began.elapsed(), Duration::ZERO, "{rules}, shared: {is_shared}");
            drop((first, verdict));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn queued_requests_are_decided_by_the_new_rules() {
    let one = "rules: [{name: other, by: ip, limit: 9/h}, {name: permits, by: account, concurrent: 1, wait: 1h}]";
    for (changed, expected) in [
        // More permits, and another index of the rule.
        ("rules: [{name: permits, by: account, concurrent: 3, wait: 1h}]", ["granted", "granted"]),
        // An override.
        (
            "rules: [{name: permits, by: account, concurrent: 1, wait: 1h, overrides: {alice: {concurrent: 2}}}]",
            ["granted", "granted"],
        ),
        // The rule is removed.
        ("rules: [{name: other, by: ip, limit: 9/h}]", ["granted", "granted"]),
        // A shadow rule.
        ("rules: [{name: permits, by: account, concurrent: 1, wait: 1h, shadow: true}]", ["granted", "granted"]),
        // Without `wait`.
        ("rules: [{name: permits, by: account, concurrent: 1}]", ["denied", "denied"]),
    ] {
        let engine = engine(one);
        let began = tokio::time::Instant::now();
        let first = engine.queue(&account("alice")).await;
        let mut waiting = [(); 2].map(|()| Box::pin(engine.queue(&account("alice"))));
        assert!(waiting.iter_mut().all(|waiting| poll(waiting.as_mut()).is_pending()));
        engine.set_rules(&file(changed));
        let verdicts = join_all(waiting).await;
        let outcomes = verdicts.iter().map(|verdict| if verdict.is_granted() { "granted" } else { "denied" });
        assert_eq!(outcomes.collect::<Vec<_>>(), expected, "{changed}");
        assert_eq!(began.elapsed(), Duration::ZERO, "{changed}");
        // Held permits are released to the counts that they were acquired from.
        drop((first, verdicts));
        if changed.contains("name: permits") {
            let status = engine.peek_key("permits", &["alice"]).await.unwrap();
            assert_eq!(status.limits[0].remaining, status.limits[0].limit, "{changed}");
        }
    }
}

/// A change of other rules leaves a request in its queue.
#[tokio::test(start_paused = true)]
async fn queued_requests_keep_their_position_when_other_rules_change() {
    let engine = engine("rules: [{name: permits, concurrent: 1, wait: 1h}]");
    let first = engine.queue(&request()).await;
    let mut waiting = [(); 3].map(|()| Box::pin(engine.queue(&request())));
    assert!(waiting.iter_mut().all(|waiting| poll(waiting.as_mut()).is_pending()));
    engine.set_rules(&file("rules: [{name: new, limit: 5/h}, {name: permits, concurrent: 1, wait: 1h}]"));
    assert!(waiting.iter_mut().all(|waiting| poll(waiting.as_mut()).is_pending()));
    drop(first);
    let [second, third, fourth] = waiting;
    for waiting in [second, third, fourth] {
        let verdict = waiting.await;
        assert!(verdict.is_granted(), "{verdict}");
        assert_eq!(verdict.waited_for().map(|rule| &*rule.name), None, "no time has passed");
    }
    assert_eq!(engine.rules().rules()[1].counted().delayed, 3);
}

/// `lua-resty-limit-traffic`'s `conn`: requests over the limit are granted after a delay, one unit for each multiple of
/// the limit.
async fn check_delays(engine: &Engine) {
    let mut verdicts = Vec::new();
    for _ in 0..8 {
        verdicts.push(engine.check(&request()).await);
    }
    let waits = |verdicts: &[Decided]| verdicts.iter().map(|verdict| verdict.wait()).collect::<Vec<_>>();
    let (immediate, once, twice) = (Some(ms(0)), Some(ms(200)), Some(ms(400)));
    assert_eq!(waits(&verdicts), [immediate, immediate, once, once, twice, twice, None, None]);
    // A request of one second moves the unit halfway there: (200 + 1000) / 2.
    tokio::time::advance(ms(1_000)).await;
    verdicts.remove(0).finish().await;
    let next = engine.check(&request()).await;
    assert_eq!(next.wait(), Some(ms(1_200)));
    verdicts.push(next);
    for verdict in verdicts {
        verdict.finish().await;
    }
    assert_eq!(engine.check(&request()).await.wait(), immediate, "the delay is reset when no request is left");
}

#[tokio::test(start_paused = true)]
async fn a_burst_over_a_concurrent_limit_is_granted_after_a_delay() {
    const RULES: &str = "rules: [{name: a, concurrent: {limit: 2, burst: 4, delay: 200ms}}]";
    check_delays(&engine(RULES)).await;
    check_delays(&shared(RULES)).await;
}

#[tokio::test(start_paused = true)]
async fn a_wait_over_the_maximum_is_denied() {
    let engine = engine("rules: [{name: a, concurrent: {limit: 1, burst: 5, delay: 300ms}, wait: 500ms, queue: 1}]");
    let verdicts = [now(engine.check(&request())), now(engine.check(&request())), now(engine.check(&request()))];
    let waits = verdicts.each_ref().map(|verdict| verdict.wait());
    assert_eq!(waits, [Some(ms(0)), Some(ms(300)), None]);
}
