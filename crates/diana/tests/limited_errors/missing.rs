#[diana::rate_limit(burst = "2s")]
fn search() -> Result<(), diana::Limited> {
    Ok(())
}

#[diana::count_limit(limit = 5)]
fn count() -> Result<(), diana::Limited> {
    Ok(())
}

#[diana::count_limit]
fn nothing_said() -> Result<(), diana::Limited> {
    Ok(())
}

fn main() {}
