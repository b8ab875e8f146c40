//! Lowers the parser's tree into ours: resolves at load time everything that does not depend on a request, and rejects
//! unsupported CEL with an explanation.

use super::error::InvalidExpression;
use super::lowered::{Comparison, Operator, Tree, Value, ValueType};
use crate::attributes::Attribute;
use cel::IdedExpr;
use cel::common::ast::{CallExpr, ComprehensionExpr, Expr, LiteralValue, SourceInfo, operators};
use diana_document::map_reader::nearest;
use std::borrow::Cow;

/// The maximum depth of a tree: evaluation recurses, on a thread whose stack size we don't choose.
pub(super) const MAX_DEPTH: usize = 64;
/// The maximum number of nodes: `exists` and `all` repeat their body for each item of their list.
pub(super) const MAX_NODES: usize = 2048;

/// A lowered node, and the type of its result.
pub(super) type Typed = (Tree, ValueType);
pub(super) type Lowered<T = Typed> = Result<T, InvalidExpression>;

/// The state of lowering one expression.
pub(super) struct Lowering<'a> {
    /// Names that may be used besides `request`.
    pub(super) names: &'a [&'a str],
    pub(super) source: &'a SourceInfo,
    /// The attributes that were read so far.
    pub(super) attributes: Vec<Attribute>,
    /// The variables of `exists` and `all`, the innermost last.
    pub(super) variables: Vec<(String, Value<'static>)>,
    depth: usize,
    nodes: usize,
}

impl<'a> Lowering<'a> {
    pub(super) fn new(names: &'a [&'a str], source: &'a SourceInfo) -> Self {
        Self { names, source, attributes: Vec::new(), variables: Vec::new(), depth: 0, nodes: 0 }
    }

    pub(super) fn lower(&mut self, node: &IdedExpr) -> Lowered {
        self.depth += 1;
        self.nodes += 1;
        if self.depth > MAX_DEPTH || self.nodes > MAX_NODES {
            return Err(self
                .invalid(node, "the expression is too large")
                .expected("use fewer parts, or several rules"));
        }
        let lowered = self.lower_node(node);
        self.depth -= 1;
        lowered
    }

    fn lower_node(&mut self, node: &IdedExpr) -> Lowered {
        if let Some(known) = self.of_request(node)? {
            return Ok(known);
        }
        match &node.expr {
            Expr::Literal(literal) => self.literal(node, literal),
            Expr::Ident(name) => self.name(node, name),
            Expr::Call(call) => self.call(node, call),
            Expr::Comprehension(comprehension) => self.comprehension(node, comprehension),
            Expr::Select(select) => {
                let (_, kind) = self.lower(&select.operand)?;
                Err(self.invalid(node, format!("{kind:#} has no field `{}`", select.field)))
            }
            Expr::List(_) => {
                Err(self.invalid(node, "a list is only supported after `in`, and before `.exists` or `.all`"))
            }
            Expr::Map(_) | Expr::Struct(_) => Err(self.invalid(node, "maps and messages are not supported")),
            Expr::Unspecified => Err(self.invalid(node, "invalid expression")),
        }
    }

    fn literal(&self, node: &IdedExpr, literal: &LiteralValue) -> Lowered {
        let value = match literal {
            LiteralValue::Boolean(value) => Value::Bool(*value.inner()),
            LiteralValue::Int(value) => Value::Int(*value.inner()),
            LiteralValue::UInt(value) => Value::Uint(*value.inner()),
            LiteralValue::Double(value) => Value::Double(*value.inner()),
            LiteralValue::String(value) => Value::Text(Cow::Owned(value.inner().to_owned())),
            LiteralValue::Null => {
                return Err(self
                    .invalid(node, "`null` is not supported")
                    .expected("an absent value is an empty text: ''"));
            }
            LiteralValue::Bytes(_) => return Err(self.invalid(node, "bytes are not supported")),
        };
        let kind = value.kind();
        Ok((Tree::Constant(value), kind))
    }

    fn name(&mut self, node: &IdedExpr, name: &str) -> Lowered {
        if let Some(value) = self.variable(name) {
            let value = value.clone();
            let kind = value.kind();
            return Ok((Tree::Constant(value), kind));
        }
        if self.names.contains(&name) {
            let attribute = Attribute::Named(name.into());
            return Ok((self.read_attribute(attribute), ValueType::String));
        }
        let known = self.names.iter().copied().chain(["request"]).collect::<Vec<_>>();
        let expected = match nearest(name, &known) {
            Some(meant) => format!("did you mean `{meant}`?"),
            None => {
                format!("expected `request.…`, {}, or a text in quotes", diana_document::map_reader::all(self.names))
            }
        };
        Err(self.invalid(node, format!("unknown name `{name}`")).expected(expected))
    }

    fn call(&mut self, node: &IdedExpr, call: &CallExpr) -> Lowered {
        match (call.func_name.as_str(), call.args.as_slice()) {
            (operators::LOGICAL_AND, [left, right]) => {
                Ok((Tree::All(self.joined(left, right, true)?), ValueType::Bool))
            }
            (operators::LOGICAL_OR, [left, right]) => {
                Ok((Tree::Any(self.joined(left, right, false)?), ValueType::Bool))
            }
            (operators::LOGICAL_NOT, [of]) => {
                Ok((Tree::Not(Box::new(self.of_kind(of, ValueType::Bool, "!")?)), ValueType::Bool))
            }
            (operators::NEGATE, [of]) => {
                let (tree, kind) = self.lower(of)?;
                if !matches!(kind, ValueType::Int | ValueType::Double) {
                    return Err(self.invalid(node, format!("`-` is not supported for {kind:#}")));
                }
                Ok((Tree::Negate(Box::new(tree)), kind))
            }
            (operators::CONDITIONAL, [condition, yes, no]) => {
                let condition = self.of_kind(condition, ValueType::Bool, "?")?;
                let ((yes, kind), (no, other)) = (self.lower(yes)?, self.lower(no)?);
                if kind != other {
                    let what = format!("mismatched types in `?:`: {kind:#} and {other:#}");
                    return Err(self.invalid(node, what).expected("expected the same type"));
                }
                Ok((Tree::Choice(Box::new([condition, yes, no])), kind))
            }
            (operators::IN, [of, list]) => self.one_of(of, list),
            (name, [left, right]) if comparison(name).is_some() || operator(name).is_some() => {
                let sides = (self.lower(left)?, self.lower(right)?);
                self.binary(node, name, sides)
            }
            (operators::INDEX, _) => Err(self
                .invalid(node, "only the maps of a request can be indexed")
                .expected("use a map, such as request.headers[\"x-plan\"]")),
            _ => self.function(node, call),
        }
    }

    fn binary(&self, node: &IdedExpr, name: &str, ((left, kind), (right, other)): (Typed, Typed)) -> Lowered {
        let sign = name.trim_matches('_');
        let sides = Box::new([left, right]);
        if let Some(comparison) = comparison(name) {
            if kind != other && !(kind.is_number() && other.is_number()) {
                let what = format!("`{sign}` cannot compare {kind:#} with {other:#}");
                return Err(self.invalid(node, what).expected(conversion(kind, other)));
            }
            return Ok((Tree::Compare(comparison, sides), ValueType::Bool));
        }
        let fits = match (operator(name), kind) {
            _ if kind != other => false,
            (Some(Operator::Add), ValueType::String) => true,
            (Some(Operator::Remainder), ValueType::Double) => false,
            _ => kind.is_number(),
        };
        match operator(name).filter(|_| fits) {
            Some(operator) => Ok((Tree::Calculate(operator, sides), kind)),
            None => {
                let what = format!("`{sign}` is not supported for {kind:#} and {other:#}");
                Err(self.invalid(node, what).expected(conversion(kind, other)))
            }
        }
    }

    /// Flattens `a && b && c` into one list.
    fn joined(&mut self, left: &IdedExpr, right: &IdedExpr, and: bool) -> Lowered<Vec<Tree>> {
        let mut parts = Vec::new();
        for side in [left, right] {
            match (self.of_kind(side, ValueType::Bool, if and { "&&" } else { "||" })?, and) {
                (Tree::All(inner), true) | (Tree::Any(inner), false) => parts.extend(inner),
                (other, _) => parts.push(other),
            }
        }
        Ok(parts)
    }

    fn one_of(&mut self, of: &IdedExpr, list: &IdedExpr) -> Lowered {
        if let Some(presence) = self.presence(of, list)? {
            return Ok(presence);
        }
        let Expr::List(items) = &list.expr else {
            let expected =
                "expected a list such as ['GET', 'HEAD'], or request.headers; for a part of a text, a.contains(b)";
            return Err(self.invalid(list, "`in` needs a list").expected(expected));
        };
        let (of, kind) = self.lower(of)?;
        let mut trees = Vec::new();
        for item in &items.elements {
            let (tree, other) = self.lower(item)?;
            if kind != other && !(kind.is_number() && other.is_number()) {
                return Err(self.invalid(item, format!("mismatched types: expected {kind:#}, found {other:#}")));
            }
            trees.push(tree);
        }
        Ok((Tree::OneOf(Box::new(of), trees), ValueType::Bool))
    }

    /// Lowers `exists` and `all` over a list of constants: the body, once for each.
    fn comprehension(&mut self, node: &IdedExpr, of: &ComprehensionExpr) -> Lowered {
        let unsupported = || {
            self.invalid(node, "of the list functions, only `exists` and `all` are supported")
                .expected("use a form such as ['/a', '/b'].exists(p, request.path.startsWith(p))")
        };
        let Expr::Call(step) = &of.loop_step.expr else { return Err(unsupported()) };
        let is_all = match (&of.accu_init.expr, step.func_name.as_str()) {
            (Expr::Literal(LiteralValue::Boolean(_)), operators::LOGICAL_AND) => true,
            (Expr::Literal(LiteralValue::Boolean(_)), operators::LOGICAL_OR) => false,
            _ => return Err(unsupported()),
        };
        let ([_, body], None) = (step.args.as_slice(), &of.iter_var2) else { return Err(unsupported()) };
        let Expr::List(list) = &of.iter_range.expr else {
            return Err(self.invalid(&of.iter_range, "`exists` and `all` need a list of constants"));
        };
        let mut parts = Vec::new();
        for item in &list.elements {
            let (Tree::Constant(value), _) = self.lower(item)? else {
                return Err(self.invalid(item, "`exists` and `all` need a list of constants"));
            };
            self.variables.push((of.iter_var.clone(), value));
            let part = self.of_kind(body, ValueType::Bool, if is_all { "all" } else { "exists" });
            self.variables.pop();
            parts.push(part?);
        }
        Ok((if is_all { Tree::All(parts) } else { Tree::Any(parts) }, ValueType::Bool))
    }

    /// Lowers a node that must have the given type.
    pub(super) fn of_kind(&mut self, node: &IdedExpr, wanted: ValueType, operator_name: &str) -> Lowered<Tree> {
        let (tree, kind) = self.lower(node)?;
        if kind == wanted {
            return Ok(tree);
        }
        Err(self
            .invalid(node, format!("`{operator_name}` expects {wanted:#}, found {kind:#}"))
            .expected(conversion(kind, wanted)))
    }

    pub(super) fn variable(&self, name: &str) -> Option<&Value<'static>> {
        self.variables.iter().rev().find(|(known, _)| known == name).map(|(_, value)| value)
    }

    pub(super) fn read_attribute(&mut self, attribute: Attribute) -> Tree {
        if !self.attributes.contains(&attribute) {
            self.attributes.push(attribute.clone());
        }
        Tree::Of(attribute)
    }

    /// Creates an error located at `node`.
    pub(super) fn invalid(&self, node: &IdedExpr, what: impl Into<String>) -> InvalidExpression {
        let at = self.source.offset_for(node.id).and_then(|(start, _)| usize::try_from(start).ok());
        InvalidExpression::new(at, what)
    }
}

fn comparison(name: &str) -> Option<Comparison> {
    Some(match name {
        operators::EQUALS => Comparison::Equal,
        operators::NOT_EQUALS => Comparison::Different,
        operators::LESS => Comparison::Less,
        operators::LESS_EQUALS => Comparison::AtMost,
        operators::GREATER => Comparison::More,
        operators::GREATER_EQUALS => Comparison::AtLeast,
        _ => return None,
    })
}

fn operator(name: &str) -> Option<Operator> {
    Some(match name {
        operators::ADD => Operator::Add,
        operators::SUBSTRACT => Operator::Subtract,
        operators::MULTIPLY => Operator::Multiply,
        operators::DIVIDE => Operator::Divide,
        operators::MODULO => Operator::Remainder,
        _ => return None,
    })
}

/// Suggests how to convert two values to one type.
fn conversion(one: ValueType, other: ValueType) -> String {
    match (one, other) {
        (ValueType::String, ValueType::Bool) => "use a comparison, as in request.method == 'GET'".to_owned(),
        (ValueType::String, kind) | (kind, ValueType::String) if kind.is_number() => {
            format!("use {kind}(…) to convert a string to {kind:#}")
        }
        (ValueType::Double, kind) | (kind, ValueType::Double) if kind.is_number() => {
            format!("use double(…) to convert {kind:#} to a double")
        }
        _ => "expected the same type".to_owned(),
    }
}
