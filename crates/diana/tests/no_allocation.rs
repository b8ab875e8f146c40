//! A request allocates no memory if no matching rule has an expression, and there are at most sixteen limits.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that can't go on should stop")]

#[allow(dead_code, reason = "only a part is used")]
#[path = "it/support.rs"]
mod support;

use diana::rules::{Attribute, Attributes};
use std::borrow::Cow;
use std::net::IpAddr;
use support::{engine, now};

#[global_allocator]
static ALLOCATOR: dhat::Alloc = dhat::Alloc;

/// A request as a gateway has it.
struct Request {
    path: &'static str,
}

impl Attributes for Request {
    fn get(&self, attribute: &Attribute) -> Option<Cow<'_, str>> {
        match attribute {
            Attribute::Path => Some(self.path.into()),
            Attribute::Host => Some("api.example.com".into()),
            Attribute::Method => Some("GET".into()),
            Attribute::Header(name) => Some(if &**name == "x-plan" { "free" } else { "alice" }.into()),
            _ => None,
        }
    }

    fn ip(&self) -> Option<IpAddr> {
        Some([203, 0, 113, 7].into())
    }
}

fn main() {
    a_request_allocates_nothing();
}

fn a_request_allocates_nothing() {
    let (engine, clock) = engine(
        "identity: {account: header(x-account-id)}
rules:
  - {name: everyone, limit: 1000000/s}
  - {name: account, by: account, limit: [1000000/s, 10000000/h], overrides: {vip: 5/s}}
  - {name: pair, by: [account, ip/24], match: {path: '/users/{id}/**', method: [GET]}, limit: 1000000/s}
  - {name: user, by: 'param(id)', match: {path: '/users/{id}/**', host: '*.example.com'}, limit: 1000000/s, allow: [10.0.0.0/8]}
  - {name: plan, by: ip, match: {header: {x-plan: free}}, limit: 1000000/s, algorithm: sliding_window, deny: [192.0.2.0/24]}
  - {name: permits, by: ip, concurrent: 5, wait: 2s}
  - {name: one, by: ip, limit: 1000001/s}
  - {name: two, by: ip, limit: 1000002/s}
  - {name: three, by: ip, limit: 1000003/s}
  - {name: four, by: account, limit: 1000004/s}
  - {name: five, by: account, limit: 1000005/s}
  - {name: six, by: account, limit: 1000006/s}
  - {name: seven, by: account, limit: 1000007/s}
  - {name: eight, by: ip/24, limit: 1000008/s}
  - {name: nine, by: ip/24, limit: 1000009/s}
  - {name: busy, load: {cpu: 90%, connections: 100}}
",
    );
    let request = Request { path: "/users/7/orders" };
    let run = || {
        let permit = now(engine.acquire(&request)).unwrap();
        assert_eq!(permit.checked_limits().count(), 16);
        now(permit.finish());
    };
    let _profiler = dhat::Profiler::builder().testing().build();
    // The first requests allocate: their keys, and the pools.
    for _ in 0..10 {
        run();
    }
    let before = dhat::HeapStats::get();
    for _ in 0..1_000 {
        run();
        clock.advance(std::time::Duration::from_micros(10));
    }
    let after = dhat::HeapStats::get();
    assert_eq!(after.total_blocks - before.total_blocks, 0, "blocks allocated by a thousand requests");
}
