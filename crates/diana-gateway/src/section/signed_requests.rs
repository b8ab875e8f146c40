//! Signed requests: `signature: {secret: '${SECRET}', header: x-signature, max_age: 5min}`.

use diana_rules::document::Node;
use diana_rules::map_reader::MapReader;
use diana_rules::scalar::positive_duration;
use diana_rules::{Problem, Secret, scalar};
use std::time::Duration;

/// The signatures that requests must have.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Signature {
    /// The secret shared with the signer.
    pub secret: Secret,
    /// The header with the signature, in lower case.
    pub header: String,
    /// The maximum age of a signature.
    pub max_age: Duration,
}

pub(super) const FIELDS: [&str; 3] = ["secret", "header", "max_age"];
/// The default header.
const HEADER: &str = "x-signature";
/// The default maximum age.
const MAX_AGE: Duration = Duration::from_secs(5 * 60);

impl Signature {
    pub(super) fn parse(node: &Node, problems: &mut Vec<Problem>) -> Option<Self> {
        let mut fields = MapReader::of(node, "`signature`", FIELDS, problems)?;
        let secret = fields.require("secret", problems).and_then(|node| secret(node, problems));
        let header = fields.take("header").and_then(|node| scalar::parsed(node, "`header`", header, problems));
        let max_age = fields.take("max_age").and_then(|node| positive_duration(node, "`max_age`", problems));
        fields.finish(problems);
        let header = header.unwrap_or_else(|| HEADER.to_owned());
        Some(Self { secret: secret?, header, max_age: max_age.unwrap_or(MAX_AGE) })
    }
}

/// Reads a secret. It is never shown.
fn secret(node: &Node, problems: &mut Vec<Problem>) -> Option<Secret> {
    let secret = scalar::text(node, "`secret`", problems)?;
    if secret.trim().is_empty() {
        let problem = Problem::new(node.span, "empty `secret`");
        problems.push(problem.expected("expected a long random text, such as '${SECRET}'"));
        return None;
    }
    Some(Secret::new(secret))
}

fn header(text: &str) -> Result<String, String> {
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    let is_name = !text.is_empty() && text.bytes().all(is_token);
    is_name.then(|| text.to_ascii_lowercase()).ok_or_else(|| "expected a name such as x-signature".to_owned())
}
