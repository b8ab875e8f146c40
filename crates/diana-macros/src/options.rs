//! The options in an attribute's parentheses.

mod given;
mod own;
mod rule;

use crate::number;
use crate::text::Piece;
use given::AllGiven;
pub(crate) use own::{Allows, By, Own, Store};
use proc_macro2::TokenStream;
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
    pub(crate) asks: Asks,
    pub(crate) instance: Option<String>,
    pub(crate) on_limit: Option<Path>,
    /// The path of the crate `diana` at the attribute.
    pub(crate) root: Path,
}

/// What a call queries.
pub(crate) enum Asks {
    /// A limit in the attribute itself.
    Own(Own),
    /// A rule of the rule file.
    Rule(Rule),
}

impl Asks {
    /// Returns all text pieces about a call.
    pub(crate) fn pieces(&self) -> Box<dyn Iterator<Item = &Piece> + '_> {
        match self {
            Self::Own(own) => Box::new(own.key.iter()),
            Self::Rule(rule) => Box::new(rule.tells.iter().flat_map(|(_, pieces)| pieces)),
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
            Self::Rate => {
                Some(&["rate", "burst", "timeout", "by", "key", "prefix", "expire", "store", "in", "on_limit", "crate"])
            }
            Self::Count => Some(&["limit", "period", "by", "key", "prefix", "store", "in", "on_limit", "crate"]),
            Self::Rule => None,
        }
    }
}

impl Options {
    pub(crate) fn read(kind: Kind, tokens: TokenStream) -> Result<Self> {
        let given = AllGiven::read(kind, tokens)?;
        let asks = match kind {
            Kind::Rate | Kind::Count => Asks::Own(Own::read(&given)?),
            Kind::Rule => Asks::Rule(Rule::read(&given)?),
        };
        let instance = match given.get("in") {
            Some(value) => Some(number::text("in", value, "\"name\"")?.value()),
            None => None,
        };
        let root = match given.get("crate") {
            Some(value) => path("crate", value, "limits")?,
            None => parse_quote!(::diana),
        };
        let on_limit = given.get("on_limit").map(|value| path("on_limit", value, "crate::busy")).transpose()?;
        Ok(Self { asks, instance, on_limit, root })
    }
}

fn path(name: &str, value: &Expr, example: &str) -> Result<Path> {
    match number::ungrouped(value) {
        Expr::Path(path) if path.qself.is_none() => Ok(path.path.clone()),
        _ => Err(Error::new(value.span(), format!("`{name}` is a path, as `{name} = {example}`"))),
    }
}
