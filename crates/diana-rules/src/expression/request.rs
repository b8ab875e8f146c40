//! The parts of a request that an expression can read, and the attribute for each.
//!
//! Attributes can only be looked up by name, one at a time. So every name must be known at load time: `request` is not
//! a value, and an index can't be computed.

use super::lower::{Lowered, Lowering, Typed};
use super::tree::{Tree, Value, ValueType};
use crate::attributes::Attribute;
use crate::map_reader::{all, nearest};
use cel::IdedExpr;
use cel::common::ast::{Expr, LiteralValue, operators};

const MEMBERS: [&str; 9] = ["method", "path", "host", "ip", "headers", "cookies", "query", "params", "jwt"];

/// The part of a request that a node refers to.
enum Seen {
    Request,
    /// A collection of named values, such as the headers.
    Many(Many),
    One(Attribute),
}

#[derive(Clone, Copy)]
struct Many {
    called: &'static str,
    named: fn(&str) -> Attribute,
}

const HEADERS: Many = Many { called: "headers", named: |name| Attribute::Header(name.to_ascii_lowercase().into()) };
const COOKIES: Many = Many { called: "cookies", named: |name| Attribute::Cookie(name.into()) };
const QUERY: Many = Many { called: "query", named: |name| Attribute::Query(name.into()) };
const PARAMS: Many = Many { called: "params", named: |name| Attribute::Param(name.into()) };
const JWT: Many = Many { called: "jwt", named: |name| Attribute::Jwt(name.into()) };

impl Lowering<'_> {
    /// Lowers a node that reads the request; returns `None` for any other node.
    pub(super) fn of_request(&mut self, node: &IdedExpr) -> Lowered<Option<Typed>> {
        match self.seen(node)? {
            None => Ok(None),
            Some(Seen::One(attribute)) => {
                let is_test = matches!(&node.expr, Expr::Select(select) if select.test);
                let tree = self.asked(attribute);
                Ok(Some(match tree {
                    Tree::Of(attribute) if is_test => (Tree::Has(attribute), ValueType::Bool),
                    tree => (tree, ValueType::String),
                }))
            }
            Some(Seen::Request) => {
                let wrong = self.wrong(node, "`request` as a whole has no value");
                Err(wrong.expected("one of its parts, such as request.method"))
            }
            Some(Seen::Many(many)) => {
                let what = format!("`request.{}` as a whole has no value", many.called);
                Err(self.wrong(node, what).expected(format!("one of them, such as request.{}[\"a\"]", many.called)))
            }
        }
    }

    /// Lowers `"x" in request.headers`.
    pub(super) fn presence(&mut self, of: &IdedExpr, list: &IdedExpr) -> Lowered<Option<Typed>> {
        let Some(Seen::Many(many)) = self.seen(list)? else { return Ok(None) };
        let Some(name) = self.constant_text(of) else { return Err(self.computed(of, many)) };
        Ok(match self.asked((many.named)(&name)) {
            Tree::Of(attribute) => Some((Tree::Has(attribute), ValueType::Bool)),
            _ => None,
        })
    }

    /// Returns a string that is known at load time.
    pub(super) fn constant_text(&self, node: &IdedExpr) -> Option<String> {
        match &node.expr {
            Expr::Literal(LiteralValue::String(text)) => Some(text.inner().to_owned()),
            Expr::Ident(name) => match self.variable(name) {
                Some(Value::Text(text)) => Some(text.to_string()),
                _ => None,
            },
            _ => None,
        }
    }

    fn seen(&self, node: &IdedExpr) -> Lowered<Option<Seen>> {
        match &node.expr {
            Expr::Ident(name) if name == "request" && self.variable(name).is_none() => Ok(Some(Seen::Request)),
            Expr::Select(select) => match self.seen(&select.operand)? {
                None => Ok(None),
                Some(Seen::Request) => self.member(node, &select.field).map(Some),
                Some(Seen::Many(many)) => Ok(Some(Seen::One((many.named)(&select.field)))),
                // Claims can be nested.
                Some(Seen::One(Attribute::Jwt(claim))) => {
                    Ok(Some(Seen::One(Attribute::Jwt(format!("{claim}.{}", select.field).into()))))
                }
                Some(Seen::One(_)) => Err(self.wrong(node, format!("a string has no `{}`", select.field))),
            },
            Expr::Call(call) if call.func_name == operators::INDEX => {
                let [of, index] = call.args.as_slice() else { return Ok(None) };
                match self.seen(of)? {
                    Some(Seen::Many(many)) => match self.constant_text(index) {
                        Some(name) => Ok(Some(Seen::One((many.named)(&name)))),
                        None => Err(self.computed(index, many)),
                    },
                    Some(Seen::Request) => {
                        let wrong = self.wrong(node, "the parts of a request stand behind a dot");
                        Err(wrong.expected("such as request.method"))
                    }
                    Some(Seen::One(_)) => Err(self.wrong(node, "a string can't be indexed")),
                    None => Ok(None),
                }
            }
            _ => Ok(None),
        }
    }

    fn member(&self, node: &IdedExpr, name: &str) -> Lowered<Seen> {
        Ok(match name {
            "method" => Seen::One(Attribute::Method),
            "path" => Seen::One(Attribute::Path),
            "host" => Seen::One(Attribute::Host),
            "ip" => Seen::One(Attribute::Ip),
            "headers" => Seen::Many(HEADERS),
            "cookies" => Seen::Many(COOKIES),
            "query" => Seen::Many(QUERY),
            "params" => Seen::Many(PARAMS),
            "jwt" => Seen::Many(JWT),
            _ => {
                let meant = nearest(name, &MEMBERS).map(|meant| format!("did you mean `{meant}`?"));
                let expected = meant.unwrap_or_else(|| format!("expected one of {}", all(&MEMBERS)));
                return Err(self.wrong(node, format!("a request has no `{name}`")).expected(expected));
            }
        })
    }

    fn computed(&self, index: &IdedExpr, many: Many) -> super::error::InvalidExpression {
        let what = format!("the name in `request.{}` has to be known when the rules are read", many.called);
        self.wrong(index, what).expected(format!("a text in quotes, such as request.{}[\"a\"]", many.called))
    }
}
