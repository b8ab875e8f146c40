//! TLS listeners: `tls: {listen: ..., certificates: [{certificate: cert.pem, key: key.pem}]}`.

use diana_rules::document::Node;
use diana_rules::map_reader::MapReader;
use diana_rules::schema::{listen, object, one_or_more, reference_with, requiring};
use diana_rules::{Problem, scalar};
use serde_json::Value;
use std::net::SocketAddr;
use std::path::PathBuf;

/// TLS listeners.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tls {
    /// The addresses that they listen on.
    pub listen: Vec<SocketAddr>,
    /// The certificates, chosen by SNI; the first is the default. There is at least one.
    pub certificates: Vec<Certificate>,
}

/// A certificate and its key. Both are reloaded when they change.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Certificate {
    /// The certificate chain, as PEM.
    pub certificate: PathBuf,
    /// The private key, as PEM.
    pub key: PathBuf,
}

impl Tls {
    /// The names of its fields.
    pub const FIELDS: [&str; 2] = ["listen", "certificates"];

    /// Creates listeners on these addresses with one certificate.
    pub fn new(listen: Vec<SocketAddr>, certificate: Certificate) -> Self {
        Self { listen, certificates: vec![certificate] }
    }

    /// Parses the section.
    pub fn parse(node: &Node, problems: &mut Vec<Problem>) -> Option<Self> {
        let mut fields = MapReader::of(node, "`tls`", Self::FIELDS, problems)?;
        let listen = fields.require("listen", problems).map(|node| scalar::listen(node, problems)).unwrap_or_default();
        let certificates = fields.require("certificates", problems).map(|node| {
            let nodes = scalar::at_least_one(node, "`certificates`", problems).into_iter();
            nodes.filter_map(|node| Certificate::parse(node, problems)).collect()
        });
        fields.finish(problems);
        Some(Self { listen, certificates: certificates.unwrap_or_default() })
    }
}

impl Tls {
    /// Returns the JSON Schema of a field.
    pub fn schema_of(field: &str) -> Value {
        match field {
            "listen" => listen("0.0.0.0:8443"),
            _ => one_or_more(Certificate::schema(), "certificates, chosen by SNI; the first is the default", &[]),
        }
    }
}

impl Certificate {
    /// Returns the JSON Schema of a certificate and its key.
    pub fn schema() -> Value {
        let pair = object("a certificate and its key", &Self::FIELDS, |name| match name {
            "certificate" => reference_with("text", "a PEM file: the certificate and its chain", &["cert.pem"]),
            _ => reference_with("text", "a PEM file: the private key", &["key.pem"]),
        });
        requiring(pair, &Self::FIELDS)
    }

    /// The names of its fields.
    pub const FIELDS: [&str; 2] = ["certificate", "key"];

    /// Parses `{certificate: cert.pem, key: key.pem}`.
    pub fn parse(node: &Node, problems: &mut Vec<Problem>) -> Option<Self> {
        let mut fields = MapReader::of(node, "certificate", Self::FIELDS, problems)?;
        let [certificate, key] =
            Self::FIELDS.map(|name| fields.require(name, problems).and_then(|node| pem_path(node, name, problems)));
        fields.finish(problems);
        Some(Self { certificate: certificate?, key: key? })
    }
}

/// Parses the path of a PEM file.
pub fn pem_path(node: &Node, name: &str, problems: &mut Vec<Problem>) -> Option<PathBuf> {
    let is_path = |text: &str| !text.is_empty() && !text.contains('\0') && !text.starts_with("-----BEGIN");
    let read =
        |text: &str| is_path(text).then(|| text.into()).ok_or_else(|| "expected the path of a PEM file".to_owned());
    let field = format!("`{name}`");
    match node.text() {
        // An inline key is not shown, since it would end up in a log.
        Some(text) if text.starts_with("-----BEGIN") => {
            problems.push(
                Problem::new(node.span, format!("invalid {field}: found PEM text"))
                    .expected("expected the path of a PEM file"),
            );
            None
        }
        _ => scalar::parsed(node, &field, read, problems),
    }
}
