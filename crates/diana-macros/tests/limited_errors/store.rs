#[diana::rate_limit(rate = 5, store = redis)]
fn unknown() -> Result<(), diana::Limited> {
    Ok(())
}

#[diana::rate_limit(rate = 5, store = "shared")]
fn text() -> Result<(), diana::Limited> {
    Ok(())
}

fn main() {}
