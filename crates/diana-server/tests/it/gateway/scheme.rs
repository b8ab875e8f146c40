//! `request.scheme`: the listener decides, or a trusted proxy; a client cannot choose it.

use crate::gateway::tls::with_certificates;
use crate::support::client::Client;
use crate::support::http2::{full, get, http1_over, over, request, tls, whole};
use crate::support::program::Diana;
use crate::support::scheme::{AMBIGUOUS, HTTP, HTTPS, RULES};
use crate::support::upstream::Upstream;

/// What a client may send to appear as one of another listener.
const FORGED: [&str; 6] = [
    "x-forwarded-proto: https",
    "X-FORWARDED-PROTO: https\r\nconnection: x-forwarded-proto",
    "x_forwarded_proto: https",
    "forwarded: for=192.0.2.1;proto=https",
    "x-forwarded-scheme: https\r\nx-scheme: https\r\nfront-end-https: on\r\nx-forwarded-ssl: on",
    "x-url-scheme: https\r\nx-forwarded-protocol: https",
];

fn serve(more: &str, upstream: &Upstream) -> Diana {
    let url = upstream.url();
    Diana::serve_in(
        with_certificates(),
        &format!(
            "
gateway:
  listen: $LISTEN
  upstream: {url}
{more}
  tls: {{listen: $TLS, certificates: [{{certificate: $FOLDER/one.pem, key: $FOLDER/one.key}}]}}
{RULES}"
        ),
    )
}

fn status(diana: &Diana, from: [u8; 4], target: &str, headers: &str) -> u16 {
    let mut client = Client::connect_from(from, diana.port());
    let headers = if headers.is_empty() { String::new() } else { format!("{headers}\r\n") };
    client.send(format!("GET {target} HTTP/1.1\r\nhost: a\r\n{headers}\r\n")).response().status
}

#[test]
fn a_client_without_tls_has_the_scheme_http_whatever_it_sends() {
    let upstream = Upstream::echo();
    // One proxy is trusted, but this client is not.
    for more in ["", "  trusted_proxies: [127.0.0.2]"] {
        let diana = serve(more, &upstream);
        assert_eq!(status(&diana, [127, 0, 0, 1], "/", ""), HTTP);
        assert_eq!(status(&diana, [127, 0, 0, 1], "https://a/", ""), HTTP);
        for headers in FORGED {
            assert_eq!(status(&diana, [127, 0, 0, 1], "/", headers), HTTP, "{headers}");
        }
        assert_eq!(status(&diana, [127, 0, 0, 1], "/", "x-forwarded-proto: a\r\nx-forwarded-proto: b"), HTTP);
    }
    assert_eq!(upstream.count(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_with_tls_has_the_scheme_https_whatever_it_sends() {
    let upstream = Upstream::echo();
    let diana = serve("", &upstream);
    let one = diana.folder().join("one.pem");
    let stream = tls(diana.tls_port(), &[&one], "one.example.com", &["h2"]).await.unwrap();
    let mut sender = over(stream).await;
    // The scheme of the URI is the `:scheme` of HTTP/2.
    for target in ["https://one.example.com/", "http://one.example.com/"] {
        assert_eq!(get(&mut sender, target).await.status(), HTTPS, "{target}");
    }
    for target in ["/", "http://one.example.com/"] {
        let stream = tls(diana.tls_port(), &[&one], "one.example.com", &["http/1.1"]).await.unwrap();
        let mut sender = http1_over(stream).await;
        let forged = request("GET", target).header("host", "one.example.com").header("x-forwarded-proto", "http");
        let response = sender.send_request(forged.body(full("")).unwrap()).await.unwrap();
        assert_eq!(whole(response).await.status(), HTTPS, "{target}");
    }
    assert_eq!(upstream.count(), 0);
}

#[test]
fn a_trusted_proxy_reports_the_scheme() {
    let upstream = Upstream::echo();
    let diana = serve("  trusted_proxies: [127.0.0.1]", &upstream);
    let reported = |headers: &str| status(&diana, [127, 0, 0, 1], "/", headers);
    assert_eq!(reported(""), HTTP, "that of the listener");
    assert_eq!(reported("x-forwarded-proto: https"), HTTPS);
    assert_eq!(reported("x-forwarded-proto: HTTPS"), HTTPS);
    assert_eq!(reported("x-forwarded-proto: wss"), HTTPS);
    assert_eq!(reported("x-forwarded-proto: http"), HTTP);
    for ambiguous in ["ftp", "", "https, http", "https\r\nx-forwarded-proto: https"] {
        assert_eq!(reported(&format!("x-forwarded-proto: {ambiguous}")), AMBIGUOUS, "{ambiguous}");
    }
    // A proxy may pass on the `Connection` of a client.
    assert_eq!(reported("x-forwarded-proto: https\r\nconnection: x-forwarded-proto"), HTTPS);
    assert_eq!(status(&diana, [127, 0, 0, 2], "/", "x-forwarded-proto: https"), HTTP, "another peer");
    assert_eq!(upstream.count(), 0);
}
