//! The values of options: numbers, times, texts, each with a suggestion if it is invalid.

use diana_core::{InvalidQuota, MAX_PERMITS, parse_duration};
use syn::spanned::Spanned;
use syn::{Error, Expr, ExprLit, Lit, LitStr, Result};

/// Calls per second, exactly: `calls` in `seconds`, which is a power of ten.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Rate {
    pub(crate) calls: u128,
    pub(crate) seconds: u128,
}

/// The maximum number of digits after the point of a rate.
const MAX_DECIMALS: usize = 9;

impl Rate {
    pub(crate) const ONE: Self = Self { calls: 1, seconds: 1 };

    pub(crate) fn to_f64(self) -> f64 {
        self.calls as f64 / self.seconds as f64
    }

    /// Parses `5`, `0.5`; no exponent.
    fn parse(text: &str) -> Option<Self> {
        let (whole, decimals) = text.split_once('.').unwrap_or((text, ""));
        let decimals = decimals.trim_end_matches('0');
        let exponent = u32::try_from(decimals.len()).ok().filter(|_| decimals.len() <= MAX_DECIMALS)?;
        let calls = format!("{whole}{decimals}").parse::<u64>().ok().filter(|&calls| calls > 0)?;
        Some(Self { calls: calls.into(), seconds: 10_u128.pow(exponent) })
    }
}

/// Parses calls per second: a number above 0, with or without a fraction.
pub(crate) fn rate(value: &Expr) -> Result<Rate> {
    let number = match literal(value) {
        Some(Lit::Float(number)) => Rate::parse(number.base10_digits()),
        Some(Lit::Int(number)) => Rate::parse(number.base10_digits()),
        _ => None,
    };
    number.ok_or_else(|| {
        Error::new(
            value.span(),
            "invalid `rate`: expected calls per second, a number literal above 0 with at most 9 decimals, such as `rate = 5.0` or \
             `rate = 0.5`",
        )
    })
}

/// Parses a number of calls: an integer above 0.
pub(crate) fn count(name: &str, value: &Expr) -> Result<u64> {
    let number = match literal(value) {
        Some(Lit::Int(number)) => number.base10_parse().ok(),
        _ => None,
    };
    number.filter(|count| (1..=MAX_PERMITS).contains(count)).ok_or_else(|| {
        Error::new(
            value.span(),
            format!(
                "invalid `{name}`: expected a number of calls, an integer from 1 to {MAX_PERMITS}, such as `{name} = 5`"
            ),
        )
    })
}

/// Parses a time in nanoseconds: a text such as `"2s"`.
pub(crate) fn time(name: &str, value: &Expr) -> Result<u64> {
    let Some(Lit::Str(text)) = literal(value) else {
        let problem =
            format!("invalid `{name}`: expected a time in quotes, such as `{name} = \"2s\"` or `{name} = \"500ms\"`");
        return Err(Error::new(value.span(), problem));
    };
    let time = parse_duration(&text.value()).map_err(|error| {
        let problem = match error {
            InvalidQuota::Text { problem, .. } => problem,
            other => other.to_string(),
        };
        Error::new(value.span(), format!("invalid `{name}`: {problem}, as in `{name} = \"2s\"`"))
    })?;
    Ok(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
}

/// Parses a string literal.
pub(crate) fn text(name: &str, value: &Expr, example: &str) -> Result<LitStr> {
    match literal(value) {
        Some(Lit::Str(text)) => Ok(text.clone()),
        _ => Err(Error::new(
            value.span(),
            format!("invalid `{name}`: expected a text in quotes, such as `{name} = {example}`"),
        )),
    }
}

pub(crate) fn literal(value: &Expr) -> Option<&Lit> {
    match ungrouped(value) {
        Expr::Lit(ExprLit { lit, .. }) => Some(lit),
        _ => None,
    }
}

/// Removes the invisible groups that a user's macro adds.
pub(crate) fn ungrouped(value: &Expr) -> &Expr {
    match value {
        Expr::Group(group) => ungrouped(&group.expr),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::{Rate, count, rate};
    use diana_core::MAX_PERMITS;
    use syn::parse_quote;

    #[test]
    fn a_count_is_an_integer_up_to_the_maximum() {
        assert_eq!(count("limit", &parse_quote!(9_007_199_254_740_992)).ok(), Some(MAX_PERMITS));
        assert!(count("limit", &parse_quote!(9_007_199_254_740_993)).is_err());
        assert!(count("limit", &parse_quote!(0)).is_err());
        assert!(count("limit", &parse_quote!(-1)).is_err());
    }

    #[test]
    fn a_rate_is_the_exact_value_of_its_literal() {
        let of = |calls, seconds| Some(Rate { calls, seconds });
        assert_eq!(rate(&parse_quote!(5)).ok(), of(5, 1));
        assert_eq!(rate(&parse_quote!(5.0)).ok(), of(5, 1));
        assert_eq!(rate(&parse_quote!(0.5)).ok(), of(5, 10));
        assert_eq!(rate(&parse_quote!(1_000.000_000_001f64)).ok(), of(1_000_000_000_001, 1_000_000_000));
        for invalid in [
            parse_quote!(0),
            parse_quote!(0.0),
            parse_quote!(-1.0),
            parse_quote!(1e999),
            parse_quote!(0.000_000_000_1),
            parse_quote!("5"),
        ] {
            assert!(rate(&invalid).is_err());
        }
    }
}
