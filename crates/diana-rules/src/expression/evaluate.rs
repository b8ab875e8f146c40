//! Evaluates an expression for a request.
//!
//! # What always holds (expression/tests.rs)
//! - Nothing panics and nothing runs long: each node is evaluated at most once, regexes are linear, and errors are
//!   returned.
//! - `request.headers["x"] == "1"` allocates nothing, if the front end doesn't.
//! - It uses less than 512 KiB of stack for the deepest tree, even in an unoptimised build.

use super::error::ExpressionFailed;
use super::lowered::{Comparison, Operator, Position, TextTransform, Tree, Value, ValueType};
use crate::attributes::{Attribute, Attributes, Doubt, SEVERAL};
use std::borrow::Cow;
use std::cmp::Ordering;
use std::net::IpAddr;

type Evaluated<'a> = Result<Value<'a>, ExpressionFailed>;
/// The request to evaluate for; `None` to evaluate only constant expressions.
pub(super) type Request<'a> = Option<&'a (dyn Attributes + 'a)>;

const OVERFLOW: ExpressionFailed = ExpressionFailed::new("number out of range");
const BY_ZERO: ExpressionFailed = ExpressionFailed::new("division by zero");
const DOUBTFUL: ExpressionFailed = ExpressionFailed::new("the token of a claim is not verified");
const UNKNOWN_CLIENT: ExpressionFailed = ExpressionFailed::new("the client's address is unknown");
const AMBIGUOUS: ExpressionFailed = ExpressionFailed::new("a value is ambiguous");
const UNKNOWN: ExpressionFailed = ExpressionFailed::new("it depends on the request");
/// Types are checked when an expression is compiled, so this should never occur.
const MIXED: ExpressionFailed = ExpressionFailed::new("mismatched types");

pub(super) fn evaluate<'a>(tree: &'a Tree, request: Request<'a>) -> Evaluated<'a> {
    // Each arm is a call, so that a level of the tree costs one small frame.
    match tree {
        Tree::Constant(value) => Ok(borrowed(value)),
        Tree::Of(attribute) => attribute_text(attribute, request),
        Tree::Has(attribute) => has(attribute, request),
        Tree::Not(of) => Ok(Value::Bool(!truth(of, request)?)),
        Tree::Negate(of) => negate(evaluate(of, request)?),
        Tree::All(parts) => until(parts, false, request),
        Tree::Any(parts) => until(parts, true, request),
        Tree::Choice(parts) => {
            let [condition, yes, no] = &**parts;
            evaluate(if truth(condition, request)? { yes } else { no }, request)
        }
        Tree::Compare(comparison, sides) => {
            let [left, right] = &**sides;
            compare(*comparison, &evaluate(left, request)?, &evaluate(right, request)?)
        }
        Tree::Calculate(operator, sides) => {
            let [left, right] = &**sides;
            calculate(*operator, evaluate(left, request)?, evaluate(right, request)?)
        }
        Tree::OneOf(of, list) => one_of(of, list, request),
        Tree::Contains(position, sides) => {
            let [whole, piece] = &**sides;
            contains(*position, &text(whole, request)?, &text(piece, request)?)
        }
        Tree::Matches(of, regex) => Ok(Value::Bool(regex.is_match(&text(of, request)?))),
        Tree::Within(of, network) => {
            let address = address(of, request)?;
            Ok(Value::Bool(address.is_some_and(|address| network.contains(&address))))
        }
        Tree::Size(of) => size(&text(of, request)?),
        Tree::Transform(transform_kind, of) => Ok(Value::Text(transform(*transform_kind, text(of, request)?))),
        Tree::Convert(kind, of) => convert(*kind, evaluate(of, request)?),
    }
}

fn borrowed<'a>(value: &'a Value<'static>) -> Value<'a> {
    match value {
        Value::Text(text) => Value::Text(Cow::Borrowed(text)),
        Value::Bool(value) => Value::Bool(*value),
        Value::Int(value) => Value::Int(*value),
        Value::Uint(value) => Value::Uint(*value),
        Value::Double(value) => Value::Double(*value),
    }
}

fn attribute_text<'a>(attribute: &'a Attribute, request: Request<'a>) -> Evaluated<'a> {
    Ok(Value::Text(value(attribute, request)?.unwrap_or_default()))
}

fn has<'a>(attribute: &'a Attribute, request: Request<'a>) -> Evaluated<'a> {
    Ok(Value::Bool(value(attribute, request)?.is_some()))
}

/// Returns an attribute of the request. Fails if the token is not trusted, or if there are several values: the service
/// may use any of them, so the attribute can't be treated as absent either.
fn value<'a>(attribute: &'a Attribute, request: Request<'a>) -> Result<Option<Cow<'a, str>>, ExpressionFailed> {
    let request = request.ok_or(UNKNOWN)?;
    match request.get(attribute) {
        Some(value) if value == SEVERAL => Err(AMBIGUOUS),
        Some(value) => Ok(Some(value)),
        None => match request.doubt(attribute) {
            Some(Doubt::Unknown) => Err(UNKNOWN_CLIENT),
            Some(_) => Err(DOUBTFUL),
            None => Ok(None),
        },
    }
}

fn truth(tree: &Tree, request: Request<'_>) -> Result<bool, ExpressionFailed> {
    match evaluate(tree, request)? {
        Value::Bool(value) => Ok(value),
        _ => Err(MIXED),
    }
}

fn text<'a>(tree: &'a Tree, request: Request<'a>) -> Result<Cow<'a, str>, ExpressionFailed> {
    match evaluate(tree, request)? {
        Value::Text(text) => Ok(text),
        _ => Err(MIXED),
    }
}

/// Evaluates `&&` and `||`. As CEL specifies, a decisive operand outweighs one that fails, on either side.
fn until<'a>(parts: &'a [Tree], decisive: bool, request: Request<'a>) -> Evaluated<'a> {
    let mut failed = None;
    for part in parts {
        match truth(part, request) {
            Ok(value) if value == decisive => return Ok(Value::Bool(decisive)),
            Ok(_) => {}
            Err(failure) => failed = Some(failure),
        }
    }
    failed.map_or(Ok(Value::Bool(!decisive)), Err)
}

fn one_of<'a>(of: &'a Tree, list: &'a [Tree], request: Request<'a>) -> Evaluated<'a> {
    let wanted = evaluate(of, request)?;
    for item in list {
        if order(&wanted, &evaluate(item, request)?)? == Some(Ordering::Equal) {
            return Ok(Value::Bool(true));
        }
    }
    Ok(Value::Bool(false))
}

fn compare(comparison: Comparison, left: &Value<'_>, right: &Value<'_>) -> Evaluated<'static> {
    let order = order(left, right)?;
    Ok(Value::Bool(match comparison {
        Comparison::Equal => order == Some(Ordering::Equal),
        Comparison::Different => order != Some(Ordering::Equal),
        Comparison::Less => order == Some(Ordering::Less),
        Comparison::AtMost => matches!(order, Some(Ordering::Less | Ordering::Equal)),
        Comparison::More => order == Some(Ordering::Greater),
        Comparison::AtLeast => matches!(order, Some(Ordering::Greater | Ordering::Equal)),
    }))
}

/// Compares two values, also numbers of different types; `None` if one is NaN.
fn order(left: &Value<'_>, right: &Value<'_>) -> Result<Option<Ordering>, ExpressionFailed> {
    Ok(match (left, right) {
        (Value::Text(left), Value::Text(right)) => Some(left.cmp(right)),
        (Value::Bool(left), Value::Bool(right)) => Some(left.cmp(right)),
        (Value::Int(left), Value::Int(right)) => Some(left.cmp(right)),
        (Value::Uint(left), Value::Uint(right)) => Some(left.cmp(right)),
        (Value::Int(left), Value::Uint(right)) => Some(i128::from(*left).cmp(&i128::from(*right))),
        (Value::Uint(left), Value::Int(right)) => Some(i128::from(*left).cmp(&i128::from(*right))),
        _ => double(left).ok_or(MIXED)?.partial_cmp(&double(right).ok_or(MIXED)?),
    })
}

/// Converts a number to a double: over 2^53, to the nearest one.
#[allow(clippy::cast_precision_loss, reason = "what CEL's double() does as well")]
fn double(value: &Value<'_>) -> Option<f64> {
    match value {
        Value::Int(value) => Some(*value as f64),
        Value::Uint(value) => Some(*value as f64),
        Value::Double(value) => Some(*value),
        Value::Bool(_) | Value::Text(_) => None,
    }
}

fn negate(value: Value<'_>) -> Evaluated<'static> {
    match value {
        Value::Int(value) => value.checked_neg().map(Value::Int).ok_or(OVERFLOW),
        Value::Double(value) => Ok(Value::Double(-value)),
        _ => Err(MIXED),
    }
}

fn calculate<'a>(operator: Operator, left: Value<'a>, right: Value<'a>) -> Evaluated<'a> {
    match (left, right) {
        (Value::Text(left), Value::Text(right)) if operator == Operator::Add => Ok(Value::Text(left + right)),
        (Value::Int(left), Value::Int(right)) => {
            let result = match operator {
                Operator::Add => left.checked_add(right),
                Operator::Subtract => left.checked_sub(right),
                Operator::Multiply => left.checked_mul(right),
                Operator::Divide | Operator::Remainder if right == 0 => return Err(BY_ZERO),
                Operator::Divide => left.checked_div(right),
                Operator::Remainder => left.checked_rem(right),
            };
            result.map(Value::Int).ok_or(OVERFLOW)
        }
        (Value::Uint(left), Value::Uint(right)) => {
            let result = match operator {
                Operator::Add => left.checked_add(right),
                Operator::Subtract => left.checked_sub(right),
                Operator::Multiply => left.checked_mul(right),
                Operator::Divide | Operator::Remainder if right == 0 => return Err(BY_ZERO),
                Operator::Divide => left.checked_div(right),
                Operator::Remainder => left.checked_rem(right),
            };
            result.map(Value::Uint).ok_or(OVERFLOW)
        }
        (Value::Double(left), Value::Double(right)) => Ok(Value::Double(match operator {
            Operator::Add => left + right,
            Operator::Subtract => left - right,
            Operator::Multiply => left * right,
            Operator::Divide => left / right,
            Operator::Remainder => return Err(MIXED),
        })),
        _ => Err(MIXED),
    }
}

fn contains(position: Position, whole: &str, piece: &str) -> Evaluated<'static> {
    Ok(Value::Bool(match position {
        Position::Start => whole.starts_with(piece),
        Position::End => whole.ends_with(piece),
        Position::Anywhere => whole.contains(piece),
    }))
}

/// Parses an address; `None` if it is not one. An IPv4-mapped IPv6 address equals its IPv4 address.
fn address(of: &Tree, request: Request<'_>) -> Result<Option<IpAddr>, ExpressionFailed> {
    let address = match of {
        Tree::Of(Attribute::Ip) => request.ok_or(UNKNOWN)?.ip(),
        other => text(other, request)?.parse().ok(),
    };
    Ok(address.map(|address| address.to_canonical()))
}

fn size(text: &str) -> Evaluated<'static> {
    i64::try_from(text.chars().count()).map(Value::Int).map_err(|_| OVERFLOW)
}

fn transform(transform_kind: TextTransform, text: Cow<'_, str>) -> Cow<'_, str> {
    match transform_kind {
        TextTransform::Lower if text.bytes().any(|byte| byte.is_ascii_uppercase()) => text.to_ascii_lowercase().into(),
        TextTransform::Upper if text.bytes().any(|byte| byte.is_ascii_lowercase()) => text.to_ascii_uppercase().into(),
        TextTransform::Lower | TextTransform::Upper => text,
        TextTransform::Trimmed => match text {
            Cow::Borrowed(text) => text.trim().into(),
            Cow::Owned(text) => text.trim().to_owned().into(),
        },
    }
}

fn convert(kind: ValueType, value: Value<'_>) -> Evaluated<'_> {
    let no_number = ExpressionFailed::new("invalid number");
    Ok(match (kind, value) {
        (ValueType::String, value) => Value::Text(written(value)),
        (ValueType::Bool, Value::Bool(value)) => Value::Bool(value),
        (ValueType::Bool, Value::Text(text)) => match &*text {
            "true" | "True" | "TRUE" | "t" | "1" => Value::Bool(true),
            "false" | "False" | "FALSE" | "f" | "0" => Value::Bool(false),
            _ => return Err(ExpressionFailed::new("invalid boolean")),
        },
        (ValueType::Double, Value::Text(text)) => Value::Double(text.parse().map_err(|_| no_number)?),
        (ValueType::Double, value) => Value::Double(double(&value).ok_or(MIXED)?),
        (ValueType::Int, Value::Text(text)) => Value::Int(text.parse().map_err(|_| no_number)?),
        (ValueType::Int, Value::Int(value)) => Value::Int(value),
        (ValueType::Int, Value::Uint(value)) => Value::Int(i64::try_from(value).map_err(|_| OVERFLOW)?),
        (ValueType::Int, Value::Double(value)) => {
            Value::Int(whole(value).and_then(|whole| i64::try_from(whole).ok()).ok_or(OVERFLOW)?)
        }
        (ValueType::Uint, Value::Text(text)) => Value::Uint(text.parse().map_err(|_| no_number)?),
        (ValueType::Uint, Value::Uint(value)) => Value::Uint(value),
        (ValueType::Uint, Value::Int(value)) => Value::Uint(u64::try_from(value).map_err(|_| OVERFLOW)?),
        (ValueType::Uint, Value::Double(value)) => {
            Value::Uint(whole(value).and_then(|whole| u64::try_from(whole).ok()).ok_or(OVERFLOW)?)
        }
        (ValueType::Bool | ValueType::Int | ValueType::Uint, _) => return Err(MIXED),
    })
}

/// Truncates a double to an integer, if it is in range.
#[allow(clippy::cast_possible_truncation, reason = "it is within the bounds, and casts saturate anyway")]
pub(super) fn whole(value: f64) -> Option<i128> {
    (value.abs() < 1e30).then_some(value as i128)
}

/// Formats a value as a string.
pub(super) fn written(value: Value<'_>) -> Cow<'_, str> {
    match value {
        Value::Text(text) => text,
        Value::Bool(value) => Cow::Borrowed(if value { "true" } else { "false" }),
        Value::Int(value) => value.to_string().into(),
        Value::Uint(value) => value.to_string().into(),
        Value::Double(value) => value.to_string().into(),
    }
}
