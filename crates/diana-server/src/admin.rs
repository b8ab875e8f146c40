//! Health, metrics, the rules in force, and single counts looked at and changed by hand, over HTTP.
//!
//! | | |
//! |---|---|
//! | `GET /` | a page for people |
//! | `GET /healthz`, `GET /readyz` | for those who start and balance: is it there, does it take requests |
//! | `GET /metrics` | for Prometheus |
//! | `GET /status` | what was counted, where rules come from, how the store is |
//! | `GET /rules?find=..&limit=..&offset=..` | the rules in force, in words, with their counts |
//! | `GET /explain?method=..&path=..&ip=..&host=..&header=name:value&account=..` | what every rule says about a request |
//! | `GET /peek?rule=..&key=..` | where a key stands |
//! | `POST /reset?rule=..&key=..` | makes a key as good as new |
//! | `POST /refund?rule=..&key=..&cost=..`, `POST /charge?..` | gives back, takes |
//!
//! Answers are JSON; `/explain` and `/rules` are text for who asks for `text/plain`. What is in the query may be in the
//! body, as an object of JSON.
//!
//! # Who may ask (tests/it/admin.rs)
//! - With a token, whoever sends it: `Authorization: Bearer ..`. The page itself and the two health checks tell no secrets, and
//!   are open; the page asks for the token.
//! - Without one, whoever reaches the address, which is this machine's own unless the file says otherwise. A web page that its
//!   user's browser has open must not: the host must be an address or `localhost` (against names that are made to lead here), and
//!   what changes something must come from no other page.
//!
//! Connections, their time, and what they send are bounded.

mod auth;
mod counts;
mod explain;
mod page;
mod parameters;
mod prometheus;
mod readiness;
mod response;
mod rules;
mod serve;
mod status;

pub use readiness::{Phase, Readiness};

use crate::access_log::Drops;
use crate::metrics::Metrics;
use axum::Router;
use axum::routing::{get, post};
use diana::Engine;
use diana::redis::RedisStore;
use diana_rules::{Gateway, Secret, SourceStatus};
use std::fmt;
use std::sync::Arc;
use tokio::net::TcpListener;

/// Tells how the sources of the rules are.
pub type TellSources = Arc<dyn Fn() -> SourceStatus + Send + Sync>;

/// What is shown, and by whom it may be seen.
#[derive(Clone)]
pub struct AdminState {
    /// Whose rules and counts.
    pub engine: Arc<Engine<RedisStore>>,
    /// What the gateway counts.
    pub metrics: Arc<Metrics>,
    /// How the gateway reads requests, so that explanations read them in the same way.
    pub gateway: Arc<Gateway>,
    /// Whether it takes requests.
    pub readiness: Arc<Readiness>,
    /// Where the rules come from, if they are followed.
    pub sources: Option<TellSources>,
    /// The lines that the access log dropped, if there is one.
    pub access_log: Option<Drops>,
    /// The lines that the program's own log dropped, if it has one.
    pub program_log: Option<Drops>,
    /// What whoever asks must know; `None` if everybody may ask who reaches the address.
    pub token: Option<Secret>,
}

impl fmt::Debug for AdminState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AdminState").field("engine", &self.engine).field("token", &self.token).finish_non_exhaustive()
    }
}

/// The admin server.
#[derive(Clone, Debug)]
pub struct Admin {
    router: Router,
}

impl Admin {
    /// A server that shows this.
    pub fn new(state: AdminState) -> Self {
        let state = Arc::new(state);
        let shown = Router::new()
            .route("/metrics", get(prometheus::metrics))
            .route("/status", get(status::status))
            .route("/rules", get(rules::rules))
            .route("/explain", get(explain::explain).post(explain::explain))
            .route("/peek", get(counts::peek).post(counts::peek))
            .route("/reset", post(counts::reset))
            .route("/refund", post(counts::refund))
            .route("/charge", post(counts::charge))
            .route_layer(axum::middleware::from_fn_with_state(Arc::clone(&state), auth::token));
        let open = Router::new()
            .route("/", get(page::html))
            .route("/page.css", get(page::css))
            .route("/page.js", get(page::js))
            .route("/healthz", get(status::healthz))
            .route("/readyz", get(status::readyz));
        let router =
            shown.merge(open).fallback(response::not_found).method_not_allowed_fallback(response::wrong_method);
        let router = router.layer(axum::middleware::from_fn_with_state(Arc::clone(&state), auth::every));
        Self { router: router.with_state(state) }
    }

    /// Serves on these listeners until it is dropped, which ends what is under way.
    ///
    /// Wants a runtime that does not serve requests: to write down thousands of rules takes milliseconds.
    pub async fn serve(self, listeners: Vec<TcpListener>) {
        serve::serve(self.router, listeners).await;
    }
}
