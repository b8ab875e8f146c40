//! Envoy's rate limit service, asked directly: which rules apply to a descriptor, what is charged, and the response.

use super::client::{Envoy, descriptor, shop};
use super::messages::{Code, RateLimitRequest, RateLimitResponse, Unit};
use crate::support::program::Diana;
use Code::{Ok, OverLimit};
use diana_testing::RedisServer;

async fn serve(rules: &str) -> (Diana, Envoy) {
    let diana = Diana::serve(&format!("services: {{envoy: $LISTEN}}\nrules:\n{rules}"));
    let envoy = Envoy::connect(diana.port()).await;
    (diana, envoy)
}

/// The entries of a descriptor.
type Entries = &'static [(&'static str, &'static str)];

/// Returns the name of the limit of each descriptor; `-` if it has none.
fn names(response: &RateLimitResponse) -> Vec<&str> {
    let limits = response.statuses.iter().map(|status| status.current_limit.as_ref());
    limits.map(|limit| limit.map_or("-", |limit| &*limit.name)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_map_means_some_entries_and_a_list_means_all_of_them() {
    let (_diana, envoy) = serve(
        "
  - {name: has, match: {domain: shop, descriptor: {plan: [free, 'trial-*'], api_key: }}, by: descriptor(api_key), limit: 9/h}
  - {name: exactly, match: {domain: shop, descriptor: [{region: eu}, tenant]}, by: descriptor(tenant), limit: 9/h}
  - {name: cart, match: {domain: cart}, limit: 9/h}
",
    )
    .await;
    let cases: [(Entries, &str, u32); 10] = [
        (&[("plan", "free"), ("api_key", "a")], "has", 8),
        (&[("api_key", "a"), ("x", "y"), ("plan", "trial-7")], "has", 7),
        (&[("plan", "free"), ("api_key", "b")], "has", 8),
        (&[("plan", "paid"), ("api_key", "a")], "-", 0),
        (&[("plan", "free")], "-", 0),
        (&[("region", "eu"), ("tenant", "t")], "exactly", 8),
        (&[("tenant", "t"), ("region", "eu")], "-", 0),
        (&[("region", "eu"), ("tenant", "t"), ("x", "y")], "-", 0),
        (&[("region", "eu")], "-", 0),
        (&[], "-", 0),
    ];
    for (entries, name, remaining) in cases {
        let response = envoy.ask(descriptor(entries)).await;
        assert_eq!((names(&response), response.remaining()), (vec![name], vec![remaining]), "{entries:?}");
        assert_eq!(response.codes(), [Ok], "{entries:?}");
    }
    let cart = RateLimitRequest { domain: "cart".to_owned(), ..shop([descriptor(&[("any", "thing")])]) };
    assert_eq!(names(&envoy.should_rate_limit(cart).await.unwrap()), ["cart"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn each_descriptor_has_a_status_in_the_units_of_envoy() {
    let periods = [
        ("1000/s", 1_000, Unit::Second),
        ("7/min", 7, Unit::Minute),
        ("7/h", 7, Unit::Hour),
        ("7/day", 7, Unit::Day),
        ("7/week", 7, Unit::Week),
        ("7/30days", 7, Unit::Month),
        ("7/365days", 7, Unit::Year),
        ("5/10min", 5, Unit::Unknown),
    ];
    let rule = |(number, (limit, ..)): (usize, &(&str, u32, Unit))| {
        format!("  - {{name: r{number}, match: {{descriptor: {{n: '{number}'}}}}, limit: {limit}}}\n")
    };
    let (_diana, envoy) = serve(&periods.iter().enumerate().map(rule).collect::<String>()).await;
    let response = envoy.ask_all((0..periods.len()).map(|number| descriptor(&[("n", &number.to_string())]))).await;
    assert_eq!(response.overall_code(), Ok);
    assert_eq!(response.statuses.len(), periods.len());
    for (number, ((limit, requests, unit), status)) in periods.iter().zip(&response.statuses).enumerate() {
        let current = status.current_limit.as_ref().unwrap();
        assert_eq!((current.requests_per_unit, current.unit(), status.code()), (*requests, *unit, Ok), "{limit}");
        assert_eq!((&*current.name, status.limit_remaining), (&*format!("r{number}"), requests - 1), "{limit}");
        let reset = status.duration_until_reset.as_ref().unwrap();
        assert!(reset.seconds > 0 || reset.nanos > 0, "{limit}: {reset:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_status_is_that_of_the_limit_with_the_fewest_permits() {
    let (_diana, envoy) = serve("  - {name: two, limit: [5/h, {rate: 3/day}]}\n  - {name: more, limit: 9/h}\n").await;
    let response = envoy.ask(descriptor(&[("a", "b")]).hits(2)).await;
    let current = response.statuses[0].current_limit.clone().unwrap();
    assert_eq!((current.unit(), current.requests_per_unit, response.remaining()), (Unit::Day, 3, vec![1]));
    assert!(current.name.starts_with("two"), "{current:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn hits_are_those_of_the_descriptor_else_of_the_request() {
    let (_diana, envoy) =
        serve("  - {name: each, by: descriptor(k), limit: 10/h}\n  - {name: five, match: {descriptor: {five: }}, limit: 11/h, cost: 5}\n").await;
    let hits = |hits_addend, descriptors: Vec<_>| RateLimitRequest { hits_addend, ..shop(descriptors) };
    let of = |key| descriptor(&[("k", key)]);
    for (request, remaining) in [
        (hits(0, vec![of("a")]), vec![9]),
        (hits(3, vec![of("a")]), vec![6]),
        (hits(3, vec![of("a").hits(2), of("b")]), vec![4, 7]),
        // A cost is multiplied.
        (hits(2, vec![descriptor(&[("five", "")])]), vec![1]),
    ] {
        let response = envoy.should_rate_limit(request).await.unwrap();
        assert_eq!((response.remaining(), response.overall_code()), (remaining, Ok));
    }
    let denied = envoy.should_rate_limit(hits(5, vec![of("a")])).await.unwrap();
    assert_eq!((denied.overall_code(), denied.remaining()), (OverLimit, vec![4]), "more than remains");
    assert_eq!(envoy.ask(of("a").hits(4)).await.remaining(), [0]);
    let huge = envoy.ask(of("b").hits(u64::MAX)).await;
    assert_eq!((huge.overall_code(), huge.remaining()), (OverLimit, vec![7]));
}

/// A descriptor with 0 hits is over only if more was used than is allowed, as after costs known afterwards.
#[tokio::test(flavor = "multi_thread")]
async fn zero_hits_only_look() {
    let (_diana, envoy) = serve(
        "
  - {name: tokens, match: {descriptor: {k: }}, by: descriptor(k), limit: 2/h}
  - {name: used, match: {descriptor: {used: }}, by: descriptor(used), charges: tokens}
",
    )
    .await;
    let look = || descriptor(&[("k", "a")]).hits(0);
    for _ in 0..3 {
        let response = envoy.ask(look()).await;
        assert_eq!((response.overall_code(), response.remaining()), (Ok, vec![2]), "a look takes nothing");
    }
    assert_eq!(envoy.ask(descriptor(&[("k", "a")]).hits(2)).await.remaining(), [0]);
    assert_eq!(envoy.ask(look()).await.overall_code(), Ok, "used up, but not exceeded");
    assert_eq!(envoy.ask(descriptor(&[("k", "a")])).await.overall_code(), OverLimit);

    assert_eq!(envoy.ask(descriptor(&[("used", "a")])).await.overall_code(), Ok, "a charge is never denied");
    let response = envoy.ask(look()).await;
    assert_eq!((response.overall_code(), response.codes()), (OverLimit, vec![OverLimit]), "exceeded by one");
    assert!(response.header("retry-after").is_some(), "{response:?}");
    // One that looks and is over keeps the others from being charged.
    let both = envoy.ask_all([descriptor(&[("k", "b")]), look()]).await;
    assert_eq!((both.overall_code(), both.codes()), (OverLimit, vec![Ok, OverLimit]));
    assert_eq!(envoy.ask(descriptor(&[("k", "b")])).await.remaining(), [1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn negative_hits_give_back() {
    let (_diana, envoy) = serve("  - {name: each, by: descriptor(k), limit: 5/h}\n").await;
    let of = |key| descriptor(&[("k", key)]);
    assert_eq!(envoy.ask(of("a").hits(5)).await.remaining(), [0]);
    let refunded = envoy.ask(of("a").refund(2)).await;
    assert_eq!((refunded.overall_code(), names(&refunded)), (Ok, vec!["-"]));
    assert_eq!(envoy.codes::<3>(&of("a")).await, [Ok, Ok, OverLimit]);
    // Not more than was used.
    envoy.ask(of("a").refund(u64::MAX)).await;
    assert_eq!(envoy.ask(of("a")).await.remaining(), [4]);
    // A refund of a request that is denied would give back what was not used.
    assert_eq!(envoy.ask(of("b").hits(5)).await.remaining(), [0]);
    assert_eq!(envoy.ask_all([of("a").refund(1), of("b")]).await.overall_code(), OverLimit);
    assert_eq!(envoy.ask(of("a")).await.remaining(), [3]);
}

#[tokio::test(flavor = "multi_thread")]
async fn several_descriptors_are_all_or_nothing() {
    let (_diana, envoy) = serve(
        "
  - {name: plan, match: {descriptor: {plan: free}}, limit: 100/h}
  - {name: key, match: {descriptor: {api_key: }}, by: descriptor(api_key), limit: 2/h}
",
    )
    .await;
    let plan = || descriptor(&[("plan", "free")]);
    let key = || descriptor(&[("api_key", "k")]);
    for (codes, remaining) in [([Ok, Ok], [99, 1]), ([Ok, Ok], [98, 0]), ([Ok, OverLimit], [98, 0])] {
        let response = envoy.ask_all([plan(), key()]).await;
        assert_eq!((response.codes(), response.remaining()), (codes.to_vec(), remaining.to_vec()));
        assert_eq!(response.overall_code(), codes[1]);
    }
    assert_eq!(envoy.ask(plan()).await.remaining(), [97], "the denied request took nothing");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_and_key_in_two_descriptors_is_charged_once() {
    let (_diana, envoy) =
        serve("  - {name: all, limit: 20/h}\n  - {name: each, by: descriptor(k), limit: 30/h}\n").await;
    let response =
        envoy.ask_all([descriptor(&[("k", "a")]).hits(3), descriptor(&[("k", "a"), ("x", "")]).hits(7)]).await;
    assert_eq!((response.remaining(), names(&response)), (vec![13, 13], vec!["all", "all"]));
    assert_eq!(envoy.ask(descriptor(&[("k", "a")]).hits(0)).await.remaining(), [13]);
    // With other keys, each is charged.
    let response = envoy.ask_all([descriptor(&[("k", "b")]).hits(8), descriptor(&[("k", "c")]).hits(2)]).await;
    assert_eq!(response.remaining(), [5, 5]);
    let response = envoy.ask_all([descriptor(&[("k", "c")]).hits(6)]).await;
    assert_eq!(response.overall_code(), OverLimit);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_descriptor_can_bring_its_limit() {
    let (diana, envoy) = serve("  - {name: known, match: {domain: shop, descriptor: {k: }}, limit: 100/h}\n").await;
    let own = |key| descriptor(&[("k", key)]).limit(2, Unit::Hour);
    let response = envoy.ask(own("a")).await;
    let current = response.statuses[0].current_limit.clone().unwrap();
    assert_eq!((current.requests_per_unit, current.unit(), response.remaining()), (2, Unit::Hour, vec![1]));
    assert_eq!(envoy.codes::<2>(&own("a")).await, [Ok, OverLimit]);
    assert_eq!(envoy.ask(own("b")).await.remaining(), [1], "each descriptor is counted by itself");
    assert_eq!(envoy.ask(descriptor(&[("k", "a")])).await.remaining(), [99], "the rule was not charged");
    let denied = envoy.ask_all([descriptor(&[("k", "a")]), own("a")]).await;
    assert_eq!(denied.codes(), [Ok, OverLimit]);
    assert!(denied.header("retry-after").is_some(), "{denied:?}");
    assert_eq!(envoy.ask(descriptor(&[("k", "a")])).await.remaining(), [98], "all or nothing");
    // Without hits it only looks, and the hits of the request count.
    assert_eq!(envoy.ask(own("b").hits(0)).await.remaining(), [1]);
    assert_eq!(envoy.ask(own("c").hits(2)).await.remaining(), [0]);
    // Without a unit that has a period, the rules decide.
    assert_eq!(names(&envoy.ask(descriptor(&[("k", "a")]).limit(2, Unit::Unknown)).await), ["known"]);
    assert_eq!(
        envoy.codes::<2>(&descriptor(&[("k", "z")]).limit(0, Unit::Hour)).await,
        [OverLimit; 2],
        "allows nothing"
    );
    // A domain without rules is unknown, whatever it brings.
    let unknown = RateLimitRequest { domain: "other".to_owned(), ..shop([own("a")]) };
    let response = envoy.should_rate_limit(unknown).await.unwrap();
    assert_eq!((response.codes(), names(&response)), (vec![Ok], vec!["-"]));
    drop(diana);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_in_two_descriptors_with_the_same_entries_is_charged_once() {
    let redis = RedisServer::start().unwrap();
    for store in [String::new(), format!("store: {{redis: '{}', timeout: 20s}}\n", redis.url())] {
        let diana = Diana::serve(&format!(
            "{store}services: {{envoy: $LISTEN}}\nrules: [{{name: known, match: {{domain: shop, descriptor: {{k: }}}}, limit: 100/h}}]"
        ));
        let envoy = Envoy::connect(diana.port()).await;
        let own = |hits| descriptor(&[("k", "a")]).limit(10, Unit::Year).hits(hits);
        assert_eq!(envoy.ask_all([own(2), own(7)]).await.remaining(), [3, 3], "the larger hits");
        assert_eq!(envoy.ask_all([own(1), descriptor(&[("k", "b")]).limit(10, Unit::Year)]).await.remaining(), [2, 9]);
        assert_eq!(envoy.ask_all([own(1), own(3)]).await.overall_code(), OverLimit);
        assert_eq!(envoy.ask(own(0)).await.remaining(), [2]);
    }
}

/// A `concurrent` rule can't be refunded by Envoy.
#[tokio::test(flavor = "multi_thread")]
async fn if_a_refund_fails_nothing_is_charged() {
    let redis = RedisServer::start().unwrap();
    for store in [String::new(), format!("store: {{redis: '{}', timeout: 20s}}\n", redis.url())] {
        let diana = Diana::serve(&format!(
            "{store}services: {{envoy: $LISTEN}}
rules:
  - {{name: known, match: {{domain: shop, descriptor: {{k: }}}}, limit: 100/h}}
  - {{name: slots, match: {{domain: shop, descriptor: {{slot: }}}}, concurrent: 5}}"
        ));
        let envoy = Envoy::connect(diana.port()).await;
        let (own, rule) = (|| descriptor(&[("k", "a")]).limit(10, Unit::Year), || descriptor(&[("k", "a")]));
        assert_eq!((envoy.ask(own()).await.remaining(), envoy.ask(rule()).await.remaining()), (vec![9], vec![99]));
        let failed = envoy.should_rate_limit(shop([own(), rule(), descriptor(&[("slot", "")]).refund(1)])).await;
        assert_eq!(failed.unwrap_err().code(), tonic::Code::Unavailable);
        // The refund in Redis may be later than the error.
        let mut tries = 0;
        while envoy.ask_all([own().hits(0), rule().hits(0)]).await.remaining() != [9, 99] {
            tries += 1;
            assert!(tries < 1_000, "{:?}", envoy.ask_all([own().hits(0), rule().hits(0)]).await.remaining());
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    }
}

/// At most 1,024 different limits are known; the one that was not used for the longest time is dropped.
#[tokio::test(flavor = "multi_thread")]
async fn many_limits_of_descriptors_do_not_reset_one_that_is_used() {
    let (_diana, envoy) = serve("  - {name: known, match: {domain: shop}, limit: 100/h}\n").await;
    let own = |limit| descriptor(&[("k", "a")]).limit(limit, Unit::Year);
    assert_eq!(envoy.codes::<2>(&own(1)).await, [Ok, OverLimit]);
    for batch in 0..40 {
        let others = (0..63).map(|number| own(1_000 + batch * 63 + number)).chain([own(1).hits(0)]);
        assert_eq!(envoy.ask_all(others).await.overall_code(), Ok);
    }
    assert_eq!(envoy.ask(own(1)).await.overall_code(), OverLimit);
}

/// Regression: each thread had its own count, and the kernel assigns connections to threads.
#[tokio::test(flavor = "multi_thread")]
async fn a_limit_of_a_descriptor_is_one_for_all_connections() {
    let diana = Diana::serve(
        "services: {envoy: $LISTEN, workers: 4}\nrules: [{name: known, match: {domain: shop}, limit: 1000/h}]",
    );
    let mut allowed = 0;
    for _ in 0..24 {
        let envoy = Envoy::connect(diana.port()).await;
        let code = envoy.ask(descriptor(&[("k", "a")]).limit(5, Unit::Day)).await.overall_code();
        allowed += usize::from(code == Ok);
    }
    assert_eq!(allowed, 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_matching_rule_everything_is_allowed() {
    let (_diana, envoy) = serve("  - {name: known, match: {domain: shop, descriptor: {k: }}, limit: 1/h}\n").await;
    let request = |domain: &str| RateLimitRequest { domain: domain.to_owned(), ..shop([descriptor(&[("x", "y")])]) };
    for domain in ["shop", "unknown"] {
        for _ in 0..3 {
            let response = envoy.should_rate_limit(request(domain)).await.unwrap();
            assert_eq!((response.overall_code(), response.codes(), names(&response)), (Ok, vec![Ok], vec!["-"]));
            assert_eq!(response.response_headers_to_add, [], "{domain}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_headers_are_for_the_client() {
    let (_diana, envoy) = serve("  - {name: each-key, by: descriptor(k), limit: 1/h}\n").await;
    let allowed = envoy.ask(descriptor(&[("k", "a")])).await;
    assert_eq!(allowed.header("ratelimit-policy"), Some("\"each-key\";q=1;w=3600"));
    assert!(allowed.header("ratelimit").unwrap().starts_with("\"each-key\";r=0;t="), "{allowed:?}");
    assert_eq!(allowed.header("retry-after"), None);
    let denied = envoy.ask(descriptor(&[("k", "a")])).await;
    assert_eq!(denied.header("ratelimit-policy"), Some("\"each-key\";q=1;w=3600"));
    assert!(denied.header("ratelimit").unwrap().starts_with("\"each-key\";r=0;t="), "{denied:?}");
    let retry = denied.header("retry-after").unwrap().parse::<u32>().unwrap();
    assert!((1..=3_600).contains(&retry), "{retry}");
    let diana = Diana::serve(
        "
services: {envoy: $LISTEN}
gateway: {listen: $TLS, rate_limit_headers: off}
rules: [{name: each-key, by: descriptor(k), limit: 1/h}]",
    );
    let envoy = Envoy::connect(diana.port()).await;
    assert_eq!(envoy.ask(descriptor(&[("k", "a")])).await.response_headers_to_add, []);
}
