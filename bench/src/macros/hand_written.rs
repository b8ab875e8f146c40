//! The same checks, written without attributes.

use crate::attributed::engine;
use diana::rules::{Attribute, Attributes};
use diana::{Answer, DecideMode, Engine, FixedWindow, KeyedLimiter, Limiter, Quota, WindowStart};
use std::borrow::Cow;
use std::net::Ipv4Addr;
use std::sync::LazyLock;

/// The return type of a function with a hand-written limit.
pub(crate) type CheckResult = Result<(), Box<Answer>>;

fn window() -> FixedWindow {
    FixedWindow::new("1000000000000/h".parse::<Quota>().unwrap()).with_window_start(WindowStart::FirstRequest)
}

fn checked(answer: Answer) -> CheckResult {
    if answer.is_granted() { Ok(()) } else { Err(Box::new(answer)) }
}

static COUNTED: LazyLock<KeyedLimiter<str>> = LazyLock::new(|| KeyedLimiter::with_algorithm(window()));
static PACED: LazyLock<KeyedLimiter<str>> =
    LazyLock::new(|| KeyedLimiter::new(Quota::per_second(1_000_000_000).unwrap()));
static NUMBERED: LazyLock<KeyedLimiter<u64>> = LazyLock::new(|| KeyedLimiter::with_algorithm(window()));
static ADDRESSED: LazyLock<KeyedLimiter<Ipv4Addr>> = LazyLock::new(|| KeyedLimiter::with_algorithm(window()));
static TOGETHER: LazyLock<Limiter> = LazyLock::new(|| Limiter::with_algorithm(window()));
static ENGINE: LazyLock<Engine> = LazyLock::new(engine);

#[inline(never)]
pub(crate) fn counted(user: &str) -> CheckResult {
    checked(COUNTED.check(user))
}

#[inline(never)]
pub(crate) fn paced(user: &str) -> CheckResult {
    checked(PACED.check(user))
}

#[inline(never)]
pub(crate) fn numbered(id: u64) -> CheckResult {
    checked(NUMBERED.check(&id))
}

#[inline(never)]
pub(crate) fn addressed(ip: Ipv4Addr) -> CheckResult {
    checked(ADDRESSED.check(&ip))
}

#[inline(never)]
pub(crate) fn together() -> CheckResult {
    checked(TOGETHER.check())
}

struct Call<'a> {
    user: &'a str,
}

impl Attributes for Call<'_> {
    fn get(&self, attribute: &Attribute) -> Option<Cow<'_, str>> {
        matches!(attribute, Attribute::Named(name) if &**name == "user").then_some(Cow::Borrowed(self.user))
    }
}

#[inline(never)]
pub(crate) fn by_rule(user: &str) -> Result<(), ()> {
    let decided = ENGINE.decide_by("each-user", &Call { user }, DecideMode::Deny).unwrap().now().unwrap();
    decided.map(drop).map_err(drop)
}
