//! The functions of the shop, with limits. None of them knows of HTTP: the client's identity comes with the task, and a
//! denial becomes the function's own error.

use diana::{count_limit, limited, rate_limit};
use diana_http::LimitedResponse;

pub(crate) struct Phone(pub(crate) String);

// docs: begin
/// Two a second for each account, and five at once after a quiet spell. Who is over waits, for a second at most.
#[rate_limit(rate = 2.0, burst = "2s", timeout = "1s", by = user)]
pub(crate) async fn search(words: &str) -> Result<String, LimitedResponse> {
    Ok(format!("nothing found for {words}\n"))
}

/// As the rule `codes` says, which is told the phone.
#[limited("codes", phone = "{phone.0}")]
pub(crate) async fn send_code(phone: &Phone) -> Result<String, LimitedResponse> {
    Ok(format!("a code is on its way to {}\n", phone.0))
}
// docs: end

/// Three a minute for each account, in this process.
#[count_limit(limit = 3, period = "1min", by = user)]
pub(crate) async fn export() -> Result<&'static str, LimitedResponse> {
    Ok("everything\n")
}

/// Three a minute for each account, over all instances.
#[count_limit(limit = 3, period = "1min", by = user, prefix = "shop:", store = shared)]
pub(crate) async fn export_for_all() -> Result<&'static str, LimitedResponse> {
    Ok("everything, counted by all\n")
}
