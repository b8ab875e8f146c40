//! The example `own_filter`, started as users start it, with a real upstream; its algorithm; and the page about it.

mod laws;
mod page;

#[path = "../../own_filter/main.rs"]
#[allow(dead_code, reason = "the example's `main`")]
mod example;

use crate::program::Program;
use bytes::Bytes;
use diana_testing::{HttpServer, RedisServer, wait_until};
use http::{Request, Response};
use http_body_util::{BodyExt, Empty};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Stdio;
use std::time::Duration;
use tempfile::NamedTempFile;

/// The rule file of the example.
const RULES: &str = include_str!("../../own_filter/rules.yaml");
/// A timeout for what takes milliseconds.
const LONG: Duration = Duration::from_secs(30);

const ACME: (&str, &str) = ("x-api-key", "the-key-of-acme-1");
const GLOBEX: (&str, &str) = ("x-api-key", "the-key-of-globex");

/// The program, and its address.
struct Gateway {
    program: Program,
    address: String,
    file: NamedTempFile,
}

fn rule_file(text: &str) -> NamedTempFile {
    let mut file = NamedTempFile::with_suffix(".yaml").unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file
}

/// Returns the example's file for a test: on a free port, and with an upstream.
fn rules(upstream: &HttpServer) -> String {
    let upstream = format!("upstream: http://127.0.0.1:{}\n", upstream.port());
    let text = RULES.replace("127.0.0.1:8080", "127.0.0.1:0");
    let text = text
        .lines()
        .map(|line| if line.contains("echo: true") { format!("  {upstream}") } else { format!("{line}\n") });
    text.collect()
}

impl Gateway {
    fn start(text: &str) -> Self {
        Self::start_with(text, Stdio::inherit())
    }

    fn start_with(text: &str, errors: Stdio) -> Self {
        let file = rule_file(text);
        let mut command = Program::of("own_filter");
        command.arg(file.path()).stderr(errors);
        let (program, line) = Program::start(command, |line| line.starts_with("listening on "));
        let address = line.trim_start_matches("listening on [").trim_end_matches(']').to_owned();
        Self { program, address, file }
    }

    async fn send(&self, method: &str, path: &str, headers: &[(&str, &str)]) -> Response<String> {
        let client = Client::builder(TokioExecutor::new()).build_http::<Empty<Bytes>>();
        let mut request = Request::builder().method(method).uri(format!("http://{}{path}", self.address));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (head, body) = client.request(request.body(Empty::new()).unwrap()).await.unwrap().into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        Response::from_parts(head, String::from_utf8(body.to_vec()).unwrap())
    }

    /// Returns the statuses of requests for `/`, one after another.
    async fn statuses(&self, requests: &[&[(&str, &str)]]) -> Vec<u16> {
        let mut statuses = Vec::new();
        for headers in requests {
            statuses.push(self.send("GET", "/", headers).await.status().as_u16());
        }
        statuses
    }
}

fn upstream() -> HttpServer {
    let upstream = HttpServer::start().unwrap();
    upstream.serve("hello");
    upstream
}

#[tokio::test]
async fn the_algorithm_of_the_rule_file_decides() {
    let upstream = upstream();
    let gateway = Gateway::start(&rules(&upstream));
    let code = async |phone: &str| gateway.send("POST", &format!("/codes/{phone}"), &[ACME]).await;
    let first = code("555-1234").await;
    assert_eq!((first.status().as_u16(), first.body().as_str()), (200, "hello"));
    let second = code("555-1234").await;
    assert_eq!(second.status(), 429);
    assert!(second.body().contains(r#""violated-policies":["codes"]"#), "{second:?}");
    assert!(second.headers().contains_key("retry-after"), "{second:?}");
    assert_eq!(code("555-4321").await.status(), 200);
    // A request that the filter denies does not use up another customer's next code.
    for (headers, status) in [(&[][..], 401), (&[], 401), (&[GLOBEX], 200), (&[GLOBEX], 429)] {
        assert_eq!(gateway.send("POST", "/codes/555-9876", headers).await.status(), status);
    }
    assert_eq!(upstream.requests(), 3);
}

#[tokio::test]
async fn the_log_has_no_key() {
    let (upstream, log) = (upstream(), NamedTempFile::new().unwrap());
    let gateway = Gateway::start_with(&rules(&upstream), log.reopen().unwrap().into());
    for status in [200, 429] {
        assert_eq!(gateway.send("POST", "/codes/555-1234", &[ACME]).await.status(), status);
    }
    // The lines are written before the response.
    let log = std::fs::read_to_string(log.path()).unwrap();
    assert!(log.contains(r#"rule="codes""#) && !log.contains(ACME.1), "{log}");
}

#[tokio::test]
async fn the_filter_denies_with_a_reason_and_the_upstream_gets_nothing() {
    let upstream = upstream();
    let gateway = Gateway::start(&rules(&upstream));
    let denied: [(&[_], _); 3] = [
        (&[], "missing API key"),
        (&[("x-api-key", "another-key-that-nobody-has")], "unknown API key"),
        (&[ACME, GLOBEX], "more than one API key"),
    ];
    for (headers, reason) in denied {
        let response = gateway.send("GET", "/", headers).await;
        assert_eq!(response.status(), 401);
        assert_eq!(response.headers()["www-authenticate"], "ApiKey");
        assert!(response.body().contains(&format!(r#""detail":"{reason}""#)), "{response:?}");
    }
    assert_eq!(upstream.requests(), 0);
}

#[tokio::test]
async fn the_upstream_gets_the_customer_of_the_key_and_not_the_key() {
    let upstream = upstream();
    let gateway = Gateway::start(&rules(&upstream));
    let forged =
        [ACME, ("x-customer", "root"), ("x_customer", "root"), ("x_api_key", "k"), ("connection", "x-customer")];
    assert_eq!(gateway.send("GET", "/", &forged).await.status(), 200);
    assert_eq!(upstream.last_header("x-customer").as_deref(), Some("acme"));
    for name in ["x-api-key", "x_api_key", "x_customer"] {
        assert_eq!(upstream.last_header(name), None, "{name}");
    }
}

#[tokio::test]
async fn permissions_after_the_filter_see_the_customer() {
    let upstream = upstream();
    let gateway = Gateway::start(&rules(&upstream));
    let report = async |headers: &[_]| gateway.send("GET", "/reports/2026", headers).await.status().as_u16();
    assert_eq!(report(&[ACME]).await, 200);
    assert_eq!(report(&[GLOBEX]).await, 403);
    assert_eq!(report(&[GLOBEX, ("x-customer", "acme")]).await, 403);
    assert_eq!(report(&[("x-customer", "acme")]).await, 401);
    // The page warns of this: the filter is not named, so it runs after the permissions, which see the client's header.
    let not_named = rules(&upstream).replace("  filters: [limits, api_keys, permissions]\n", "");
    let gateway = Gateway::start(&not_named);
    let forged = gateway.send("GET", "/reports/2026", &[GLOBEX, ("x-customer", "acme")]).await;
    assert_eq!(forged.status(), 200);
}

/// The essay's order: a request that a later filter denies has counted.
#[tokio::test]
async fn the_order_of_the_filters_decides_what_is_counted() {
    let upstream = upstream();
    let limit = |text: &str| text.replace("limit: 100/s", "limit: 2/h");
    let requests: [&[_]; 6] = [&[], &[], &[], &[ACME], &[ACME], &[ACME]];
    let limits_first = limit(&rules(&upstream));
    assert!(limits_first.contains("filters: [limits, api_keys, permissions]"));
    let gateway = Gateway::start(&limits_first);
    assert_eq!(gateway.statuses(&requests).await, [401, 401, 429, 429, 429, 429]);
    let keys_first = limits_first.replace("[limits, api_keys, permissions]", "[api_keys, limits]");
    let gateway = Gateway::start(&keys_first);
    assert_eq!(gateway.statuses(&requests).await, [401, 401, 401, 200, 200, 429]);
    // A filter that the file does not name runs after those that it names.
    let not_named = limits_first.replace("  filters: [limits, api_keys, permissions]\n", "");
    let gateway = Gateway::start(&not_named);
    assert_eq!(gateway.statuses(&requests).await, [401, 401, 429, 429, 429, 429]);
    assert_eq!(upstream.requests(), 2);
}

#[tokio::test]
async fn rules_after_the_filter_count_by_customer() {
    let upstream = upstream();
    let text = rules(&upstream).replace("[limits, api_keys, permissions]", "[api_keys, limits, permissions]");
    let gateway = Gateway::start(&text.replace("by: ip\n    limit: 100/s", "by: account\n    limit: 1/h"));
    let forged: &[_] = &[ACME, ("x-customer", "globex")];
    assert_eq!(gateway.statuses(&[&[ACME], forged, &[GLOBEX], &[GLOBEX]]).await, [200, 429, 200, 429]);
}

#[tokio::test]
async fn changed_rules_apply_while_it_runs_and_ctrl_c_ends_it() {
    let upstream = upstream();
    let text = rules(&upstream);
    let gateway = Gateway::start(&text);
    assert_eq!(gateway.statuses(&[&[ACME], &[ACME]]).await, [200, 200]);
    std::fs::write(gateway.file.path(), text.replace("limit: 100/s", "total: 1")).unwrap();
    let denied = || (blocking_status(&gateway.address) == 429).then_some(());
    wait_until("the new rules", LONG, denied).unwrap();
    assert!(gateway.program.interrupt().success());
}

/// Returns the status of a request with a key, and blocks until then.
fn blocking_status(address: &str) -> u16 {
    let mut stream = TcpStream::connect(address).unwrap();
    let (name, key) = ACME;
    write!(stream, "GET / HTTP/1.1\r\nhost: a\r\n{name}: {key}\r\nconnection: close\r\n\r\n").unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    response.split(' ').nth(1).unwrap().parse().unwrap()
}

#[tokio::test]
async fn two_gateways_share_limits_on_redis() {
    let (upstream, redis) = (upstream(), RedisServer::start().unwrap());
    let text = rules(&upstream).replace("limit: 100/s", "limit: 3/h");
    let error = format!("{text}store: {{redis: '{}'}}\n", redis.url());
    assert!(failure(&error).contains("use `store: local`, or another algorithm"), "{}", failure(&error));
    let shared = error.replace("algorithm: backoff", "store: local\n    algorithm: backoff");
    let gateways = [Gateway::start(&shared), Gateway::start(&shared)];
    let mut statuses = Vec::new();
    for gateway in gateways.iter().cycle().take(4) {
        statuses.extend(gateway.statuses(&[&[ACME]]).await);
    }
    assert_eq!(statuses, [200, 200, 200, 429]);
}

/// Returns the error of a program that does not start.
fn failure(text: &str) -> String {
    let file = rule_file(text);
    let mut command = Program::of("own_filter");
    command.arg(file.path());
    let (printed, output) = Program::run(command);
    assert_eq!((output.status.code(), printed.as_str()), (Some(1), ""), "{output:?}");
    let errors = String::from_utf8(output.stderr).unwrap();
    errors.replace(&file.path().display().to_string(), "rules.yaml")
}

#[test]
fn an_unknown_filter_is_an_error_at_the_start() {
    let text = RULES.replace("127.0.0.1:8080", "127.0.0.1:0").replace("[limits, api_keys,", "[limits, api-keys,");
    let expected = "`filters` of `gateway`: unknown filter `api-keys`: expected limits or permissions or api_keys\n";
    assert!(failure(&text).ends_with(expected), "{}", failure(&text));
}

#[test]
fn a_bad_parameter_of_the_algorithm_is_an_error_with_its_line() {
    let bad = |old: &str, new: &str| failure(&RULES.replace(old, new));
    let missing = bad("    max: 1h\n", "");
    assert!(missing.contains("`backoff` needs a `max`") && missing.contains("such as `max: 1h`"), "{missing}");
    let short = bad("max: 1h", "max: 10s");
    assert!(short.contains("`max` is shorter than the first wait") && short.contains("at least 30s"), "{short}");
    assert!(bad("max: 1h", "max: soon").contains("`max`"), "{}", bad("max: 1h", "max: soon"));
    let several = bad("limit: 1/30s", "limit: 5/s");
    assert!(several.contains("`backoff` allows one request at a time"), "{several}");
    let typo = bad("max: 1h", "maxx: 1h");
    assert!(typo.contains("rules.yaml:") && typo.contains("did you mean `max`?"), "{typo}");
    assert!(bad("algorithm: backoff", "algorithm: back_off").contains("did you mean `backoff`?"));
}

#[test]
fn a_bad_section_of_the_filter_is_an_error_and_shows_no_key() {
    let bad = |old: &str, new: &str| failure(&RULES.replace(old, new));
    let short = bad("the-key-of-acme-1", "hunter2");
    assert!(short.contains("invalid API key of `acme`"), "{short}");
    let same = bad("the-key-of-globex", "the-key-of-acme-1");
    assert!(same.contains("the API key of `globex` is not unique"), "{same}");
    let empty = bad("  header: x-api-key\n", "  heeder: x-api-key\n");
    assert!(empty.contains("unknown `api_keys` field `heeder`"), "{empty}");
    let missing = bad("  customers: ", "  customer: ");
    assert!(missing.contains("did you mean `customers`?"), "{missing}");
    assert!(bad("header: x-api-key", "header: x api key").contains("expected a name such as x-api-key"));
}

#[test]
fn a_missing_file_is_an_error() {
    let mut command = Program::of("own_filter");
    command.arg("no such file");
    let (_, output) = Program::run(command);
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && error.starts_with("can't read no such file: "), "{error}");
}

#[test]
fn editors_know_the_names_of_the_program() {
    let schema = diana::rules::schema::rule_file(&example::registry());
    assert_eq!(schema["properties"]["api_keys"]["required"][0], "customers");
    assert_eq!(schema["$defs"]["rule"]["properties"]["max"]["$ref"], "#/$defs/duration");
}
