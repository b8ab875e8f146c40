//! TLS with clients and with upstreams.

use crate::support::http2::{Service, Speaks, certificate, full, get, http1_over, over, request, tls, whole};
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

fn with_certificates() -> TempDir {
    let folder = TempDir::new().unwrap();
    certificate(folder.path(), "one", &["one.example.com"]);
    certificate(folder.path(), "two", &["two.example.com", "*.two.example.com"]);
    folder
}

#[tokio::test(flavor = "multi_thread")]
async fn the_handshake_decides_which_http_is_spoken() {
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
            let asked = request("GET", "/h1").header("host", "one.example.com").header("x-key", key).body(full(""));
            sender.ready().await.unwrap();
            assert_eq!(whole(sender.send_request(asked.unwrap()).await.unwrap()).await.status(), status);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_name_that_is_asked_for_chooses_the_certificate() {
    let upstream = Upstream::echo();
    let diana = serve(with_certificates(), &upstream.url(), "");
    let (one, two) = (diana.folder().join("one.pem"), diana.folder().join("two.pem"));
    for (trusted, host, is_well) in [
        (&one, "one.example.com", true),
        (&two, "two.example.com", true),
        (&two, "www.two.example.com", true),
        (&one, "two.example.com", false),
        // For a name that no certificate is for, the first is shown, which is not for that name either.
        (&two, "three.example.com", false),
    ] {
        let shaken = tls(diana.tls_port(), &[trusted], host, &["h2"]).await;
        assert_eq!(shaken.is_ok(), is_well, "{host}: {shaken:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn new_certificates_are_shown_and_bad_ones_are_not() {
    let upstream = Upstream::echo();
    let diana = serve(with_certificates(), &upstream.url(), "");
    let (one, old) = (diana.folder().join("one.pem"), diana.folder().join("old.pem"));
    std::fs::copy(&one, &old).unwrap();
    let stream = tls(diana.tls_port(), &[&old], "one.example.com", &["h2"]).await.unwrap();
    let mut kept = over(stream).await;
    certificate(diana.folder(), "one", &["one.example.com"]);
    diana.signal(Signal::HUP);
    let mut tries = 0;
    while tls(diana.tls_port(), &[&one], "one.example.com", &["h2"]).await.is_err() {
        tries += 1;
        assert!(tries < 3_000, "the old certificate is shown still");
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    assert!(tls(diana.tls_port(), &[&old], "one.example.com", &["h2"]).await.is_err());
    // Who was connected stays connected.
    assert_eq!(get(&mut kept, "https://one.example.com/").await.status(), 200);
    // A half-written file changes nothing.
    let good = diana.folder().join("good.pem");
    std::fs::copy(&one, &good).unwrap();
    std::fs::write(&one, "-----BEGIN CERTIFICATE-----\nMIIB").unwrap();
    diana.signal(Signal::HUP);
    let told = || diana.said().contains("the previous ones stay active").then_some(());
    diana_testing::wait_until("it to be told", LONG, told).unwrap();
    assert!(tls(diana.tls_port(), &[&good], "one.example.com", &["h2"]).await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_tls_gets_nothing() {
    let upstream = Upstream::echo();
    let diana = serve(with_certificates(), &upstream.url(), "  timeouts: {header: 500ms}");
    for bytes in [&b"GET / HTTP/1.1\r\nhost: a\r\n\r\n"[..], &[0x16, 3, 1, 0xff, 0xff], &[0; 1000]] {
        let mut stream = tokio::net::TcpStream::connect(("127.0.0.1", diana.tls_port())).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        let mut answer = Vec::new();
        let _ = tokio::time::timeout(LONG, stream.read_to_end(&mut answer)).await.expect("it stays open");
        assert!(!answer.starts_with(b"HTTP"), "{}", answer.escape_ascii());
    }
    assert_eq!(upstream.count(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn upstreams_are_reached_over_tls_and_only_if_they_are_who_they_should_be() {
    let folder = with_certificates();
    certificate(folder.path(), "inner", &["localhost"]);
    for speaks in [Speaks::Http2, Speaks::Http1] {
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
        let answer = tokio::task::spawn_blocking(move || crate::support::client::get(port, "/inner")).await.unwrap();
        assert_eq!(answer.status, 200);
        let seen = service.last();
        let version = if speaks == Speaks::Http2 { http::Version::HTTP_2 } else { http::Version::HTTP_11 };
        assert_eq!((seen.version, &*seen.host, &*seen.target), (version, "example.com", "/inner"));
        // One whose certificate nobody vouches for could be anybody.
        let url = format!("https://localhost:{}", service.port());
        let doubting = Diana::serve(&format!("gateway: {{listen: $LISTEN, upstream: '{url}'}}\nrules: []\n"));
        let port = doubting.port();
        let answer = tokio::task::spawn_blocking(move || crate::support::client::get(port, "/doubt")).await.unwrap();
        assert_eq!(answer.status, 502);
        assert_eq!(service.last().target, "/inner");
    }
}
