//! A key that is there more than once.

use crate::support::{client, filter, now};
use diana_http::{Checked, Filter};
use http::Request;

fn passes(filter: &Filter, request: &Request<()>) -> bool {
    let Checked::Pass(mut pass) = now(filter.check(request, client())) else { return false };
    pass.begin();
    true
}

/// Makes a request of a number.
type Way<'a> = &'a dyn Fn(u32) -> Request<()>;

#[test]
fn nobody_gets_new_keys_by_adding_values() {
    for real_first in [true, false] {
        let order =
            |n: u32| if real_first { ["real".into(), format!("r{n}")] } else { [format!("r{n}"), "real".into()] };
        let by_query = |n| Request::get(format!("/?k={}", order(n).join("&k="))).body(()).unwrap();
        let by_semicolon = |n| Request::get(format!("/?k=real;r{n}")).body(()).unwrap();
        let by_cookie =
            |n| Request::get("/").header("cookie", format!("k={}", order(n).join("; k="))).body(()).unwrap();
        let by_header = |n| {
            let [first, second] = order(n);
            Request::get("/").header("k", first).header("k", second).body(()).unwrap()
        };
        let ways: [(&str, Way<'_>); 4] =
            [("query", &by_query), ("query", &by_semicolon), ("cookie", &by_cookie), ("header", &by_header)];
        for (by, request) in ways {
            let (filter, _) = filter(&format!("rules: [{{name: each, by: {by}(k), limit: 1/h}}]"));
            let passed = (0..10).filter(|n| passes(&filter, &request(*n))).count();
            assert_eq!(passed, 1, "{by}, real first: {real_first}");
        }
    }
}

#[test]
fn the_same_value_twice_is_one_value() {
    let (filter, _) = filter("rules: [{name: each, by: query(k), limit: 1/h}]");
    let twice = Request::get("/?k=real&k=re%61l").body(()).unwrap();
    let (once, other) = (crate::support::get("/?k=real"), crate::support::get("/?k=other"));
    assert_eq!([&twice, &once, &other].map(|request| passes(&filter, request)), [true, false, true]);
}
