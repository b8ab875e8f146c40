//! An admin server on its own port, and a client that sends exact bytes.

use diana::{Engine, EngineOptions, SystemClock};
use diana_admin::{Admin, AdminSection, AdminState, AdminToken, AdminTokens, AuditLog, Readiness, Role, RuleLog};
use diana_gateway::section::GatewaySection;
use diana_metrics::Metrics;
use diana_rules::attributes::SyntheticRequest;
use diana_rules::{Document, RuleFile, Secret};
use serde_json::Value;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// A timeout that no test should reach.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// A running admin server.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) engine: Engine,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) readiness: Arc<Readiness>,
    task: JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A response.
#[derive(Debug)]
pub(crate) struct HttpResponse {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl HttpResponse {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Returns the detail of a problem.
    pub(crate) fn detail(&self) -> String {
        assert!(self.has("content-type: application/problem+json"), "{self:?}");
        assert_eq!(self.json()["status"], self.status);
        self.json()["detail"].as_str().unwrap().to_owned()
    }

    pub(crate) fn has(&self, header: &str) -> bool {
        self.head.lines().any(|line| line.eq_ignore_ascii_case(header))
    }
}

pub(crate) fn read(text: &str) -> RuleFile {
    let mut registry = diana::registry();
    registry.section::<GatewaySection>();
    RuleFile::read(&Document::new("diana.yaml", text), &registry).unwrap_or_else(|problems| panic!("{problems}"))
}

/// The tokens of a server on a loopback address.
pub(crate) fn tokens(tokens: impl Into<Vec<AdminToken>>) -> Arc<AdminTokens> {
    let mut section = AdminSection::default();
    section.tokens = tokens.into();
    Arc::new(AdminTokens::of(&section))
}

impl Server {
    /// Starts a server with the rules of a file; `change` sets the rest of its state.
    pub(crate) async fn start_with(text: &str, change: impl FnOnce(&mut AdminState)) -> Self {
        let file = read(text);
        let shared = match &file.store.redis {
            Some(section) => Some(diana::connect(section).await.unwrap()),
            None => None,
        };
        let mut state = AdminState {
            engine: EngineOptions::of(&file).build_with(&file, shared),
            metrics: Metrics::new(2),
            heads: file.section_or_default::<GatewaySection>().unwrap().server_settings().heads(),
            readiness: Arc::new(Readiness::new()),
            sources: None,
            services: Arc::new(Vec::new),
            history: Arc::default(),
            rule_log: Arc::new(RuleLog::new(Arc::new(SystemClock))),
            audit: Arc::new(AuditLog::new(Arc::new(SystemClock))),
            reload: None,
            upstreams: Arc::new(Vec::new),
            certificates: Arc::new(Vec::new),
            access_log: None,
            program_log: None,
            snapshot: None,
            settings: None,
            tokens: Arc::default(),
        };
        change(&mut state);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (engine, metrics) = (state.engine.clone(), Arc::clone(&state.metrics));
        let readiness = Arc::clone(&state.readiness);
        let task = tokio::spawn(Admin::new(state).serve(vec![listener]));
        Self { address, engine, metrics, readiness, task }
    }

    pub(crate) async fn start(text: &str) -> Self {
        Self::start_with(text, |_| {}).await
    }

    pub(crate) async fn start_with_token(text: &str, token: &str) -> Self {
        let token = AdminToken::new("admin", Secret::new(token), Role::Operate);
        Self::start_with(text, |state| state.tokens = tokens([token])).await
    }

    /// Decides a request of an account.
    pub(crate) async fn decide(&self, account: &str) -> bool {
        let request = SyntheticRequest::new("GET", "/").ip([203, 0, 113, 7]).named("account", account);
        self.engine.acquire(&request).await.is_ok()
    }

    pub(crate) async fn get(&self, path: &str) -> HttpResponse {
        self.send("GET", path, &[], "").await
    }

    pub(crate) async fn post(&self, path: &str, body: &str) -> HttpResponse {
        self.send("POST", path, &[], body).await
    }

    /// Sends a request with these headers, and a default `Host` unless they have one.
    pub(crate) async fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> HttpResponse {
        let host = ("host", &*self.address.to_string());
        let has_host = headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host"));
        let all = headers.iter().copied().chain((!has_host).then_some(host));
        let head = all.map(|(name, value)| format!("{name}: {value}\r\n")).collect::<String>();
        let length = body.len();
        let text =
            format!("{method} {path} HTTP/1.1\r\n{head}connection: close\r\ncontent-length: {length}\r\n\r\n{body}");
        self.send_raw(text.as_bytes()).await
    }

    /// Sends bytes, and reads until the server closes the connection.
    pub(crate) async fn send_raw(&self, bytes: &[u8]) -> HttpResponse {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        let mut response = Vec::new();
        tokio::time::timeout(LIMIT, stream.read_to_end(&mut response)).await.unwrap().unwrap();
        let response = String::from_utf8(response).unwrap();
        let (head, body) = response.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{response:?}"));
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let is_chunked = head.to_ascii_lowercase().contains("transfer-encoding: chunked");
        assert!(!is_chunked, "expected a content-length: {head}");
        HttpResponse { status, head: head.to_owned(), body: body.to_owned() }
    }
}
