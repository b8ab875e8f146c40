//! The lowered tree of an expression: attributes are resolved, regexes are compiled, and types are checked at load
//! time.

use crate::attributes::Attribute;
use ipnet::IpNet;
use regex::Regex;
use std::borrow::Cow;
use std::fmt;

/// The type of an expression's result, by its CEL name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ValueType {
    /// True or false.
    Bool,
    /// A signed integer of 64 bits.
    Int,
    /// An unsigned integer of 64 bits.
    Uint,
    /// A floating-point number.
    Double,
    /// A string.
    String,
}

impl ValueType {
    /// Returns `true` for the number types.
    pub fn is_number(self) -> bool {
        matches!(self, Self::Int | Self::Uint | Self::Double)
    }
}

impl fmt::Display for ValueType {
    /// Formats the type as in CEL; `{:#}` adds an article.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if f.alternate() {
            f.write_str(if *self == Self::Int { "an " } else { "a " })?;
        }
        f.write_str(match self {
            Self::Bool => "bool",
            Self::Int => "int",
            Self::Uint => "uint",
            Self::Double => "double",
            Self::String => "string",
        })
    }
}

/// The result of a node for one request.
#[derive(Clone, Debug)]
pub(super) enum Value<'a> {
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    Text(Cow<'a, str>),
}

impl Value<'_> {
    pub(super) fn kind(&self) -> ValueType {
        match self {
            Self::Bool(_) => ValueType::Bool,
            Self::Int(_) => ValueType::Int,
            Self::Uint(_) => ValueType::Uint,
            Self::Double(_) => ValueType::Double,
            Self::Text(_) => ValueType::String,
        }
    }
}

/// A node of an expression. Its depth is limited, so that recursive evaluation needs little stack.
#[derive(Clone, Debug)]
pub(super) enum Tree {
    Constant(Value<'static>),
    /// An attribute of the request; an empty string if it is absent.
    Of(Attribute),
    /// Whether the request has the attribute.
    Has(Attribute),
    Not(Box<Tree>),
    Negate(Box<Tree>),
    /// `&&`, and `all`.
    All(Vec<Tree>),
    /// `||`, and `exists`.
    Any(Vec<Tree>),
    /// `a ? b : c`.
    Choice(Box<[Tree; 3]>),
    Compare(Comparison, Box<[Tree; 2]>),
    Calculate(Operator, Box<[Tree; 2]>),
    /// `a in [b, c]`.
    OneOf(Box<Tree>, Vec<Tree>),
    /// `a.startsWith(b)` and the like.
    Contains(Position, Box<[Tree; 2]>),
    Matches(Box<Tree>, Regex),
    Within(Box<Tree>, IpNet),
    Size(Box<Tree>),
    Transform(TextTransform, Box<Tree>),
    Convert(ValueType, Box<Tree>),
}

impl Tree {
    /// Returns whether a condition is negated (`!a`, `a != b`), and what is negated (`a`, `a == b`).
    pub(super) fn without_negation(&self) -> (bool, Cow<'_, Self>) {
        match self {
            Self::Not(tree) => {
                let (is_negated, tree) = tree.without_negation();
                (!is_negated, tree)
            }
            Self::Compare(Comparison::Different, both) => {
                (true, Cow::Owned(Self::Compare(Comparison::Equal, both.clone())))
            }
            tree => (false, Cow::Borrowed(tree)),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Comparison {
    Equal,
    Different,
    Less,
    AtMost,
    More,
    AtLeast,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operator {
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
}

/// The position of one string within another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Position {
    Start,
    End,
    Anywhere,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TextTransform {
    Lower,
    Upper,
    Trimmed,
}
