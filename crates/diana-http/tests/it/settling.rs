//! What a response says about its cost is charged, and the client does not see it.

use crate::support::{client, filter, get, passed};
use diana_http::Filter;
use http::Response;
use http_body_util::Empty;

const RULES: &str = "rules:
  - {name: tokens, limit: 1000/h, cost: 10}
  - {name: rows, by: ip, limit: 500/h, cost: 10}
  - {name: requests, limit: 100/h}
";

/// What is left of each limit after a request whose response has these costs in its head.
fn left_after(costs: &[&str]) -> Vec<u64> {
    let (filter, _) = filter(RULES);
    let mut response = Response::builder();
    for cost in costs {
        response = response.header("x-diana-cost", *cost);
    }
    let response = passed(filter.check(&get("/"), client())).answer(response.body(Empty::<&[u8]>::new()).unwrap());
    assert!(!response.headers().contains_key("x-diana-cost"));
    drop(response);
    left(&filter)
}

fn left(filter: &Filter) -> Vec<u64> {
    let request = get("/");
    let explained = crate::support::now(filter.engine().explain(&diana_http::HttpAttributes::of(&request, client())));
    explained.rules.iter().flat_map(|rule| rule.limits.iter().map(|(_, answer)| answer.standing.remaining)).collect()
}

#[test]
fn costs_are_for_every_rule_with_a_cost_or_for_one_by_its_name() {
    for (costs, left) in [
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
        // What can't be read is nothing.
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
        assert_eq!(left_after(costs), left, "{costs:?}");
    }
}

#[test]
fn the_client_is_told_what_is_left_afterwards() {
    let (filter, _) = filter("rules: [{name: tokens, limit: 1000/h, cost: 10}]");
    for (cost, left) in [("250", "r=750"), ("3", "r=747"), ("2000", "r=0")] {
        let response = Response::builder().header("x-diana-cost", cost).body(Empty::<&[u8]>::new()).unwrap();
        let response = passed(filter.check(&get("/"), client())).answer(response);
        let told = response.headers()["ratelimit"].to_str().unwrap();
        assert!(told.contains(&format!(";{left};")), "{cost}: {told}");
    }
}

#[test]
fn a_cost_that_no_rule_is_about_is_taken_out_too() {
    let (filter, _) = filter("rules: [{name: a, match: {path: /b}, limit: 1/s}]");
    let response = Response::builder().header("x-diana-cost", "5").body(Empty::<&[u8]>::new()).unwrap();
    assert!(passed(filter.check(&get("/"), client())).answer(response).headers().is_empty());
}
