//! Tokens with a name and a role: `tokens: [{name: alice, token: '${ALICE_TOKEN}', role: operate}]`.

use diana_rules::document::{Node, Value};
use diana_rules::map_reader::MapReader;
use diana_rules::{Problem, Secret, scalar, schema};
use serde::Serialize;
use serde_json::json;
use std::fmt;

/// The permissions of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Role {
    /// Permits everything that changes nothing.
    Read,
    /// Permits changes, too: reset, refund, charge and reload.
    Operate,
}

/// A bearer token of the admin API.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AdminToken {
    /// The name of its owner, for audit logs.
    pub name: String,
    /// The token itself.
    pub token: Secret,
    /// The permissions.
    pub role: Role,
}

const FIELDS: [&str; 3] = ["name", "token", "role"];
/// The maximum number of tokens: each request is compared with all of them.
const MAX_TOKENS: usize = 100;
const MAX_NAME_LENGTH: usize = 64;
/// The name of the operator whose token is `token`.
const UNNAMED: &str = "admin";

impl Role {
    const WORDS: [&str; 2] = ["read", "operate"];
    const ALL: [Self; 2] = [Self::Read, Self::Operate];

    /// Returns the role as the file writes it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => Self::WORDS[0],
            Self::Operate => Self::WORDS[1],
        }
    }
}

/// The tokens that differ, each with its name and its role, never with its value.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TokenChange {
    /// New names.
    pub added: Vec<String>,
    /// Names that have no token any more.
    pub removed: Vec<String>,
    /// Names with another token or another role.
    pub changed: Vec<String>,
}

impl TokenChange {
    /// Compares tokens by name; `None` if nothing differs.
    pub(crate) fn between(before: &[AdminToken], after: &[AdminToken]) -> Option<Self> {
        let without = |tokens: &[AdminToken], others: &[AdminToken]| {
            let tokens = tokens.iter().filter(|token| others.iter().all(|other| other.name != token.name));
            tokens.map(ToString::to_string).collect::<Vec<_>>()
        };
        let differing = after.iter().filter(|token| before.iter().any(|old| old.name == token.name && old != *token));
        let changed = differing.map(ToString::to_string).collect();
        let change = Self { added: without(after, before), removed: without(before, after), changed };
        (change != Self::default()).then_some(change)
    }
}

impl fmt::Display for AdminToken {
    /// Writes `alice (operate)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name, self.role.name())
    }
}

impl AdminToken {
    /// Creates a token.
    pub fn new(name: impl Into<String>, token: Secret, role: Role) -> Self {
        Self { name: name.into(), token, role }
    }

    /// Creates the token of the field `token`, which permits everything.
    pub(super) fn unnamed(token: Secret) -> Self {
        Self::new(UNNAMED, token, Role::Operate)
    }

    /// Parses all tokens; `unnamed` is the value of the field `token`.
    pub(super) fn parse_all(node: &Node, unnamed: Option<&Secret>, problems: &mut Vec<Problem>) -> Vec<Self> {
        let Value::List(items) = &node.value else {
            let what = format!("invalid `tokens`: expected a list, found {}", node.value.kind());
            problems.push(Problem::new(node.span, what).expected("start each token with `- name: ...`"));
            return Vec::new();
        };
        if items.is_empty() || items.len() > MAX_TOKENS {
            let problem = Problem::new(node.span, format!("invalid `tokens`: it has {}", items.len()));
            problems.push(problem.expected(format!("expected 1 to {MAX_TOKENS}")));
            return Vec::new();
        }
        let mut known = unnamed.cloned().map(Self::unnamed).into_iter().collect::<Vec<_>>();
        let first = known.len();
        for item in items {
            let Some((token, [name, secret])) = Self::parse(item, problems) else { continue };
            if known.iter().any(|other| other.name == token.name) {
                let origin = if unnamed.is_some() && token.name == UNNAMED { ": `token` has it" } else { "" };
                let problem = Problem::new(name.span, format!("duplicate token name `{}`{origin}", token.name));
                problems.push(problem.expected("use another name"));
            }
            if let Some(other) = known.iter().find(|other| other.token == token.token) {
                let what = format!("`{}` and `{}` have the same token", other.name, token.name);
                problems.push(Problem::new(secret.span, what).expected("use another token for one of them"));
            }
            known.push(token);
        }
        known.split_off(first)
    }

    /// Parses a token; returns the nodes of its name and its value with it.
    fn parse<'a>(node: &'a Node, problems: &mut Vec<Problem>) -> Option<(Self, [&'a Node; 2])> {
        let mut fields = MapReader::of(node, "token", FIELDS, problems)?;
        let [name, secret, role] = FIELDS.map(|field| fields.require(field, problems));
        fields.finish(problems);
        let parsed_name = name.and_then(|node| parse_name(node, problems));
        let token = secret.and_then(|node| scalar::token(node, problems));
        let role = role.and_then(|node| scalar::word(node, "`role`", &Role::WORDS, problems));
        let token = Self { name: parsed_name?, token: token?, role: Role::ALL[role?] };
        Some((token, [name?, secret?]))
    }

    pub(super) fn schema() -> serde_json::Value {
        let token = schema::object("a token with its name and its role", &FIELDS, |field| match field {
            "name" => schema::reference_with("text", "who has it, for the audit log", &["alice"]),
            "token" => schema::reference_with("text", "the bearer token", &["${ALICE_TOKEN}"]),
            _ => schema::word("read: everything that changes nothing; operate: also changes", &Role::WORDS),
        });
        json!({
            "description": "the tokens of several clients, each with a name and a role",
            "type": "array",
            "items": schema::requiring(token, &FIELDS),
            "minItems": 1,
            "maxItems": MAX_TOKENS,
        })
    }
}

fn parse_name(node: &Node, problems: &mut Vec<Problem>) -> Option<String> {
    let name = scalar::text(node, "`name`", problems)?;
    let is_valid = |character: char| character.is_alphanumeric() || "._-@".contains(character);
    if name.is_empty() || name.len() > MAX_NAME_LENGTH || !name.chars().all(is_valid) {
        let problem = Problem::new(node.span, format!("invalid token name `{name}`"));
        problems.push(problem.expected("expected at most 64 letters, digits, `.`, `_`, `-` and `@`"));
        return None;
    }
    Some(name.to_owned())
}
