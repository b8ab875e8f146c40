//! What the worst request costs, at every door: with these rules at most a millisecond of CPU, so that no client slows down the
//! others by a few bytes. The cost grows with the length of the path × the number of rules that have `matches()` or `*` in a path.
//!
//! Instructions are counted by callgrind, in user space: a time would depend on the machine's load. The build of the tests takes
//! many more than a release, so each request is compared with a plain one on a connection of its own. In a release, that takes
//! 36,000 instructions, and the worst of these requests 114 times as many: 4.1 million, which take less than a millisecond. In
//! the build of the tests, the worst takes 318 times as many.

use super::client::{Envoy, descriptor, shop};
use super::messages::{CheckAttributes, CheckRequest, CheckedHttp, CheckedRequest, Descriptor};
use super::resp_client::RespClient;
use crate::support::client::send_request;
use crate::support::http2;
use crate::support::program::{self, Diana, Stderr};
use diana_testing::start_error;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// The worst request in plain ones, without optimisation.
const MAX: f64 = 350.0;
/// How many requests of a kind are counted.
const REQUESTS: u32 = 3;
/// What fits into the head of a request, by default.
const LONG: usize = 31 << 10;

const RULES: &str = "
gateway: {listen: $LISTEN, workers: 1, trusted_proxies: [10.0.0.0/8, 127.0.0.1]}
services: {envoy: $TLS, http: '127.0.0.1:$HTTP', resp: '127.0.0.1:$RESP', workers: 1}
identity: {account: header(x-account-id), device: cookie(device), token: jwt(sub), jwt: {secret: 'a secret of 32 bytes or longer ..'}}
rules:
  - {name: login, match: {path: /login}, by: ip, limit: 1000000/s}
  - {name: files, match: {path: '/f/*.php'}, by: resource, limit: 1000000/s}
  - {name: parameters, match: {path: '/users/{id}/**'}, by: param(id), limit: 1000000/s}
  - {name: accounts, by: [account, device, token, query(q)], missing: shared, limit: 1000000/s}
  - {name: condition, match: {when: 'request.path.matches(\"^/(a|b)+/x$\") || request.query[\"z\"] == \"1\"'}, by: resource, limit: 1000000/s}
";

/// Runs the program under callgrind, and counts its instructions.
struct Counted {
    diana: Diana,
    counts: PathBuf,
    dumps: u32,
    _folder: TempDir,
}

impl Counted {
    fn serve(rules: &str) -> Self {
        let folder = TempDir::new().unwrap();
        let counts = folder.path().join("counts");
        let diana = Diana::serve_by(rules, Stderr::Unread, |file| valgrind(&counts, file));
        Self { diana, counts, dumps: 0, _folder: folder }
    }

    /// Returns how many instructions one of these requests takes.
    async fn count(&mut self, mut send: impl AsyncFnMut()) -> f64 {
        // What only the first one of its kind needs.
        send().await;
        self.control("zero");
        for _ in 0..REQUESTS {
            send().await;
        }
        self.control("dump");
        self.dumps += 1;
        // Callgrind numbers its files.
        let text = std::fs::read_to_string(self.counts.with_extension(self.dumps.to_string())).unwrap();
        let total = text.lines().find_map(|line| line.strip_prefix("totals:")?.trim().parse::<f64>().ok());
        total.unwrap() / f64::from(REQUESTS)
    }

    fn control(&self, command: &str) {
        let mut vgdb = Command::new("vgdb");
        let output = vgdb.arg(format!("--pid={}", self.diana.id())).arg(command).output();
        let output = output.unwrap_or_else(|error| panic!("{}", start_error(&vgdb, &error)));
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

fn valgrind(counts: &Path, file: &Path) -> Command {
    let served = program::serve(file);
    let mut command = Command::new("valgrind");
    command.args(["--quiet", "--tool=callgrind", &format!("--callgrind-out-file={}", counts.display())]);
    command.arg(served.get_program()).args(served.get_args());
    // Each debug message costs more than what it is about.
    command.env("RUST_LOG", "warn");
    command
}

/// Paths that are long, have many forms, or both; each with what it is.
fn odd_paths(length: usize) -> Vec<(&'static str, String)> {
    let repeated = |text: &str, length: usize| text.repeat(length / text.len());
    // The longest ones of which all forms are compared: all together have 32 KiB.
    let forms = |text: &str, forms: usize| repeated(text, length.min((32 << 10) / forms - 16));
    vec![
        ("slashes and escaped separators", repeated("//a/%2f%5c", length)),
        ("slashes", repeated("/", length)),
        ("segments", repeated("/a", length)),
        ("escapes", repeated("/%41", length)),
        ("escaped letters of other scripts", repeated("/%C3%A9", length)),
        ("escaped slashes", format!("/{}", forms("a%2f", 2))),
        ("backslashes", format!("/{}", forms("a\\", 2))),
        ("parameters", format!("/{}", forms("/a;b", 6))),
        ("everything", format!("//h/{}", forms("a%2f;\\%5cb%3b/", 48))),
        ("parameters of the rules", format!("/users/{}", repeated("7/%61", length))),
        ("a query", format!("/?{}", repeated("q=1&", length))),
        ("a query of other names", format!("/?{}", repeated("q[a]=%31&", length))),
    ]
}

/// Headers that are long, each with what it is.
fn odd_headers() -> Vec<(&'static str, String)> {
    vec![
        ("cookies", format!("cookie: {}", "a=%31; ".repeat(LONG / 7))),
        ("cookies with commas", format!("cookie: {}", "device=1,".repeat(LONG / 9))),
        ("cookies with quotes", format!("cookie: device=\"{}\"", "\\101".repeat(LONG / 4))),
        ("addresses", format!("x-forwarded-for: {}", "10.1.2.3,".repeat(LONG / 9))),
        ("a token", format!("authorization: Bearer {}", "eyJh.".repeat(LONG / 5))),
        ("many tokens", format!("authorization: {}", "Bearer a ".repeat(LONG / 9))),
        ("types", format!("accept: {}", "a/b;q=0.1,".repeat(LONG / 10))),
        ("names in Connection", format!("connection: {}", "x-account-id,".repeat(LONG / 13))),
        (
            "many headers",
            (0..95).map(|number| format!("x_{number}: {}", "y".repeat(300))).collect::<Vec<_>>().join("\r\n"),
        ),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn no_request_to_any_door_takes_longer_than_a_millisecond() {
    let [http, resp] = [(); 2].map(|()| diana_testing::Port::claim().unwrap());
    let rules = RULES.replace("$HTTP", &http.number().to_string()).replace("$RESP", &resp.number().to_string());
    let mut counted = Counted::serve(&rules);
    let (gateway, envoy) = (counted.diana.port(), Envoy::connect(counted.diana.tls_port()).await);
    let get = |path: &str, headers: &str| {
        drop(send_request(gateway, &format!("GET {path} HTTP/1.1\r\nhost: a\r\n{headers}\r\n")).unwrap());
    };
    let mut over_http2 = http2::connect(gateway).await;
    let mut get2 = async |path: &str, headers: &str| {
        let lines = headers.lines().filter_map(|line| line.split_once(": "));
        let request = lines.fold(http2::request("GET", &format!("http://a{path}")), |request, (name, value)| {
            request.header(name, value)
        });
        drop(http2::whole(over_http2.send_request(request.body(http2::full("")).unwrap()).await.unwrap()).await);
    };
    // The least of several counts, since tasks in the background add to some.
    let mut plain = f64::INFINITY;
    for _ in 0..5 {
        plain = plain.min(counted.count(async || get("/", "")).await);
    }
    let mut costs = Vec::new();
    let odd = odd_paths(LONG).into_iter().map(|(what, path)| (what, path, String::new()));
    let headers = odd_headers().into_iter().map(|(what, headers)| (what, "/".to_owned(), format!("{headers}\r\n")));
    for (what, path, headers) in odd.chain(headers) {
        costs.push(("the gateway", what, counted.count(async || get(&path, &headers)).await));
        costs.push(("the gateway over HTTP/2", what, counted.count(async || get2(&path, &headers).await).await));
        let checked = format!("GET /check HTTP/1.1\r\nhost: a\r\nx-forwarded-uri: {path}\r\n{headers}\r\n");
        let check = async || drop(send_request(http.number(), &checked).unwrap());
        costs.push(("/check", what, counted.count(check).await));
        let check = async || drop(envoy.check(described(&path, &headers)).await.unwrap());
        costs.push(("ext_authz", what, counted.count(check).await));
    }
    for (what, path) in odd_paths(LONG) {
        let mut client = RespClient::connect(resp.number());
        let check = async || {
            let reply = client.ask(&format!("DIANA.CHECK path {path} method GET host a"));
            assert!(reply.starts_with('['), "{reply}");
        };
        costs.push(("DIANA.CHECK", what, counted.count(check).await));
        let of_path = |path: &str| descriptor(&[("path", path), ("remote_address", "192.0.2.1")]);
        for (what, descriptors) in
            [(what, vec![of_path(&path)]), ("the same in 4 descriptors", vec![of_path(&path); 4])]
        {
            let call = async || drop(envoy.should_rate_limit(shop(descriptors.clone())).await.unwrap());
            costs.push(("Envoy's rate limit service", what, counted.count(call).await));
        }
    }
    for (what, descriptors) in odd_descriptors() {
        let call = async || drop(envoy.should_rate_limit(shop(descriptors.clone())).await);
        costs.push(("Envoy's rate limit service", what, counted.count(call).await));
    }
    let attributes = (0..500).map(|number| format!(" header(x-{number}) y")).collect::<String>();
    let mut client = RespClient::connect(resp.number());
    let check = async || drop(client.ask(&format!("DIANA.CHECK path /{attributes}")));
    costs.push(("DIANA.CHECK", "500 attributes", counted.count(check).await));
    costs.sort_by(|(.., one), (.., other)| other.total_cmp(one));
    let expensive = costs.iter().map(|(door, what, cost)| format!("{:6.1} {door}: {what}\n", cost / plain));
    let over = expensive.zip(&costs).filter(|(_, (.., cost))| cost / plain > MAX).map(|(line, _)| line);
    assert_eq!(over.collect::<String>(), "", "in plain requests of {plain} instructions");
}

fn described(path: &str, headers: &str) -> CheckRequest {
    let fields = headers.lines().filter_map(|line| line.split_once(": "));
    let http = CheckedHttp {
        method: "GET".to_owned(),
        path: path.to_owned(),
        host: "a".to_owned(),
        headers: fields.map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
        ..CheckedHttp::default()
    };
    CheckRequest {
        attributes: Some(CheckAttributes { source: None, request: Some(CheckedRequest { http: Some(http) }) }),
    }
}

/// Descriptors that are many, long, or odd.
fn odd_descriptors() -> Vec<(&'static str, Vec<Descriptor>)> {
    let numbered = |text: &str| (0..64).map(|number| format!("/{number}{text}")).collect::<Vec<_>>();
    let of_paths = |paths: Vec<String>| paths.iter().map(|path| descriptor(&[("path", path)])).collect::<Vec<_>>();
    let entries = (0..64).map(|number| format!("k{number}")).collect::<Vec<_>>();
    let entries = entries.iter().map(|key| (&**key, "value")).collect::<Vec<_>>();
    vec![
        ("64 odd paths", of_paths(numbered(&"/a%2f;\\".repeat(100)))),
        ("64 long paths", of_paths(numbered(&"/a".repeat(250)))),
        ("paths that are too long together", of_paths(numbered(&"/a".repeat(1_900)))),
        ("1,000 entries", vec![descriptor(&entries[..16]); 62]),
        ("the longest entry", vec![descriptor(&[("path", "/"), ("k", &"x".repeat(250 << 10))])]),
        ("many empty descriptors", vec![descriptor(&[]); 100_000]),
    ]
}
