//! Parses `jwt`: how tokens are verified, and where a request has them.

use super::jwt::Tokens;
use super::source::TokenSource;
use super::verification_key::{ALGORITHMS, VerificationKey};
use diana_core::SystemClock;
use diana_document::Problem;
use diana_document::map_reader::MapReader;
use diana_document::scalar;
use diana_document::{Node, Value};
use std::sync::Arc;
use std::time::Duration;

/// The fields of `jwt`.
pub(crate) const FIELDS: [&str; 8] =
    ["secret", "public_key", "verify", "algorithm", "from", "issuer", "audience", "leeway"];
/// The default clock leeway, and its maximum.
const LEEWAY: Duration = Duration::from_secs(60);
const MAX_LEEWAY: Duration = Duration::from_secs(24 * 60 * 60);

impl Tokens {
    /// Parses the settings. Reports errors in `problems`.
    pub(super) fn read(node: &Node, problems: &mut Vec<Problem>) -> Option<Self> {
        let before = problems.len();
        let mut fields = MapReader::of(node, "`jwt`", FIELDS, problems)?;
        let key = key(&mut fields, problems);
        let from = match fields.take("from") {
            None => Some(TokenSource::default_header()),
            Some(node) => scalar::text(node, "`from`", problems).and_then(|text| {
                let source = TokenSource::read(text);
                source.map_err(|invalid| problems.push(invalid.at(node.span))).ok()
            }),
        };
        let issuers = texts(fields.take("issuer"), "`issuer`", problems);
        let audiences = texts(fields.take("audience"), "`audience`", problems);
        let leeway = match fields.take("leeway") {
            None => Some(LEEWAY),
            Some(node) => scalar::duration(node, "`leeway`", problems).filter(|leeway| {
                if *leeway > MAX_LEEWAY {
                    problems
                        .push(Problem::new(node.span, "`leeway` is out of range").expected("expected at most a day"));
                }
                *leeway <= MAX_LEEWAY
            }),
        };
        fields.finish(problems);
        let clock = Arc::new(SystemClock);
        let read = Self { from: from?, key: key?, issuers, audiences, leeway: leeway?, clock };
        (problems.len() == before).then_some(read)
    }
}

fn key(fields: &mut MapReader<'_>, problems: &mut Vec<Problem>) -> Option<VerificationKey> {
    let span = fields.span();
    let (secret, public, verify) = (fields.take("secret"), fields.take("public_key"), fields.take("verify"));
    let algorithm = fields.take("algorithm");
    let name = match algorithm {
        // An attempt to disable signatures is reported explicitly.
        Some(node) if node.text().is_some_and(|text| text.eq_ignore_ascii_case("none")) => {
            let problem = Problem::new(node.span, "unsupported algorithm `none`: such tokens are not signed");
            problems.push(problem.expected("use `verify: false` if another component verifies them"));
            return None;
        }
        Some(node) => Some(*ALGORITHMS.get(scalar::word(node, "`algorithm`", &ALGORITHMS, problems)?)?),
        None => None,
    };
    let (node, result) = match (secret, public, verify) {
        (Some(node), None, None) => {
            let secret = scalar::text(node, "`secret`", problems)?;
            (node, VerificationKey::of_secret(name.unwrap_or("HS256"), secret))
        }
        (None, Some(node), None) => {
            let pem = scalar::text(node, "`public_key`", problems)?;
            let Some(name) = name else {
                let problem = Problem::new(node.span, "`public_key` needs an `algorithm`");
                problems.push(problem.expected("add `algorithm`, such as RS256, ES256 or EdDSA"));
                return None;
            };
            (node, VerificationKey::of_public(name, pem))
        }
        (None, None, Some(node)) => {
            if scalar::flag(node, "`verify`", problems)? {
                let problem = Problem::new(node.span, "`verify: true` needs a key");
                problems.push(problem.expected("use `secret` or `public_key` instead of `verify`"));
                return None;
            }
            (node, Ok(VerificationKey::Trusting))
        }
        (None, None, None) => {
            let problem = Problem::new(span, "missing key to verify tokens with");
            problems.push(problem.expected("add one of `secret`, `public_key` and `verify: false`"));
            return None;
        }
        (_, Some(node), _) | (_, _, Some(node)) => {
            let problem = Problem::new(node.span, "`secret`, `public_key` and `verify` cannot be used together");
            problems.push(problem.expected("use only one of them"));
            return None;
        }
    };
    let at =
        algorithm.filter(|_| result.as_ref().is_err_and(|(what, _)| what.starts_with("tokens of"))).unwrap_or(node);
    result.map_err(|(what, expected)| problems.push(Problem::new(at.span, what).expected(expected))).ok()
}

/// Parses a text, or a list of them.
fn texts(node: Option<&Node>, what: &str, problems: &mut Vec<Problem>) -> Vec<String> {
    let nodes = match node.map(|node| (node, &node.value)) {
        None => return Vec::new(),
        Some((node, Value::List(items))) if items.is_empty() => {
            // An empty list would accept no token, or every token if it were ignored.
            problems.push(Problem::new(node.span, format!("{what} is empty")).expected("remove it"));
            return Vec::new();
        }
        Some((_, Value::List(items))) => items.iter().collect(),
        Some((node, _)) => vec![node],
    };
    nodes.into_iter().filter_map(|node| scalar::text(node, what, problems).map(str::to_owned)).collect()
}
