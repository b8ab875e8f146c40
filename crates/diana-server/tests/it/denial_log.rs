//! Who is limited, as the logs and the admin API of the running program say it.

use crate::support::client::{get, get_with};
use crate::support::program::{Diana, LONG};
use diana_testing::wait_until;
use rustix::process::Signal;
use serde_json::Value;

/// Returns the lines of the access log, once there are this many.
fn access_log(diana: &Diana, count: usize) -> Vec<Value> {
    let lines = || {
        let output = diana.output();
        let lines = output.lines().filter(|line| line.starts_with("{\"time\""));
        let lines = lines.map(|line| serde_json::from_str(line).unwrap()).collect::<Vec<_>>();
        (lines.len() == count).then_some(lines)
    };
    wait_until("the access log", LONG, lines).unwrap_or_else(|error| panic!("{error}\n{}", diana.output()))
}

/// Returns the lines of the program's log that contain a text, once there are this many.
fn logged(diana: &Diana, text: &str, count: usize) -> Vec<String> {
    let lines = || {
        let output = diana.output();
        let lines = output.lines().filter(|line| line.contains(text)).map(str::to_owned).collect::<Vec<_>>();
        (lines.len() >= count).then_some(lines)
    };
    wait_until("the log", LONG, lines).unwrap_or_else(|error| panic!("{error}\n{}", diana.output()))
}

fn json(diana: &Diana, path: &str) -> Value {
    let response = diana.admin(path);
    assert_eq!(response.status, 200, "{}", response.text());
    serde_json::from_str(&response.text()).unwrap()
}

#[test]
fn a_denial_names_its_rule_and_key() {
    let diana = Diana::serve(
        "gateway: {listen: $LISTEN, echo: true, access_log: json}
rules:
  - {name: each-account, by: header(x-account), limit: 2/h, status: 429}
  - {name: watched, by: header(x-account), limit: 1/h, shadow: true, log: warn}
  - {name: listed, by: header(x-account), limit: 9/h, deny: [mallory], log: error}
",
    );
    let headers = "x-account: alice\r\nx-request-id: r-1\r\ntraceparent: 00-ab-cd-01\r\n";
    let responses = [(); 4].map(|()| get_with(diana.port(), "/a?secret=1", headers));
    let echoed = responses[0].text();
    assert!(echoed.contains("r-1") && echoed.contains("00-ab-cd-01"), "the upstream gets both: {echoed}");
    let lines = access_log(&diana, 4);
    let denied = lines.iter().filter(|line| line["status"] == 429).collect::<Vec<_>>();
    assert_eq!(denied.len(), 2, "{lines:?}");
    for line in denied {
        assert_eq!((&line["rule"], &line["key"]), (&"each-account".into(), &"alice".into()));
        assert!(line["retry_after_ms"].as_f64().unwrap() > 1_000_000.0, "{line}");
        assert_eq!((&line["request_id"], &line["traceparent"]), (&"r-1".into(), &"00-ab-cd-01".into()));
    }
    let shadow = lines.iter().filter(|line| line["shadow"].is_array()).collect::<Vec<_>>();
    let [shadow] = shadow[..] else { panic!("one would be denied by the shadow rule: {lines:?}") };
    assert_eq!(shadow["shadow"], serde_json::json!([{"rule": "watched", "key": "alice"}]));
    assert_eq!(shadow["status"], 200);

    let denied = logged(&diana, "denied rule=", 1);
    assert_eq!(denied.len(), 1, "of each key one denial is logged: {denied:?}");
    for part in
        ["INFO", "rule=\"each-account\"", "key=\"alice\"", "client=127.0.0.1", "path=\"/a\"", "service=\"gateway\""]
    {
        assert!(denied[0].contains(part), "{part}: {denied:?}");
    }
    get_with(diana.port(), "/", "x-account: mallory\r\n");
    let listed = logged(&diana, "rule=\"listed\"", 1);
    assert!(
        listed[0].contains("ERROR")
            && listed[0].contains("key=\"mallory\"")
            && listed[0].contains("reason=\"listed in `deny`\""),
        "{listed:?}"
    );
    let shadow = logged(&diana, "would be denied (shadow rule)", 1);
    assert!(shadow[0].contains("WARN") && shadow[0].contains("rule=\"watched\""), "{shadow:?}");
}

#[test]
fn keys_are_hashed_or_left_out() {
    let rules = "rules: [{name: each-key, by: header(x-key), limit: 1/h, status: 429}]\n";
    for mode in ["hashed", "off"] {
        let diana = Diana::serve(&format!(
            "log_keys: {mode}\ngateway: {{listen: $LISTEN, echo: true, access_log: json}}\n{rules}"
        ));
        for key in ["alice", "alice", "alice", "bob", "bob"] {
            get_with(diana.port(), "/", &format!("x-key: {key}\r\n"));
        }
        let lines = access_log(&diana, 5);
        let denied = lines.iter().filter(|line| line["status"] == 429).map(|line| &line["key"]).collect::<Vec<_>>();
        logged(&diana, "denied rule=", 2);
        let output = diana.output();
        assert!(!output.contains("alice") && !output.contains("bob"), "{output}");
        match mode {
            "hashed" => {
                // The order of lines of different workers is undefined.
                let counts = denied.iter().map(|key| denied.iter().filter(|other| *other == key).count());
                assert_eq!((denied.len(), counts.clone().max(), counts.min()), (3, Some(2), Some(1)), "{denied:?}");
            }
            _ => assert!(denied.iter().all(|key| key.is_null()), "{denied:?}"),
        }
    }
}

#[test]
fn another_limit_of_a_rule_with_several_is_estimated() {
    let diana = Diana::serve(
        "gateway: {listen: $LISTEN, echo: true}
rules:
  - {name: each-account, by: header(x-account), limit: [1000/s, 5/h], status: 429}
  - {name: mixed, limit: [1000/s, {rate: 500/h, algorithm: sliding_log}]}
",
    );
    for _ in 0..25 {
        get_with(diana.port(), "/", "x-account: alice\r\n");
    }
    let estimated = |query: &str| {
        let estimate = json(&diana, &format!("/what-if?rule=each-account&{query}"));
        (estimate["index"].as_u64(), estimate["now"].clone(), estimate["would_deny"].as_u64())
    };
    assert_eq!(estimated("limit=10/h"), (Some(2), "5/h".into(), Some(15)));
    assert_eq!(estimated("limit=2000/s"), (Some(1), "1000/s".into(), Some(20)));
    assert_eq!(estimated("limit=10/day&index=2"), (Some(2), "5/h".into(), Some(15)));
    let lower = json(&diana, "/what-if?rule=each-account&limit=3/h");
    let shadow =
        "  - {name: each-account-3-h, by: header(x-account), limit: [1000/s, 3/h], status: 429, shadow: true}\n";
    assert_eq!((&lower["would_deny"], &lower["shadow_rule"]), (&22.into(), &shadow.into()));
    let text = |query: &str| {
        let response = diana.admin(&format!("/what-if?rule={query}"));
        assert_eq!(response.status, 400, "{}", response.text());
        response.text()
    };
    assert!(text("each-account&limit=10/day").contains("1 is 1000/s, 2 is 5/h"));
    assert!(text("each-account&limit=10/h&index=3").contains("1 is 1000/s, 2 is 5/h"));
    assert!(text("mixed&limit=10/h").contains("sliding_log"));
}

#[test]
fn the_heaviest_keys_are_listed_and_can_be_reset() {
    let diana = Diana::serve(
        "gateway: {listen: $LISTEN, echo: true}
rules:
  - {name: each-account, by: [header(x-account), ip], limit: 5/h, status: 429}
  - {name: quiet, by: header(x-quiet), limit: 5/h}
  - {name: closed, match: {path: /closed}, limit: 1/h}
",
    );
    for (account, requests) in [("alice", 25), ("bob", 8), ("carol", 2)] {
        for _ in 0..requests {
            get_with(diana.port(), "/", &format!("x-account: {account}\r\n"));
        }
    }
    let top = json(&diana, "/top");
    assert_eq!(top["window"], "minute");
    let rules = top["rules"].as_array().unwrap();
    assert_eq!(rules.len(), 1, "a rule without requests is not listed: {top}");
    let denied = &rules[0]["denied"];
    assert_eq!((&denied["total"], &denied["max_error"]), (&23.into(), &0.into()));
    let since = denied["keys"][0]["since"].as_str().unwrap();
    let now = denied["keys"][1]["since"].as_str().unwrap();
    assert!(since <= now && since.starts_with("20") && since.ends_with('Z'), "{since} {now}");
    assert_eq!(
        denied["keys"][0],
        serde_json::json!({"key": ["alice", "127.0.0.1"], "text": "alice, 127.0.0.1", "count": 20, "since": since})
    );
    assert_eq!(rules[0]["allowed"]["total"], 12);
    let _ = (get(diana.port(), "/closed"), get(diana.port(), "/closed"));
    let closed = json(&diana, "/top?rule=closed");
    let everyone = &closed["rules"][0]["denied"]["keys"][0];
    assert_eq!(
        (&everyone["key"], &everyone["text"], &everyone["count"]),
        (&serde_json::json!([]), &"everyone".into(), &1.into())
    );
    let found = json(&diana, "/top?find=BOB&window=hour");
    assert_eq!(found["rules"][0]["denied"]["keys"].as_array().unwrap().len(), 1, "{found}");
    assert_eq!(json(&diana, "/top?find=nobody")["rules"], serde_json::json!([]));
    assert_eq!(json(&diana, "/top?rule=quiet")["rules"][0]["denied"]["total"], 0);

    let peek = json(&diana, "/peek?rule=each-account&key=alice&key=127.0.0.1");
    assert_eq!(peek["limits"][0]["remaining"], 0);
    let what_if = json(&diana, "/what-if?rule=each-account&limit=10/h");
    assert_eq!((&what_if["denied"], &what_if["would_deny"]), (&23.into(), &15.into()), "{what_if}");
    assert_eq!(what_if["index"], 1);
    for (path, status) in [
        ("/top?rule=none", 404),
        ("/top?window=day", 400),
        ("/what-if?rule=none&limit=1/s", 404),
        ("/what-if?rule=quiet&limit=often", 400),
        ("/what-if?rule=quiet", 400),
        ("/what-if?rule=each-account&limit=1/s&index=2", 400),
        ("/what-if?rule=each-account&limit=1/s&index=0", 400),
    ] {
        assert_eq!(diana.admin(path).status, status, "{path}");
    }
    assert_eq!(diana.metric("diana_top_key_share{rule=\"each-account\"}"), 20.0 / 23.0);
}

#[test]
fn without_top_keys_nothing_is_listed() {
    let diana =
        Diana::serve("top_keys: off\ngateway: {listen: $LISTEN, echo: true}\nrules: [{name: a, by: ip, limit: 1/h}]\n");
    let _ = (get(diana.port(), "/"), get(diana.port(), "/"));
    assert_eq!(json(&diana, "/top"), serde_json::json!({"window": "minute", "off": true, "rules": []}));
}

/// As in a container, whose output is a pipe.
#[test]
fn an_access_log_file_may_be_the_pipe_of_standard_output() {
    let diana = Diana::serve(
        "gateway: {listen: $LISTEN, echo: true, access_log: {format: json, file: /dev/stdout}}
rules: [{name: a, limit: 100/s}]
",
    );
    let has_line = |target: &str| diana.output().contains(&format!("\"target\":\"{target}\"")).then_some(());
    get(diana.port(), "/one");
    wait_until("the first line", LONG, || has_line("/one")).unwrap();
    diana.signal(Signal::USR1);
    wait_until("the reopened log", LONG, || diana.output().contains("access log reopened").then_some(())).unwrap();
    get(diana.port(), "/two");
    wait_until("the second line", LONG, || has_line("/two")).unwrap();
}

#[test]
fn an_access_log_file_is_reopened_after_a_signal() {
    let diana = Diana::serve(
        "gateway: {listen: $LISTEN, echo: true, access_log: {format: json, file: $FOLDER/access.log}}
rules: [{name: a, limit: 100/s}]
",
    );
    let (path, renamed) = (diana.folder().join("access.log"), diana.folder().join("access.log.1"));
    let has_line = |path: &std::path::Path, target: &str| {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        text.contains(&format!("\"target\":\"{target}\"")).then_some(())
    };
    get(diana.port(), "/one");
    wait_until("the first line", LONG, || has_line(&path, "/one")).unwrap();
    std::fs::rename(&path, &renamed).unwrap();
    diana.signal(Signal::USR1);
    wait_until("the new file", LONG, || path.exists().then_some(())).unwrap();
    get(diana.port(), "/two");
    wait_until("the second line", LONG, || has_line(&path, "/two")).unwrap();
    assert!(has_line(&renamed, "/two").is_none());
    assert!(!diana.output().contains("\"target\""), "nothing on standard output: {}", diana.output());
}
