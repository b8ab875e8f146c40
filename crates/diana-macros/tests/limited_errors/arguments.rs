struct User {
    id: u32,
}

#[diana::rate_limit(rate = 1, by = "{usr.id}")]
fn misspelled(user: &User) -> Result<u32, diana::Limited> {
    Ok(user.id)
}

#[diana::limited("sms", phone = "{fone}")]
fn unknown_name(phone: &str) -> Result<usize, diana::Limited> {
    Ok(phone.len())
}

#[diana::count_limit(limit = 1, period = "1h", key = "user.id")]
fn no_braces(user: &User) -> Result<u32, diana::Limited> {
    Ok(user.id)
}

#[diana::count_limit(limit = 1, period = "1h", prefix = "{user.id}:")]
fn braces_in_the_prefix(user: &User) -> Result<u32, diana::Limited> {
    Ok(user.id)
}

#[diana::limited("sms", phone)]
fn no_value(phone: &str) -> Result<usize, diana::Limited> {
    Ok(phone.len())
}

#[diana::rate_limit(5)]
fn no_name() -> Result<(), diana::Limited> {
    Ok(())
}

#[diana::rate_limit(rate = 1, timeout = "1s")]
fn future_made_elsewhere() -> impl Future<Output = Result<(), diana::Limited>> {
    std::future::ready(Ok(()))
}

fn main() {}
