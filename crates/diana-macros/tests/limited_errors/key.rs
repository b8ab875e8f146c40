struct User {
    id: u32,
}

#[diana::rate_limit(rate = 5.0, by = "{user.idd}")]
fn no_such_field(user: &User) -> Result<(), diana::Limited> {
    Ok(())
}

#[diana::rate_limit(rate = 5.0, by = "{usr.id}")]
fn no_such_argument(user: &User) -> Result<(), diana::Limited> {
    Ok(())
}

#[diana::rate_limit(rate = 5.0, by = "{user}")]
fn not_a_text(user: &User) -> Result<(), diana::Limited> {
    Ok(())
}

fn main() {}
