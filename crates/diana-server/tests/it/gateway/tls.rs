//! TLS with clients and with upstreams.

use crate::support::http2::{Protocol, Service, certificate, full, get, http1_over, over, request, tls, whole};
use crate::support::program::{Diana, LONG};
use crate::support::upstream::Upstream;
use rustix::process::Signal;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

fn serve(folder: TempDir, upstream: &str, more: &str) -> Diana {
    Diana::serve_in(
        folder,
        &format!(
            "
gateway:
  listen: $LISTEN
  upstream: {upstream}
  tls:
    listen: $TLS
    certificates:
      - {{certificate: $FOLDER/one.pem, key: $FOLDER/one.key}}
      - {{certificate: $FOLDER/two.pem, key: $FOLDER/two.key}}
{more}
rules: [{{name: each, by: header(x-key), limit: 1/h, status: 429}}]
"
        ),
    )
}

pub(crate) fn with_certificates() -> TempDir {
    let folder = TempDir::new().unwrap();
    certificate(folder.path(), "one", &["one.example.com"]);
    certificate(folder.path(), "two", &["two.example.com", "*.two.example.com"]);
    folder
}

#[tokio::test(flavor = "multi_thread")]
async fn alpn_selects_the_http_version() {
    let upstream = Upstream::echo();
    let diana = serve(with_certificates(), &upstream.url(), "");
    let one = diana.folder().join("one.pem");
    let stream = tls(diana.tls_port(), &[&one], "one.example.com", &["h2", "http/1.1"]).await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let mut sender = over(stream).await;
    assert_eq!(get(&mut sender, "https://one.example.com/h2").await.status(), 200);
    let seen = upstream.last();
    assert_eq!((seen.target(), seen.header("host")), ("/h2", Some("one.example.com")));
    assert_eq!(seen.header("x-forwarded-proto"), Some("https"));
    assert_eq!(seen.header("forwarded"), Some("for=127.0.0.1;proto=https"));
    for alpn in [&["http/1.1"][..], &[]] {
        let stream = tls(diana.tls_port(), &[&one], "one.example.com", alpn).await.unwrap();
        let mut sender = http1_over(stream).await;
        for status in [200, 429] {
            let key = format!("{}", alpn.len());
            let request = request("GET", "/h1").header("host", "one.example.com").header("x-key", key).body(full(""));
            sender.ready().await.unwrap();
            assert_eq!(whole(sender.send_request(request.unwrap()).await.unwrap()).await.status(), status);
        }
    }
}

/// TLS accepts bytes for a client that reads none, so the timeout must be that of the socket.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_does_not_read_is_disconnected() {
    let upstream = Upstream::start(|exchange| {
        exchange.send("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")?;
        loop {
            exchange.send([b"5000\r\n".as_slice(), &[b'x'; 0x5000], b"\r\n"].concat())?;
        }
    });
    let timeouts = "  timeouts: {body: 500ms, response: 60s}";
    let diana = serve(with_certificates(), &upstream.url(), timeouts);
    let one = diana.folder().join("one.pem");
    let mut stream = tls(diana.tls_port(), &[&one], "one.example.com", &["http/1.1"]).await.unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nhost: one.example.com\r\n\r\n").await.unwrap();
    stream.flush().await.unwrap();
    // The upstream sends forever and the client does not read: only the gateway can end this.
    upstream.wait_for_closed(1);
    drop(stream);
}

#[tokio::test(flavor = "multi_thread")]
async fn sni_selects_the_certificate() {
    let upstream = Upstream::echo();
    let diana = serve(with_certificates(), &upstream.url(), "");
    let (one, two) = (diana.folder().join("one.pem"), diana.folder().join("two.pem"));
    for (trusted, host, is_valid) in [
        (&one, "one.example.com", true),
        (&two, "two.example.com", true),
        (&two, "www.two.example.com", true),
        (&one, "two.example.com", false),
        // Without a matching certificate, the first is used.
        (&two, "three.example.com", false),
    ] {
        let handshake = tls(diana.tls_port(), &[trusted], host, &["h2"]).await;
        assert_eq!(handshake.is_ok(), is_valid, "{host}: {handshake:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn reloads_certificates_and_ignores_invalid_ones() {
    let upstream = Upstream::echo();
    let diana = serve(with_certificates(), &upstream.url(), "");
    let (one, old) = (diana.folder().join("one.pem"), diana.folder().join("old.pem"));
    std::fs::copy(&one, &old).unwrap();
    let stream = tls(diana.tls_port(), &[&old], "one.example.com", &["h2"]).await.unwrap();
    let mut connected = over(stream).await;
    certificate(diana.folder(), "one", &["one.example.com"]);
    diana.signal(Signal::HUP);
    let mut tries = 0;
    while tls(diana.tls_port(), &[&one], "one.example.com", &["h2"]).await.is_err() {
        tries += 1;
        assert!(tries < 3_000, "the old certificate is still used");
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    assert!(tls(diana.tls_port(), &[&old], "one.example.com", &["h2"]).await.is_err());
    // Open connections stay open.
    assert_eq!(get(&mut connected, "https://one.example.com/").await.status(), 200);
    // A half-written file changes nothing.
    let good = diana.folder().join("good.pem");
    std::fs::copy(&one, &good).unwrap();
    std::fs::write(&one, "-----BEGIN CERTIFICATE-----\nMIIB").unwrap();
    diana.signal(Signal::HUP);
    let logged = || diana.output().contains("the previous ones stay active").then_some(());
    diana_testing::wait_until("the log line", LONG, logged).unwrap();
    assert!(tls(diana.tls_port(), &[&good], "one.example.com", &["h2"]).await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn closes_connections_without_tls() {
    let upstream = Upstream::echo();
    let diana = serve(with_certificates(), &upstream.url(), "  timeouts: {header: 500ms}");
    for bytes in [&b"GET / HTTP/1.1\r\nhost: a\r\n\r\n"[..], &[0x16, 3, 1, 0xff, 0xff], &[0; 1000]] {
        let mut stream = tokio::net::TcpStream::connect(("127.0.0.1", diana.tls_port())).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        let mut response = Vec::new();
        let _ = tokio::time::timeout(LONG, stream.read_to_end(&mut response)).await.expect("it stays open");
        assert!(!response.starts_with(b"HTTP"), "{}", response.escape_ascii());
    }
    assert_eq!(upstream.count(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn verifies_the_certificates_of_upstreams() {
    let folder = with_certificates();
    certificate(folder.path(), "inner", &["localhost"]);
    for speaks in [Protocol::Http2, Protocol::Http1] {
        let service = Service::https(folder.path(), "inner", speaks);
        let own = TempDir::new().unwrap();
        std::fs::copy(folder.path().join("inner.pem"), own.path().join("ca.pem")).unwrap();
        let trusting = Diana::serve_in(
            own,
            &format!(
                "gateway: {{listen: $LISTEN, upstream: 'https://localhost:{}', upstream_ca: $FOLDER/ca.pem}}\nrules: []\n",
                service.port()
            ),
        );
        let port = trusting.port();
        let response = tokio::task::spawn_blocking(move || crate::support::client::get(port, "/inner")).await.unwrap();
        assert_eq!(response.status, 200);
        let seen = service.last();
        let version = if speaks == Protocol::Http2 { http::Version::HTTP_2 } else { http::Version::HTTP_11 };
        assert_eq!((seen.version, &*seen.host, &*seen.target), (version, "example.com", "/inner"));
        // An untrusted certificate.
        let url = format!("https://localhost:{}", service.port());
        let untrusting = Diana::serve(&format!("gateway: {{listen: $LISTEN, upstream: '{url}'}}\nrules: []\n"));
        let port = untrusting.port();
        let response =
            tokio::task::spawn_blocking(move || crate::support::client::get(port, "/untrusted")).await.unwrap();
        assert_eq!(response.status, 502);
        assert_eq!(service.last().target, "/inner");
    }
}
