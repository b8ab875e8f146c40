//! The admin server, called over TCP: its reports, its changes, and the requests that it rejects.

use crate::support::{LIMIT, Server, tokens};
use diana_admin::{AdminSection, AdminToken, AdminTokens, ReportSources, Role};
use diana_config::{Apply, Sources};
use diana_metrics::Outcome;
use diana_rules::{Document, Problems, Secret};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const RULES: &str = "
rules:
  - {name: each-account, by: account, limit: 3/h, status: 429, overrides: {vip: 9/h}}
  - {name: both, by: [account, ip], match: {path: /both}, limit: 5/h}
  - {name: exports, by: account, match: {path: /exports}, concurrent: 2}
  - {name: quiet, by: ip, match: {path: /quiet/**}, limit: 1/h, shadow: true}
";

#[tokio::test]
async fn reports_health_and_readiness() {
    let server = Server::start(RULES).await;
    assert_eq!((server.get("/healthz").await.status, &*server.get("/healthz").await.body), (200, "ok\n"));
    let response = server.get("/readyz").await;
    assert_eq!((response.status, &*response.body), (503, "starting\n"));
    server.readiness.ready();
    let response = server.get("/readyz").await;
    assert_eq!((response.status, &*response.body), (200, "ready\n"));
    server.readiness.stopping();
    let response = server.get("/readyz").await;
    assert_eq!((response.status, &*response.body), (503, "stopping\n"));
    assert_eq!(server.get("/healthz").await.status, 200);
}

#[tokio::test]
async fn the_page_uses_and_allows_no_other_origin() {
    let server = Server::start(RULES).await;
    let page = server.get("/").await;
    assert_eq!(page.status, 200);
    assert!(page.has("content-type: text/html; charset=utf-8"), "{}", page.head);
    assert!(page.head.contains("frame-ancestors 'none'") && page.head.contains("default-src 'none'"), "{}", page.head);
    assert!(page.has("x-content-type-options: nosniff") && page.has("cache-control: no-store"), "{}", page.head);
    let (mut parts, mut next) = (vec!["/page.css".to_owned(), "/page.js".to_owned()], 0);
    while let Some(path) = parts.get(next).cloned() {
        next += 1;
        let part = server.get(&path).await;
        assert_eq!(part.status, 200, "{path}");
        for text in [&page.body, &part.body] {
            let external = text.replace("http://www.w3.org/2000/svg", "").replace("http://127.0.0.1:8080/", "");
            assert!(!external.contains("http://") && !external.contains("https://"), "resources of another origin");
        }
        for parser in ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("] {
            assert!(!part.body.contains(parser), "{path}: texts are never parsed as HTML");
        }
        // Modules that this one imports; those of a module are beside it.
        let imports = part.body.lines().filter_map(|line| line.split_once(" from './")?.1.split_once('\''));
        let imported = imports.map(|(name, _)| format!("/page/{}", name.trim_start_matches("page/")));
        let new = imported.filter(|path| !parts.contains(path)).collect::<Vec<_>>();
        parts.extend(new);
    }
    assert_eq!(parts.len(), 14, "{parts:?}");
    assert_eq!(server.get("/page/other.js").await.status, 404);
    assert!(!page.body.contains("style=") && !page.body.contains("onclick"), "no inline style, no inline script");
}

#[tokio::test]
async fn describes_active_rules_with_their_counts() {
    let server = Server::start(RULES).await;
    for _ in 0..4 {
        server.decide("alice").await;
    }
    let report = server.get("/rules").await.json();
    assert_eq!((&report["total"], &report["found"]), (&json!(4), &json!(4)));
    let rule = &report["rules"][0];
    assert_eq!(
        (&rule["name"], &rule["by"], &rule["shadow"]),
        (&json!("each-account"), &json!("account"), &json!(false))
    );
    assert_eq!(
        (&rule["limit"], &rule["beyond"]),
        (&json!("3 an hour, up to 3 at once: at most 6 in any hour"), &json!("denied with 429"))
    );
    assert_eq!((&rule["counts"]["allowed"], &rule["counts"]["denied"]), (&json!(3), &json!(1)));
    assert_eq!(report["rules"][3]["shadow"], true);

    let found = server.get("/rules?find=BOTH").await.json();
    assert_eq!((&found["total"], &found["found"], &found["rules"][0]["name"]), (&json!(4), &json!(1), &json!("both")));
    let page = server.get("/rules?offset=1&limit=2").await.json();
    let names = page["rules"].as_array().unwrap().iter().map(|rule| rule["name"].as_str().unwrap());
    assert_eq!(names.collect::<Vec<_>>(), ["both", "exports"]);
    let text = server.send("GET", "/rules?find=each", &[("accept", "text/plain")], "").await;
    assert!(
        text.body.starts_with("each-account: each account, all requests: 3 an hour, up to 3 at once"),
        "{}",
        text.body
    );
}

#[tokio::test]
async fn explain_does_not_charge() {
    let server = Server::start(RULES).await;
    let path = "/explain?method=POST&path=/both?x=1&ip=203.0.113.7&account=alice&header=x-a:%20b";
    for _ in 0..5 {
        let report = server.get(path).await.json();
        assert_eq!((&report["granted"], &report["rules"][1]["about"]), (&json!(true), &json!(true)));
        assert_eq!(
            report["rules"][1]["limits"],
            json!([{"name": "both", "limit": 5, "remaining": 5, "used": 0, "grants": true, "wait": 0.0}])
        );
        assert_eq!(report["rules"][2]["about"], false);
    }
    while server.decide("alice").await {}
    let report = server.get(path).await.json();
    assert_eq!((&report["granted"], &report["denied_by"]), (&json!(false), &json!(["each-account"])));
    let text = server.send("GET", path, &[("accept", "text/plain")], "").await;
    assert!(text.body.ends_with("=> denied by `each-account`\n"), "{}", text.body);
    let body = r#"{"path": "/", "account": "bob", "header": ["x-a: b", "x-c: d"]}"#;
    assert_eq!(server.post("/explain", body).await.json()["granted"], true);
    for (invalid, detail) in [
        ("/explain?path=login", "invalid `path`: expected a leading `/`, as in `/login?x=1`"),
        ("/explain?ip=localhost", "invalid `ip` `localhost`: expected an address"),
        ("/explain?header=x", "invalid `header` `x`: expected `name:value`"),
        (
            "/explain?adress=1",
            "unknown parameter `adress`, expected one of method, path, ip, host, header, account, set",
        ),
        ("/explain?path=/a&path=/b", "duplicate parameter `path`"),
    ] {
        let response = server.get(invalid).await;
        assert_eq!((response.status, &*response.detail()), (400, detail));
    }
}

#[tokio::test]
async fn explain_parses_requests_like_the_gateway() {
    let rules = "gateway: {methods: {any_case: allow}}\n\
                 rules: [{name: login, match: {path: /login, method: POST}, by: resource, limit: 1/h}]";
    let server = Server::start(rules).await;
    for path in ["/%6Cogin", "/login;v=1", "//login", "/%2flogin"] {
        let report = server.post("/explain", &json!({"path": path, "method": "post"}).to_string()).await.json();
        assert_eq!(
            (&report["rules"][0]["about"], &report["rules"][0]["key"]),
            (&json!(true), &json!("/login")),
            "{path}"
        );
        assert_eq!(report.get("rejected"), None, "{path}");
    }
    let report = server.get("/explain?path=/x/../login").await.json();
    let rejected = json!({"status": 400, "detail": "the path contains a `.` or `..` segment"});
    assert_eq!(report, json!({"granted": false, "denied_by": [], "rejected": rejected, "rules": []}));
    let text = server.send("GET", "/explain?path=/x/../login", &[("accept", "text/plain")], "").await;
    assert_eq!(text.body, "=> answered with 400: the path contains a `.` or `..` segment\n");
    let invalid = server.post("/explain", r#"{"path": "/a\u0001b"}"#).await;
    assert_eq!((invalid.status, &*invalid.detail()), (400, "invalid path `/a\u{1}b`: a client cannot send it"));
}

/// A key on `deny` is denied, and one on `allow` is not counted, whatever their counts are.
#[tokio::test]
async fn reports_listed_keys() {
    let server = Server::start(
        "rules:\n\
         - {name: each-account, by: account, limit: 1/h, deny: [mallory], allow: [vip]}\n\
         - {name: each-client, by: ip, limit: 1/h, deny: 203.0.113.0/24}\n",
    )
    .await;
    let peek = async |rule: &str, key: &str| {
        let report = server.get(&format!("/peek?rule={rule}&key={key}")).await.json();
        (report["listed"].clone(), report["limits"][0]["grants"].clone(), report["counted"].clone())
    };
    assert_eq!(peek("each-account", "mallory").await, (json!("deny"), json!(false), json!("here")));
    assert_eq!(peek("each-client", "203.0.113.7").await, (json!("deny"), json!(false), json!("here")));
    assert_eq!(peek("each-account", "alice").await, (json!(null), json!(true), json!("here")));
    let report = server.post("/charge?rule=each-account&key=vip", "").await.json();
    assert_eq!((&report["listed"], &report["limits"][0]["grants"]), (&json!("allow"), &json!(true)));
    assert_eq!((&report["limits"][0]["remaining"], report["limits"][0].get("retry_after")), (&json!(0), None));
}

#[tokio::test]
async fn reports_fallback_counts() {
    let mut redis = diana_testing::RedisServer::start().unwrap();
    let server = Server::start(&format!(
        "store: {{redis: '{}', timeout: 20s}}\nrules: [{{name: all, by: account, limit: 5/h}}, {{name: own, by: account, limit: 9/h, store: local}}]",
        redis.url()
    ))
    .await;
    let counted = async |rule: &str| server.get(&format!("/peek?rule={rule}&key=a")).await.json()["counted"].clone();
    assert_eq!((counted("all").await, counted("own").await), (json!("shared"), json!("here")));
    redis.kill().unwrap();
    assert_eq!((counted("all").await, counted("own").await), (json!("fallback"), json!("here")));
}

#[tokio::test]
async fn rejects_attributes_derived_by_identity() {
    let server =
        Server::start("identity: {account: header(x-account)}\nrules: [{name: a, by: account, limit: 1/h}]").await;
    for parameter in ["account=alice", "set=account%3Dalice"] {
        let response = server.get(&format!("/explain?{parameter}")).await;
        let detail =
            "`account` is derived from the request by `identity` of the rule file: set its source, such as `header`";
        assert_eq!((response.status, &*response.detail()), (400, detail));
    }
    let report = server.get("/explain?header=x-account:alice").await.json();
    assert_eq!(report["rules"][0]["key"], "alice");
}

#[tokio::test]
async fn peeks_and_changes_single_keys() {
    let server = Server::start(RULES).await;
    while server.decide("alice").await {}
    let alice = "rule=each-account&key=alice";
    let report = server.get(&format!("/peek?{alice}")).await.json();
    assert_eq!(
        (&report["rule"], &report["key"], &report["counted"]),
        (&json!("each-account"), &json!(["alice"]), &json!("here"))
    );
    let limit = &report["limits"][0];
    assert_eq!((&limit["remaining"], &limit["limit"], &limit["grants"]), (&json!(0), &json!(3), &json!(false)));
    assert_eq!(limit["used"], 3);
    let retry = limit["retry_after"].as_f64().unwrap();
    assert!(retry > 0.0 && retry <= 1200.0, "{retry}");

    let remaining = |report: serde_json::Value| report["limits"][0]["remaining"].as_u64().unwrap();
    assert_eq!(remaining(server.post(&format!("/refund?{alice}&cost=2"), "").await.json()), 2);
    assert_eq!(remaining(server.post("/charge", r#"{"rule": "each-account", "key": "alice"}"#).await.json()), 1);
    assert!(server.decide("alice").await);
    assert!(!server.decide("alice").await);
    assert_eq!(remaining(server.post(&format!("/reset?{alice}"), "").await.json()), 3);
    assert!(server.decide("alice").await);
    assert_eq!(remaining(server.get("/peek?rule=each-account&key=vip").await.json()), 9);
    assert_eq!(remaining(server.get("/peek?rule=both&key=alice&key=203.0.113.7").await.json()), 5);
    let both = r#"{"rule": "both", "key": ["alice", "203.0.113.7"], "cost": 4}"#;
    assert_eq!(remaining(server.post("/charge", both).await.json()), 1);
}

#[tokio::test]
async fn reports_invalid_requests() {
    let server = Server::start(RULES).await;
    for (method, path, status, detail) in [
        ("GET", "/peek", 400, "missing parameter `rule`"),
        ("GET", "/peek?rule=unknown", 404, "unknown rule `unknown`"),
        ("GET", "/peek?rule=each-account", 400, "missing key; expected one value: `each-account` counts by account"),
        (
            "POST",
            "/refund?rule=each-account&key=a&cost=0",
            400,
            "invalid cost 0: a request takes at least 1 permit; use peek to read without taking",
        ),
        ("POST", "/refund?rule=each-account&key=a&cost=-1", 400, "invalid `cost` `-1`: expected a whole number"),
        (
            "POST",
            "/refund?rule=exports&key=a",
            409,
            "`exports` can't be refunded: its permits are released when their requests finish; to release them now, reset the key",
        ),
        ("POST", "/reset?rule=each-account&key=a&cost=1", 400, "unknown parameter `cost`, expected one of rule, key"),
    ] {
        let response = server.send(method, path, &[], "").await;
        assert_eq!((response.status, &*response.detail()), (status, detail), "{method} {path}");
    }
    let body = server.post("/reset", "{\"rule\": {}}").await;
    assert!(
        body.status == 400 && body.detail().starts_with("invalid body: expected a JSON object of strings"),
        "{body:?}"
    );
    let nothing = server.get("/nothing").await;
    assert!(nothing.status == 404 && nothing.detail().contains("/explain"), "{nothing:?}");
    // Changes are never made by GET.
    for path in ["/reset?rule=each-account&key=a", "/refund?rule=each-account&key=a", "/charge?rule=each-account&key=a"]
    {
        assert_eq!(server.get(path).await.status, 405, "{path}");
    }
}

#[tokio::test]
async fn bodies_and_heads_are_bounded() {
    let server = Server::start(RULES).await;
    let long = "x".repeat(1 << 20);
    let head = format!(
        "POST /reset HTTP/1.1\r\nhost: {}\r\nconnection: close\r\ncontent-length: 1048576\r\n\r\n",
        server.address
    );
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(head.as_bytes()).await.unwrap();
    // The server may respond, and close, before it has read all of it.
    let _ = stream.write_all(long.as_bytes()).await;
    let mut response = vec![0; 12];
    let read = tokio::time::timeout(LIMIT, stream.read_exact(&mut response)).await.unwrap();
    assert!(read.is_err() || response == b"HTTP/1.1 413", "{}", String::from_utf8_lossy(&response));
    assert_eq!(server.get("/healthz").await.status, 200);
    let response = server.send_raw(format!("GET /{long} HTTP/1.1\r\n").get(..100_000).unwrap().as_bytes()).await;
    assert!((400..500).contains(&response.status), "{response:?}");
}

#[tokio::test]
async fn with_a_token_requests_need_it() {
    let server = Server::start_with_token(RULES, "open sesame").await;
    let valid = [("authorization", "Bearer open sesame")];
    let protected = ["/metrics", "/status", "/rules", "/explain", "/peek?rule=each-account&key=a"];
    let invalid = [
        None,
        Some("Bearer open"),
        Some("Bearer open sesame!"),
        Some("Bearer "),
        Some("Bearer"),
        Some("Basic open sesame"),
        Some("open sesame"),
    ];
    for path in protected {
        for invalid in invalid {
            let headers = invalid.map(|invalid| ("authorization", invalid));
            let response = server.send("GET", path, headers.as_slice(), "").await;
            assert_eq!(response.status, 401, "{path} {invalid:?}");
            assert!(response.has("www-authenticate: Bearer realm=\"diana\""), "{}", response.head);
            assert!(!response.body.contains("each-account") && !response.body.contains("sesame"), "{}", response.body);
        }
        assert_eq!(server.send("GET", path, &valid, "").await.status, 200, "{path}");
    }
    for path in ["/reset?rule=each-account&key=a", "/refund?rule=each-account&key=a", "/charge?rule=each-account&key=a"]
    {
        assert_eq!(server.post(path, "").await.status, 401, "{path}");
        assert_eq!(server.send("POST", path, &valid, "").await.status, 200, "{path}");
    }
    // These contain no secrets; and a client with the token may use any host name.
    for path in ["/", "/page.js", "/page.css", "/healthz"] {
        assert_eq!(server.get(path).await.status, 200, "{path}");
    }
    let named = [valid[0], ("host", "diana.example.com")];
    assert_eq!(server.send("GET", "/rules", &named, "").await.status, 200);
}

/// Everything that changes nothing is permitted by the role `read`, and nothing else.
#[tokio::test]
async fn a_token_permits_what_its_role_says() {
    let server = Server::start_with(RULES, |state| {
        let token = |name: &str, role| AdminToken::new(name, Secret::new(format!("{name}-token")), role);
        state.tokens = tokens([token("alice", Role::Operate), token("grafana", Role::Read)]);
        state.reload = Some(Arc::new(|| Box::pin(std::future::ready(()))));
    })
    .await;
    let as_client = async |method: &str, path: &str, name: &str| {
        server.send(method, path, &[("authorization", &format!("Bearer {name}-token"))], "").await
    };
    for path in
        ["/metrics", "/status", "/rules", "/rule?name=both", "/changes", "/audit", "/whoami", "/history", "/top"]
    {
        for name in ["alice", "grafana"] {
            assert_eq!(as_client("GET", path, name).await.status, 200, "{name} {path}");
        }
        assert_eq!(
            (as_client("GET", path, "mallory").await.status, server.get(path).await.status),
            (401, 401),
            "{path}"
        );
    }
    for path in ["/explain?path=/", "/peek?rule=each-account&key=a"] {
        assert_eq!(as_client("POST", path, "grafana").await.status, 200, "{path}");
    }
    let key = "rule=each-account&key=a";
    for path in
        ["/charge", "/refund", "/reset"].map(|path| format!("{path}?{key}")).into_iter().chain(["/reload".into()])
    {
        let denied = as_client("POST", &path, "grafana").await;
        let detail = "this needs the role `operate`; the token of `grafana` has the role `read`";
        assert_eq!((denied.status, &*denied.detail()), (403, detail), "{path}");
        assert_eq!(as_client("POST", &path, "mallory").await.status, 401, "{path}");
        assert_eq!(as_client("POST", &path, "alice").await.status, 200, "{path}");
    }
    let who = async |name: &str| as_client("GET", "/whoami", name).await.json();
    assert_eq!(who("alice").await, json!({"name": "alice", "role": "operate"}));
    assert_eq!(who("grafana").await, json!({"name": "grafana", "role": "read"}));
    let open = Server::start(RULES).await;
    assert_eq!(open.get("/whoami").await.json(), json!({"name": null, "role": "operate"}));
    assert_eq!(open.post("/reload", "").await.detail(), "the rules have no source that can be read again");
}

#[tokio::test]
async fn without_a_token_cross_origin_requests_are_denied() {
    let server = Server::start(RULES).await;
    let host = server.address.to_string();
    // A name that was rebound to this address.
    for host in
        ["evil.example.com", "evil.example.com:9090", "localhost.evil.example.com", "127.0.0.1.evil.example.com", ""]
    {
        for path in ["/", "/rules", "/metrics", "/healthz"] {
            let response = server.send("GET", path, &[("host", host)], "").await;
            assert_eq!(response.status, 421, "{host} {path}");
            assert!(!response.body.contains("each-account"), "{response:?}");
        }
    }
    assert_eq!(server.send_raw(b"GET /rules HTTP/1.0\r\n\r\n").await.status, 421);
    // Only one of the names is checked by a server that reads one of them.
    let own = [("host", &*host), ("host", "evil.example.com")];
    for hosts in [own, [own[1], own[0]], [own[0], own[0]]] {
        assert_eq!(server.send("GET", "/rules", &hosts, "").await.status, 421, "{hosts:?}");
    }
    for (target, status) in [
        ("http://evil.example.com/rules", 421),
        ("http://evil.example.com:9090/rules", 421),
        ("http://127.0.0.1@evil.example.com/rules", 421),
        ("http://evil.example.com@127.0.0.1/rules", 421),
        ("http://localhost:9090/rules", 421),
        (&format!("http://{host}/rules"), 200),
    ] {
        assert_eq!(server.send("GET", target, &[], "").await.status, status, "{target}");
    }
    for host in ["localhost:9090", "127.0.0.1", "[::1]:9090"] {
        assert_eq!(server.send("GET", "/rules", &[("host", host)], "").await.status, 200, "{host}");
    }
    // A form of another origin.
    server.decide("alice").await;
    let path = "/reset?rule=each-account&key=alice";
    let foreign = [
        ("origin", "http://evil.example.com"),
        ("origin", "null"),
        ("origin", "http://127.0.0.1:1"),
        ("sec-fetch-site", "cross-site"),
        ("sec-fetch-site", "same-site"),
    ];
    for header in foreign {
        assert_eq!(server.send("POST", path, &[header], "").await.status, 403, "{header:?}");
    }
    assert_eq!(server.get("/peek?rule=each-account&key=alice").await.json()["limits"][0]["remaining"], 2);
    let origin = format!("http://{host}");
    let same = [("origin", &*origin), ("sec-fetch-site", "same-origin")];
    assert_eq!(server.send("POST", path, &same, "").await.json()["limits"][0]["remaining"], 3);
}

#[tokio::test]
async fn serves_several_requests_on_one_connection() {
    let server = Server::start(RULES).await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    let request = format!("GET /healthz HTTP/1.1\r\nhost: {}\r\n\r\n", server.address);
    for _ in 0..3 {
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut read = Vec::new();
        while !read.ends_with(b"\r\n\r\nok\n") {
            let mut buffer = [0; 1024];
            let length = tokio::time::timeout(LIMIT, stream.read(&mut buffer)).await.unwrap().unwrap();
            assert!(length > 0, "{}", String::from_utf8_lossy(&read));
            read.extend_from_slice(&buffer[..length]);
        }
    }
}

#[tokio::test]
async fn idle_connections_are_closed_for_new_ones() {
    let server = Server::start(RULES).await;
    let mut idle = Vec::new();
    for _ in 0..200 {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(b"GET /healthz HT").await.unwrap();
        idle.push(stream);
    }
    // Over the connection limit: the oldest are closed at once for later ones, not only when their time is up.
    assert_eq!(server.get("/healthz").await.status, 200);
    let open = &mut idle[100];
    open.write_all(format!("TP/1.1\r\nhost: {}\r\nconnection: close\r\n\r\n", server.address).as_bytes())
        .await
        .unwrap();
    let mut response = String::new();
    tokio::time::timeout(LIMIT, open.read_to_string(&mut response)).await.unwrap().unwrap();
    assert!(response.starts_with("HTTP/1.1 200"), "{response}");
    let first = tokio::time::timeout(LIMIT, idle[0].read(&mut [0; 16])).await.unwrap();
    assert!(first.map_or(true, |length| length == 0), "the oldest is closed");
}

#[tokio::test]
async fn status_reports_counts_and_sources() {
    struct Accept;
    impl Apply for Accept {
        fn apply(&self, local: Option<&Document>, _: Option<&Document>) -> Result<(), Problems> {
            diana_rules::RuleFile::read(local.unwrap(), &diana::registry()).map(drop)
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("diana.yaml");
    std::fs::write(&path, RULES).unwrap();
    let running = Arc::new(Sources::new().local(&path).start(Arc::new(Accept)).await.unwrap());
    let report: ReportSources = Arc::new({
        let running = Arc::clone(&running);
        move || running.status()
    });
    let server = Server::start_with(RULES, |state| state.sources = Some(report)).await;
    server.decide("alice").await;
    server.metrics.shard(0).request(Outcome::Forwarded, Duration::from_millis(2));
    server.metrics.shard(1).request(Outcome::Forwarded, Duration::from_millis(3));
    server.metrics.shard(1).connection_opened();

    let report = server.get("/status").await.json();
    assert_eq!((&report["phase"], &report["rules"], &report["keys"]), (&json!("starting"), &json!(4), &json!(1)));
    assert_eq!((&report["requests"]["forwarded"], &report["requests"]["denied"]), (&json!(2), &json!(0)));
    assert_eq!((&report["connections"], &report["store"]), (&json!(1), &json!(null)));
    let source = &report["source"];
    assert_eq!((&source["active"], &source["loads"], &source["errors"]), (&json!("local"), &json!(1), &json!(0)));
    assert!(source["name"].as_str().unwrap().ends_with("diana.yaml"), "{source}");

    std::fs::write(&path, "rules: [{name: 'no name', limit: 0/s}]").unwrap();
    running.reload().await;
    let source = &server.get("/status").await.json()["source"];
    assert!(source["errors"].as_u64().unwrap() >= 1, "{source}");
    assert!(source["last_error"]["what"].as_str().unwrap().contains("no name"), "{source}");
}

/// The section of a server with these tokens, which listens on `address`.
fn section(address: &str, tokens: &[(&str, &str)]) -> AdminSection {
    let mut section = AdminSection::default();
    section.listen = vec![address.parse().unwrap()];
    let token = |(name, secret): &(&str, &str)| AdminToken::new(*name, Secret::new(*secret), Role::Operate);
    section.tokens = tokens.iter().map(token).collect();
    section
}

#[tokio::test]
async fn replaced_tokens_apply_to_the_next_request() {
    let tokens = Arc::new(AdminTokens::of(&section("127.0.0.1:1", &[("alice", "one"), ("bob", "two")])));
    let server = Server::start_with(RULES, |state| state.tokens = Arc::clone(&tokens)).await;
    let status = async |token: &str| {
        server.send("GET", "/rules", &[("authorization", &format!("Bearer {token}"))], "").await.status
    };
    assert_eq!((status("one").await, status("two").await), (200, 200));
    let change = tokens.replace(&section("127.0.0.1:1", &[("bob", "three"), ("carol", "four")])).unwrap();
    assert_eq!(change.added, ["carol (operate)"]);
    assert_eq!(
        (change.removed, change.changed),
        (vec!["alice (operate)".to_owned()], vec!["bob (operate)".to_owned()])
    );
    assert_eq!(
        [status("one").await, status("two").await, status("three").await, status("four").await],
        [401, 401, 200, 200]
    );
    assert_eq!(tokens.replace(&section("127.0.0.1:1", &[("bob", "three"), ("carol", "four")])), None);
    // Without tokens, everybody who reaches the loopback address has access, but no other web page.
    tokens.replace(&section("127.0.0.1:1", &[])).unwrap();
    assert_eq!(server.get("/rules").await.status, 200);
    assert_eq!(server.send("GET", "/rules", &[("host", "diana.example.com")], "").await.status, 421);
}

/// The file may listen on a loopback address by now, but the program still listens on the old one.
#[tokio::test]
async fn a_server_that_other_machines_reach_is_never_open() {
    for address in ["0.0.0.0:1", "[::ffff:10.0.0.1]:1"] {
        let tokens = Arc::new(AdminTokens::of(&section(address, &[("alice", "one")])));
        let server = Server::start_with(RULES, |state| state.tokens = Arc::clone(&tokens)).await;
        tokens.replace(&section("127.0.0.1:1", &[])).unwrap();
        assert_eq!((server.get("/rules").await.status, server.get("/healthz").await.status), (401, 200));
        assert_eq!(server.send("GET", "/rules", &[("authorization", "Bearer one")], "").await.status, 401);
        assert_eq!(server.send("GET", "/rules", &[("authorization", "Bearer ")], "").await.status, 401);
    }
}
