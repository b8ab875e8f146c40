//! Directives that affect limits but have no equivalent in a rule, and why.
//!
//! No limit may be dropped silently, so the reader of a block checks each of its directives against this module.

use super::lua;
use super::notes::Notes;
use super::syntax::Directive;

/// Returns whether a directive is about limits, supported or not. `limit_except` is about access.
pub(super) fn is_limit(directive: &Directive) -> bool {
    let is_known = directive.name.starts_with("limit_") && directive.name != "limit_except";
    is_known || lua::may_deny(directive) || without_rule(directive).is_some()
}

/// Returns whether the block of a directive has values instead of directives.
pub(super) fn has_values(directive: &Directive) -> bool {
    ["map", "geo", "split_clients", "types", "charset_map"].contains(&directive.name.as_str())
}

/// Returns whether a limit is anywhere in these directives.
pub(super) fn has_limits(directives: &[Directive]) -> bool {
    let mut directives = directives.iter().filter(|directive| !has_values(directive));
    directives.any(|directive| is_limit(directive) || has_limits(directive.inside()))
}

/// Notes the access rules of one block, each kind once: inner blocks without their own inherit them, whether or not
/// they have limits.
pub(super) fn access(directives: &[Directive], notes: &mut Notes) {
    for name in ["allow", "deny"] {
        let mut matching = directives.iter().filter(|directive| directive.name == name);
        let Some(first) = matching.next() else { continue };
        let more = match matching.count() {
            0 => String::new(),
            more => format!(", nor {more} more in this block"),
        };
        let what = format!(
            "not converted{more}: access control, not a rate limit; use a rule with `deny: [NETWORK]` to deny addresses"
        );
        notes.add(first.position, name, what);
    }
}

/// The reason for directives of other modules than nginx's own.
const OTHER_MODULE: &str = "unknown directive; if it limits requests, write a rule with its numbers";

/// Returns why a limit directive not called `limit_…` can't be a rule; `None` if it is not a limit.
pub(super) fn without_rule(directive: &Directive) -> Option<&'static str> {
    match directive.name.as_str() {
        "set" if directive.arg(0).eq_ignore_ascii_case("$limit_rate") => {
            Some("a rate set by a variable; write a rule with `by: request` and `bandwidth`")
        }
        "proxy_download_rate" | "proxy_upload_rate" => {
            Some("it applies to TCP or UDP streams, but Diana limits HTTP requests")
        }
        // The directives of proxy, fastcgi, scgi and uwsgi.
        name if name.ends_with("_limit_rate") => {
            Some("it throttles reads from the upstream; `bandwidth` with `by: request` throttles responses to clients")
        }
        "auth_request" if directive.arg(0) != "off" => {
            Some("the server that it asks may deny requests; if it limits them, write a rule with its numbers")
        }
        "js_access" | "js_preread" => {
            Some("the script may deny requests; if it limits them, write a rule with its numbers")
        }
        "js_content" if names_limit(directive.arg(0)) => Some("a limit in JavaScript; write a rule with its numbers"),
        name if names_limit(name) && !is_other_limit(name) => Some(OTHER_MODULE),
        _ => None,
    }
}

/// Returns whether a name is that of a limit, in the usual words.
fn names_limit(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    ["limit", "throttle", "testcookie"].iter().any(|word| name.contains(word))
}

/// Returns whether a directive limits something else than requests: processes, regular expressions, methods.
fn is_other_limit(name: &str) -> bool {
    name.starts_with("worker_rlimit_") || ["lua_regex_match_limit", "limit_except"].contains(&name)
}

/// The block that contains a `rewrite`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum BlockKind {
    Server,
    Location,
}

/// Notes each `rewrite` after which nginx selects a location by another path than the client's.
pub(super) fn rewrites(directives: &[Directive], block: BlockKind, notes: &mut Notes) {
    for directive in directives {
        match directive.name.as_str() {
            "rewrite" if changes_location(directive, block) => {
                let what = "not converted: nginx applies the limits of the location of the new path, but rules match the path that the client sent; add that path to their `match`";
                notes.add(directive.position, "rewrite", what);
            }
            "if" => rewrites(directive.inside(), block, notes),
            "location" => rewrites(directive.inside(), BlockKind::Location, notes),
            _ => {}
        }
    }
}

fn changes_location(directive: &Directive, block: BlockKind) -> bool {
    let is_redirect = ["http://", "https://", "$scheme"].iter().any(|start| directive.arg(1).starts_with(start));
    match directive.arg(2) {
        "redirect" | "permanent" => false,
        // In a server, the location is not selected yet.
        "break" => block == BlockKind::Server && !is_redirect,
        _ => !is_redirect,
    }
}
