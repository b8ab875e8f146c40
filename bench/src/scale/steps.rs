//! The printed tables: a cost at each step of a growing number, and the slope.
//!
//! The slope is that of the cost over the number, both as logarithms: 0 is a cost that does not depend on the number, 1
//! one that grows as the number does. A slope of 0.1 is a quarter more for ten times as many.

/// What the docs claim of a table.
pub(crate) struct Claim {
    /// In words, with where it is written.
    pub(crate) text: &'static str,
    /// From which step on.
    pub(crate) from: f64,
    pub(crate) bound: Bound,
}

/// The bound that a claim sets.
#[derive(Clone, Copy)]
pub(crate) enum Bound {
    /// The slope between the first and the last step that count.
    Slope(f64),
    /// The cost at every step that counts.
    Cost(f64),
    /// None: the table is for information.
    None,
}

/// One table.
pub(crate) struct Steps {
    title: String,
    /// Of the growing number: `keys`.
    number: &'static str,
    /// Of the cost: `ns`, `instructions`, `bytes`.
    unit: &'static str,
    points: Vec<Point>,
}

struct Point {
    number: f64,
    cost: f64,
    remark: String,
}

impl Steps {
    pub(crate) fn new(title: &str, number: &'static str, unit: &'static str) -> Self {
        eprintln!("measuring: {title}");
        Self { title: title.to_owned(), number, unit, points: Vec::new() }
    }

    pub(crate) fn push(&mut self, number: usize, cost: f64) {
        self.push_with(number, cost, String::new());
    }

    /// Adds a step with a remark.
    pub(crate) fn push_with(&mut self, number: usize, cost: f64, remark: String) {
        self.points.push(Point { number: number as f64, cost, remark });
    }

    /// Prints the table, and whether the claim holds. Returns the claim as one line if it does not.
    pub(crate) fn print(&self, claim: &Claim) -> Option<String> {
        println!("\n{}", self.title);
        println!("  {:>12}  {:>14}  {:>8}  {:>6}", self.number, self.unit, "ratio", "slope");
        for (index, point) in self.points.iter().enumerate() {
            let before = index.checked_sub(1).map(|before| &self.points[before]);
            let grown = before.map_or_else(
                || format!("{:>8}  {:>6}", "", ""),
                |before| format!("{:>8.2}  {:>6.2}", point.cost / before.cost, slope(before, point)),
            );
            let line = format!("  {:>12}  {:>14}  {grown}  {}", whole(point.number), number(point.cost), point.remark);
            println!("{}", line.trim_end());
        }
        self.check(claim)
    }

    fn check(&self, claim: &Claim) -> Option<String> {
        let counted: Vec<&Point> = self.points.iter().filter(|point| point.number >= claim.from).collect();
        let (Some(first), Some(last)) = (counted.first(), counted.last()) else { return None };
        let slope = slope(first, last);
        let (from, to) = (whole(first.number), whole(last.number));
        println!("  from {from} to {to}: {:.2} times the cost, slope {slope:.3}", last.cost / first.cost);
        let worst = counted.iter().map(|point| point.cost).fold(0.0, f64::max);
        let (is_met, bound) = match claim.bound {
            Bound::Slope(max) => (slope <= max, format!("slope <= {max}")),
            Bound::Cost(max) => (worst <= max, format!("<= {} {}", number(max), self.unit)),
            Bound::None => {
                println!("  {}", claim.text);
                return None;
            }
        };
        let verdict = if is_met { "holds" } else { "DOES NOT HOLD" };
        println!("  claim: {} ({bound}): {verdict}", claim.text);
        (!is_met).then(|| format!("{}: {} ({bound})", self.title, claim.text))
    }
}

fn slope(from: &Point, to: &Point) -> f64 {
    (to.cost / from.cost).ln() / (to.number / from.number).ln()
}

/// Formats a whole number, with a comma before each three digits.
pub(crate) fn whole(number: f64) -> String {
    let digits = format!("{number:.0}");
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats a cost, with a digit after the point if it is small.
fn number(cost: f64) -> String {
    if cost < 1_000.0 { format!("{cost:.1}") } else { whole(cost) }
}
