//! The names that the rules of a file may use: registered ones, and those that its `identity` defines.

use crate::attributes::Attribute;
use crate::expression::{Expression, ValueType};
use crate::identity::Identity;
use crate::registry::Registry;
use diana_document::Problem;
use diana_document::scalar;
use diana_document::{Node, Span};

/// The names that rules may use.
pub(crate) struct NamesInScope<'a> {
    pub(crate) registry: &'a Registry,
    pub(crate) identity: &'a Identity,
    /// Whether the rules are for a gateway, which identifies clients only by `identity`; a function may know its caller
    /// otherwise.
    pub(crate) gateway: bool,
    /// The names of the rule's `match`, if it is known and valid.
    pub(crate) of_match: Option<&'a dyn NamesOfMatch>,
    /// The names of the arguments that calls pass, if the rule is for calls.
    pub(crate) call: Option<&'a [Box<str>]>,
}

/// The names that the `match` of a rule defines.
pub(crate) trait NamesOfMatch {
    /// Returns `true` if one of the paths has this parameter. It may be missing in the others, as a header may be in a
    /// request.
    fn has_parameter(&self, name: &str) -> bool;

    /// The names of the arguments that calls pass, if the rule is for calls.
    fn arguments(&self) -> Option<&[Box<str>]>;
}

/// The expected type of an expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    Truth,
    Number,
    Text,
}

/// Names that a front end may define without `identity`.
pub(crate) const STANDARD: [&str; 2] = ["account", "device"];

impl NamesInScope<'_> {
    /// Returns the scope of a rule with this `match`, if that is valid.
    pub(crate) fn of_rule<'b>(&'b self, matches: Option<&'b (impl NamesOfMatch + 'b)>) -> NamesInScope<'b> {
        let call = matches.and_then(NamesOfMatch::arguments);
        NamesInScope { of_match: matches.map(|matches| matches as &dyn NamesOfMatch), call, ..*self }
    }

    /// The names that `by` and expressions may use.
    pub(crate) fn names(&self) -> Vec<&str> {
        let arguments = self.call.unwrap_or_default().iter().map(|name| &**name);
        let mut names = self.identity.names().chain(STANDARD).chain(arguments).collect::<Vec<_>>();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// Compiles an expression, and checks the attributes that it reads.
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

    /// Compiles an expression that is at `span`.
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
                let problem = Problem::new(span, format!("invalid {what}: {}", error.what()));
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
            Wanted::Truth => expression.kind() == ValueType::Bool,
            Wanted::Number => expression.kind().is_number(),
            Wanted::Text => true,
        };
        if !is_wanted {
            let expected = match wanted {
                Wanted::Number => "expected a number, as in int(request.headers[\"x-tokens\"])",
                _ => "expected a condition, as in request.path == \"/sms\"",
            };
            problems
                .push(Problem::new(span, format!("invalid {what}: found {:#}", expression.kind())).expected(expected));
            return None;
        }
        for attribute in expression.attributes() {
            self.check(attribute, span, problems);
        }
        Some(expression)
    }

    /// Checks that the attribute is available.
    pub(crate) fn check(&self, attribute: &Attribute, span: Span, problems: &mut Vec<Problem>) {
        match attribute {
            // These exist only in requests; a rule for calls that used them would count all calls together.
            Attribute::Method
            | Attribute::Host
            | Attribute::Scheme
            | Attribute::Header(_)
            | Attribute::Cookie(_)
            | Attribute::Query(_)
            | Attribute::Jwt(_)
            | Attribute::Param(_)
            | Attribute::Domain
            | Attribute::Descriptor(_)
                if self.call.is_some() =>
            {
                let problem = Problem::new(span, format!("`{attribute}` is not supported for calls"));
                problems.push(
                    problem
                        .expected("use an argument of the call, as in `call: [phone]` and `by: phone`, or `account`"),
                );
            }
            // The call or its caller may provide it.
            Attribute::Named(_) if self.call.is_some() => {}
            Attribute::Jwt(_) if !self.identity.knows_tokens() => {
                let problem = Problem::new(span, format!("`{attribute}` needs verified tokens"));
                problems
                    .push(problem.expected("add `identity: {jwt: {secret: '${JWT_SECRET}'}}`, or `{verify: false}`"));
            }
            Attribute::Named(name) if self.gateway && !self.identity.names().any(|known| *known == **name) => {
                let problem = Problem::new(span, format!("missing source of `{name}`"));
                problems.push(problem.expected(format!("add `identity: {{{name}: header(x-{name}-id)}}`")));
            }
            Attribute::Param(name) if self.of_match.is_some_and(|names| !names.has_parameter(name)) => {
                let problem = Problem::new(span, format!("no path of this rule has the parameter `{{{name}}}`"));
                problems.push(problem.expected(format!("add `match: {{path: '/.../{{{name}}}'}}`")));
            }
            _ => {}
        }
    }
}
