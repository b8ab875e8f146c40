//! Third-party clients and servers: curl, Python, Node, nginx in front of and behind the gateway, wrk and h2load.

use crate::support::client::Client;
use crate::support::program::Diana;
use crate::support::upstream::Upstream;
use diana_testing::NginxServer;
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// Three requests an hour for each key, and then 429.
fn gateway_to(upstream: &str) -> Diana {
    Diana::serve(&format!(
        "gateway: {{listen: $LISTEN, upstream: '{upstream}', trusted_proxies: [127.0.0.1]}}\n\
         rules: [{{name: each-key, by: header(x-key), limit: 3/h, status: 429}}]\n"
    ))
}

/// Returns the output of a program. Panics if the program fails.
#[track_caller]
fn run(program: &str, args: &[&str]) -> String {
    let output = Command::new("timeout").arg("60").arg(program).args(args).stdin(Stdio::null()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{program} failed ({}); `cargo xtask install` installs the tools that tests need\n{text}\n{errors}",
        output.status
    );
    text
}

#[test]
fn curl_gets_three_grants_and_two_denials() {
    let upstream = Upstream::echo();
    let diana = gateway_to(&upstream.url());
    let url = format!("http://127.0.0.1:{}/a", diana.port());
    for version in ["--http1.1", "--http2-prior-knowledge", "--http1.0"] {
        let key = format!("x-key: curl{version}");
        let one = ["-sS", version, "-H", &key, "-o", "/dev/null", "-w", "%{http_code} %header{retry-after}\n", &url];
        // One curl for each request: curl 7.88 can't reuse such an HTTP/2 connection.
        let text: String = (0..5).map(|_| run("curl", &one)).collect();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[..3], ["200 ", "200 ", "200 "], "{version}: {text}");
        for line in &lines[3..] {
            let seconds: u64 =
                line.strip_prefix("429 ").unwrap_or_else(|| panic!("{version}: {text}")).parse().unwrap();
            assert!((1..=1200).contains(&seconds), "{version}: {text}");
        }
    }
    assert_eq!(upstream.count(), 9);
}

#[test]
fn curl_sends_and_receives_large_bodies() {
    let upstream = Upstream::start(|exchange| {
        exchange.body()?;
        let body = exchange.request.body.clone();
        exchange.respond("200 OK", "", &body)
    });
    let diana = gateway_to(&upstream.url());
    let folder = TempDir::new().unwrap();
    let (sent, got) = (folder.path().join("sent"), folder.path().join("got"));
    let bytes: Vec<u8> = (0..5_000_000u32).map(|n| n.to_le_bytes()[1]).collect();
    std::fs::write(&sent, &bytes).unwrap();
    let url = format!("http://127.0.0.1:{}/", diana.port());
    let from = format!("@{}", sent.display());
    for more in [&["--http1.1"][..], &["--http1.1", "-H", "transfer-encoding: chunked"], &["--http2-prior-knowledge"]] {
        let mut args = vec!["-sS", "--data-binary", &from, "-o", got.to_str().unwrap(), &url];
        args.extend(more);
        run("curl", &args);
        assert!(std::fs::read(&got).unwrap() == bytes, "{more:?}");
    }
}

#[test]
fn python_gets_three_grants_and_two_denials() {
    let upstream = Upstream::echo();
    let diana = gateway_to(&upstream.url());
    let script = "
import http.client, sys, urllib.request, urllib.error
port = int(sys.argv[1])
connection = http.client.HTTPConnection('127.0.0.1', port, timeout=30)
for n in range(5):
    connection.request('POST', '/client', body=b'x' * 10000, headers={'x-key': 'client'})
    response = connection.getresponse()
    print(response.status, len(response.read()) > 100)
for n in range(4):
    request = urllib.request.Request(f'http://127.0.0.1:{port}/urllib', headers={'x-key': 'urllib'})
    try:
        print(urllib.request.urlopen(request, timeout=30).status)
    except urllib.error.HTTPError as error:
        print(error.code, error.headers['content-type'], int(error.headers['retry-after']) > 0)
";
    let text = run("python3", &["-c", script, &diana.port().to_string()]);
    let expected =
        "200 True\n200 True\n200 True\n429 True\n429 True\n200\n200\n200\n429 application/problem+json True\n";
    assert_eq!(text, expected);
    assert_eq!(upstream.count(), 6);
}

#[test]
fn node_gets_three_grants_and_two_denials() {
    let upstream = Upstream::echo();
    let diana = gateway_to(&upstream.url());
    let script = "
const http = require('http'), http2 = require('http2');
const port = Number(process.argv[1]);
const agent = new http.Agent({ keepAlive: true, maxSockets: 1 });
const send_request = () => new Promise((done, failed) => {
  http.get({ port, host: '127.0.0.1', path: '/node', agent, headers: { 'x-key': 'node' } }, (response) => {
    response.resume().on('end', () => done(response.statusCode));
  }).on('error', failed);
});
const ask2 = (session) => new Promise((done, failed) => {
  const request = session.request({ ':path': '/node2', 'x-key': 'node2' });
  let status;
  request.on('response', (headers) => { status = headers[':status']; });
  request.on('error', failed).on('end', () => done(status)).resume();
});
(async () => {
  const first = [];
  for (let n = 0; n < 5; n++) first.push(await send_request());
  console.log(first.join(' '));
  const session = http2.connect(`http://127.0.0.1:${port}`);
  const second = await Promise.all([1, 2, 3, 4, 5].map(() => ask2(session)));
  console.log(second.sort().join(' '));
  session.close();
  agent.destroy();
})().catch((error) => { console.error(error); process.exit(1); });
";
    let text = run("node", &["-e", script, &diana.port().to_string()]);
    assert_eq!(text, "200 200 200 429 429\n200 200 200 429 429\n");
    assert_eq!(upstream.count(), 6);
}

/// Returns the number before a word in the output of a load generator.
fn number_before(text: &str, word: &str) -> u64 {
    let before = text.split_once(word).unwrap_or_else(|| panic!("no `{word}` in\n{text}")).0;
    let digits: String = before.trim_end().chars().rev().take_while(char::is_ascii_digit).collect();
    digits.chars().rev().collect::<String>().parse().unwrap()
}

#[test]
fn h2load_gets_all_responses() {
    let upstream = Upstream::echo();
    let diana = Diana::serve(&format!(
        "gateway: {{listen: $LISTEN, upstream: '{}'}}\nrules: [{{name: half, total: 1000, status: 429}}]\n",
        upstream.url()
    ));
    let url = format!("http://127.0.0.1:{}/", diana.port());
    let mut granted = 0;
    for more in [&["-m", "10"][..], &["--h1"]] {
        let text = run("h2load", &[&["-n", "2000", "-c", "20", "-t", "1", &url], more].concat());
        assert!(text.contains("2000 done"), "{text}");
        assert_eq!(number_before(&text, " failed,"), number_before(&text, " 4xx,"), "{text}");
        assert_eq!(number_before(&text, " errored,"), 0, "{text}");
        granted += number_before(&text, " 2xx,");
    }
    // Exactly the limit, over all connections and workers.
    assert_eq!((granted, upstream.count()), (1000, 1000));
}

#[test]
fn wrk_gets_no_socket_errors() {
    let upstream = Upstream::start(|exchange| exchange.respond("200 OK", "", b"hello"));
    let diana = Diana::serve(&format!(
        "gateway: {{listen: $LISTEN, upstream: '{}'}}\nrules: [{{name: few, total: 100, status: 503}}]\n",
        upstream.url()
    ));
    let text = run("wrk", &["-t1", "-c50", "-d1s", &format!("http://127.0.0.1:{}/", diana.port())]);
    assert!(!text.contains("Socket errors"), "{text}");
    let (all, denied) = (number_before(&text, " requests in"), number_before(&text, "\nRequests/sec"));
    assert!(all > 200 && denied > 100 && all - denied <= 100, "{text}");
    // wrk may have disconnected before the last requests were forwarded.
    assert!(upstream.count() <= 100, "{}", upstream.count());
}

#[test]
fn nginx_as_upstream() {
    let folder = TempDir::new().unwrap();
    std::fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    std::fs::write(folder.path().join("file"), vec![b'f'; 300_000]).unwrap();
    let root = folder.path().display();
    let nginx = NginxServer::start(|port| {
        format!(
            "server {{ listen 127.0.0.1:{port}; root {root}; keepalive_requests 7;
             location /status {{ return 201 $http_x_forwarded_for; }} }}"
        )
    });
    let nginx = nginx.unwrap();
    let diana = gateway_to(&nginx.url());
    let mut client = Client::connect(diana.port());
    // It closes its connections every seven requests, which clients do not notice.
    for n in 0..50 {
        let response = client.get("/file");
        assert_eq!((response.status, response.body.len()), (200, 300_000), "{n}");
    }
    let response = client.get("/status");
    assert_eq!((response.status, response.text().as_str()), (201, "127.0.0.1"));
    assert_eq!(client.get("/none").status, 404);
    let part = client.send("GET /file HTTP/1.1\r\nhost: a\r\nrange: bytes=0-9\r\n\r\n").response();
    assert_eq!((part.status, part.body.len()), (206, 10));
}

#[test]
fn nginx_as_trusted_proxy() {
    let upstream = Upstream::echo();
    let diana = Diana::serve(&format!(
        "gateway: {{listen: $LISTEN, upstream: '{}', trusted_proxies: [127.0.0.1]}}\n\
         rules: [{{name: each-address, by: ip, limit: 2/h, status: 429}}]\n",
        upstream.url()
    ));
    let nginx = NginxServer::start(|port| {
        format!(
            "upstream diana {{ server 127.0.0.1:{}; keepalive 4; }}
             server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass http://diana; proxy_http_version 1.1;
             proxy_set_header Connection ''; proxy_set_header Host $host;
             proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for; }} }}",
            diana.port()
        )
    });
    let nginx = nginx.unwrap();
    let from = |address: [u8; 4], spoofed: &str| {
        let mut client = Client::connect_from(address, nginx.port());
        client.send(format!("GET / HTTP/1.1\r\nhost: a\r\nx-forwarded-for: {spoofed}\r\n\r\n")).response().status
    };
    for (address, last) in [([127, 0, 0, 5], 2), ([127, 0, 0, 6], 4)] {
        assert_eq!(from(address, "1.1.1.1"), 200);
        assert_eq!(from(address, "2.2.2.2"), 200);
        assert_eq!(from(address, "3.3.3.3"), 429, "a spoofed address is used");
        assert_eq!(upstream.count(), last);
        let hops = format!("2.2.2.2, 127.0.0.{}, 127.0.0.1", address[3]);
        assert_eq!(upstream.last().header("x-forwarded-for"), Some(&*hops));
    }
}
