//! Whether denials are logged, and how their keys are written: `log`, `log_keys` and `top_keys`.

use crate::attributes::Attribute;
use crate::identity::Identity;
use crate::key::KeySpec;
pub use crate::log_level::LogLevel;
use crate::rule::Rule;
use diana_document::Node;
use diana_document::Problem;
use diana_document::scalar;
use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;

/// How logs write the keys of requests, which may be personal data or credentials.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum LoggedKeys {
    /// As they are.
    #[default]
    Full,
    /// As a hash with a secret of this process: lines with the same key can be found, the key can't.
    Hashed,
    /// Not at all.
    Off,
}

/// The values of `log_keys`.
pub(crate) const LOG_KEYS: [&str; 3] = ["full", "hashed", "off"];
/// The values of `top_keys`.
pub(crate) const TOP_KEYS: [&str; 2] = ["on", "off"];

/// The secret of the hashes, which is new in each process.
static SECRET: LazyLock<RandomState> = LazyLock::new(RandomState::new);

impl LoggedKeys {
    pub(crate) fn read(node: &Node, problems: &mut Vec<Problem>) -> Option<Self> {
        let word = scalar::word(node, "`log_keys`", &LOG_KEYS, problems)?;
        Some([Self::Full, Self::Hashed, Self::Off][word])
    }

    /// Returns a key as logs write it; `None` if they don't, or if the rule has one key for all requests.
    ///
    /// ```
    /// use diana_rules::logged_keys::LoggedKeys;
    /// use diana_rules::{Document, Registry, RuleFile};
    ///
    /// let document = Document::new("diana.yaml", "rules: [{name: each-account, by: account, limit: 5/s}]");
    /// let by = &RuleFile::read(&document, &Registry::default())?.rules[0].by;
    /// assert_eq!(LoggedKeys::Full.show(by, b"alice").as_deref(), Some("alice"));
    /// let hashed = LoggedKeys::Hashed.show(by, b"alice");
    /// assert_ne!(hashed, LoggedKeys::Hashed.show(by, b"bob"));
    /// assert_eq!(hashed.map(|hash| hash.len()), Some(16));
    /// assert_eq!(LoggedKeys::Off.show(by, b"alice"), None);
    /// # Ok::<(), diana_rules::Problems>(())
    /// ```
    pub fn show(self, by: &KeySpec, key: &[u8]) -> Option<String> {
        if key.is_empty() {
            return None;
        }
        match self {
            Self::Full => Some(by.shown(key)),
            Self::Hashed => Some(format!("{:016x}", SECRET.hash_one(key))),
            Self::Off => None,
        }
    }
}

/// Reads `top_keys`: whether the heaviest keys are recorded.
pub(crate) fn top_keys(node: &Node, problems: &mut Vec<Problem>) -> Option<bool> {
    scalar::word(node, "`top_keys`", &TOP_KEYS, problems).map(|word| word == 0)
}

/// Parts of names of headers, cookies and parameters that are secrets of a client.
const SECRET_NAMES: [&str; 9] =
    ["authorization", "api-key", "api_key", "apikey", "token", "secret", "session", "password", "sessid"];

/// Returns the credential that a rule counts by, directly or through `identity`, as the file writes it.
pub(crate) fn credential(rule: &Rule, identity: &Identity) -> Option<String> {
    let is_secret = |attribute: &Attribute| match attribute {
        Attribute::Header(name) | Attribute::Cookie(name) | Attribute::Query(name) | Attribute::Descriptor(name) => {
            let name = name.to_ascii_lowercase();
            SECRET_NAMES.iter().any(|secret| name.contains(secret))
        }
        _ => false,
    };
    let credential_name = rule.by.attributes().find_map(|attribute| match attribute {
        Attribute::Named(name) => {
            let source = identity.source_of(name).filter(|source| is_secret(source))?;
            Some(format!("`{name}`, which is {source}"))
        }
        attribute => is_secret(attribute).then(|| format!("`{attribute}`")),
    });
    credential_name.filter(|_| !rule.by.is_each_request())
}
