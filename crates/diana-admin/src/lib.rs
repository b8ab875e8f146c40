//! The admin API: health, metrics, the active rules, and inspection and correction of single keys, over HTTP.
//!
//! | | |
//! |---|---|
//! | `GET /` | the web page |
//! | `GET /healthz`, `GET /readyz` | liveness and readiness, for orchestrators and load balancers |
//! | `GET /metrics` | for Prometheus |
//! | `GET /status` | totals, sources of the rules, health of the store |
//! | `GET /history?rule=..&seconds=..&step=..&sums=..` | counts of each second of the last hour, and percentiles of durations |
//! | `GET /rules?find=..&limit=..&offset=..&sort=denied` | the active rules, in words, with their counts |
//! | `GET /rule?name=..` | one rule, and its text in the file |
//! | `GET /changes` | the last changes of the rules, and rejected documents |
//! | `GET /audit?limit=..` | the last changes of keys and rules: who, what, when, before and after |
//! | `GET /whoami` | the name and the role of the token |
//! | `GET /explain?method=..&path=..&ip=..&host=..&header=name:value&account=..` | each rule's decision about a request |
//! | `GET /top?rule=..&window=minute\|hour&limit=..&find=..` | the heaviest keys of each rule: denied, delayed and allowed |
//! | `GET /what-if?rule=..&limit=..` | an estimate of what another limit would deny |
//! | `GET /peek?rule=..&key=..` | the status of a key |
//! | `POST /reset?rule=..&key=..` | resets a key |
//! | `POST /refund?rule=..&key=..&cost=..`, `POST /charge?..` | refunds or charges a cost |
//! | `POST /reload` | reads the sources of the rules and the certificates again |
//!
//! Responses are JSON; `/explain` and `/rules` are text if the client accepts `text/plain`. Query parameters may also
//! be sent in the body, as a JSON object.
//!
//! # Access (tests/it/admin.rs)
//! - With tokens, every client that sends one of them: `Authorization: Bearer ..`. A token with the role `read` permits
//!   everything that changes nothing. The page itself and the two health checks contain no secrets and are open; the page
//!   asks for the token.
//! - Without any, every client that reaches the address, which is a loopback address unless the file sets another.
//!   Other web pages in a user's browser are kept out: a request has one host, which must be an address or `localhost`
//!   (against DNS rebinding), and one that changes something must not come from another origin.
//!
//! Connections, their duration and the size of requests are bounded.
//!
//! | module | subject |
//! |---|---|
//! | [`connections`] | connections: how many, and for how long |
//! | [`middleware`] | every request and response: the origin check, a timeout, headers |
//! | [`tokens`] | the valid tokens, which a changed file replaces |
//! | [`auth`] | tokens, their roles, and requests from other web pages; `/whoami` |
//! | [`audit`] | the audit log of all changes, and `/audit` |
//! | [`parameters`], [`response`] | shared by all endpoints: query parameters, JSON and errors |
//! | [`page`] | the web page |
//! | [`status`], [`readiness`] | `/status`, `/healthz` and `/readyz` |
//! | [`settings`] | which changed settings apply, and which wait for a restart |
//! | [`prometheus`] | `/metrics` |
//! | [`rules`] | `/rules` |
//! | [`history`] | `/history`, and the sampler that fills it |
//! | [`rule_log`] | `/rule` and `/changes` |
//! | [`explain`] | `/explain` |
//! | [`top`], [`what_if`] | `/top`, `/what-if` |
//! | [`key`] | `/peek`, `/reset`, `/refund` and `/charge` |
//! | [`reload`] | `/reload` |

mod audit;
mod auth;
mod connections;
mod degraded;
mod explain;
mod history;
mod key;
mod middleware;
mod page;
mod parameters;
mod prometheus;
mod readiness;
mod reload;
mod response;
mod rule_change;
mod rule_log;
mod rules;
mod section;
mod settings;
mod status;
mod tokens;
mod top;
mod what_if;

pub use audit::{Actor, AuditLog};
pub use history::{History, Sampler};
pub use readiness::{Phase, Readiness};
pub use reload::Reload;
pub use rule_log::RuleLog;
pub use section::{AdminSection, AdminToken, Role, TokenChange};
pub use settings::{ReportSettings, SettingsStatus};
pub use tokens::AdminTokens;

use axum::Router;
use axum::routing::{get, post};
use diana::{Engine, Timestamp};
use diana_config::SourceStatus;
use diana_http::head::HeadPolicy;
use diana_metrics::{DroppedLines, Metrics, ServiceTotals, UpstreamStatus};
use diana_net::tls::CertificateStatus;
use std::fmt;
use std::sync::Arc;
use tokio::net::TcpListener;

/// Returns the status of the sources of the rules.
pub type ReportSources = Arc<dyn Fn() -> SourceStatus + Send + Sync>;

/// Returns the counts of each service for other gateways, with its name.
pub type ReportServices = Arc<dyn Fn() -> Vec<(&'static str, ServiceTotals)> + Send + Sync>;

/// Returns the status of each upstream.
pub type ReportUpstreams = Arc<dyn Fn() -> Vec<UpstreamStatus> + Send + Sync>;

/// Returns the active TLS certificates, each with the name of its listener.
pub type ReportCertificates = Arc<dyn Fn() -> Vec<(&'static str, CertificateStatus)> + Send + Sync>;

/// The last write of `store.snapshot`.
#[derive(Clone, Debug, Default)]
pub struct SnapshotStatus {
    /// The time at which the counts were last saved.
    pub saved: Timestamp,
    /// The number of keys that were saved.
    pub keys: usize,
    /// The number of failures to save.
    pub errors: u64,
    /// The time since which saving fails, and the reason; `None` if it works.
    pub failing: Option<(Timestamp, String)>,
}

/// Returns the last write of `store.snapshot`.
pub type ReportSnapshot = Arc<dyn Fn() -> SnapshotStatus + Send + Sync>;

/// The data that the admin server shows, and its access control.
#[derive(Clone)]
pub struct AdminState {
    /// The engine whose rules and counts are shown.
    pub engine: Engine,
    /// The gateway's metrics.
    pub metrics: Arc<Metrics>,
    /// The heads of requests that the gateway rejects, so that explanations reject the same ones.
    pub heads: HeadPolicy,
    /// Whether the program accepts requests.
    pub readiness: Arc<Readiness>,
    /// The sources of the rules, if they are watched for changes.
    pub sources: Option<ReportSources>,
    /// The counts of the services for other gateways.
    pub services: ReportServices,
    /// The counts of the last hour, filled by a [`Sampler`].
    pub history: Arc<History>,
    /// The texts and the changes of the rules.
    pub rule_log: Arc<RuleLog>,
    /// Records every change.
    pub audit: Arc<AuditLog>,
    /// Reads the sources of the rules and the certificates again, if they can change.
    pub reload: Option<Reload>,
    /// The upstreams of the gateway.
    pub upstreams: ReportUpstreams,
    /// The certificates of the gateway and of the services.
    pub certificates: ReportCertificates,
    /// The number of lines that the access log dropped, if there is one.
    pub access_log: Option<DroppedLines>,
    /// The number of lines that the program's own log dropped, if there is one.
    pub program_log: Option<DroppedLines>,
    /// The file of `store.snapshot`, if there is one.
    pub snapshot: Option<ReportSnapshot>,
    /// The settings that were changed since the start, if the rule file is watched.
    pub settings: Option<ReportSettings>,
    /// The tokens, one of which clients must send; if there are none, every client that reaches the address has access.
    pub tokens: Arc<AdminTokens>,
}

impl fmt::Debug for AdminState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AdminState").field("engine", &self.engine).field("tokens", &self.tokens).finish_non_exhaustive()
    }
}

/// The admin server.
#[derive(Clone, Debug)]
pub struct Admin {
    router: Router,
}

impl Admin {
    /// Creates a server for this state.
    pub fn new(state: AdminState) -> Self {
        let state = Arc::new(state);
        let reading = Router::new()
            .route("/metrics", get(prometheus::metrics))
            .route("/status", get(status::status))
            .route("/rules", get(rules::rules))
            .route("/rule", get(rule_log::rule))
            .route("/changes", get(rule_log::changes))
            .route("/audit", get(audit::audit))
            .route("/whoami", get(auth::who_am_i))
            .route("/history", get(history::history))
            .route("/explain", get(explain::explain).post(explain::explain))
            .route("/top", get(top::top))
            .route("/what-if", get(what_if::what_if))
            .route("/peek", get(key::peek).post(key::peek))
            .route_layer(axum::middleware::from_fn_with_state(Arc::clone(&state), auth::read));
        let operating = Router::new()
            .route("/reset", post(key::reset))
            .route("/refund", post(key::refund))
            .route("/charge", post(key::charge))
            .route("/reload", post(reload::reload))
            .route_layer(axum::middleware::from_fn_with_state(Arc::clone(&state), auth::operate));
        let open = Router::new()
            .route("/", get(page::html))
            .route("/page.css", get(page::css))
            .route("/page.js", get(page::js))
            .route("/page/{module}", get(page::module))
            .route("/healthz", get(readiness::healthz))
            .route("/readyz", get(readiness::readyz));
        let router = reading
            .merge(operating)
            .merge(open)
            .fallback(response::not_found)
            .method_not_allowed_fallback(response::method_not_allowed);
        let router = router.layer(axum::middleware::from_fn_with_state(Arc::clone(&state), middleware::guard));
        Self { router: router.with_state(state) }
    }

    /// Serves on these listeners until it is dropped, which aborts open connections.
    ///
    /// Needs a runtime that does not serve requests: formatting thousands of rules takes milliseconds.
    pub async fn serve(self, listeners: Vec<TcpListener>) {
        connections::serve(self.router, listeners).await;
    }
}
