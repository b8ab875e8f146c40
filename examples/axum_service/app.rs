//! The service: its routes, the rules in front of them, and the limits of functions.

use crate::{database::Database, feed, partner::Partner, shop};
use axum::Router;
use axum::extract::{Path as Segment, Query, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use diana::config::{Sources, WatchHandle};
use diana::limited::Limits;
use diana::redis::{Options, RedisStore};
use diana::rules::{Document, RuleFile};
use diana::{Engine, Reloader};
use diana_http::{LimitedResponse, RateLimitLayer};
use http::StatusCode;
use serde::Deserialize;
use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;
use tokio::net::TcpListener;

/// The service, and the watcher of its rules.
pub(crate) struct App {
    router: Router,
    _watch: WatchHandle,
}

/// The state shared by handlers.
#[derive(Clone)]
struct AppState {
    database: Database,
    partner: Partner,
}

/// Reads the rules, installs the limits, and starts to watch the file.
pub(crate) async fn start(rules: &Path, redis: Option<&str>) -> Result<App, Box<dyn Error>> {
    let document = Document::new(rules.display().to_string(), std::fs::read_to_string(rules)?);
    let file = RuleFile::read(&document, &diana::registry())?;
    let engine = Engine::new(&file);

    let mut limits = Limits::new().with_rules(engine.clone());
    if let Some(url) = redis {
        limits = limits.with_shared(RedisStore::connect(url, Options::default()).await?);
    }
    limits.install();

    let reloader = Reloader::new(engine.clone(), diana::registry());
    let watch = Sources::new().local(rules).remote_of(&file)?.start(reloader).await?;
    let state = AppState { database: Database::new()?, partner: Partner::start().await? };
    let shared = redis.is_some();
    let router = Router::new()
        .route("/", get(async || "hello\n"))
        .route("/search", get(search))
        .route("/codes/{phone}", post(code))
        .route("/export", if shared { get(shop::export_shared) } else { get(shop::export) })
        .route("/upload", post(upload))
        .route("/orders", get(orders))
        .route("/rates", get(rates))
        .route("/feed", get(feed::lines))
        .route("/film", get(feed::film))
        .with_state(state)
        // A layer wraps the routes added before it. It also provides the client's identity to limited functions inside.
        .layer(RateLimitLayer::with_engine(engine));
    Ok(App { router, _watch: watch })
}

impl App {
    pub(crate) async fn serve(self, listener: TcpListener) -> io::Result<()> {
        // Provides the client's address to Diana.
        axum::serve(listener, self.router.into_make_service_with_connect_info::<SocketAddr>()).await
    }
}

#[derive(Deserialize)]
struct Search {
    words: String,
}

async fn search(Query(search): Query<Search>) -> Result<String, LimitedResponse> {
    shop::search(&search.words).await
}

async fn code(Segment(phone): Segment<String>) -> Result<String, LimitedResponse> {
    shop::send_code(&shop::Phone(phone)).await
}

async fn upload(body: axum::body::Bytes) -> String {
    tokio::time::sleep(Duration::from_millis(500)).await;
    format!("{} bytes, thank you\n", body.len())
}

async fn orders(State(state): State<AppState>) -> Result<String, Unavailable> {
    Ok(state.database.connection().await?.query("select * from orders").await)
}

async fn rates(State(state): State<AppState>) -> Result<String, Unavailable> {
    Ok(state.partner.rates().await?)
}

/// A dependency is overloaded: the database, or the partner.
struct Unavailable(Box<dyn Error + Send + Sync>);

impl<E: Into<Box<dyn Error + Send + Sync>>> From<E> for Unavailable {
    fn from(error: E) -> Self {
        Self(error.into())
    }
}

impl IntoResponse for Unavailable {
    fn into_response(self) -> Response {
        (StatusCode::SERVICE_UNAVAILABLE, [("retry-after", "1")], format!("{}\n", self.0)).into_response()
    }
}
