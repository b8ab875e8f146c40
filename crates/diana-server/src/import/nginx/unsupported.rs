//! Directives that bear on limits but have no counterpart in a rule: what they are, and why.
//!
//! Nothing that limits may vanish without a word, so whoever reads a block asks here about each directive in it.

use super::notes::Notes;
use super::syntax::Directive;

/// Whether a directive is about limits, known or not. `limit_except` is about access.
pub(super) fn is_limit(directive: &Directive) -> bool {
    (directive.name.starts_with("limit_") && directive.name != "limit_except") || without_rule(directive).is_some()
}

/// Whether a limit stands anywhere in these directives.
pub(super) fn has_limits(directives: &[Directive]) -> bool {
    directives.iter().any(|directive| is_limit(directive) || has_limits(directive.inside()))
}

/// Notes the rules of access of one block, each kind once: they hold in all blocks inside that have none of their own, whether
/// or not these have limits.
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

/// Why a limit by another name than `limit_…` can't be a rule; `None` if it is no such limit.
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

/// What a `rewrite` stands in.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Around {
    Server,
    Location,
}

/// Notes each `rewrite` after which nginx looks for a location by another path than the client's.
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
        // A server has its location still to find.
        "break" => around == Around::Server && !is_answer,
        _ => !is_answer,
    }
}
