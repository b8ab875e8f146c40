//! Limits in the attribute itself: `#[rate_limit]`, `#[count_limit]`.

use super::Kind;
use super::raw::RawOptions;
use crate::template::{self, Piece};
use crate::value;
use diana_core::MAX_PERMITS;
use proc_macro2::Span;
use syn::spanned::Spanned;
use syn::{Error, Expr, Ident, Lit, Result};

/// A limit in the attribute itself.
pub(crate) struct Limit {
    pub(crate) spec: LimitSpec,
    pub(crate) by: By,
    pub(crate) key: Vec<Piece>,
    pub(crate) prefix: String,
    pub(crate) timeout_nanos: u64,
    pub(crate) expire_nanos: Option<u64>,
    pub(crate) store: Store,
}

/// The rate or count.
#[derive(Debug, PartialEq)]
pub(crate) enum LimitSpec {
    /// A token bucket. The capacity may have a fraction of a call, so a call may cost several permits.
    Rate {
        permits: u64,
        period_nanos: u64,
        capacity: u64,
        cost: u64,
    },
    /// Guava's `SmoothBursty`.
    Smooth {
        rate: f64,
        burst_nanos: u64,
    },
    Count {
        limit: u64,
        period_nanos: u64,
    },
}

/// Which part of the caller calls are counted by, in addition to the key.
pub(crate) enum By {
    Function,
    Ip,
    User,
}

/// Where it is counted.
#[derive(Clone, Copy)]
pub(crate) enum Store {
    Local,
    Shared,
}

const SECOND: u64 = 1_000_000_000;
/// The default of `expire`: Redis keeps a key for this long after a call.
const EXPIRE: u64 = 60 * SECOND;

impl Limit {
    pub(super) fn parse(raw: &RawOptions) -> Result<Self> {
        let timeout_nanos = raw.time("timeout")?.unwrap_or(0);
        let spec = match raw.kind {
            Kind::Count => count(raw)?,
            _ => rate(raw)?,
        };
        let (by, mut key) = raw.get("by").map_or(Ok((By::Function, Vec::new())), by)?;
        if let Some(value) = raw.get("key") {
            if !key.is_empty() {
                let problem =
                    "`by` already has a text; write one text, such as `by = \"{user.id} {item}\"`, or only `key`";
                return Err(Error::new(value.span(), problem));
            }
            key = template::pieces(&value::text("key", value, "\"{user.id}\"")?)?;
            if matches!(by, By::Function) && !key.iter().any(|piece| matches!(piece, Piece::Expr(_))) {
                let problem =
                    "`key` is the same for every call; write an expression in braces, such as `key = \"{user.id}\"`";
                return Err(Error::new(value.span(), problem));
            }
        }
        let prefix = match raw.get("prefix") {
            Some(value) => value::text("prefix", value, "\"api:\"")?.value(),
            // Different defaults, so that a function may have both attributes in one shared store.
            None if matches!(raw.kind, Kind::Count) => "countLimit:".to_owned(),
            None => "rateLimit:".to_owned(),
        };
        if let Some(value) = raw.get("prefix").filter(|_| prefix.contains(['{', '}'])) {
            let problem =
                "`prefix` can't contain braces; write expressions in `by` or `key`, such as `by = \"{shop.id}\"`";
            return Err(Error::new(value.span(), problem));
        }
        let store = raw.get("store").map_or(Ok(Store::Local), store)?;
        let expire_nanos = expire(raw, timeout_nanos)?;
        Ok(Self { spec, by, key, prefix, timeout_nanos, expire_nanos, store })
    }
}

fn rate(raw: &RawOptions) -> Result<LimitSpec> {
    let burst_nanos = raw.time("burst")?.unwrap_or(SECOND);
    let rate = raw.get("rate").map_or(Ok(value::Rate::ONE), value::rate)?;
    match raw.get("algorithm").map(|value| (value, ident(value))) {
        None => {}
        Some((_, Some(name))) if name == "token_bucket" => {}
        Some((_, Some(name))) if name == "smooth_bursty" => {
            return Ok(LimitSpec::Smooth { rate: rate.to_f64(), burst_nanos });
        }
        Some((value, _)) => {
            let problem = "invalid `algorithm`: expected `token_bucket`, or `smooth_bursty` for Guava's `RateLimiter`";
            return Err(Error::new(value.span(), problem));
        }
    }
    token_bucket(rate, burst_nanos).ok_or_else(|| {
        let problem = "`rate` × `burst` has too many digits; write a rounder `rate` or `burst`";
        Error::new(raw.get("burst").or(raw.get("rate")).map_or_else(Span::call_site, Spanned::span), problem)
    })
}

/// Returns the bucket that stores the calls of `burst_nanos`, and at least one.
///
/// That number of calls, `capacity / cost` in lowest terms, may have a fraction: 2.5 calls are 5 permits, of which each call
/// takes 2.
fn token_bucket(rate: value::Rate, burst_nanos: u64) -> Option<LimitSpec> {
    let (capacity, cost) = lowest_terms(rate.calls.checked_mul(burst_nanos.into())?, u128::from(SECOND) * rate.seconds);
    let (capacity, cost) = if capacity < cost { (1, 1) } else { (capacity, cost) };
    let (permits, seconds) = lowest_terms(rate.calls.checked_mul(cost)?, rate.seconds);
    let count = |number: u128| u64::try_from(number).ok().filter(|&number| number <= MAX_PERMITS);
    Some(LimitSpec::Rate {
        permits: count(permits)?,
        period_nanos: u64::try_from(seconds * u128::from(SECOND)).ok()?,
        capacity: count(capacity)?,
        cost: count(cost)?,
    })
}

fn lowest_terms(numerator: u128, denominator: u128) -> (u128, u128) {
    let (mut divisor, mut rest) = (numerator, denominator);
    while rest > 0 {
        (divisor, rest) = (rest, divisor % rest);
    }
    (numerator / divisor.max(1), denominator / divisor.max(1))
}

/// Returns the minimum time that a key is kept in Redis.
fn expire(raw: &RawOptions, timeout_nanos: u64) -> Result<Option<u64>> {
    let Some(value) = raw.get("expire") else { return Ok(matches!(raw.kind, Kind::Rate).then_some(EXPIRE)) };
    let expire = value::time("expire", value)?;
    if expire < raw.time("burst")?.unwrap_or(SECOND).saturating_add(timeout_nanos) {
        // A key that expires too early is recreated with full stored permits.
        let problem = "`expire` is shorter than `burst` and `timeout` together, so a key would be removed while its \
                       calls still count; write a longer time, or remove `expire`";
        return Err(Error::new(value.span(), problem));
    }
    Ok(Some(expire))
}

fn count(raw: &RawOptions) -> Result<LimitSpec> {
    let limit = raw.get("limit").map_or(Ok(1), value::count)?;
    let Some(period) = raw.get("period") else { return Ok(LimitSpec::Count { limit, period_nanos: SECOND }) };
    match value::time("period", period)? {
        0 => Err(Error::new(period.span(), "invalid `period`: expected a time above 0, such as `period = \"1min\"`")),
        period_nanos => Ok(LimitSpec::Count { limit, period_nanos }),
    }
}

fn by(value: &Expr) -> Result<(By, Vec<Piece>)> {
    const EXPECTED: &str =
        "expected `ip`, `user`, `method`, or a text with arguments in braces, such as `by = \"{user.id}\"`";
    if let Some(Lit::Str(text)) = value::literal(value) {
        let pieces = template::pieces(text)?;
        return match pieces.iter().any(|piece| matches!(piece, Piece::Expr(_))) {
            true => Ok((By::Function, pieces)),
            false => Err(Error::new(value.span(), format!("`by` is the same for every call: {EXPECTED}"))),
        };
    }
    match ident(value).as_deref() {
        Some("ip") => Ok((By::Ip, Vec::new())),
        Some("user") => Ok((By::User, Vec::new())),
        Some("method") => Ok((By::Function, Vec::new())),
        Some(other) => Err(Error::new(value.span(), format!("unknown `by` value `{other}`: {EXPECTED}"))),
        None => Err(Error::new(value.span(), format!("invalid `by`: {EXPECTED}"))),
    }
}

fn store(value: &Expr) -> Result<Store> {
    match ident(value).as_deref() {
        Some("local") => Ok(Store::Local),
        Some("shared") => Ok(Store::Shared),
        _ => {
            let problem = "invalid `store`: expected `local`, or `shared` for counts that many processes share";
            Err(Error::new(value.span(), problem))
        }
    }
}

/// Returns a single identifier.
fn ident(value: &Expr) -> Option<String> {
    let Expr::Path(path) = value::ungrouped(value) else { return None };
    path.path.get_ident().map(Ident::to_string)
}

#[cfg(test)]
mod tests {
    use super::*;
    use syn::parse_quote;

    fn bucket(rate: &Expr, burst_nanos: u64) -> Option<LimitSpec> {
        token_bucket(value::rate(rate).unwrap(), burst_nanos)
    }

    #[test]
    fn a_bucket_stores_exactly_the_calls_of_its_burst_and_at_least_one() {
        let of = |permits, seconds: u64, capacity, cost| {
            Some(LimitSpec::Rate { permits, period_nanos: seconds * SECOND, capacity, cost })
        };
        assert_eq!(bucket(&parse_quote!(5.0), 2 * SECOND), of(5, 1, 10, 1));
        assert_eq!(bucket(&parse_quote!(1), SECOND), of(1, 1, 1, 1));
        assert_eq!(bucket(&parse_quote!(2.5), SECOND), of(5, 1, 5, 2));
        assert_eq!(bucket(&parse_quote!(0.3), 5 * SECOND), of(3, 5, 3, 2));
        assert_eq!(bucket(&parse_quote!(0.1), SECOND), of(1, 10, 1, 1));
        assert_eq!(bucket(&parse_quote!(5), 0), of(5, 1, 1, 1));
    }

    #[test]
    fn a_product_with_too_many_digits_has_no_bucket() {
        assert_eq!(bucket(&parse_quote!(123_456_789.123_456_789), 1_234_567_891), None);
    }
}
