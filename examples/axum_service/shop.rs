//! The functions of the shop, with limits. None of them knows of HTTP: the client's identity comes with the task, and a
//! denial becomes the function's own error.

use diana::{count_limit, limited, rate_limit};
use diana_http::LimitedResponse;

pub(crate) struct Phone(pub(crate) String);

// docs: begin
/// 2/s for each account, and a burst of five after an idle time. Further calls wait, for up to a second.
#[rate_limit(rate = 2.0, burst = 5, timeout = "1s", by = user)]
pub(crate) async fn search(words: &str) -> Result<String, LimitedResponse> {
    Ok(format!("nothing found for {words}\n"))
}

/// Limited by the rule `codes`, which gets the phone as an argument.
#[limited("codes", phone = "{phone.0}")]
pub(crate) async fn send_code(phone: &Phone) -> Result<String, LimitedResponse> {
    Ok(format!("a code is on its way to {}\n", phone.0))
}
// docs: end

/// Three per minute for each account, in this process.
#[count_limit(limit = 3, period = "1min", by = user)]
pub(crate) async fn export() -> Result<&'static str, LimitedResponse> {
    Ok("everything\n")
}

/// Three per minute for each account, over all instances.
#[count_limit(limit = 3, period = "1min", by = user, prefix = "shop:", store = shared)]
pub(crate) async fn export_shared() -> Result<&'static str, LimitedResponse> {
    Ok("everything, with shared counts\n")
}
