//! The raw options, before they are interpreted.

use super::Kind;
use crate::number;
use proc_macro2::TokenStream;
use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream, Parser};
use syn::{Error, Expr, Ident, LitStr, Result, Token};

/// `name = value`.
pub(super) struct Given {
    pub(super) name: Ident,
    pub(super) value: Expr,
}

impl Parse for Given {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        // `in` is a keyword, as other names may be.
        let wanted = |_| input.error("here goes an option, as `name = value`");
        let name = input.call(Ident::parse_any).map_err(wanted)?.unraw();
        let no_value = |_| Error::new(name.span(), format!("`{name}` has no value: write `{name} = ...`"));
        input.parse::<Token![=]>().map_err(no_value)?;
        Ok(Self { name, value: input.parse()? })
    }
}

/// All options, each known and given once.
pub(super) struct AllGiven {
    pub(super) kind: Kind,
    /// The leading text: the name of a rule.
    pub(super) first: Option<LitStr>,
    pub(super) all: Vec<Given>,
}

impl AllGiven {
    pub(super) fn read(kind: Kind, tokens: TokenStream) -> Result<Self> {
        let (first, all) = (|input: ParseStream<'_>| in_order(kind, input)).parse2(tokens)?;
        for (nth, Given { name, .. }) in all.iter().enumerate() {
            if let Some(known) = kind.known().filter(|known| !known.iter().any(|known| name == known)) {
                let known = known.join("`, `");
                let problem = format!("`{}` has no option `{name}`; it has `{known}`", kind.name());
                return Err(Error::new(name.span(), problem));
            }
            if all[..nth].iter().any(|before| before.name == *name) {
                return Err(Error::new(name.span(), format!("`{name}` is given twice; write it once")));
            }
        }
        Ok(Self { kind, first, all })
    }

    pub(super) fn get(&self, name: &str) -> Option<&Expr> {
        self.all.iter().find(|given| given.name == name).map(|given| &given.value)
    }

    pub(super) fn time(&self, name: &str) -> Result<Option<u64>> {
        self.get(name).map(|value| number::time(name, value)).transpose()
    }
}

fn in_order(kind: Kind, input: ParseStream<'_>) -> Result<(Option<LitStr>, Vec<Given>)> {
    let mut first = None;
    if matches!(kind, Kind::Rule) && input.peek(LitStr) {
        first = Some(input.parse()?);
        if !input.is_empty() {
            input.parse::<Token![,]>()?;
        }
    }
    Ok((first, input.parse_terminated(Given::parse, Token![,])?.into_iter().collect()))
}
