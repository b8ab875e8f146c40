use std::num::ParseIntError;

#[diana::rate_limit(rate = 5.0)]
fn number() -> u32 {
    1
}

#[diana::rate_limit(rate = 5.0)]
async fn parsed() -> Result<u32, ParseIntError> {
    "1".parse()
}

fn instead(_: diana::Limited) -> String {
    String::new()
}

#[diana::rate_limit(rate = 5.0, on_limit = instead)]
fn another_type() -> u32 {
    1
}

fn main() {}
