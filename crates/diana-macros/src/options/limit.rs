//! Limits in the attribute itself: `#[rate_limit]`, `#[count_limit]`.

use super::Kind;
use super::raw::RawOptions;
use crate::template::{self, Piece};
use crate::value;
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
pub(crate) enum LimitSpec {
    Rate { rate: f64, burst_nanos: u64 },
    Count { limit: u64, period_nanos: u64 },
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
/// The default rate, in calls per second.
const RATE: f64 = 1.0;

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
        let expire_nanos = expire(raw, &spec, timeout_nanos)?;
        Ok(Self { spec, by, key, prefix, timeout_nanos, expire_nanos, store })
    }
}

fn rate(raw: &RawOptions) -> Result<LimitSpec> {
    let rate = raw.get("rate").map_or(Ok(RATE), value::rate)?;
    let burst_nanos = raw.time("burst")?.unwrap_or_else(|| default_burst(rate));
    Ok(LimitSpec::Rate { rate, burst_nanos })
}

/// Returns the minimum time that a key is kept in Redis.
fn expire(raw: &RawOptions, spec: &LimitSpec, timeout_nanos: u64) -> Result<Option<u64>> {
    let (expire, LimitSpec::Rate { burst_nanos, .. }) = (raw.time("expire")?, spec) else { return Ok(None) };
    if let (Some(expire), Some(value)) = (expire, raw.get("expire"))
        && expire < burst_nanos.saturating_add(timeout_nanos)
    {
        // A key that expires too early is recreated with full stored permits.
        let problem = "`expire` is shorter than `burst` and `timeout` together, so a key would be removed while its \
                       calls still count; write a longer time, or remove `expire`";
        return Err(Error::new(value.span(), problem));
    }
    Ok(expire)
}

fn count(raw: &RawOptions) -> Result<LimitSpec> {
    let limit = raw.get("limit").map_or(Ok(1), value::count)?;
    let Some(period) = raw.get("period") else { return Ok(LimitSpec::Count { limit, period_nanos: SECOND }) };
    match value::time("period", period)? {
        0 => Err(Error::new(period.span(), "invalid `period`: expected a time above 0, such as `period = \"1min\"`")),
        period_nanos => Ok(LimitSpec::Count { limit, period_nanos }),
    }
}

/// Returns the time that stores one second's worth of calls minus one. With the call that Guava grants in advance, one
/// second's worth is granted immediately, and at least one call: the same as a token bucket with a capacity of one
/// second's worth.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a fraction of a second in nanoseconds")]
fn default_burst(rate: f64) -> u64 {
    (SECOND as f64 * (1.0 - 1.0 / rate).max(0.0)).ceil() as u64
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
