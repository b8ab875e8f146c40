struct User {
    id: u32,
}

#[diana::rate_limit(rate = 5.0, by = ipp)]
fn typo() -> Result<(), diana::Limited> {
    Ok(())
}

#[diana::rate_limit(rate = 5.0, by = "user.id")]
fn no_braces(_: &User) -> Result<(), diana::Limited> {
    Ok(())
}

#[diana::rate_limit(rate = 5.0, by = "{user.id")]
fn open(_: &User) -> Result<(), diana::Limited> {
    Ok(())
}

#[diana::rate_limit(rate = 5.0, by = "{user.id}", key = "{user.id}")]
fn two_texts(_: &User) -> Result<(), diana::Limited> {
    Ok(())
}

fn main() {}
