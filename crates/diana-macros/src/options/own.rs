//! Limits in the attribute itself: `#[rate_limit]`, `#[count_limit]`.

use super::Kind;
use super::given::AllGiven;
use crate::number;
use crate::text::{self, Piece};
use syn::spanned::Spanned;
use syn::{Error, Expr, Ident, Lit, Result};

/// A limit in the attribute itself.
pub(crate) struct Own {
    pub(crate) allows: Allows,
    pub(crate) by: By,
    pub(crate) key: Vec<Piece>,
    pub(crate) prefix: String,
    pub(crate) timeout_nanos: u64,
    pub(crate) expire_nanos: Option<u64>,
    pub(crate) store: Store,
}

/// The rate or count.
pub(crate) enum Allows {
    Rate { rate: f64, burst_nanos: u64 },
    Count { limit: u64, period_nanos: u64 },
}

/// How calls are grouped, in addition to the key.
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

impl Own {
    pub(super) fn read(given: &AllGiven) -> Result<Self> {
        let timeout_nanos = given.time("timeout")?.unwrap_or(0);
        let allows = match given.kind {
            Kind::Count => count(given)?,
            _ => rate(given)?,
        };
        let (by, mut key) = given.get("by").map_or(Ok((By::Function, Vec::new())), by)?;
        if let Some(value) = given.get("key") {
            if !key.is_empty() {
                let problem =
                    "`by` has a text already; write all of it there, as `by = \"{user.id} {item}\"`, or only `key`";
                return Err(Error::new(value.span(), problem));
            }
            key = text::pieces(&number::text("key", value, "\"{user.id}\"")?)?;
            if matches!(by, By::Function) && !key.iter().any(|piece| matches!(piece, Piece::Differs(_))) {
                let problem =
                    "`key` is the same text for every call; put what differs in braces, as `key = \"{user.id}\"`";
                return Err(Error::new(value.span(), problem));
            }
        }
        let prefix = match given.get("prefix") {
            Some(value) => number::text("prefix", value, "\"api:\"")?.value(),
            // Different defaults, so that a function may have both attributes in one shared store.
            None if matches!(given.kind, Kind::Count) => "countLimit:".to_owned(),
            None => "rateLimit:".to_owned(),
        };
        if let Some(value) = given.get("prefix").filter(|_| prefix.contains(['{', '}'])) {
            let problem =
                "`prefix` is the same for every call; what differs goes into `by` or `key`, as `by = \"{shop.id}\"`";
            return Err(Error::new(value.span(), problem));
        }
        let store = given.get("store").map_or(Ok(Store::Local), store)?;
        let expire_nanos = expire(given, &allows, timeout_nanos)?;
        Ok(Self { allows, by, key, prefix, timeout_nanos, expire_nanos, store })
    }
}

fn rate(given: &AllGiven) -> Result<Allows> {
    let rate = given.get("rate").map_or(Ok(RATE), number::rate)?;
    let burst_nanos = given.time("burst")?.unwrap_or_else(|| second_less_one(rate));
    Ok(Allows::Rate { rate, burst_nanos })
}

/// Returns the minimum time that a key is kept in Redis.
fn expire(given: &AllGiven, allows: &Allows, timeout_nanos: u64) -> Result<Option<u64>> {
    let (expire, Allows::Rate { burst_nanos, .. }) = (given.time("expire")?, allows) else { return Ok(None) };
    if let (Some(expire), Some(value)) = (expire, given.get("expire"))
        && expire < burst_nanos.saturating_add(timeout_nanos)
    {
        // A key that expires too early is recreated with full stored permits.
        let problem = "`expire` is shorter than `burst` and `timeout` together: a key would be forgotten while its calls still \
                       count; write a longer time, or leave `expire` out";
        return Err(Error::new(value.span(), problem));
    }
    Ok(expire)
}

fn count(given: &AllGiven) -> Result<Allows> {
    let limit = given.get("limit").map_or(Ok(1), number::count)?;
    let Some(period) = given.get("period") else { return Ok(Allows::Count { limit, period_nanos: SECOND }) };
    match number::time("period", period)? {
        0 => Err(Error::new(period.span(), "`period` is a time above 0, as `period = \"1min\"`")),
        period_nanos => Ok(Allows::Count { limit, period_nanos }),
    }
}

/// Returns the time that stores one second's worth of calls minus one. With the call that Guava grants in advance, one
/// second's worth is granted immediately, and at least one call: the same as a token bucket with a capacity of one
/// second's worth.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a fraction of a second in nanoseconds")]
fn second_less_one(rate: f64) -> u64 {
    (SECOND as f64 * (1.0 - 1.0 / rate).max(0.0)).ceil() as u64
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
    match word(value).as_deref() {
        Some("ip") => Ok((By::Ip, Vec::new())),
        Some("user") => Ok((By::User, Vec::new())),
        Some("method") => Ok((By::Function, Vec::new())),
        Some(other) => Err(Error::new(value.span(), format!("`by` knows no `{other}`; {WRITE}"))),
        None => Err(Error::new(value.span(), WRITE)),
    }
}

fn store(value: &Expr) -> Result<Store> {
    match word(value).as_deref() {
        Some("local") => Ok(Store::Local),
        Some("shared") => Ok(Store::Shared),
        _ => {
            let problem = "write `store = shared`, for counts that many processes share, or `store = local`";
            Err(Error::new(value.span(), problem))
        }
    }
}

/// Returns a single identifier.
fn word(value: &Expr) -> Option<String> {
    let Expr::Path(path) = number::ungrouped(value) else { return None };
    path.path.get_ident().map(Ident::to_string)
}
