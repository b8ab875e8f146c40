//! The words that the rules of a file may use: what is registered, and what its `identity` defines.

use crate::attributes::Attribute;
use crate::document::node::{Node, Span};
use crate::expression::{Expression, Kind};
use crate::identity::Identity;
use crate::matching::Match;
use crate::matching::path::PathPattern;
use crate::problem::Problem;
use crate::registry::Registry;
use crate::scalar;

/// The words that rules may use.
pub(crate) struct Scope<'a> {
    pub(crate) registry: &'a Registry,
    pub(crate) identity: &'a Identity,
    /// Whether a gateway asks, which knows nobody but by `identity`; a function may know its caller otherwise.
    pub(crate) gateway: bool,
    /// The paths of the rule, where they are known: what they don't name is no parameter.
    pub(crate) paths: Option<&'a [PathPattern]>,
    /// What calls tell that name the rule, if it is for them.
    pub(crate) call: Option<&'a [Box<str>]>,
}

/// What an expression is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    Truth,
    Number,
    Text,
}

/// What a front end may know without being told by `identity`.
pub(crate) const STANDARD: [&str; 2] = ["account", "device"];

impl Scope<'_> {
    /// The words of a rule with this `match`, if that could be read.
    pub(crate) fn of_rule<'b>(&'b self, matches: Option<&'b Match>) -> Scope<'b> {
        let call = matches.and_then(|matches| matches.call.as_deref());
        Scope { paths: matches.map(|matches| &*matches.paths), call, ..*self }
    }

    /// The names that `by` and expressions may use.
    pub(crate) fn names(&self) -> Vec<&str> {
        let told = self.call.unwrap_or_default().iter().map(|name| &**name);
        let mut names = self.identity.names().chain(STANDARD).chain(told).collect::<Vec<_>>();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// Compiles an expression, and checks what it asks about.
    pub(crate) fn expression(
        &self,
        node: &Node,
        what: &str,
        wanted: Wanted,
        problems: &mut Vec<Problem>,
    ) -> Option<Expression> {
        let text = scalar::text(node, what, problems)?;
        self.compile(text, node.span, what, wanted, problems)
    }

    /// Compiles an expression that stands at `span`.
    pub(crate) fn compile(
        &self,
        text: &str,
        span: Span,
        what: &str,
        wanted: Wanted,
        problems: &mut Vec<Problem>,
    ) -> Option<Expression> {
        let expression = match Expression::compile_with(text, &self.names()) {
            Ok(expression) => expression,
            Err(error) => {
                let problem = Problem::new(span, format!("{what}: {}", error.what()));
                let problem = match error.at() {
                    Some(at) => problem.within(text, at),
                    None => problem,
                };
                problems.push(match error.hint() {
                    Some(hint) => problem.expected(hint),
                    None => problem,
                });
                return None;
            }
        };
        let is_wanted = match wanted {
            Wanted::Truth => expression.kind() == Kind::Bool,
            Wanted::Number => expression.kind().is_number(),
            Wanted::Text => true,
        };
        if !is_wanted {
            let expected = match wanted {
                Wanted::Number => "a number, as in int(request.headers[\"x-tokens\"])",
                _ => "something that holds or does not, as in request.path == \"/sms\"",
            };
            problems.push(Problem::new(span, format!("{what} gives {:#}", expression.kind())).expected(expected));
            return None;
        }
        for attribute in expression.attributes() {
            self.check(attribute, span, problems);
        }
        Some(expression)
    }

    /// Checks that somebody knows the attribute.
    pub(crate) fn check(&self, attribute: &Attribute, span: Span, problems: &mut Vec<Problem>) {
        match attribute {
            // The rest is only in requests; a rule that asked for it would count all calls together.
            Attribute::Method
            | Attribute::Host
            | Attribute::Header(_)
            | Attribute::Cookie(_)
            | Attribute::Query(_)
            | Attribute::Jwt(_)
            | Attribute::Param(_)
                if self.call.is_some() =>
            {
                let problem = Problem::new(span, format!("a call has no `{attribute}`"));
                problems.push(problem.expected("what calls tell, as in `call: [phone]` and `by: phone`, or `account`"));
            }
            // A call may tell it, or who makes the call.
            Attribute::Named(_) if self.call.is_some() => {}
            Attribute::Jwt(_) if !self.identity.knows_tokens() => {
                let problem = Problem::new(span, format!("`{attribute}` needs to know how tokens are verified"));
                problems.push(problem.expected("`identity: {jwt: {secret: '${JWT_SECRET}'}}`, or `{verify: false}`"));
            }
            Attribute::Named(name) if self.gateway && !self.identity.names().any(|known| *known == **name) => {
                let problem = Problem::new(span, format!("nobody says where `{name}` comes from"));
                problems.push(problem.expected(format!("`identity: {{{name}: header(x-{name}-id)}}`")));
            }
            Attribute::Param(name) if self.paths.is_some_and(|paths| !names(paths, name)) => {
                let problem = Problem::new(span, format!("no path of this rule names `{{{name}}}`"));
                problems.push(problem.expected(format!("`match: {{path: '/.../{{{name}}}'}}`")));
            }
            _ => {}
        }
    }
}

/// Whether one of the paths has this parameter. The others may lack it, as a request may lack a header.
fn names(paths: &[PathPattern], parameter: &str) -> bool {
    paths.iter().any(|path| path.has_parameter(parameter))
}
