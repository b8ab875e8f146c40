#[diana::rate_limit(rate = 5.0)]
fn nothing() {}

#[diana::rate_limit(rate = 5.0)]
async fn text() -> &'static str {
    ""
}

#[diana::rate_limit(rate = 5.0)]
fn opaque() -> impl Iterator<Item = u8> {
    [1].into_iter()
}

fn main() {}
