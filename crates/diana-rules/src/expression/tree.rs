//! An expression as it is asked: a small tree in which everything is settled that can be settled at load. Attributes
//! are found, regexes are compiled, types fit.

use crate::attributes::Attribute;
use ipnet::IpNet;
use regex::Regex;
use std::borrow::Cow;
use std::fmt;

/// What an expression gives, in the words of CEL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// True or false.
    Bool,
    /// A whole number, of 64 bits.
    Int,
    /// A whole number that is not below zero, of 64 bits.
    Uint,
    /// A number with a fraction.
    Double,
    /// A text.
    String,
}

impl Kind {
    /// Whether it is a number of some sort.
    pub fn is_number(self) -> bool {
        matches!(self, Self::Int | Self::Uint | Self::Double)
    }
}

impl fmt::Display for Kind {
    /// As CEL calls it; with its article if asked for as `{:#}`.
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

/// What a part of an expression gives for one request.
#[derive(Clone, Debug)]
pub(super) enum Value<'a> {
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    Text(Cow<'a, str>),
}

impl Value<'_> {
    pub(super) fn kind(&self) -> Kind {
        match self {
            Self::Bool(_) => Kind::Bool,
            Self::Int(_) => Kind::Int,
            Self::Uint(_) => Kind::Uint,
            Self::Double(_) => Kind::Double,
            Self::Text(_) => Kind::String,
        }
    }
}

/// One part of an expression. Its depth is limited, so that asking it, which recurses, needs little stack.
#[derive(Clone, Debug)]
pub(super) enum Tree {
    Constant(Value<'static>),
    /// What a request says; an empty text if it does not.
    Of(Attribute),
    /// Whether a request says something.
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
    Part(Part, Box<[Tree; 2]>),
    Matches(Box<Tree>, Regex),
    Within(Box<Tree>, IpNet),
    Size(Box<Tree>),
    Spell(Spelling, Box<Tree>),
    Convert(Kind, Box<Tree>),
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

/// How one text is a part of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Start,
    End,
    Anywhere,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spelling {
    Lower,
    Upper,
    Trimmed,
}
