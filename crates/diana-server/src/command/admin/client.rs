//! A client of the admin API, on the HTTP client that the config server's sources use: hyper, with rustls for HTTPS.
//!
//! Every response is bounded in time and size, and redirects are not followed, so the token goes to no other host.

use super::model::{History, KeyStatus, RuleList, Status, Top, WhatIf};
use super::{AdminError, AdminUrl};
use bytes::Bytes;
use diana_rules::Secret;
use http_body_util::{BodyExt, Full};
use hyper::header::{ACCEPT, AUTHORIZATION, HeaderValue};
use hyper::{Method, Request, StatusCode};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::time::Duration;

/// The maximum time until a response is complete.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The maximum size of a response: more than ten thousand rules have.
const MAX_RESPONSE: usize = 32 << 20;
/// The maximum length of a text of the server in an error.
const MAX_DETAIL: usize = 500;

/// The client. Clones share their connections.
#[derive(Clone, Debug)]
pub(crate) struct AdminClient {
    http: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    admin: String,
    authorization: Option<HeaderValue>,
}

/// The parameters of a request.
type Parameters<'a> = &'a [(&'a str, &'a str)];

impl AdminClient {
    /// Creates a client; it connects at the first request.
    pub(super) fn new(url: &AdminUrl, token: Option<&Secret>) -> Result<Self, AdminError> {
        let authorization = match token {
            None => None,
            Some(token) => {
                let value = HeaderValue::from_str(&format!("Bearer {}", token.reveal()));
                let mut value = value.map_err(|_| AdminError::InvalidToken)?;
                value.set_sensitive(true);
                Some(value)
            }
        };
        let mut connector = HttpConnector::new();
        connector.enforce_http(false);
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(TIMEOUT));
        let connector = tls(url).https_or_http().enable_http1().wrap_connector(connector);
        let mut builder = Client::builder(TokioExecutor::new());
        builder.pool_timer(TokioTimer::new()).pool_idle_timeout(Duration::from_secs(20));
        Ok(Self { http: builder.build(connector), admin: url.text.clone(), authorization })
    }

    /// Returns the server's URL.
    pub(crate) fn admin(&self) -> &str {
        &self.admin
    }

    pub(crate) async fn status(&self) -> Result<Status, AdminError> {
        self.parsed("/status", &[]).await
    }

    pub(crate) async fn rules(&self) -> Result<RuleList, AdminError> {
        self.parsed("/rules", &[]).await
    }

    pub(crate) async fn top(&self, parameters: Parameters<'_>) -> Result<Top, AdminError> {
        self.parsed("/top", parameters).await
    }

    pub(crate) async fn history(&self, parameters: Parameters<'_>) -> Result<History, AdminError> {
        self.parsed("/history", parameters).await
    }

    pub(crate) async fn what_if(&self, rule: &str, limit: &str) -> Result<WhatIf, AdminError> {
        self.parsed("/what-if", &[("rule", rule), ("limit", limit)]).await
    }

    /// Peeks, resets or refunds a key.
    pub(crate) async fn key(&self, path: &'static str, parameters: Parameters<'_>) -> Result<KeyStatus, AdminError> {
        let response = self.key_json(path, parameters).await?;
        self.parse(path, response)
    }

    /// Peeks, resets or refunds a key, and returns the server's JSON.
    pub(crate) async fn key_json(&self, path: &'static str, parameters: Parameters<'_>) -> Result<Value, AdminError> {
        let method = if path == "/peek" { Method::GET } else { Method::POST };
        self.send(method, path, parameters).await
    }

    /// Returns the response to a GET, as the server's JSON.
    pub(crate) async fn get(&self, path: &'static str, parameters: Parameters<'_>) -> Result<Value, AdminError> {
        self.send(Method::GET, path, parameters).await
    }

    /// Returns the response to a POST without parameters, as the server's JSON.
    pub(crate) async fn post(&self, path: &'static str) -> Result<Value, AdminError> {
        self.send(Method::POST, path, &[]).await
    }

    /// Reads the fields of a response that this program knows.
    pub(crate) fn parse<T: DeserializeOwned>(&self, path: &'static str, response: Value) -> Result<T, AdminError> {
        serde_json::from_value(response).map_err(|error| self.unexpected(path, error.to_string()))
    }

    async fn parsed<T: DeserializeOwned>(
        &self,
        path: &'static str,
        parameters: Parameters<'_>,
    ) -> Result<T, AdminError> {
        let response = self.get(path, parameters).await?;
        self.parse(path, response)
    }

    async fn send(&self, method: Method, path: &'static str, parameters: Parameters<'_>) -> Result<Value, AdminError> {
        let sent = tokio::time::timeout(TIMEOUT, self.exchange(method, path, parameters)).await;
        let (status, body) =
            sent.unwrap_or_else(|_| Err(AdminError::TimedOut { admin: self.admin.clone(), after: TIMEOUT }))?;
        if status.is_success() {
            return serde_json::from_slice(&body).map_err(|error| self.unexpected(path, error.to_string()));
        }
        Err(self.rejected(path, status, &body))
    }

    async fn exchange(
        &self,
        method: Method,
        path: &'static str,
        parameters: Parameters<'_>,
    ) -> Result<(StatusCode, Vec<u8>), AdminError> {
        let mut request =
            Request::builder().method(method).uri(self.uri(path, parameters)).header(ACCEPT, "application/json");
        if let Some(authorization) = &self.authorization {
            request = request.header(AUTHORIZATION, authorization);
        }
        let request = request.body(Full::default()).map_err(|error| self.unexpected(path, error.to_string()))?;
        let response = self.http.request(request).await.map_err(|error| self.unreachable(&error))?;
        let status = response.status();
        let (mut body, mut bytes) = (response.into_body(), Vec::new());
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame.map_err(|error| self.unreachable(&error))?.into_data() else { continue };
            if bytes.len() + data.len() > MAX_RESPONSE {
                return Err(self.unexpected(path, format!("more than {} MiB", MAX_RESPONSE >> 20)));
            }
            bytes.extend_from_slice(&data);
        }
        Ok((status, bytes))
    }

    fn uri(&self, path: &str, parameters: Parameters<'_>) -> String {
        let mut uri = format!("{}{path}", self.admin);
        for (index, (name, value)) in parameters.iter().enumerate() {
            uri.push(if index == 0 { '?' } else { '&' });
            uri.push_str(&format!("{name}={}", encoded(value)));
        }
        uri
    }

    fn rejected(&self, path: &'static str, status: StatusCode, body: &[u8]) -> AdminError {
        let admin = self.admin.clone();
        if status == StatusCode::UNAUTHORIZED {
            return match &self.authorization {
                None => AdminError::MissingToken { admin },
                Some(_) => AdminError::WrongToken { admin },
            };
        }
        let problem = serde_json::from_slice::<Value>(body).unwrap_or_default();
        match problem.get("detail").and_then(Value::as_str) {
            _ if status == StatusCode::METHOD_NOT_ALLOWED => AdminError::UnknownPath { admin, path },
            Some(detail) if status == StatusCode::NOT_FOUND && detail.starts_with("unknown path") => {
                AdminError::UnknownPath { admin, path }
            }
            Some(detail) => AdminError::Rejected { status: status.as_u16(), detail: clean(detail) },
            None if status == StatusCode::NOT_FOUND => AdminError::UnknownPath { admin, path },
            None => AdminError::UnexpectedStatus { admin, status: status.as_u16() },
        }
    }

    fn unreachable(&self, error: &(dyn std::error::Error + 'static)) -> AdminError {
        // The innermost cause: "connection refused" rather than "client error (Connect)".
        let mut cause = error;
        while let Some(source) = cause.source() {
            cause = source;
        }
        let reason = match cause.downcast_ref::<std::io::Error>().map(std::io::Error::kind) {
            Some(std::io::ErrorKind::ConnectionRefused) => "connection refused".to_owned(),
            Some(std::io::ErrorKind::TimedOut) => "the connection timed out".to_owned(),
            _ => clean(&cause.to_string()),
        };
        AdminError::Unreachable { admin: self.admin.clone(), reason }
    }

    fn unexpected(&self, path: &'static str, reason: String) -> AdminError {
        AdminError::UnexpectedResponse { admin: self.admin.clone(), path, reason }
    }
}

/// Returns the TLS of a connector. Only an HTTPS server needs the system's trusted certificates, which take time to read.
fn tls(url: &AdminUrl) -> HttpsConnectorBuilder<hyper_rustls::builderstates::WantsSchemes> {
    let provider = rustls::crypto::ring::default_provider;
    if url.is_https
        && let Ok(tls) = HttpsConnectorBuilder::new().with_provider_and_native_roots(provider())
    {
        return tls;
    }
    // An error means that a provider is installed already, which works as well.
    let _ = provider().install_default();
    let config = rustls::ClientConfig::builder().with_root_certificates(rustls::RootCertStore::empty());
    HttpsConnectorBuilder::new().with_tls_config(config.with_no_client_auth())
}

/// Encodes a parameter's value: every byte that is not a letter, a digit or one of `-._~`.
fn encoded(value: &str) -> String {
    let mut text = String::with_capacity(value.len());
    for byte in value.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            text.push(char::from(byte));
        } else {
            text.push_str(&format!("%{byte:02X}"));
        }
    }
    text
}

/// Cleans a text of the server for a terminal: one line, no control characters, bounded.
pub(crate) fn clean(text: &str) -> String {
    super::super::output::visible(&text.chars().take(MAX_DETAIL).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_encoded() {
        assert_eq!(encoded("a-Z_0.~"), "a-Z_0.~");
        assert_eq!(encoded("10/min a&b=ü"), "10%2Fmin%20a%26b%3D%C3%BC");
    }
}
