//! The raw options, before they are interpreted.

use super::Kind;
use crate::value;
use proc_macro2::TokenStream;
use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream, Parser};
use syn::{Error, Expr, Ident, LitStr, Result, Token};

/// `name = value`.
pub(super) struct RawOption {
    pub(super) name: Ident,
    pub(super) value: Expr,
}

impl Parse for RawOption {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        // `in` is a keyword, as other names may be.
        let expected = |_| input.error("expected an option, such as `name = value`");
        let name = input.call(Ident::parse_any).map_err(expected)?.unraw();
        let no_value = |_| Error::new(name.span(), format!("missing value of `{name}`; write `{name} = ...`"));
        input.parse::<Token![=]>().map_err(no_value)?;
        Ok(Self { name, value: input.parse()? })
    }
}

/// All options, each known and at most once.
pub(super) struct RawOptions {
    pub(super) kind: Kind,
    /// The leading text: the name of a rule.
    pub(super) first: Option<LitStr>,
    pub(super) all: Vec<RawOption>,
}

impl RawOptions {
    pub(super) fn parse(kind: Kind, tokens: TokenStream) -> Result<Self> {
        let (first, all) = (|input: ParseStream<'_>| parse_all(kind, input)).parse2(tokens)?;
        for (index, RawOption { name, .. }) in all.iter().enumerate() {
            if let Some(known) = kind.known().filter(|known| !known.iter().any(|known| name == known)) {
                let known = known.join("`, `");
                let problem = format!("unknown option `{name}` of `{}`; expected one of `{known}`", kind.name());
                return Err(Error::new(name.span(), problem));
            }
            if all[..index].iter().any(|before| before.name == *name) {
                return Err(Error::new(name.span(), format!("duplicate option `{name}`")));
            }
        }
        Ok(Self { kind, first, all })
    }

    pub(super) fn get(&self, name: &str) -> Option<&Expr> {
        self.all.iter().find(|option| option.name == name).map(|option| &option.value)
    }

    pub(super) fn time(&self, name: &str) -> Result<Option<u64>> {
        self.get(name).map(|value| value::time(name, value)).transpose()
    }
}

fn parse_all(kind: Kind, input: ParseStream<'_>) -> Result<(Option<LitStr>, Vec<RawOption>)> {
    let mut first = None;
    if matches!(kind, Kind::Rule) && input.peek(LitStr) {
        first = Some(input.parse()?);
        if !input.is_empty() {
            input.parse::<Token![,]>()?;
        }
    }
    Ok((first, input.parse_terminated(RawOption::parse, Token![,])?.into_iter().collect()))
}
