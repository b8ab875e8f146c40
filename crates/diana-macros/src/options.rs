//! What is written in an attribute's parentheses.

mod given;
mod own;
mod rule;

use crate::number;
use given::AllGiven;
pub(crate) use own::{Allows, By, Own, Store};
use proc_macro2::TokenStream;
pub(crate) use rule::Rule;
use syn::spanned::Spanned;
use syn::{Error, Expr, Path, Result};

/// Which attribute it is.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    Rate,
    Count,
    Rule,
}

/// What an attribute says.
pub(crate) struct Options {
    pub(crate) asks: Asks,
    pub(crate) instance: Option<String>,
    pub(crate) on_limit: Option<Path>,
}

/// Whom a call asks.
pub(crate) enum Asks {
    /// A limit of the function's own.
    Own(Own),
    /// A rule of the rule file.
    Rule(Rule),
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Rate => "rate_limit",
            Self::Count => "count_limit",
            Self::Rule => "limited",
        }
    }

    /// Its options; a rule is told whatever else is given.
    fn known(self) -> Option<&'static [&'static str]> {
        match self {
            Self::Rate => {
                Some(&["rate", "burst", "timeout", "by", "key", "prefix", "expire", "store", "in", "on_limit"])
            }
            Self::Count => Some(&["limit", "period", "by", "key", "prefix", "store", "in", "on_limit"]),
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
        Ok(Self { asks, instance, on_limit: given.get("on_limit").map(on_limit).transpose()? })
    }
}

fn on_limit(value: &Expr) -> Result<Path> {
    match value {
        Expr::Path(path) if path.qself.is_none() => Ok(path.path.clone()),
        _ => Err(Error::new(value.span(), "`on_limit` is the path of a function, as `on_limit = crate::busy`")),
    }
}
