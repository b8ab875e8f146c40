//! The admin API of a running Diana, for the commands that ask it.
//!
//! [`AdminOptions`] are the options that all of them have; [`client`] sends requests, [`error`] describes failures and
//! what to do, [`model`] has the responses, and
//! [`describe`] puts them into words.

mod client;
pub(crate) mod describe;
mod error;
pub(crate) mod model;

pub(crate) use client::AdminClient;
pub(crate) use error::AdminError;

use super::input::{self, is_stdin};
use super::output;
use clap::Args;
use diana_rules::Secret;
use hyper::Uri;
use serde_json::Value;
use std::path::PathBuf;
use std::process::ExitCode;

/// Where the admin server is, and the token for it.
#[derive(Debug, Args)]
#[command(next_help_heading = "Connection")]
pub(crate) struct AdminOptions {
    /// The URL of Diana's admin server
    #[arg(long, env = "DIANA_ADMIN", value_name = "URL", default_value = "http://127.0.0.1:9090", value_parser = admin_url)]
    admin: AdminUrl,
    /// The token of the admin server, if the rule file sets one
    ///
    /// Other users of the machine can see it in the list of processes: prefer DIANA_TOKEN or `--token-file`.
    #[arg(long, env = "DIANA_TOKEN", hide_env_values = true, value_name = "TOKEN", value_parser = token)]
    token: Option<Secret>,
    /// A file that has only the token; `-` is standard input
    ///
    /// Wins over `--token` and DIANA_TOKEN.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
}

/// The URL of an admin server: `http://127.0.0.1:9090`, or behind a proxy `https://ops.example.com/diana`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AdminUrl {
    /// The address, without a slash at its end.
    text: String,
    is_https: bool,
}

/// Parses a URL; without a scheme it is HTTP.
fn admin_url(text: &str) -> Result<AdminUrl, String> {
    const EXPECTED: &str = "expected a URL such as `http://127.0.0.1:9090`";
    let with_scheme = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
    let uri = with_scheme.parse::<Uri>().map_err(|error| format!("{error}; {EXPECTED}"))?;
    let is_https = match uri.scheme_str() {
        Some("http") => false,
        Some("https") => true,
        _ => return Err(format!("unsupported scheme; {EXPECTED}")),
    };
    let authority = uri.authority().filter(|authority| !authority.host().is_empty()).ok_or(EXPECTED)?;
    if authority.as_str().contains('@') {
        return Err("a user in the URL is not supported: set DIANA_TOKEN, or use `--token-file`".to_owned());
    }
    if uri.query().is_some() {
        return Err(format!("a query is not supported; {EXPECTED}"));
    }
    let scheme = if is_https { "https" } else { "http" };
    Ok(AdminUrl { text: format!("{scheme}://{authority}{}", uri.path().trim_end_matches('/')), is_https })
}

/// Accepts any token: a value that can't be sent is rejected later, without showing it.
fn token(text: &str) -> Result<Secret, std::convert::Infallible> {
    Ok(Secret::new(text.trim()))
}

impl AdminOptions {
    /// Creates a client.
    pub(crate) fn client(&self) -> Result<AdminClient, ExitCode> {
        let token = match &self.token_file {
            None => self.token.clone(),
            Some(path) => {
                let unreadable = |reason: &dyn std::fmt::Display| {
                    output::usage_error(&format!("can't read the token from {}: {reason}", input::name(path)))
                };
                let bytes = input::bytes(path).map_err(|error| unreadable(&error))?;
                let text = String::from_utf8(bytes).map_err(|_| unreadable(&"it is not UTF-8"))?;
                Some(Secret::new(text.trim()))
            }
        };
        let token = token.filter(|token| !token.reveal().is_empty());
        AdminClient::new(&self.admin, token.as_ref()).map_err(|error| output::usage_error(&error.to_string()))
    }

    /// Creates a client, and waits for the response to one request.
    pub(crate) fn ask<T>(
        &self,
        request: impl AsyncFnOnce(&AdminClient) -> Result<T, AdminError>,
    ) -> Result<T, ExitCode> {
        let client = self.client()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| output::failure(&format!("can't start: {error}")))?;
        runtime.block_on(request(&client)).map_err(|error| output::failure(&error.to_string()))
    }

    /// Returns whether the token is read from standard input.
    pub(crate) fn reads_stdin(&self) -> bool {
        self.token_file.as_deref().is_some_and(is_stdin)
    }
}

/// Prints a response of the server as it is, indented.
pub(crate) fn print_json(response: &Value) -> Result<(), ExitCode> {
    output::print(&format!("{response:#}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_may_omit_the_scheme_and_have_a_path() {
        for (text, expected) in [
            ("http://127.0.0.1:9090", "http://127.0.0.1:9090"),
            ("127.0.0.1:9090", "http://127.0.0.1:9090"),
            ("localhost:9090/", "http://localhost:9090"),
            ("[::1]:9090", "http://[::1]:9090"),
            ("https://ops.example.com/diana/", "https://ops.example.com/diana"),
        ] {
            assert_eq!(admin_url(text).unwrap().text, expected);
        }
    }

    #[test]
    fn an_invalid_url_is_rejected() {
        for text in ["", "ftp://127.0.0.1", "http://", "http://:9090", "http://a b", "http://127.0.0.1:9090/?x=1"] {
            assert!(admin_url(text).is_err(), "{text}");
        }
        let error = admin_url("http://user:hunter2@127.0.0.1:9090").unwrap_err();
        assert!(error.contains("DIANA_TOKEN") && !error.contains("hunter2"), "{error}");
    }
}
