//! The printed table: the subject, Diana, the peer, the ratio, the goal, and whether it is met.

/// The goal for a ratio.
#[derive(Clone, Copy, Debug)]
pub enum Goal {
    /// This or less.
    AtMost(f64),
    /// This or more.
    AtLeast(f64),
    /// 1, plus or minus this many percent.
    Within(f64),
    /// None: the line is for information.
    Information,
}

/// One line.
#[derive(Debug)]
struct Row {
    section: String,
    what: String,
    diana: String,
    peer: String,
    ratio: String,
    goal: String,
    verdict: &'static str,
}

/// All lines so far.
#[derive(Debug, Default)]
pub struct Report {
    section: String,
    rows: Vec<Row>,
}

impl Report {
    /// Adds a heading, also shown on stderr as progress.
    pub fn section(&mut self, title: &str) {
        eprintln!("measuring: {title}");
        self.section = title.to_owned();
        self.push(title, String::new(), String::new(), None, Goal::Information, "#");
    }

    /// Adds a comparison.
    pub fn compare(&mut self, what: &str, diana: String, peer: String, ratio: f64, goal: Goal) {
        let verdict = match goal {
            Goal::AtMost(max) if ratio <= max => "met",
            Goal::AtLeast(min) if ratio >= min => "met",
            Goal::Within(percent) if (ratio - 1.0).abs() * 100.0 <= percent => "met",
            Goal::AtMost(_) | Goal::AtLeast(_) | Goal::Within(_) => "MISSED",
            Goal::Information => "",
        };
        self.push(what, diana, peer, Some(ratio), goal, verdict);
    }

    /// Adds a figure of Diana alone.
    pub fn figure(&mut self, what: &str, diana: String, remark: String) {
        self.push(what, diana, remark, None, Goal::Information, "");
    }

    fn push(&mut self, what: &str, diana: String, peer: String, ratio: Option<f64>, goal: Goal, verdict: &'static str) {
        let ratio = ratio.map_or_else(String::new, |ratio| match (goal, ratio) {
            (Goal::Within(_), _) | (_, 0.0..0.1) => format!("{ratio:.4}"),
            _ => format!("{ratio:.2}"),
        });
        let goal = match goal {
            Goal::AtMost(max) => format!("<= {max}"),
            Goal::AtLeast(min) => format!(">= {min}"),
            Goal::Within(percent) => format!("1 ± {percent} %"),
            Goal::Information => String::new(),
        };
        let section = self.section.clone();
        self.rows.push(Row { section, what: what.to_owned(), diana, peer, ratio, goal, verdict });
    }

    /// Prints all lines, and which goals are missed.
    pub fn print(&self) {
        let width = |column: fn(&Row) -> &str, min: usize| {
            let rows = self.rows.iter().filter(|row| row.verdict != "#");
            rows.map(|row| column(row).chars().count()).max().unwrap_or(0).max(min)
        };
        let (what, diana) = (width(|row| &row.what, 4), width(|row| &row.diana, 5));
        let (peer, goal) = (width(|row| &row.peer, 4), width(|row| &row.goal, 4));
        println!("{:what$}  {:>diana$}  {:<peer$}  {:>6}  {:<goal$}", "what", "Diana", "peer", "ratio", "goal");
        for row in &self.rows {
            let Row { what: name, diana: ours, peer: theirs, ratio, goal: target, verdict, .. } = row;
            if *verdict == "#" {
                println!("\n{name}");
                continue;
            }
            let line = format!("{name:what$}  {ours:>diana$}  {theirs:<peer$}  {ratio:>6}  {target:<goal$}  {verdict}");
            println!("{}", line.trim_end());
        }
        let missed: Vec<_> = self.rows.iter().filter(|row| row.verdict == "MISSED").collect();
        match missed[..] {
            [] => println!("\nall goals met"),
            _ => println!("\n{} goals missed:", missed.len()),
        }
        for Row { section, what, ratio, goal, .. } in missed {
            println!("  {section}: {}: {ratio}, expected {goal}", what.trim());
        }
    }
}

/// Formats nanoseconds.
pub fn ns(nanos: f64) -> String {
    match nanos {
        0.0..1_000.0 => format!("{nanos:.1} ns"),
        1_000.0..1_000_000.0 => format!("{:.1} µs", nanos / 1e3),
        _ => format!("{:.2} ms", nanos / 1e6),
    }
}
