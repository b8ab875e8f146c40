//! What is looked at now and then while the gateway runs: how busy the machine is, and whether certificates have changed.

use crate::gateway::CertificateWatch;
use crate::metrics::Metrics;
use diana::Engine;
use diana::redis::RedisStore;
use diana_http::LoadSampler;
use std::sync::Arc;
use std::time::Duration;

/// How often the gateway's own load is told to the rules.
const LOAD: Duration = Duration::from_millis(250);
/// How often certificates are looked at.
const CERTIFICATES: Duration = Duration::from_secs(5);

/// Starts looking, until the runtime ends.
pub(super) fn start(engine: &Arc<Engine<RedisStore>>, metrics: &Arc<Metrics>, certificates: CertificateWatch) {
    let (engine, metrics) = (Arc::clone(engine), Arc::clone(metrics));
    tokio::spawn(async move {
        let (mut before, sampler) = (0, LoadSampler::new(&engine));
        loop {
            // Only while a rule asks for it.
            sampler.follow();
            let totals = metrics.totals();
            let bytes = totals.bytes_in.saturating_add(totals.bytes_out);
            engine.load().add_traffic(bytes.saturating_sub(before));
            engine.load().set_connections(totals.connections);
            before = bytes;
            tokio::time::sleep(LOAD).await;
        }
    });
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(CERTIFICATES).await;
            certificates.refresh();
        }
    });
}
