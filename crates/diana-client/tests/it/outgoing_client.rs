//! The example `outgoing_client`, which calls a server over TCP.

#[path = "../../examples/outgoing_client.rs"]
#[allow(dead_code, reason = "the example's `main`")]
mod example;

use http::Uri;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::net::TcpListener;

#[tokio::test]
async fn calls_wait_for_the_limit_or_fail_unsent() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let requests = Arc::new(AtomicUsize::new(0));
    let counts = Arc::clone(&requests);
    let count = axum::routing::get(move || {
        counts.fetch_add(1, Ordering::Relaxed);
        std::future::ready("hello")
    });
    let app = axum::Router::new().route("/", count);
    tokio::spawn(async move { axum::serve(listener, app).await });

    let url: Uri = format!("http://{address}/").parse().unwrap();
    let mut client = example::client("2/h".parse().unwrap(), Duration::from_secs(5));
    assert_eq!(example::get(&mut client, &url).await.unwrap(), 200);
    assert_eq!(example::get(&mut client.clone(), &url).await.unwrap(), 200);
    let error = example::get(&mut client, &url).await.unwrap_err().to_string();
    assert!(error.starts_with("call not sent: limit `partner` does not grant it within 5s"), "{error}");
    assert_eq!(requests.load(Ordering::Relaxed), 2);

    // With a longer maximum wait, all calls are sent.
    let quick = example::client("1000/s burst 1".parse().unwrap(), Duration::from_secs(60));
    let calls = (0..20).map(|_| {
        let (mut client, url) = (quick.clone(), url.clone());
        async move { example::get(&mut client, &url).await.unwrap() }
    });
    assert_eq!(futures_util::future::join_all(calls).await, [200; 20]);
    assert_eq!(requests.load(Ordering::Relaxed), 22);
}
