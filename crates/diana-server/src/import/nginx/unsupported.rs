//! Directives that affect limits but have no equivalent in a rule, and why.
//!
//! No limit may be dropped silently, so the reader of a block checks each of its directives against this module.

use super::notes::Notes;
use super::syntax::Directive;

/// Returns whether a directive is about limits, supported or not. `limit_except` is about access.
pub(super) fn is_limit(directive: &Directive) -> bool {
    (directive.name.starts_with("limit_") && directive.name != "limit_except") || without_rule(directive).is_some()
}

/// Returns whether a limit is anywhere in these directives.
pub(super) fn has_limits(directives: &[Directive]) -> bool {
    directives.iter().any(|directive| is_limit(directive) || has_limits(directive.inside()))
}

/// Notes the access rules of one block, each kind once: inner blocks without their own inherit them, whether or not
/// they have limits.
pub(super) fn access(directives: &[Directive], notes: &mut Notes) {
    for name in ["allow", "deny"] {
        let mut found = directives.iter().filter(|directive| directive.name == name);
        let Some(first) = found.next() else { continue };
        let more = match found.count() {
            0 => String::new(),
            more => format!(", nor {more} more in this block"),
        };
        let what = format!(
            "not carried over{more}: it is about access, not about rates; a rule with `deny: [NETWORK]` refuses addresses"
        );
        notes.add(first.place, name, what);
    }
}

/// Returns why a limit directive not called `limit_…` can't be a rule; `None` if it is not a limit.
pub(super) fn without_rule(directive: &Directive) -> Option<&'static str> {
    match directive.name.as_str() {
        "set" if directive.arg(0).eq_ignore_ascii_case("$limit_rate") => {
            Some("a rate that is set as a variable; write a rule with `by: request` and `bandwidth`")
        }
        "proxy_download_rate" | "proxy_upload_rate" => {
            Some("it is about streams of TCP or UDP, and Diana limits HTTP requests")
        }
        // Those of proxy, fastcgi, scgi and uwsgi.
        name if name.ends_with("_limit_rate") => {
            Some("it slows down reading from the upstream; `bandwidth` with `by: request` limits what a client gets")
        }
        _ => None,
    }
}

/// The block that contains a `rewrite`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Around {
    Server,
    Location,
}

/// Notes each `rewrite` after which nginx selects a location by another path than the client's.
pub(super) fn rewrites(directives: &[Directive], around: Around, notes: &mut Notes) {
    for directive in directives {
        match directive.name.as_str() {
            "rewrite" if leads_elsewhere(directive, around) => {
                let what = "not carried over: nginx takes the limits of the location that the new path leads to, and rules look at the path that the client sent; add it to their `match`";
                notes.add(directive.place, "rewrite", what);
            }
            "if" => rewrites(directive.inside(), around, notes),
            "location" => rewrites(directive.inside(), Around::Location, notes),
            _ => {}
        }
    }
}

fn leads_elsewhere(directive: &Directive, around: Around) -> bool {
    let is_answer = ["http://", "https://", "$scheme"].iter().any(|start| directive.arg(1).starts_with(start));
    match directive.arg(2) {
        "redirect" | "permanent" => false,
        // In a server, the location is not selected yet.
        "break" => around == Around::Server && !is_answer,
        _ => !is_answer,
    }
}
