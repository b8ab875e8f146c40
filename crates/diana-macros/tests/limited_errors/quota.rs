const UNIT: diana::Quota = diana::quota!("10/fortnight");
const COUNT: diana::Quota = diana::quota!("0/s");
const BURST: diana::Quota = diana::quota!("5/s burst 0");
const NUMBER: diana::Quota = diana::quota!(5);
const NOTHING: diana::Quota = diana::quota!();

fn main() {}
