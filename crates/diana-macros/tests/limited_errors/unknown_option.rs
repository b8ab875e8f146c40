#[diana::rate_limit(rate = 5.0, brust = "2s")]
fn search() -> Result<(), diana::Limited> {
    Ok(())
}

#[diana::count_limit(limit = 5, period = "1min", timeout = "1s")]
fn count() -> Result<(), diana::Limited> {
    Ok(())
}

fn main() {}
