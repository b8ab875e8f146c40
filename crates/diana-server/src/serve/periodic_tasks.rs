//! Periodic tasks: measuring the load of the gateway, reloading changed certificates, and logging denials.

use diana::Engine;
use diana_http::LoadSampler;
use diana_metrics::Metrics;
use diana_net::CertificateWatch;
use diana_services::ServiceCertificates;
use std::sync::Arc;
use std::time::Duration;

/// The interval at which the gateway's load is reported to the rules.
const LOAD: Duration = Duration::from_millis(250);
/// The interval at which certificates are checked for changes.
const CERTIFICATES: Duration = Duration::from_secs(5);

/// The interval at which it is checked whether a minute with denials is over.
const DENIALS: Duration = Duration::from_secs(1);

/// Starts the tasks, which run until the runtime ends.
pub(super) fn start(
    engine: &Engine,
    metrics: &Arc<Metrics>,
    certificates: CertificateWatch,
    services: ServiceCertificates,
) {
    let (logging, engine, metrics) = (engine.clone(), engine.clone(), Arc::clone(metrics));
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(DENIALS).await;
            logging.log_denied_minutes();
        }
    });
    tokio::spawn(async move {
        let (mut before, sampler) = (0, LoadSampler::new(&engine));
        loop {
            // Samples only while a rule uses it.
            sampler.update();
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
            services.refresh();
        }
    });
}
