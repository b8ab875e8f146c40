//! Rules on different paths and hosts, and requests for them.

use diana::Engine;
use diana::rules::{Attribute, Attributes, Document, RuleFile};
use std::borrow::Cow;
use std::net::IpAddr;

/// Returns rules with a path each, on a tenth as many hosts. Half of them are patterns.
pub fn text(rules: usize) -> String {
    let mut text = "identity: {account: header(x-account-id)}\nrules:\n".to_owned();
    for index in 0..rules {
        let path = if index.is_multiple_of(2) {
            format!("/service-{index}/**")
        } else {
            format!("/service-{index}/orders/{{id}}")
        };
        // A single rule matches by its path alone, as a first rule usually does.
        let host =
            if rules == 1 { String::new() } else { format!("host: h{}.example.com, ", index % (rules / 10).max(1)) };
        text +=
            &format!("  - {{name: rule-{index}, by: account, match: {{{host}path: '{path}'}}, limit: 1000000000/s}}\n");
    }
    text
}

/// Returns rules that all match every request, by account. Their bursts differ, since identical rules are rejected.
pub fn text_matching(rules: usize) -> String {
    let rule = |index| {
        let burst = 1_000_000_000 + index;
        format!("  - {{name: rule-{index}, by: account, limit: 1000000000/s, burst: {burst}}}\n")
    };
    let rules = (0..rules).map(rule).collect::<String>();
    format!("identity: {{account: header(x-account-id)}}\nrules:\n{rules}")
}

/// Returns rules that all match every request, each by a header of its own: `x-key-0` to `x-key-7`.
pub fn text_matching_keys(rules: usize) -> String {
    let rule = |index| format!("  - {{name: rule-{index}, by: header(x-key-{index}), limit: 1000000000/s}}\n");
    format!("rules:\n{}", (0..rules).map(rule).collect::<String>())
}

pub fn file(text: &str) -> RuleFile {
    let document = Document::new("bench.yaml", text);
    RuleFile::read(&document, &diana::registry()).unwrap_or_else(|problems| panic!("{problems}"))
}

pub fn engine(rules: usize) -> Engine {
    Engine::new(&file(&text(rules)))
}

/// A request as a gateway has it: its parts are parsed, and only looked up.
pub struct Request {
    pub path: String,
    pub host: String,
    pub account: String,
    pub keys: [String; 8],
    pub ip: IpAddr,
}

impl Request {
    /// Creates a request that one rule in the middle matches.
    pub fn new(rules: usize) -> Self {
        let index = rules / 2;
        let host = index % (rules / 10).max(1);
        Self {
            path: format!("/service-{index}/orders/7"),
            host: format!("h{host}.example.com"),
            account: "account-1234567".to_owned(),
            keys: [0, 1, 2, 3, 4, 5, 6, 7].map(|index| format!("account-123456{index}")),
            ip: [203, 0, 113, 7].into(),
        }
    }
}

impl Attributes for Request {
    #[inline]
    fn get(&self, attribute: &Attribute) -> Option<Cow<'_, str>> {
        match attribute {
            Attribute::Path => Some(Cow::Borrowed(&self.path)),
            Attribute::Host => Some(Cow::Borrowed(&self.host)),
            Attribute::Method => Some(Cow::Borrowed("GET")),
            Attribute::Header(name) if &**name == "x-account-id" => Some(Cow::Borrowed(&self.account)),
            Attribute::Header(name) => {
                let index = name.strip_prefix("x-key-")?.parse::<usize>().ok()?;
                Some(Cow::Borrowed(self.keys.get(index)?))
            }
            _ => None,
        }
    }

    fn ip(&self) -> Option<IpAddr> {
        Some(self.ip)
    }
}

/// Decides about a request, and returns whether it is granted; local decisions are ready at once.
#[inline]
pub fn is_granted(engine: &Engine, request: &dyn Attributes) -> bool {
    engine.acquire(request).now().unwrap_or_else(|_| unreachable!("local decisions are ready at once")).is_ok()
}
