#[diana::limited]
fn no_rule() -> Result<(), diana::Limited> {
    Ok(())
}

#[diana::limited(phone = "{_phone}")]
fn no_rule_first(_phone: &str) -> Result<(), diana::Limited> {
    Ok(())
}

#[diana::limited("a rule")]
fn no_name() -> Result<(), diana::Limited> {
    Ok(())
}

#[diana::limited("sms", ip = "{_address}")]
fn taken(_address: &str) -> Result<(), diana::Limited> {
    Ok(())
}

#[diana::limited("sms", phone = _phone)]
fn no_text(_phone: &str) -> Result<(), diana::Limited> {
    Ok(())
}

#[diana::limited("sms")]
fn returns_nothing() {}

#[diana::limited("sms")]
fn returns_a_future() -> impl Future<Output = u32> {
    async { 7 }
}

fn main() {}
