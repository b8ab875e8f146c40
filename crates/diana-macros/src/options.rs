//! The options in an attribute's parentheses.

mod limit;
mod raw;
mod rule;

use crate::template::Piece;
use crate::value;
pub(crate) use limit::{By, Limit, LimitSpec, Store};
use proc_macro2::TokenStream;
use raw::RawOptions;
pub(crate) use rule::Rule;
use syn::spanned::Spanned;
use syn::{Error, Expr, Path, Result, parse_quote};

/// The attribute.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    Rate,
    Count,
    Rule,
}

/// The options of an attribute.
pub(crate) struct Options {
    pub(crate) target: Target,
    pub(crate) instance: Option<String>,
    pub(crate) on_limit: Option<Path>,
    /// The path of the crate `diana` at the attribute.
    pub(crate) root: Path,
}

/// The target of a call's check.
pub(crate) enum Target {
    /// A limit in the attribute itself.
    Limit(Limit),
    /// A rule of the rule file.
    Rule(Rule),
}

impl Target {
    /// Returns all text pieces of a call.
    pub(crate) fn pieces(&self) -> Box<dyn Iterator<Item = &Piece> + '_> {
        match self {
            Self::Limit(limit) => Box::new(limit.key.iter()),
            Self::Rule(rule) => Box::new(rule.args.iter().flat_map(|(_, pieces)| pieces)),
        }
    }
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Rate => "rate_limit",
            Self::Count => "count_limit",
            Self::Rule => "limited",
        }
    }

    /// Returns its options; a rule accepts additional ones as arguments.
    fn known(self) -> Option<&'static [&'static str]> {
        match self {
            Self::Rate => Some(&[
                "rate",
                "burst",
                "saved",
                "timeout",
                "algorithm",
                "by",
                "key",
                "prefix",
                "expire",
                "store",
                "in",
                "on_limit",
                "crate",
            ]),
            Self::Count => Some(&["limit", "period", "by", "key", "prefix", "store", "in", "on_limit", "crate"]),
            Self::Rule => None,
        }
    }
}

impl Options {
    pub(crate) fn parse(kind: Kind, tokens: TokenStream) -> Result<Self> {
        let raw = RawOptions::parse(kind, tokens)?;
        let target = match kind {
            Kind::Rate | Kind::Count => Target::Limit(Limit::parse(&raw)?),
            Kind::Rule => Target::Rule(Rule::parse(&raw)?),
        };
        let instance = match raw.get("in") {
            Some(value) => Some(value::text("in", value, "\"name\"")?.value()),
            None => None,
        };
        let root = match raw.get("crate") {
            Some(value) => path("crate", value, "limits")?,
            None => parse_quote!(::diana),
        };
        let on_limit = raw.get("on_limit").map(|value| path("on_limit", value, "crate::busy")).transpose()?;
        Ok(Self { target, instance, on_limit, root })
    }
}

fn path(name: &str, value: &Expr, example: &str) -> Result<Path> {
    match value::ungrouped(value) {
        Expr::Path(path) if path.qself.is_none() => Ok(path.path.clone()),
        _ => Err(Error::new(value.span(), format!("invalid `{name}`: expected a path, such as `{name} = {example}`"))),
    }
}
