//! Wait queues: FIFO, bounded, and nothing is lost when a request is cancelled.

use crate::support::{account, file, now, request};
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
    let heard = Mutex::new(Vec::new());
    join_all((0..count).map(|nth| {
        let heard = &heard;
        async move {
            let verdict = engine.admit(&request()).await;
            let at = began.elapsed().as_millis();
            let said = if verdict.is_granted() { "granted" } else { "denied" };
            heard.lock().push(format!("{nth} {said} at {at}ms"));
            if verdict.is_granted() {
                tokio::time::sleep(holds).await;
                engine.finish(verdict).await;
            }
        }
    }))
    .await;
    heard.into_inner()
}

#[tokio::test(start_paused = true)]
async fn places_are_given_to_those_who_wait_in_the_order_of_their_coming() {
    let rules = "rules: [{name: places, concurrent: 2, wait: 1s}]";
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
async fn a_window_lets_those_who_wait_in_when_the_next_one_opens() {
    let rules = "rules: [{name: w, limit: 2/s, algorithm: sliding_log, wait: 1500ms}]";
    let expected = [
        "0 granted at 0ms",
        "1 granted at 0ms",
        "2 granted at 1000ms",
        "3 granted at 1000ms",
        // Their turn would come in another second, and they know it when they are the first.
        "4 denied at 1000ms",
        "5 denied at 1000ms",
    ];
    let heard = transcript(&engine(rules), 6, Duration::ZERO).await;
    assert_eq!(heard, expected);
    assert_eq!(transcript(&shared(rules), 6, Duration::ZERO).await, expected);
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_longer_than_the_rule_says_and_no_line_is_longer() {
    let engine = engine("rules: [{name: places, concurrent: 1, wait: 500ms, queue: 2}]");
    let expected = ["0 granted at 0ms", "3 denied at 0ms", "1 denied at 500ms", "2 denied at 500ms"];
    assert_eq!(transcript(&engine, 4, ms(900)).await, expected);
    let counted = engine.rules().rules()[0].counted();
    assert_eq!((counted.granted, counted.waited, counted.refused), (1, 0, 3));
}

#[tokio::test(start_paused = true)]
async fn each_key_has_a_line_of_its_own() {
    let engine = engine("rules: [{name: places, by: account, concurrent: 1, wait: 1s, queue: 1}]");
    let alice = engine.admit(&account("alice")).await;
    let waiting = engine.admit(&account("alice"));
    let mut waiting = pin!(waiting);
    assert!(poll(waiting.as_mut()).is_pending());
    // Bob is not held up by alice's line.
    assert!(now(engine.admit(&account("bob"))).is_granted());
    assert!(!now(engine.admit(&account("alice"))).is_granted(), "her line is full");
    drop(alice);
    assert!(waiting.await.is_granted());
    let counted = engine.rules().rules()[0].counted();
    assert_eq!((counted.granted, counted.waited, counted.refused), (2, 1, 1));
}

#[tokio::test(start_paused = true)]
async fn who_does_not_stand_in_line_does_not_overtake() {
    for is_shared in [false, true] {
        let rules = "rules: [{name: places, concurrent: 1, wait: 1s}]";
        let engine = if is_shared { shared(rules) } else { engine(rules) };
        let first = engine.admit(&request()).await;
        let mut second = pin!(engine.admit(&request()));
        assert!(poll(second.as_mut()).is_pending());
        engine.finish(first).await;
        // There is a place, but it is the second one's.
        let overtaking = now(engine.decide(&request()));
        assert!(!overtaking.is_granted(), "{overtaking}");
        assert_eq!(overtaking.refused_by().unwrap().name, "places");
        let verdict = second.await;
        assert!(verdict.is_granted(), "{verdict}");
        drop(verdict);
    }
}

#[tokio::test(start_paused = true)]
async fn who_leaves_the_line_gives_way_to_the_next() {
    let engine = engine("rules: [{name: places, concurrent: 1, wait: 10s}, {name: all, total: 3}]");
    let first = engine.admit(&request()).await;
    let mut leaves = Box::pin(engine.admit(&request()));
    let mut stays = Box::pin(engine.admit(&request()));
    assert!(poll(leaves.as_mut()).is_pending() && poll(stays.as_mut()).is_pending());
    drop(first);
    // It was woken, and leaves without a word.
    drop(leaves);
    let verdict = stays.await;
    assert!(verdict.is_granted(), "{verdict}");
    assert_eq!(verdict.to_string(), "granted, closest to `places`: 0 of 1 left");
    drop(verdict);
    let last = engine.admit(&request()).await;
    assert_eq!(
        last.asked().map(|asked| asked.answer.status.remaining).collect::<Vec<_>>(),
        [0, 0],
        "who left paid nothing"
    );
}

#[tokio::test(start_paused = true)]
async fn another_rule_that_lets_nobody_wait_ends_it_at_once() {
    let engine = engine("rules: [{name: places, concurrent: 1, wait: 10s}, {name: few, limit: 1/h}]");
    let first = engine.admit(&request()).await;
    assert!(first.is_granted());
    let denied = now(engine.admit(&request()));
    assert!(denied.asked().all(|asked| !asked.answer.is_granted()));
}

#[tokio::test(start_paused = true)]
async fn a_request_in_the_way_of_two_limits_waits_for_both() {
    let engine =
        engine("rules: [{name: own, by: account, concurrent: 1, wait: 10s}, {name: all, concurrent: 2, wait: 10s}]");
    let alice = engine.admit(&account("alice")).await;
    let bob = engine.admit(&account("bob")).await;
    let mut waiting = Box::pin(engine.admit(&account("alice")));
    assert!(poll(waiting.as_mut()).is_pending());
    drop(bob);
    assert!(poll(waiting.as_mut()).is_pending(), "alice's own place is taken");
    let carol = engine.admit(&account("carol"));
    let mut carol = Box::pin(carol);
    let carols = poll(carol.as_mut());
    drop(alice);
    let verdict = waiting.await;
    assert!(verdict.is_granted(), "{verdict}");
    drop(verdict);
    match carols {
        Poll::Ready(verdict) => assert!(verdict.is_granted()),
        Poll::Pending => assert!(carol.await.is_granted()),
    }
}

#[tokio::test(start_paused = true)]
async fn a_shared_place_that_somebody_else_gives_back_is_found() {
    let rules = "rules: [{name: places, concurrent: 1, wait: 10s}]";
    let engine = shared(rules);
    let first = engine.admit(&request()).await;
    let engine = Arc::new(engine);
    let waiting = engine.acquire(&request()).now().expect_err("it is queued");
    let other = async {
        tokio::time::sleep(ms(500)).await;
        // As if by another process: nobody here is woken.
        let asked = first.asked().next().unwrap();
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
    let queued = acquired.unwrap().verdict().stood();
    assert!((ms(500)..ms(600)).contains(&queued), "{queued:?}");
}

/// A regression: the time in the queue was not reported.
#[tokio::test(start_paused = true)]
async fn a_verdict_tells_how_long_it_stood_in_line_and_for_which_rule() {
    let engine = engine(
        "rules:
  - {name: plenty, limit: 1000/s}
  - {name: places, concurrent: 1, wait: 500ms}
  - {name: paced, match: {path: /paced}, every: 1s, wait: 5s}
",
    );
    // In hundredths of a second, since timers are late by up to a millisecond.
    let waited =
        |verdict: &Verdict| (verdict.stood().as_millis() / 10, verdict.waited_for().map(|rule| rule.name.clone()));
    let first = engine.admit(&request()).await;
    assert_eq!(waited(&first), (0, None));
    let (second, ()) = tokio::join!(engine.admit(&request()), async {
        tokio::time::sleep(ms(300)).await;
        drop(first);
    });
    assert!(second.is_granted());
    assert_eq!(waited(&second), (30, Some("places".to_owned())));
    // Who is turned away has waited, too.
    let third = engine.admit(&request()).await;
    assert!(!third.is_granted());
    assert_eq!(waited(&third), (50, Some("places".to_owned())));
    drop(second);
    // A time that was promised is still to be waited for.
    let paced = diana::rules::attributes::SyntheticRequest::new("GET", "/paced");
    drop(engine.admit(&paced).await);
    let promised = engine.admit(&paced).await;
    assert_eq!(promised.wait(), Some(ms(1_000)));
    assert_eq!(waited(&promised), (0, Some("paced".to_owned())));
}

#[test]
fn places_that_come_back_on_another_thread_wake_the_first_in_line() {
    let file = file("rules: [{name: places, concurrent: 3, wait: 60s}]");
    let engine = Arc::new(EngineOptions::of(&file).build(&file));
    let most = Arc::new(Mutex::new((0_u32, 0_u32)));
    let threads = (0..4).map(|_| {
        let (engine, most) = (Arc::clone(&engine), Arc::clone(&most));
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
            runtime.block_on(join_all((0..25).map(|_| async {
                for _ in 0..20 {
                    let verdict: Verdict = engine.admit(&request()).await;
                    assert!(verdict.is_granted(), "{verdict}");
                    let in_flight = {
                        let mut most = most.lock();
                        most.0 += 1;
                        most.1 = most.1.max(most.0);
                        most.0
                    };
                    assert!(in_flight <= 3);
                    tokio::task::yield_now().await;
                    most.lock().0 -= 1;
                    drop(verdict);
                }
            })));
        })
    });
    threads.collect::<Vec<_>>().into_iter().for_each(|thread| thread.join().unwrap());
    assert!(most.lock().1 > 1);
    assert_eq!(engine.rules().rules()[0].counted().refused, 0);
}

/// A regression: a request that was queued for a permit which was never released was granted only at its deadline.
#[tokio::test(start_paused = true)]
async fn who_is_queued_is_woken_when_the_key_is_reset() {
    for is_shared in [false, true] {
        for (limit, key) in [("concurrent: 1", None), ("limit: 1/h, algorithm: fixed_window", Some("alice"))] {
            let by = if key.is_some() { "by: account, " } else { "" };
            let rules = format!("rules: [{{name: places, {by}{limit}, wait: 2h}}]");
            let engine = if is_shared { shared(&rules) } else { engine(&rules) };
            let began = tokio::time::Instant::now();
            let first = engine.admit(&account("alice")).await;
            let mut waiting = Box::pin(engine.admit(&account("alice")));
            assert!(poll(waiting.as_mut()).is_pending());
            engine.reset_key("places", key.as_slice()).await.unwrap();
            let verdict = waiting.await;
            assert!(verdict.is_granted(), "{verdict}");
            assert_eq!(began.elapsed(), Duration::ZERO, "{rules}, shared: {is_shared}");
            drop((first, verdict));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn who_is_queued_goes_on_by_the_new_rules() {
    let one = "rules: [{name: other, by: ip, limit: 9/h}, {name: places, by: account, concurrent: 1, wait: 1h}]";
    for (changed, expected) in [
        // More places, under another number.
        ("rules: [{name: places, by: account, concurrent: 3, wait: 1h}]", ["granted", "granted"]),
        // An override.
        (
            "rules: [{name: places, by: account, concurrent: 1, wait: 1h, overrides: {alice: {concurrent: 2}}}]",
            ["granted", "granted"],
        ),
        // No such rule any more.
        ("rules: [{name: other, by: ip, limit: 9/h}]", ["granted", "granted"]),
        // On trial.
        ("rules: [{name: places, by: account, concurrent: 1, wait: 1h, shadow: true}]", ["granted", "granted"]),
        // Nobody waits any more.
        ("rules: [{name: places, by: account, concurrent: 1}]", ["denied", "denied"]),
    ] {
        let engine = engine(one);
        let began = tokio::time::Instant::now();
        let first = engine.admit(&account("alice")).await;
        let mut waiting = [(); 2].map(|()| Box::pin(engine.admit(&account("alice"))));
        assert!(waiting.iter_mut().all(|waiting| poll(waiting.as_mut()).is_pending()));
        engine.set_rules(&file(changed));
        let verdicts = join_all(waiting).await;
        let said = verdicts.iter().map(|verdict| if verdict.is_granted() { "granted" } else { "denied" });
        assert_eq!(said.collect::<Vec<_>>(), expected, "{changed}");
        assert_eq!(began.elapsed(), Duration::ZERO, "{changed}");
        // What was held comes back, to where it was taken from.
        drop((first, verdicts));
        if changed.contains("name: places") {
            let status = engine.peek_key("places", &["alice"]).await.unwrap();
            assert_eq!(status.limits[0].remaining, status.limits[0].limit, "{changed}");
        }
    }
}

/// A change of other rules leaves a request in its queue.
#[tokio::test(start_paused = true)]
async fn who_is_queued_keeps_its_place_when_other_rules_change() {
    let engine = engine("rules: [{name: places, concurrent: 1, wait: 1h}]");
    let first = engine.admit(&request()).await;
    let mut waiting = [(); 3].map(|()| Box::pin(engine.admit(&request())));
    assert!(waiting.iter_mut().all(|waiting| poll(waiting.as_mut()).is_pending()));
    engine.set_rules(&file("rules: [{name: new, limit: 5/h}, {name: places, concurrent: 1, wait: 1h}]"));
    assert!(waiting.iter_mut().all(|waiting| poll(waiting.as_mut()).is_pending()));
    drop(first);
    let [second, third, fourth] = waiting;
    for waiting in [second, third, fourth] {
        let verdict = waiting.await;
        assert!(verdict.is_granted(), "{verdict}");
        assert_eq!(verdict.waited_for().map(|rule| &*rule.name), None, "no time has passed");
    }
    assert_eq!(engine.rules().rules()[1].counted().waited, 3);
}

/// `lua-resty-limit-traffic`'s `conn`: requests over the limit are granted after a delay, one unit for each multiple of
/// the limit.
async fn a_few_more_after_a_wait(engine: &Engine) {
    let mut verdicts = Vec::new();
    for _ in 0..8 {
        verdicts.push(engine.decide(&request()).await);
    }
    let waits = |verdicts: &[Verdict]| verdicts.iter().map(Verdict::wait).collect::<Vec<_>>();
    let (at_once, once, twice) = (Some(ms(0)), Some(ms(200)), Some(ms(400)));
    assert_eq!(waits(&verdicts), [at_once, at_once, once, once, twice, twice, None, None]);
    // One that took a second moves the unit half way there: (200 + 1000) / 2.
    tokio::time::advance(ms(1_000)).await;
    engine.finish(verdicts.remove(0)).await;
    let next = engine.decide(&request()).await;
    assert_eq!(next.wait(), Some(ms(1_200)));
    verdicts.push(next);
    for verdict in verdicts {
        engine.finish(verdict).await;
    }
    assert_eq!(engine.decide(&request()).await.wait(), at_once, "when nobody is left, it begins anew");
}

#[tokio::test(start_paused = true)]
async fn a_burst_over_a_concurrent_limit_is_let_in_after_a_delay() {
    const RULES: &str = "rules: [{name: a, concurrent: {limit: 2, burst: 4, delay: 200ms}}]";
    a_few_more_after_a_wait(&engine(RULES)).await;
    a_few_more_after_a_wait(&shared(RULES)).await;
}

#[tokio::test(start_paused = true)]
async fn who_would_wait_longer_than_the_rule_allows_is_denied() {
    let engine = engine("rules: [{name: a, concurrent: {limit: 1, burst: 5, delay: 300ms}, wait: 500ms, queue: 1}]");
    let verdicts = [now(engine.decide(&request())), now(engine.decide(&request())), now(engine.decide(&request()))];
    let waits = verdicts.each_ref().map(Verdict::wait);
    assert_eq!(waits, [Some(ms(0)), Some(ms(300)), None]);
}
