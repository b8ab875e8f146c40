//! The cost in a response is charged, and hidden from the client.

use crate::support::{client, denied, filter, get, granted};
use diana::EngineOptions;
use diana::store::MemoryStore;
use diana_http::{Filter, FilterOptions};
use http::Response;
use http_body_util::Empty;

const RULES: &str = "rules:
  - {name: tokens, limit: 1000/h, cost: 10}
  - {name: rows, by: ip, limit: 500/h, cost: 10}
  - {name: requests, limit: 100/h}
";

/// Returns the remaining permits of each limit after a request whose response head has these costs.
fn remaining_after(costs: &[&str]) -> Vec<u64> {
    let (filter, _) = filter(RULES);
    let mut response = Response::builder();
    for cost in costs {
        response = response.header("x-diana-cost", *cost);
    }
    let response = granted(filter.check(&get("/"), client())).finish(response.body(Empty::<&[u8]>::new()).unwrap());
    assert!(!response.headers().contains_key("x-diana-cost"));
    drop(response);
    remaining(&filter)
}

fn remaining(filter: &Filter) -> Vec<u64> {
    let request = get("/");
    let explained = crate::support::now(filter.engine().explain(&diana_http::HttpAttributes::of(&request, client())));
    explained.rules.iter().flat_map(|rule| rule.limits.iter().map(|(_, answer)| answer.status().remaining)).collect()
}

#[test]
fn a_cost_applies_to_every_rule_with_a_cost_or_to_a_named_rule() {
    for (costs, remaining) in [
        (&[][..], [990, 490, 99]),
        (&["250"], [750, 250, 99]),
        (&["3"], [997, 497, 99]),
        (&["0"], [1000, 500, 99]),
        (&["tokens=250"], [750, 490, 99]),
        (&["tokens=250, rows=3"], [750, 497, 99]),
        (&["250,rows = 3"], [750, 497, 99]),
        (&["rows=3", "250"], [750, 497, 99]),
        (&["requests=5"], [990, 490, 95]),
        (&["2000"], [0, 0, 99]),
        // Invalid values are ignored.
        (&["many"], [990, 490, 99]),
        (&["-1"], [990, 490, 99]),
        (&["+1"], [990, 490, 99]),
        (&["1.5"], [990, 490, 99]),
        (&[""], [990, 490, 99]),
        (&["="], [990, 490, 99]),
        (&["tokens="], [990, 490, 99]),
        (&["99999999999999999999999"], [990, 490, 99]),
        (&["tokens=x, rows=3"], [990, 497, 99]),
        (&["unknown=3"], [990, 490, 99]),
    ] {
        assert_eq!(remaining_after(costs), remaining, "{costs:?}");
    }
}

#[test]
fn the_headers_report_the_remaining_permits_after_settlement() {
    let (filter, _) = filter("rules: [{name: tokens, limit: 1000/h, cost: 10}]");
    for (cost, remaining) in [("250", "r=750"), ("3", "r=747"), ("2000", "r=0")] {
        let response = Response::builder().header("x-diana-cost", cost).body(Empty::<&[u8]>::new()).unwrap();
        let response = granted(filter.check(&get("/"), client())).finish(response);
        let header = response.headers()["ratelimit"].to_str().unwrap();
        assert!(header.contains(&format!(";{remaining};")), "{cost}: {header}");
    }
}

/// Returns the headers of a response with this cost, by a rule of 3,600 per hour that was charged 10 for it.
fn reported(limit: &str, cost: &str, shared: bool) -> String {
    let rules = format!("rules: [{{name: tokens, {limit}, cost: 10}}]");
    let response = Response::builder().header("x-diana-cost", cost).body(Empty::<&[u8]>::new()).unwrap();
    if shared {
        let file = crate::support::file(&format!("store: {{redis: 'redis://127.0.0.1'}}\n{rules}"));
        let engine =
            EngineOptions::of(&file).clock(crate::support::clock()).build_shared(&file, MemoryStore::default());
        let filter = Filter::with_options(engine, FilterOptions::default());
        let response = granted(filter.check(&get("/"), client())).finish(response);
        return response.headers()["ratelimit"].to_str().unwrap().to_owned();
    }
    let (filter, _) = filter(&rules);
    let response = granted(filter.check(&get("/"), client())).finish(response);
    response.headers()["ratelimit"].to_str().unwrap().to_owned()
}

#[test]
fn the_headers_report_the_reset_after_settlement() {
    for shared in [false, true] {
        let bucket = |cost| reported("limit: 3600/h", cost, shared);
        assert_eq!(bucket("10"), "\"tokens\";r=3590;t=10", "shared: {shared}");
        assert_eq!(bucket("250"), "\"tokens\";r=3350;t=250", "shared: {shared}");
        assert_eq!(bucket("3"), "\"tokens\";r=3597;t=3", "shared: {shared}");
        assert_eq!(bucket("0"), "\"tokens\";r=3600", "shared: {shared}");
        assert_eq!(bucket("7200"), "\"tokens\";r=0;t=7200", "shared: {shared}");
        let window = |cost| reported("limit: 3600/h, algorithm: fixed_window, opens: first_request", cost, shared);
        assert_eq!(window("250"), "\"tokens\";r=3350;t=3600", "shared: {shared}");
        assert_eq!(window("0"), "\"tokens\";r=3600", "shared: {shared}");
    }
}

#[test]
fn a_settlement_applies_to_a_rule_with_an_estimated_cost_of_zero() {
    let rules = "rules:
  - {name: tokens, limit: 1000/h, cost: 'int(request.query.n)', cost_min: 0}
  - {name: requests, limit: 100/h}
";
    let counted = |costs: &[&str]| {
        let (filter, _) = filter(rules);
        let mut permit = granted(filter.check(&get("/?n=0"), client()));
        permit.begin();
        let mut response = Response::builder();
        for cost in costs {
            response = response.header("x-diana-cost", *cost);
        }
        drop(permit.finish(response.body(Empty::<&[u8]>::new()).unwrap()));
        let request = get("/?n=1");
        let attributes = diana_http::HttpAttributes::of(&request, client());
        let explained = crate::support::now(filter.engine().explain(&attributes));
        explained.rules[0].limits[0].1.status().remaining
    };
    assert_eq!(counted(&[]), 1000);
    assert_eq!(counted(&["tokens=250"]), 750);
    assert_eq!(counted(&["250"]), 750);
    assert_eq!(counted(&["requests=5"]), 1000);
    assert_eq!(counted(&["tokens=0"]), 1000);
}

#[test]
fn removes_the_header_without_a_matching_rule() {
    let (filter, _) = filter("rules: [{name: a, match: {path: /b}, limit: 1/s}]");
    let response = Response::builder().header("x-diana-cost", "5").body(Empty::<&[u8]>::new()).unwrap();
    assert!(granted(filter.check(&get("/"), client())).finish(response).headers().is_empty());
}

#[test]
fn an_uncomputable_cost_is_a_bad_request() {
    let rules = "answer: {type: text/plain, text: slow down}\nrules: [{name: tokens, limit: 1000/h, status: 429, cost: 'int(request.query.n)'}]";
    let (filter, _) = filter(rules);
    let response = denied(filter.check(&get("/?n=1&n=2"), client())).into_response();
    assert_eq!(response.status(), 400);
    assert!(!response.headers().contains_key("retry-after"));
    assert_eq!(response.headers()["content-type"], "application/problem+json");
    let body = crate::support::body(response);
    assert!(body.contains("\"detail\":\"the cost of the request cannot be computed\""), "{body}");
    let call = http::Request::post("/a.B/C?n=x").header("content-type", "application/grpc").body(()).unwrap();
    let response = denied(filter.check(&call, client())).into_response();
    assert_eq!(
        (response.status().as_u16(), &response.headers()["grpc-status"]),
        (200, &http::HeaderValue::from(3_u16))
    );
    // Nothing was charged.
    let response = granted(filter.check(&get("/?n=1"), client())).finish(Response::new(Empty::<&[u8]>::new()));
    assert_eq!(response.headers()["ratelimit"], "\"tokens\";r=999;t=4");
}
