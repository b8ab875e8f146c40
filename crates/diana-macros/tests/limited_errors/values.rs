#[diana::rate_limit(rate = 5.0, saved = "two seconds")]
fn saved() -> Result<(), diana::Limited> {
    Ok(())
}

#[diana::rate_limit(rate = 5.0, saved = 2.0)]
fn saved_seconds() -> Result<(), diana::Limited> {
    Ok(())
}

#[diana::rate_limit(rate = 5.0, burst = "2s")]
fn burst() -> Result<(), diana::Limited> {
    Ok(())
}

#[diana::rate_limit(rate = 5.0, burst = 10, saved = "2s")]
fn burst_and_saved() -> Result<(), diana::Limited> {
    Ok(())
}

#[diana::rate_limit(rate = 5.0, burst = 10, algorithm = smooth_bursty)]
fn smooth_burst() -> Result<(), diana::Limited> {
    Ok(())
}

#[diana::rate_limit(rate = 0)]
fn rate() -> Result<(), diana::Limited> {
    Ok(())
}

#[diana::rate_limit(rate = 5.0, rate = 6.0)]
fn twice() -> Result<(), diana::Limited> {
    Ok(())
}

#[diana::rate_limit(rate = 5.0, saved = "2min", expire = "60s")]
fn expires_too_early() -> Result<(), diana::Limited> {
    Ok(())
}

#[diana::rate_limit(rate = 0.1, burst = 7, expire = "60s")]
fn expires_before_the_burst() -> Result<(), diana::Limited> {
    Ok(())
}

#[diana::rate_limit(rate = 5.0, algorithm = leaky)]
fn algorithm() -> Result<(), diana::Limited> {
    Ok(())
}

#[diana::rate_limit(rate = 123_456_789.123_456_789, saved = "1234567891ns")]
fn digits() -> Result<(), diana::Limited> {
    Ok(())
}

#[diana::count_limit(limit = 2.5, period = "1min")]
fn limit() -> Result<(), diana::Limited> {
    Ok(())
}

#[diana::count_limit(limit = 5, period = "0s")]
fn period() -> Result<(), diana::Limited> {
    Ok(())
}

fn main() {}
