//! The parts of a request that an expression can read, and the attribute for each.
//!
//! Attributes can only be looked up by name, one at a time. So every name must be known at load time: `request` is not
//! a value, and an index must be a constant.

use super::lower::{Lowered, Lowering, Typed};
use super::lowered::{Tree, Value, ValueType};
use crate::attributes::Attribute;
use cel::IdedExpr;
use cel::common::ast::{Expr, LiteralValue, operators};
use diana_document::map_reader::{all, nearest};

const MEMBERS: [&str; 12] =
    ["method", "path", "host", "scheme", "ip", "headers", "cookies", "query", "params", "jwt", "domain", "descriptor"];

/// The part of a request that a node refers to.
enum Access {
    Request,
    /// A collection of attribute values, such as the headers.
    Map(AttributeMap),
    Attribute(Attribute),
}

#[derive(Clone, Copy)]
struct AttributeMap {
    name: &'static str,
    attribute: fn(&str) -> Attribute,
}

const HEADERS: AttributeMap =
    AttributeMap { name: "headers", attribute: |name| Attribute::Header(name.to_ascii_lowercase().into()) };
const COOKIES: AttributeMap = AttributeMap { name: "cookies", attribute: |name| Attribute::Cookie(name.into()) };
const QUERY: AttributeMap = AttributeMap { name: "query", attribute: |name| Attribute::Query(name.into()) };
const PARAMS: AttributeMap = AttributeMap { name: "params", attribute: |name| Attribute::Param(name.into()) };
const JWT: AttributeMap = AttributeMap { name: "jwt", attribute: |name| Attribute::Jwt(name.into()) };
const DESCRIPTOR: AttributeMap =
    AttributeMap { name: "descriptor", attribute: |key| Attribute::Descriptor(key.into()) };

impl Lowering<'_> {
    /// Lowers a node that reads the request; returns `None` for any other node.
    pub(super) fn of_request(&mut self, node: &IdedExpr) -> Lowered<Option<Typed>> {
        match self.access(node)? {
            None => Ok(None),
            Some(Access::Attribute(attribute)) => {
                let is_test = matches!(&node.expr, Expr::Select(select) if select.test);
                let tree = self.read_attribute(attribute);
                Ok(Some(match tree {
                    Tree::Of(attribute) if is_test => (Tree::Has(attribute), ValueType::Bool),
                    tree => (tree, ValueType::String),
                }))
            }
            Some(Access::Request) => {
                let invalid = self.invalid(node, "`request` is not a value");
                Err(invalid.expected("use one of its fields, such as request.method"))
            }
            Some(Access::Map(map)) => {
                let what = format!("`request.{}` is not a value", map.name);
                Err(self
                    .invalid(node, what)
                    .expected(format!("use one of its values, such as request.{}[\"a\"]", map.name)))
            }
        }
    }

    /// Lowers `"x" in request.headers`.
    pub(super) fn presence(&mut self, of: &IdedExpr, list: &IdedExpr) -> Lowered<Option<Typed>> {
        let Some(Access::Map(map)) = self.access(list)? else { return Ok(None) };
        let Some(name) = self.constant_text(of) else { return Err(self.not_constant(of, map)) };
        Ok(match self.read_attribute((map.attribute)(&name)) {
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

    fn access(&self, node: &IdedExpr) -> Lowered<Option<Access>> {
        match &node.expr {
            Expr::Ident(name) if name == "request" && self.variable(name).is_none() => Ok(Some(Access::Request)),
            Expr::Select(select) => match self.access(&select.operand)? {
                None => Ok(None),
                Some(Access::Request) => self.member(node, &select.field).map(Some),
                Some(Access::Map(map)) => Ok(Some(Access::Attribute((map.attribute)(&select.field)))),
                // Claims can be nested.
                Some(Access::Attribute(Attribute::Jwt(claim))) => {
                    Ok(Some(Access::Attribute(Attribute::Jwt(format!("{claim}.{}", select.field).into()))))
                }
                Some(Access::Attribute(_)) => {
                    Err(self.invalid(node, format!("a string has no field `{}`", select.field)))
                }
            },
            Expr::Call(call) if call.func_name == operators::INDEX => {
                let [of, index] = call.args.as_slice() else { return Ok(None) };
                match self.access(of)? {
                    Some(Access::Map(map)) => match self.constant_text(index) {
                        Some(name) => Ok(Some(Access::Attribute((map.attribute)(&name)))),
                        None => Err(self.not_constant(index, map)),
                    },
                    Some(Access::Request) => {
                        let invalid = self.invalid(node, "`request` cannot be indexed");
                        Err(invalid.expected("use a field, such as request.method"))
                    }
                    Some(Access::Attribute(_)) => Err(self.invalid(node, "a string cannot be indexed")),
                    None => Ok(None),
                }
            }
            _ => Ok(None),
        }
    }

    fn member(&self, node: &IdedExpr, name: &str) -> Lowered<Access> {
        Ok(match name {
            "method" => Access::Attribute(Attribute::Method),
            "path" => Access::Attribute(Attribute::Path),
            "host" => Access::Attribute(Attribute::Host),
            "scheme" => Access::Attribute(Attribute::Scheme),
            "ip" => Access::Attribute(Attribute::Ip),
            "headers" => Access::Map(HEADERS),
            "cookies" => Access::Map(COOKIES),
            "query" => Access::Map(QUERY),
            "params" => Access::Map(PARAMS),
            "jwt" => Access::Map(JWT),
            "domain" => Access::Attribute(Attribute::Domain),
            "descriptor" => Access::Map(DESCRIPTOR),
            _ => {
                let meant = nearest(name, &MEMBERS).map(|meant| format!("did you mean `{meant}`?"));
                let expected = meant.unwrap_or_else(|| format!("expected one of {}", all(&MEMBERS)));
                return Err(self.invalid(node, format!("unknown request field `{name}`")).expected(expected));
            }
        })
    }

    fn not_constant(&self, index: &IdedExpr, map: AttributeMap) -> super::error::InvalidExpression {
        let what = format!("the name in `request.{}` must be a constant", map.name);
        self.invalid(index, what).expected(format!("expected a text in quotes, such as request.{}[\"a\"]", map.name))
    }
}
