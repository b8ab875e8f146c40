//! The filter `api_keys`: passes only requests with a known API key, and reports the customer to the upstream.
//!
//! # What always holds
//! - The upstream gets `x-customer` only from this filter, in one spelling, and never gets the key.
//! - Neither an error nor a log has a key.

use diana::rules::document::{Node, Value};
use diana::rules::map_reader::MapReader;
use diana::rules::{Problem, Section, scalar, schema};
use diana_http::{FilterFuture, HttpFilter, problem_response};
use http::header::WWW_AUTHENTICATE;
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;

// docs: begin filter
/// The header that has the customer, for the upstream.
const CUSTOMER: HeaderName = HeaderName::from_static("x-customer");

/// Passes only requests with a known API key.
#[derive(Clone)]
pub(crate) struct ApiKeys {
    header: HeaderName,
    /// The customers by their keys. The hash of a map is keyed, so the time of a lookup does not help to guess a key.
    customers: HashMap<Box<[u8]>, HeaderValue>,
}

impl ApiKeys {
    /// Returns the customer of a request, or the reason to deny it.
    fn customer(&self, headers: &HeaderMap) -> Result<HeaderValue, &'static str> {
        let mut keys = headers.get_all(&self.header).iter();
        let key = keys.next().ok_or("missing API key")?;
        // The upstream, or another filter, could read the other one.
        if keys.next().is_some() {
            return Err("more than one API key");
        }
        self.customers.get(key.as_bytes()).cloned().ok_or("unknown API key")
    }
}

impl HttpFilter for ApiKeys {
    fn name(&self) -> &str {
        "api_keys"
    }

    fn check<'a>(&'a self, head: &'a mut Parts, _client: IpAddr) -> FilterFuture<'a> {
        Box::pin(async move {
            let customer = self.customer(&head.headers).map_err(|reason| {
                let mut denied = problem_response(StatusCode::UNAUTHORIZED, reason);
                denied.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("ApiKey"));
                denied
            })?;
            remove(&mut head.headers, &self.header);
            remove(&mut head.headers, &CUSTOMER);
            head.headers.insert(CUSTOMER, customer);
            Ok(())
        })
    }
}

/// Removes a header in every spelling: services such as WSGI, CGI and PHP read `x_customer` as `x-customer`.
fn remove(headers: &mut HeaderMap, name: &HeaderName) {
    let is_name = |other: &&HeaderName| other.as_str().replace('_', "-") == name.as_str().replace('_', "-");
    let spellings = headers.keys().filter(is_name).cloned().collect::<Vec<_>>();
    for spelling in spellings {
        headers.remove(spelling);
    }
}
// docs: end

// docs: begin section
impl Section for ApiKeys {
    const NAME: &'static str = "api_keys";

    fn parse(node: &Node, problems: &mut Vec<Problem>) -> Option<Self> {
        let mut fields = MapReader::of(node, "`api_keys`", ["header", "customers"], problems)?;
        let header = |text: &str| HeaderName::try_from(text).map_err(|_| "expected a name such as x-api-key");
        let header = match fields.take("header") {
            Some(node) => scalar::parsed(node, "`header`", header, problems),
            None => Some(HeaderName::from_static("x-api-key")),
        };
        let customers = fields.require("customers", problems).map(|node| customers(node, problems));
        fields.finish(problems);
        Some(Self { header: header?, customers: customers? })
    }

    fn schema() -> serde_json::Value {
        let fields = ["header", "customers"];
        let section = schema::object("customers and their API keys", &fields, |field| match field {
            "header" => serde_json::json!({"type": "string", "description": "the header with the key"}),
            _ => serde_json::json!({"type": "object", "description": "the key of each customer"}),
        });
        schema::requiring(section, &["customers"])
    }
}

// docs: end

/// Reads the key of each customer. No problem shows a key.
fn customers(node: &Node, problems: &mut Vec<Problem>) -> HashMap<Box<[u8]>, HeaderValue> {
    let mut customers = HashMap::new();
    let Value::Map(entries) = &node.value else {
        let problem = Problem::new(node.span, "invalid `customers`");
        problems.push(problem.expected("expected a map such as `{acme: '${ACME_KEY}'}`"));
        return customers;
    };
    for entry in entries {
        let Ok(customer) = HeaderValue::try_from(&entry.key) else {
            problems.push(Problem::new(entry.span, "a customer's name can't be sent in a header"));
            continue;
        };
        let key = entry.node.text().filter(|key| key.len() >= 16);
        let Some(key) = key.filter(|key| key.bytes().all(|byte| byte.is_ascii_graphic())) else {
            let problem = Problem::new(entry.node.span, format!("invalid API key of `{}`", entry.key));
            problems.push(problem.expected("expected at least 16 letters, digits or signs, without spaces"));
            continue;
        };
        if customers.insert(key.as_bytes().into(), customer).is_some() {
            let problem = Problem::new(entry.node.span, format!("the API key of `{}` is not unique", entry.key));
            problems.push(problem.expected("give each customer a key of its own"));
        }
    }
    customers
}

impl fmt::Debug for ApiKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiKeys").field("header", &self.header).finish_non_exhaustive()
    }
}
