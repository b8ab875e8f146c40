//! What is written in an attribute's parentheses.

use crate::number;
use crate::text::{self, Piece};
use proc_macro2::{Span, TokenStream};
use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream, Parser};
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::{Error, Expr, Ident, Lit, Path, Result, Token};

/// Which attribute it is.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    Rate,
    Count,
}

/// What an attribute says.
pub(crate) struct Options {
    pub(crate) allows: Allows,
    pub(crate) by: By,
    pub(crate) key: Vec<Piece>,
    pub(crate) prefix: String,
    pub(crate) timeout_nanos: u64,
    pub(crate) instance: Option<String>,
    pub(crate) on_limit: Option<Path>,
}

/// How much it grants.
pub(crate) enum Allows {
    Rate { rate: f64, burst_nanos: u64 },
    Count { limit: u64, period_nanos: u64 },
}

/// Whose calls count together, besides the key.
pub(crate) enum By {
    Function,
    Ip,
    User,
}

/// Guava's own burst.
const SECOND: u64 = 1_000_000_000;

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Rate => "rate_limit",
            Self::Count => "count_limit",
        }
    }

    fn known(self) -> &'static [&'static str] {
        match self {
            Self::Rate => &["rate", "burst", "timeout", "by", "key", "prefix", "expire", "in", "on_limit"],
            Self::Count => &["limit", "period", "by", "key", "prefix", "in", "on_limit"],
        }
    }
}

/// `name = value`.
struct Given {
    name: Ident,
    value: Expr,
}

impl Parse for Given {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        // `in` is a keyword.
        let name = input.call(Ident::parse_any)?;
        input.parse::<Token![=]>()?;
        Ok(Self { name, value: input.parse()? })
    }
}

/// All that is given, each once and known.
struct AllGiven {
    kind: Kind,
    all: Vec<Given>,
}

impl AllGiven {
    fn read(kind: Kind, tokens: TokenStream) -> Result<Self> {
        let all: Vec<_> = Punctuated::<Given, Token![,]>::parse_terminated.parse2(tokens)?.into_iter().collect();
        for (nth, Given { name, .. }) in all.iter().enumerate() {
            if !kind.known().iter().any(|known| name == known) {
                let known = kind.known().join("`, `");
                let problem = format!("`{}` has no option `{name}`; it has `{known}`", kind.name());
                return Err(Error::new(name.span(), problem));
            }
            if all[..nth].iter().any(|before| before.name == *name) {
                return Err(Error::new(name.span(), format!("`{name}` is given twice; write it once")));
            }
        }
        Ok(Self { kind, all })
    }

    fn get(&self, name: &str) -> Option<&Expr> {
        self.all.iter().find(|given| given.name == name).map(|given| &given.value)
    }

    fn need(&self, name: &str, example: &str) -> Result<&Expr> {
        let problem = || format!("`{}` needs `{name}`: write `{name} = {example}`", self.kind.name());
        self.get(name).ok_or_else(|| Error::new(Span::call_site(), problem()))
    }

    fn time(&self, name: &str) -> Result<Option<u64>> {
        self.get(name).map(|value| number::time(name, value)).transpose()
    }

    fn text(&self, name: &str, example: &str) -> Result<Option<String>> {
        self.get(name).map(|value| number::text(name, value, example).map(|text| text.value())).transpose()
    }
}

impl Options {
    pub(crate) fn read(kind: Kind, tokens: TokenStream) -> Result<Self> {
        let given = AllGiven::read(kind, tokens)?;
        let timeout_nanos = given.time("timeout")?.unwrap_or(0);
        let allows = match kind {
            Kind::Rate => rate(&given, timeout_nanos)?,
            Kind::Count => count(&given)?,
        };
        let (by, mut key) = given.get("by").map_or(Ok((By::Function, Vec::new())), by)?;
        if let Some(value) = given.get("key") {
            if !key.is_empty() {
                let problem =
                    "`by` has a text already; write all of it there, as `by = \"{user.id} {item}\"`, or only `key`";
                return Err(Error::new(value.span(), problem));
            }
            key = text::pieces(&number::text("key", value, "\"{user.id}\"")?)?;
        }
        Ok(Self {
            allows,
            by,
            key,
            prefix: given.text("prefix", "\"api:\"")?.unwrap_or_default(),
            timeout_nanos,
            instance: given.text("in", "\"name\"")?,
            on_limit: given.get("on_limit").map(on_limit).transpose()?,
        })
    }
}

fn rate(given: &AllGiven, timeout_nanos: u64) -> Result<Allows> {
    let rate = number::rate(given.need("rate", "5.0")?)?;
    let burst_nanos = given.time("burst")?.unwrap_or(SECOND);
    if let (Some(expire), Some(value)) = (given.time("expire")?, given.get("expire"))
        && expire < burst_nanos.saturating_add(timeout_nanos)
    {
        // A key that is forgotten too early comes back with a full store.
        let problem = "`expire` is shorter than `burst` and `timeout` together: a key would be forgotten while its calls still \
                       count; write a longer time, or leave `expire` out";
        return Err(Error::new(value.span(), problem));
    }
    Ok(Allows::Rate { rate, burst_nanos })
}

fn count(given: &AllGiven) -> Result<Allows> {
    let limit = number::count(given.need("limit", "5")?)?;
    let period = given.need("period", "\"1min\"")?;
    match number::time("period", period)? {
        0 => Err(Error::new(period.span(), "`period` is a time above 0, as `period = \"1min\"`")),
        period_nanos => Ok(Allows::Count { limit, period_nanos }),
    }
}

fn by(value: &Expr) -> Result<(By, Vec<Piece>)> {
    const WRITE: &str =
        "write `by = ip`, `by = user`, `by = method`, or a text over the arguments, as `by = \"{user.id}\"`";
    if let Some(Lit::Str(text)) = number::literal(value) {
        let pieces = text::pieces(text)?;
        return match pieces.iter().any(|piece| matches!(piece, Piece::Differs(_))) {
            true => Ok((By::Function, pieces)),
            false => Err(Error::new(value.span(), format!("`by` is the same text for every call; {WRITE}"))),
        };
    }
    let Expr::Path(path) = value else { return Err(Error::new(value.span(), WRITE)) };
    match path.path.get_ident().map(Ident::to_string).as_deref() {
        Some("ip") => Ok((By::Ip, Vec::new())),
        Some("user") => Ok((By::User, Vec::new())),
        Some("method") => Ok((By::Function, Vec::new())),
        Some(other) => Err(Error::new(value.span(), format!("`by` knows no `{other}`; {WRITE}"))),
        None => Err(Error::new(value.span(), WRITE)),
    }
}

fn on_limit(value: &Expr) -> Result<Path> {
    match value {
        Expr::Path(path) if path.qself.is_none() => Ok(path.path.clone()),
        _ => Err(Error::new(value.span(), "`on_limit` is the path of a function, as `on_limit = crate::busy`")),
    }
}
