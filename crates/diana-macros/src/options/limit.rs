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
        saved_nanos: u64,
    },
    Count {
        limit: u64,
        period_nanos: u64,
    },
}

/// The part of the caller by which calls are counted, in addition to the key.
pub(crate) enum By {
    Function,
    Ip,
    User,
}

/// The store of the counts.
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
        let (spec, saved_nanos) = match raw.kind {
            Kind::Count => (count(raw)?, 0),
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
        let expire_nanos = expire(raw, saved_nanos.saturating_add(timeout_nanos))?;
        Ok(Self { spec, by, key, prefix, timeout_nanos, expire_nanos, store })
    }
}

/// Returns the limit, and the time whose permits it saves.
fn rate(raw: &RawOptions) -> Result<(LimitSpec, u64)> {
    let rate = raw.get("rate").map_or(Ok(value::Rate::ONE), value::rate)?;
    let (burst, saved) = (raw.get("burst"), raw.time("saved")?);
    let saved_nanos = saved.unwrap_or(SECOND);
    match raw.get("algorithm").map(|value| (value, ident(value))) {
        None => {}
        Some((_, Some(name))) if name == "token_bucket" => {}
        Some((_, Some(name))) if name == "smooth_bursty" => {
            return match burst {
                Some(value) => {
                    let problem =
                        "`smooth_bursty` saves the permits of a time; write `saved`, such as `saved = \"2s\"`";
                    Err(Error::new(value.span(), problem))
                }
                None => Ok((LimitSpec::Smooth { rate: rate.to_f64(), saved_nanos }, saved_nanos)),
            };
        }
        Some((value, _)) => {
            let problem = "invalid `algorithm`: expected `token_bucket`, or `smooth_bursty` for Guava's `RateLimiter`";
            return Err(Error::new(value.span(), problem));
        }
    }
    let Some(value) = burst else {
        let bucket = saved_calls(rate, saved_nanos).and_then(|calls| token_bucket(rate, calls));
        let too_long = || {
            let problem = "`rate` × `saved` has too many digits; write a rounder `rate` or `saved`";
            Error::new(raw.get("saved").or(raw.get("rate")).map_or_else(Span::call_site, Spanned::span), problem)
        };
        return Ok((bucket.ok_or_else(too_long)?, saved_nanos));
    };
    if saved.is_some() {
        return Err(Error::new(value.span(), "`burst` is a number of calls and `saved` a time; write one of the two"));
    }
    let burst = u128::from(value::count("burst", value)?);
    let too_long = || Error::new(value.span(), "`rate` × `burst` has too many digits; write a rounder `rate`");
    let bucket = token_bucket(rate, (burst, 1)).ok_or_else(too_long)?;
    let nanos = burst.saturating_mul(rate.seconds).saturating_mul(SECOND.into()) / rate.calls;
    Ok((bucket, u64::try_from(nanos).unwrap_or(u64::MAX)))
}

/// Returns the number of calls in a time, as a fraction in lowest terms, and at least one.
fn saved_calls(rate: value::Rate, nanos: u64) -> Option<(u128, u128)> {
    let calls = lowest_terms(rate.calls.checked_mul(nanos.into())?, u128::from(SECOND) * rate.seconds);
    Some(if calls.0 < calls.1 { (1, 1) } else { calls })
}

/// Returns the bucket that stores `capacity / cost` calls. A fraction of a call needs a cost: 2.5 calls are 5 permits, of
/// which each call takes 2.
fn token_bucket(rate: value::Rate, (capacity, cost): (u128, u128)) -> Option<LimitSpec> {
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

/// Returns the minimum time that a key is kept in Redis: its calls count for `relevant_nanos`.
fn expire(raw: &RawOptions, relevant_nanos: u64) -> Result<Option<u64>> {
    let Some(value) = raw.get("expire") else { return Ok(matches!(raw.kind, Kind::Rate).then_some(EXPIRE)) };
    let expire = value::time("expire", value)?;
    if expire < relevant_nanos {
        // A key that expires too early is recreated with full stored permits.
        let problem = "`expire` is shorter than the time of `burst` or `saved` and `timeout` together, so a key would be \
                       removed while its calls still count; write a longer time, or remove `expire`";
        return Err(Error::new(value.span(), problem));
    }
    Ok(Some(expire))
}

fn count(raw: &RawOptions) -> Result<LimitSpec> {
    let limit = raw.get("limit").map_or(Ok(1), |value| value::count("limit", value))?;
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
    use quote::quote;
    use syn::parse_quote;

    fn bucket(rate: &Expr, saved_nanos: u64) -> Option<LimitSpec> {
        let rate = value::rate(rate).unwrap();
        token_bucket(rate, saved_calls(rate, saved_nanos)?)
    }

    fn rate_spec(permits: u64, seconds: u64, capacity: u64, cost: u64) -> LimitSpec {
        LimitSpec::Rate { permits, period_nanos: seconds * SECOND, capacity, cost }
    }

    #[test]
    fn a_bucket_saves_exactly_the_calls_of_a_time_and_at_least_one() {
        assert_eq!(bucket(&parse_quote!(5.0), 2 * SECOND), Some(rate_spec(5, 1, 10, 1)));
        assert_eq!(bucket(&parse_quote!(1), SECOND), Some(rate_spec(1, 1, 1, 1)));
        assert_eq!(bucket(&parse_quote!(2.5), SECOND), Some(rate_spec(5, 1, 5, 2)));
        assert_eq!(bucket(&parse_quote!(0.3), 5 * SECOND), Some(rate_spec(3, 5, 3, 2)));
        assert_eq!(bucket(&parse_quote!(0.1), SECOND), Some(rate_spec(1, 10, 1, 1)));
        assert_eq!(bucket(&parse_quote!(5), 0), Some(rate_spec(5, 1, 1, 1)));
    }

    #[test]
    fn a_burst_is_a_number_of_calls_and_counts_until_they_are_refilled() {
        let parsed = |tokens| rate(&RawOptions::parse(Kind::Rate, tokens).unwrap()).unwrap();
        assert_eq!(parsed(quote!(rate = 2.5, burst = 10)), (rate_spec(5, 2, 10, 1), 4 * SECOND));
        assert_eq!(parsed(quote!(rate = 5, burst = 1)), (rate_spec(5, 1, 1, 1), SECOND / 5));
    }

    #[test]
    fn a_product_with_too_many_digits_has_no_bucket() {
        assert_eq!(bucket(&parse_quote!(123_456_789.123_456_789), 1_234_567_891), None);
    }
}
