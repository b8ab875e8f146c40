//! Rules by which a test sees the scheme that a request has for rules.

/// Rules that deny every request with a scheme, each with a status of its own. An expression that reads an ambiguous value
/// fails, so that all of them match.
pub(crate) const RULES: &str = r#"
rules:
  - {name: ambiguous, match: {when: 'request.scheme == "other"'}, limit: 1/h, cost: 2, status: 463}
  - {name: http, match: {when: 'request.scheme == "http"'}, limit: 1/h, cost: 2, status: 461}
  - {name: https, match: {when: 'request.scheme == "https"'}, limit: 1/h, cost: 2, status: 462}
"#;

/// The status of a denial of a request with this scheme.
pub(crate) const HTTP: u16 = 461;
pub(crate) const HTTPS: u16 = 462;
pub(crate) const AMBIGUOUS: u16 = 463;
