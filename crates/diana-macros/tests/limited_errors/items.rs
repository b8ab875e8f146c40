#[diana::rate_limit(rate = 5.0)]
struct Search;

#[diana::count_limit(limit = 5, period = "1min")]
impl Search {}

trait Searches {
    #[diana::rate_limit(rate = 5.0)]
    fn search(&self) -> Result<(), diana::Limited>;
}

#[diana::rate_limit(rate = 5.0)]
const fn constant() -> Result<(), diana::Limited> {
    Ok(())
}

fn main() {}
