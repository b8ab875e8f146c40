//! Silent connections, with the time of the test.

use super::*;
use diana_rules::{Document, Registry, RuleFile};
use tokio::io::AsyncWriteExt;
use tokio::time::Instant;

fn service(stop: watch::Receiver<bool>) -> EnvoyService {
    let file = RuleFile::read(&Document::new("diana.yaml", "rules: []"), &Registry::default()).unwrap();
    let (engine, metrics) = (Engine::new(&file), ServiceMetrics::new("envoy", 1));
    let options = EnvoyOptions {
        settings: Arc::default(),
        denies_when_down: false,
        overrides: Arc::default(),
        memory: Arc::new(TotalMemory::new(usize::MAX)),
    };
    EnvoyService::new(engine, options, metrics, 0, stop)
}

/// Returns how long a connection stays open that sends this and then nothing.
async fn time_open(sent: &[u8]) -> Duration {
    let (_send, stop) = watch::channel(false);
    let (mut client, server) = tokio::io::duplex(1 << 16);
    client.write_all(sent).await.unwrap();
    let start = Instant::now();
    service(stop.clone()).serve(server, "127.0.0.1:1".parse().unwrap(), stop).await;
    start.elapsed()
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_answers_no_ping_is_closed() {
    let settings = [0, 0, 0, 4, 0, 0, 0, 0, 0];
    assert_eq!(time_open(&[PREFACE, &settings].concat()).await.as_secs(), (PING_INTERVAL + PING_TIMEOUT).as_secs());
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_does_not_begin_is_closed() {
    let timeout = ServerSettings::default().timeouts.header;
    for sent in [&b""[..], &PREFACE[..10]] {
        assert_eq!(time_open(sent).await.as_secs(), timeout.as_secs());
    }
}
