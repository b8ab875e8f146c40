//! Alternative spellings of a path, which a rule might not match although the upstream serves the same resource.

use crate::support::client::{get, send_request};
use crate::support::program::{Diana, LONG};
use crate::support::upstream::Upstream;
use diana_testing::{NginxServer, wait_until};

/// Spellings that some server treats as `/login`.
const SPELLINGS: &[&str] = &[
    "/login",
    "/login?x=1",
    "/./login",
    "/a/../login",
    "/a/b/../../login",
    "/../login",
    "/../../../login",
    "//login",
    "///login",
    "/%6cogin",
    "/%6Cogin",
    "/l%6Fg%69n",
    "/%2e/login",
    "/a/%2e%2e/login",
    "/a/%2E./login",
    "/a/.%2e/login",
    "/login;jsessionid=1",
    "/;x/login",
    "/a;x/..;y/login",
    "/a/..;/login",
    "/\\login",
    "/a\\..\\login",
    "\\login",
    "/%2flogin",
    "/%2Flogin",
    "/%5clogin",
    "/login%2f",
    "/x%2f..%2flogin",
    "/x/..%2flogin",
    "/x;%2f..%2flogin",
    "/x%5C..%5Clogin",
    "/login%3bx",
    "/login%3Bx=1",
    "/login;%2fx",
    "/login;\\x",
    "/login;%5cx",
    "/a\\b/../login",
];

#[test]
fn no_spelling_of_a_path_evades_its_rule() {
    let upstream = Upstream::echo();
    let diana = Diana::serve(&format!(
        "gateway: {{listen: $LISTEN, upstream: '{}'}}\n\
         rules:\n\
         - {{name: logins, match: {{path: /login}}, limit: 1/h, status: 429}}\n",
        upstream.url()
    ));
    assert_eq!(get(diana.port(), "/login").status, 200);
    for path in SPELLINGS {
        let status = get(diana.port(), path).status;
        assert!(matches!(status, 429 | 400), "{path} evades the rule: {status}");
    }
    let absolute = "GET http://example.com//%6cogin HTTP/1.1\r\nhost: example.com\r\n\r\n";
    assert_eq!(send_request(diana.port(), absolute).unwrap().status, 429);
    assert_eq!(upstream.count(), 1);
    // Different paths.
    for path in ["/logins", "/login/x", "/a/login", "/a%2Flogin", "/log%2525in", "/%252flogin"] {
        assert_eq!(get(diana.port(), path).status, 200, "{path}");
    }
}

#[test]
fn escaped_slashes_are_forwarded_unless_denied() {
    let upstream = Upstream::echo();
    let file = |paths: &str| {
        let rules =
            "rules: [{name: projects, match: {path: '/projects/{id}'}, by: param(id), limit: 1/h, status: 429}]";
        format!("gateway: {{listen: $LISTEN, upstream: '{}'{paths}}}\n{rules}\n", upstream.url())
    };
    let diana = Diana::serve(&file(""));
    let project = "/projects/group%2fName%5Cx";
    let response = get(diana.port(), project);
    assert_eq!(response.status, 200);
    assert!(response.text().contains(project), "{}", response.text());
    assert_eq!(get(diana.port(), "/projects/group%2FName%5cx").status, 429, "the same project");
    assert_eq!(get(diana.port(), "/projects/other%2Fname").status, 200);

    let diana = Diana::serve(&file(", paths: {escaped_slash: deny}"));
    for path in ["/projects/group%2fname", "/%2F", "/a%5cb", "/a%5Cb"] {
        assert_eq!(get(diana.port(), path).status, 400, "{path}");
    }
    assert_eq!(get(diana.port(), "/projects/group%252fname?next=%2Fa").status, 200);
}

/// A path is exempt only if it is exempt under every interpretation.
#[test]
fn no_spelling_of_an_allowed_path_exempts_another() {
    let diana = Diana::serve(
        "gateway: {listen: $LISTEN}\n\
         rules: [{name: all, by: resource, allow: /health, limit: 1/h, status: 429}]\n",
    );
    for _ in 0..3 {
        assert_eq!(get(diana.port(), "/health").status, 204);
    }
    for path in ["/health;x", "/health%2f", "/%2Fhealth", "/health%3bx"] {
        // They are one resource, whose limit one request has used up.
        let status = get(diana.port(), path).status;
        assert_eq!(status, if path == "/health;x" { 204 } else { 429 }, "{path}");
    }
    for path in ["/health;%2f..%2fzzz", "/health/..%2fzzz"] {
        assert_eq!(get(diana.port(), path).status, 400, "{path}");
    }
}

/// nginx normalizes the decoded path. Every spelling that it treats as `/login` is counted, or is not forwarded.
#[test]
fn no_spelling_reaches_a_real_nginx_uncounted() {
    let nginx = NginxServer::start(|port| {
        format!("server {{ listen 127.0.0.1:{port}; location = /login {{ return 200 login; }} location / {{ return 200 else; }} }}")
    })
    .unwrap();
    let diana = Diana::serve(&format!(
        "gateway: {{listen: $LISTEN, upstream: '{}'}}\n\
         rules: [{{name: logins, match: {{path: /login}}, limit: 1/h, status: 429}}]\n",
        nginx.url()
    ));
    assert_eq!(get(diana.port(), "/login").text(), "login");
    let mut reached = Vec::new();
    for before in ["", "/x/..", "/x%2f..", "/x;", "/x;%2f..", "/%2e", "/.%2f", "/%5c", "\\", "/x%5c.."] {
        for slash in ["/", "//", "%2f", "%2F", "/%2F", "\\", "%5C"] {
            for name in ["login", "%6cogin", "lo%67in"] {
                for after in ["", "/", "%2f", ";", ";x", "%3b", "/.", "%2f.", "/x/..", "%2fx%2f..", "?x"] {
                    let path = format!("{before}{slash}{name}{after}");
                    if !path.starts_with('/') {
                        continue;
                    }
                    if get(nginx.port(), &path).text() == "login" {
                        reached.push(path);
                    }
                }
            }
        }
    }
    assert!(reached.len() > 50, "nginx treats only these as /login: {reached:?}");
    for path in reached {
        let status = get(diana.port(), &path).status;
        assert!(matches!(status, 429 | 400), "{path} evades the rule: {status}");
    }
}

/// A service that matches by prefix treats `/graphql/../x` as its own; a rule that normalizes the path does not.
#[test]
fn rejects_paths_with_dot_segments() {
    let upstream = Upstream::echo();
    let diana = Diana::serve(&format!("gateway: {{listen: $LISTEN, upstream: '{}'}}\nrules: []\n", upstream.url()));
    for path in [
        "/graphql/../x",
        "/graphql/%2e%2e/x",
        "/graphql/..;/x",
        "/graphql/a/../../x",
        "/graphql\\..\\x",
        "/a/./b",
        "/..",
    ] {
        assert_eq!(get(diana.port(), path).status, 400, "{path}");
    }
    assert_eq!(upstream.count(), 0);
    for path in ["/.well-known/x", "/a/...", "/a..b/c."] {
        assert_eq!(get(diana.port(), path).status, 200, "{path}");
    }
}

#[test]
fn all_spellings_of_a_resource_share_one_key() {
    let diana = Diana::serve(
        "gateway: {listen: $LISTEN}\nrules: [{name: each-resource, by: resource, limit: 3/h, status: 429}]\n",
    );
    let statuses: Vec<u16> = SPELLINGS.iter().map(|path| get(diana.port(), path).status).collect();
    assert_eq!(statuses.iter().filter(|status| **status == 204).count(), 3, "{statuses:?}");
    assert_eq!(get(diana.port(), "/elsewhere").status, 204);
}

#[test]
fn no_spelling_of_a_host_evades_its_rule() {
    let diana = Diana::serve(
        "gateway: {listen: $LISTEN}\nrules: [{name: shop, match: {host: shop.example.com}, limit: 1/h, status: 429}]\n",
    );
    let status_of = |line: &str, host: &str| {
        send_request(diana.port(), &format!("{line} HTTP/1.1\r\nhost: {host}\r\n\r\n")).unwrap().status
    };
    assert_eq!(status_of("GET /", "shop.example.com"), 204);
    assert_eq!(status_of("GET /", "SHOP.Example.COM"), 429);
    assert_eq!(status_of("GET /", "shop.example.com:8080"), 429);
    assert_eq!(status_of("GET http://shop.example.com/", "other.example.com"), 429);
    assert_eq!(status_of("GET http://SHOP.example.com:80/", "other.example.com"), 429);
    // The authority takes precedence over `Host`.
    assert_eq!(status_of("GET http://other.example.com/", "shop.example.com"), 204);
    let dot = status_of("GET /", "shop.example.com.");
    assert!(matches!(dot, 429 | 400), "a trailing dot evades the rule: {dot}");
    assert_eq!(status_of("GET /", "shop.example.com:"), 429, "an empty port");
    for port in ["x", "-1", "+1", "80,x", "80:80", "65536", "80 x"] {
        assert_eq!(status_of("GET /", &format!("shop.example.com:{port}")), 400, "{port}");
        assert_eq!(status_of(&format!("GET http://shop.example.com:{port}/"), "shop.example.com"), 400, "{port}");
    }
    for host in ["shop.example.com..", "[::1", "[shop.example.com]", "shop.example.com/x", "a@shop.example.com", ":80"]
    {
        assert_eq!(status_of("GET /", host), 400, "{host}");
    }
}

#[test]
fn logs_the_host_that_rules_match() {
    let diana = Diana::serve(
        "gateway: {listen: $LISTEN, access_log: text}\n\
         rules: [{name: shop, match: {host: shop.example.com}, limit: 1/h, status: 429}]\n",
    );
    let absolute = "GET http://shop.example.com/ HTTP/1.1\r\nhost: other.example.com\r\n\r\n";
    assert_eq!(send_request(diana.port(), absolute).unwrap().status, 204);
    assert_eq!(send_request(diana.port(), absolute).unwrap().status, 429);
    let lines = || {
        let output = diana.output();
        let hosts = output.lines().filter(|line| line.contains("host=\"shop.example.com\"")).count();
        (hosts == 2 && !output.contains("other.example.com")).then_some(())
    };
    wait_until("both lines", LONG, lines).unwrap_or_else(|error| panic!("{error}\n{}", diana.output()));
}

/// Regression: it was 0.0.0.0 for every request that was rejected before the rules.
#[test]
fn logs_the_client_of_a_rejected_request() {
    let diana = Diana::serve("gateway: {listen: $LISTEN, access_log: text}\nrules: []\n");
    assert_eq!(get(diana.port(), "/a/../b").status, 400);
    let line = || {
        let output = diana.output();
        output.lines().find(|line| line.contains("outcome=rejected")).map(ToOwned::to_owned)
    };
    let line = wait_until("its line", LONG, line).unwrap_or_else(|error| panic!("{error}\n{}", diana.output()));
    assert!(line.starts_with("127.0.0.1 "), "{line}");
}

#[test]
fn all_spellings_of_an_ipv6_host_share_one_key() {
    let diana = Diana::serve("gateway: {listen: $LISTEN}\nrules: [{name: each, by: host, limit: 1/h, status: 429}]\n");
    let status_of =
        |host: &str| send_request(diana.port(), &format!("GET / HTTP/1.1\r\nhost: {host}\r\n\r\n")).unwrap().status;
    assert_eq!(status_of("[2001:db8::1]"), 204);
    for host in ["[2001:DB8::1]", "[2001:db8:0:0::1]:80", "[2001:0db8::0001]:"] {
        assert_eq!(status_of(host), 429, "{host}");
    }
    assert_eq!(status_of("[2001:db8::2]"), 204);
}

#[test]
fn no_spelling_of_a_method_evades_its_rule() {
    let diana = Diana::serve(
        "gateway: {listen: $LISTEN}\nrules: [{name: posts, match: {method: POST}, limit: 1/h, status: 429}]\n",
    );
    let status_of = |method: &str| {
        send_request(diana.port(), &format!("{method} / HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n"))
            .unwrap()
            .status
    };
    assert_eq!(status_of("POST"), 204);
    assert_eq!(status_of("POST"), 429);
    assert_eq!(status_of("GET"), 204);
    // Some services treat these as POST, and others do not.
    for method in ["post", "Post", "pOST"] {
        assert_eq!(status_of(method), 400, "{method}");
    }
    assert_eq!(status_of("purge"), 204, "an unregistered method has no other spelling");

    let diana = Diana::serve(
        "gateway: {listen: $LISTEN, methods: {any_case: allow}}\n\
         rules: [{name: posts, match: {method: POST}, limit: 1/h, status: 429}]\n",
    );
    let status_of = |method: &str| {
        send_request(diana.port(), &format!("{method} / HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n"))
            .unwrap()
            .status
    };
    assert_eq!([status_of("post"), status_of("POST"), status_of("Post"), status_of("get")], [204, 429, 429, 204]);
}
