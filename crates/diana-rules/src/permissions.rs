//! Who may call what: `permissions: {default: allow, rules: [{allow: true, path: /admin/**, account: root}, ...]}`.
//!
//! The first rule that applies decides; `default` decides about the rest. A request without permission is answered with
//! 403, after it was counted for its limits.
//!
//! # What always holds (tests)
//! - No spelling gets a permission: a rule that allows applies only if every form of the path matches, and every value is
//!   known for sure; a rule that denies applies if any form matches, or a value may be the one that it names.
//! - A request is denied, rather than allowed, if its token can't be verified and a rule asks for what the token says.

use crate::attributes::{Attribute, Attributes, Doubt, SEVERAL};
use crate::identity::Identity;
use crate::matching::glob::Glob;
use crate::matching::parse::each;
use crate::matching::{IndexedMatch, Match, NeededAttributes, Normalised, RequestView};
use diana_document::Problem;
use diana_document::map_reader::MapReader;
use diana_document::scalar;
use diana_document::{Node, Value};
use std::fmt;

pub(crate) const FIELDS: [&str; 3] = ["default", "shadow", "rules"];
/// The values of `default`.
pub(crate) const ACCESS: [&str; 2] = ["allow", "deny"];
/// The fields of a rule; the others are names of `identity`.
pub(crate) const RULE_FIELDS: [&str; 5] = ["allow", "path", "method", "host", "ip"];
/// The maximum number of rules: each request is compared with them in order.
pub(crate) const MAX_RULES: usize = 1_000;

/// Who may call what.
///
/// ```
/// use diana_rules::attributes::SyntheticRequest;
/// use diana_rules::{Document, Registry, RuleFile};
///
/// let document = Document::new("diana.yaml", "
/// identity: {account: header(x-account-id)}
/// permissions:
///   rules:
///     - {allow: true, path: /admin/**, account: root}
///     - {allow: false, path: /admin/**}
/// rules: []
/// ");
/// let file = RuleFile::read(&document, &Registry::default())?;
/// let permissions = file.permissions.as_ref().unwrap();
/// let may_call = |path, account| {
///     permissions.decide(&SyntheticRequest::new("GET", path).header("x-account-id", account), &file.identity).is_allowed()
/// };
/// assert!(may_call("/admin/keys", "root") && may_call("/", "bob"));
/// assert!(!may_call("/admin/keys", "bob"));
/// # Ok::<(), diana_rules::Problems>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Permissions {
    default: Access,
    /// Whether denials are only logged.
    pub shadow: bool,
    rules: Vec<PermissionRule>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Access {
    Allow,
    Deny,
}

#[derive(Clone, Debug, PartialEq)]
struct PermissionRule {
    access: Access,
    matches: Match,
    /// The values that names of `identity` must have.
    names: Vec<NameMatch>,
}

#[derive(Clone, Debug, PartialEq)]
struct NameMatch {
    name: Attribute,
    values: Vec<Glob>,
}

/// What the permissions say about a request, and why.
#[derive(Clone, Copy, Debug)]
pub struct Permission<'a> {
    permissions: &'a Permissions,
    /// The index of the rule that decides; `None` for the default.
    rule: Option<usize>,
}

impl Permissions {
    /// Parses `permissions`. Reports errors in `problems`, and omits invalid rules.
    pub(crate) fn read(node: &Node, identity: &Identity, problems: &mut Vec<Problem>) -> Option<Self> {
        let mut fields = MapReader::of(node, "`permissions`", FIELDS, problems)?;
        let default = fields.take("default").and_then(|node| scalar::word(node, "`default`", &ACCESS, problems));
        let shadow = fields.take("shadow").and_then(|node| scalar::flag(node, "`shadow`", problems));
        let rules = fields.require("rules", problems).map(|node| rules(node, identity, problems));
        fields.finish(problems);
        let default = if default == Some(1) { Access::Deny } else { Access::Allow };
        Some(Self { default, shadow: shadow.unwrap_or_default(), rules: rules.unwrap_or_default() })
    }

    /// Decides about a request.
    pub fn decide(&self, request: &dyn Attributes, identity: &Identity) -> Permission<'_> {
        let normalised = Normalised(request);
        let identified = identity.of(&normalised);
        let needed = self.rules.iter().fold(NeededAttributes::default(), |needed, rule| needed.and(&rule.matches));
        let view = RequestView::new(&identified, needed);
        let rule = self.rules.iter().position(|rule| rule.applies(&view));
        Permission { permissions: self, rule }
    }

    /// Describes the rules and the default, one on each line.
    pub fn describe(&self) -> Vec<String> {
        let rules = self.rules.iter().map(ToString::to_string);
        let default = match self.default {
            Access::Allow => "allow the rest",
            Access::Deny => "deny the rest",
        };
        rules.chain([default.to_owned()]).collect()
    }
}

impl Permission<'_> {
    /// Returns `true` if the request has permission.
    pub fn is_allowed(&self) -> bool {
        self.access() == Access::Allow
    }

    /// Returns `true` if a request without permission is answered with 403, and not only logged.
    pub fn is_enforced(&self) -> bool {
        !self.permissions.shadow
    }

    fn access(&self) -> Access {
        let rule = self.rule.and_then(|index| self.permissions.rules.get(index));
        rule.map_or(self.permissions.default, |rule| rule.access)
    }
}

impl fmt::Display for Permission<'_> {
    /// Formats the reason, as `rule 2: deny /admin/**`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.rule.and_then(|index| Some((index, self.permissions.rules.get(index)?))) {
            Some((index, rule)) => write!(f, "rule {}: {rule}", index + 1),
            None if self.is_allowed() => f.write_str("no rule applies: allow"),
            None => f.write_str("no rule applies: deny"),
        }
    }
}

impl PermissionRule {
    /// Returns `true` if it decides about the request.
    fn applies(&self, view: &RequestView<'_>) -> bool {
        let is_match = match self.access {
            Access::Deny => self.matches.check(view, IndexedMatch::None).is_ok(),
            Access::Allow => self.matches.is_certain(view),
        };
        is_match && self.names.iter().all(|name| name.matches(view.request, self.access))
    }
}

impl NameMatch {
    fn matches(&self, request: &dyn Attributes, access: Access) -> bool {
        let is_listed = |value: &str| self.values.iter().any(|pattern| pattern.matches(value));
        match (request.get(&self.name), access) {
            (Some(value), Access::Allow) => value != SEVERAL && is_listed(&value),
            (Some(value), Access::Deny) => value == SEVERAL || is_listed(&value),
            (None, Access::Allow) => false,
            // A more lenient service may accept the credential.
            (None, Access::Deny) => match request.doubt(&self.name) {
                Some(Doubt::Rejected(value)) => is_listed(&value),
                Some(_) => true,
                None => false,
            },
        }
    }
}

impl fmt::Display for PermissionRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.access == Access::Allow { "allow " } else { "deny " })?;
        write!(f, "{}", self.matches)?;
        for NameMatch { name, values } in &self.names {
            let values = values.iter().map(ToString::to_string).collect::<Vec<_>>();
            write!(f, ", {name} is {}", values.join(" or "))?;
        }
        Ok(())
    }
}

fn rules(node: &Node, identity: &Identity, problems: &mut Vec<Problem>) -> Vec<PermissionRule> {
    let Value::List(items) = &node.value else {
        let what = format!("invalid `rules` of `permissions`: expected a list, found {}", node.value.kind());
        problems.push(Problem::new(node.span, what).expected("expected rules such as {allow: false, path: /admin/**}"));
        return Vec::new();
    };
    if items.len() > MAX_RULES {
        let problem = Problem::new(node.span, format!("too many permission rules: {}", items.len()));
        problems.push(problem.expected(format!("expected at most {MAX_RULES}")));
        return Vec::new();
    }
    items.iter().filter_map(|item| rule(item, identity, problems)).collect()
}

fn rule(node: &Node, identity: &Identity, problems: &mut Vec<Problem>) -> Option<PermissionRule> {
    let Value::Map(entries) = &node.value else {
        let what = format!("invalid permission rule: expected a map, found {}", node.value.kind());
        problems
            .push(Problem::new(node.span, what).expected("expected fields such as {allow: false, path: /admin/**}"));
        return None;
    };
    let is_name = |key: &str| !RULE_FIELDS.contains(&key) && identity.names().any(|name| name == key);
    let mut names = Vec::new();
    for entry in entries.iter().filter(|entry| is_name(&entry.key)) {
        let what = format!("`{}`", entry.key);
        let values = each(&entry.node, &what, problems, |text| Ok::<_, (String, String)>(Glob::new(text)));
        names.push(NameMatch { name: Attribute::Named(entry.key.as_str().into()), values });
    }
    // The rest is a `match`, and whether it allows.
    let rest = entries.iter().filter(|entry| !is_name(&entry.key) && entry.key != "allow").cloned().collect();
    let rest = Node { value: Value::Map(rest), ..node.clone() };
    let before = problems.len();
    let matches = Match::read_permission(&rest, problems);
    let allow = entries.iter().find(|entry| entry.key == "allow");
    let access = match allow {
        None => {
            let problem = Problem::new(node.span, "missing `allow` in a permission rule");
            problems.push(problem.expected("add `allow: true` or `allow: false`"));
            None
        }
        Some(entry) => scalar::flag(&entry.node, "`allow`", problems),
    };
    if problems.len() > before {
        return None;
    }
    let access = if access? { Access::Allow } else { Access::Deny };
    Some(PermissionRule { access, matches: matches?, names })
}
