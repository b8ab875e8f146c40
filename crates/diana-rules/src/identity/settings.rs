//! Parses `jwt`: how tokens are verified, and where a request has them.

use super::key::{ALGORITHMS, Key};
use super::source::Place;
use super::token::Tokens;
use crate::document::{Node, Value};
use crate::map_reader::MapReader;
use crate::problem::Problem;
use crate::scalar;
use diana_core::SystemClock;
use std::sync::Arc;
use std::time::Duration;

/// The fields of `jwt`.
pub(crate) const FIELDS: [&str; 8] =
    ["secret", "public_key", "verify", "algorithm", "from", "issuer", "audience", "leeway"];
/// The default clock leeway, and its maximum.
const LEEWAY: Duration = Duration::from_secs(60);
const LONGEST_LEEWAY: Duration = Duration::from_secs(24 * 60 * 60);

impl Tokens {
    /// Parses the settings. Reports errors in `problems`.
    pub(super) fn read(node: &Node, problems: &mut Vec<Problem>) -> Option<Self> {
        let before = problems.len();
        let mut fields = MapReader::of(node, "`jwt`", FIELDS, problems)?;
        let key = key(&mut fields, problems);
        let from = match fields.take("from") {
            None => Some(Place::usual()),
            Some(node) => scalar::text(node, "`from`", problems).and_then(|text| {
                let place = Place::read(text);
                place.map_err(|wrong| problems.push(wrong.at(node.span))).ok()
            }),
        };
        let issuers = texts(fields.take("issuer"), "`issuer`", problems);
        let audiences = texts(fields.take("audience"), "`audience`", problems);
        let leeway = match fields.take("leeway") {
            None => Some(LEEWAY),
            Some(node) => scalar::duration(node, "`leeway`", problems).filter(|leeway| {
                if *leeway > LONGEST_LEEWAY {
                    problems.push(Problem::new(node.span, "clocks are not off by so much").expected("at most a day"));
                }
                *leeway <= LONGEST_LEEWAY
            }),
        };
        fields.finish(problems);
        let clock = Arc::new(SystemClock);
        let read = Self { from: from?, key: key?, issuers, audiences, leeway: leeway?, clock };
        (problems.len() == before).then_some(read)
    }
}

fn key(fields: &mut MapReader<'_>, problems: &mut Vec<Problem>) -> Option<Key> {
    let span = fields.span();
    let (secret, public, verify) = (fields.take("secret"), fields.take("public_key"), fields.take("verify"));
    let algorithm = fields.take("algorithm");
    let name = match algorithm {
        // An attempt to disable signatures is reported explicitly.
        Some(node) if node.text().is_some_and(|text| text.eq_ignore_ascii_case("none")) => {
            let problem = Problem::new(node.span, "`none` is no algorithm: such tokens are signed by nobody");
            problems.push(problem.expected("if somebody verifies them before us, say `verify: false`"));
            return None;
        }
        Some(node) => Some(*ALGORITHMS.get(scalar::word(node, "`algorithm`", &ALGORITHMS, problems)?)?),
        None => None,
    };
    let (node, made) = match (secret, public, verify) {
        (Some(node), None, None) => {
            let secret = scalar::text(node, "`secret`", problems)?;
            (node, Key::of_secret(name.unwrap_or("HS256"), secret))
        }
        (None, Some(node), None) => {
            let pem = scalar::text(node, "`public_key`", problems)?;
            let Some(name) = name else {
                let problem = Problem::new(node.span, "a public key alone does not tell how tokens are signed");
                problems.push(problem.expected("`algorithm`, such as RS256, ES256 or EdDSA"));
                return None;
            };
            (node, Key::of_public(name, pem))
        }
        (None, None, Some(node)) => {
            if scalar::flag(node, "`verify`", problems)? {
                let problem = Problem::new(node.span, "there is nothing to verify tokens with");
                problems.push(problem.expected("`secret` or `public_key` in place of `verify`"));
                return None;
            }
            (node, Ok(Key::Trusting))
        }
        (None, None, None) => {
            let problem = Problem::new(span, "`jwt` does not say how tokens are verified");
            problems.push(problem.expected("one of `secret`, `public_key` and `verify: false`"));
            return None;
        }
        (_, Some(node), _) | (_, _, Some(node)) => {
            let problem = Problem::new(node.span, "`secret`, `public_key` and `verify` exclude each other");
            problems.push(problem.expected("one of them"));
            return None;
        }
    };
    let at = algorithm.filter(|_| made.as_ref().is_err_and(|(what, _)| what.starts_with("tokens of"))).unwrap_or(node);
    made.map_err(|(what, expected)| problems.push(Problem::new(at.span, what).expected(expected))).ok()
}

/// Parses a text, or a list of them.
fn texts(node: Option<&Node>, what: &str, problems: &mut Vec<Problem>) -> Vec<String> {
    let nodes = match node.map(|node| (node, &node.value)) {
        None => return Vec::new(),
        Some((node, Value::List(items))) if items.is_empty() => {
            // An empty list would accept no token, or every token if it were ignored.
            problems.push(Problem::new(node.span, format!("{what} names nobody")).expected("leave it out"));
            return Vec::new();
        }
        Some((_, Value::List(items))) => items.iter().collect(),
        Some((node, _)) => vec![node],
    };
    nodes.into_iter().filter_map(|node| scalar::text(node, what, problems).map(str::to_owned)).collect()
}
