//! A whole file as a table of plain text.
//!
//! Columns are as wide as what is in them, up to a hundred characters together; then the widest give way, and texts go on in
//! the next line. Notes stand below their rule.

use super::{RuleInWords, in_words};
use crate::file::RuleFile;
use crate::problem::shown;

/// How wide the table is at most.
const WIDTH: usize = 100;
/// What stands between two columns.
const GAP: usize = 2;
/// No column gets narrower than this.
const NARROWEST: usize = 8;
/// The longest text in one place.
const LONGEST: usize = 1_000;
const HEADS: [&str; 5] = ["rule", "who", "what", "limit", "beyond"];

/// What all rules of a file mean, as a table.
///
/// ```
/// use diana_rules::{Document, Registry, RuleFile, table};
///
/// let document = Document::new("diana.yaml", "rules: [{name: everyone, limit: 10000/s}, {name: slow, by: ip, bandwidth: 512KiB/s}]");
/// let file = RuleFile::read(&document, &Registry::default())?;
/// assert_eq!(table(&file), "\
/// rule      who                       what          limit                          beyond
/// --------  ------------------------  ------------  -----------------------------  ----------------
/// everyone  everyone together         all requests  at most 10000 a second         refused with 503
/// slow      each address or IPv6 /64  all requests  responses at 512 KiB a second  slowed down
/// ");
/// # Ok::<(), diana_rules::Problems>(())
/// ```
pub fn table(file: &RuleFile) -> String {
    let rows = file.rules.iter().map(|rule| {
        let RuleInWords { who, what, limit, beyond, notes } = in_words(rule);
        let cells = [rule.name.clone(), who, what, limit, beyond].map(|cell| shown(&cell, LONGEST));
        (cells, notes)
    });
    let rows = rows.collect::<Vec<_>>();
    let widths = widths(rows.iter().map(|(cells, _)| cells));
    let mut table = String::new();
    line(&mut table, &HEADS.map(str::to_owned), &widths);
    line(&mut table, &widths.map(|width| "-".repeat(width)), &widths);
    let indent = widths[0] + GAP;
    for (cells, notes) in &rows {
        let wrapped = [0, 1, 2, 3, 4].map(|column| wrap(&cells[column], widths[column]));
        for nth in 0..wrapped.iter().map(Vec::len).max().unwrap_or(0) {
            line(&mut table, &wrapped.each_ref().map(|lines| lines.get(nth).cloned().unwrap_or_default()), &widths);
        }
        for note in notes {
            let room = WIDTH.saturating_sub(indent + 2).max(NARROWEST);
            for (nth, text) in wrap(&shown(note, LONGEST), room).iter().enumerate() {
                let dash = if nth == 0 { "- " } else { "  " };
                table.push_str(&format!("{:indent$}{dash}{text}\n", ""));
            }
        }
    }
    table
}

/// How wide each column is: as what is in it, unless all together are too wide.
fn widths<'a>(rows: impl Iterator<Item = &'a [String; 5]>) -> [usize; 5] {
    let mut widths = HEADS.map(str::len);
    for cells in rows {
        for (width, cell) in widths.iter_mut().zip(cells) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let room = WIDTH - GAP * (widths.len() - 1);
    while widths.iter().sum::<usize>() > room {
        let Some(widest) = widths.iter_mut().max().filter(|widest| **widest > NARROWEST) else { break };
        *widest -= 1;
    }
    widths
}

fn line(table: &mut String, cells: &[String; 5], widths: &[usize; 5]) {
    let padded = cells.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}")).collect::<Vec<_>>();
    table.push_str(padded.join(&" ".repeat(GAP)).trim_end());
    table.push('\n');
}

/// A text in lines of at most `width` characters, broken between words where that is possible.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = String::new();
    for word in text.split(' ') {
        if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > width {
            lines.push(std::mem::take(&mut line));
        }
        if !line.is_empty() {
            line.push(' ');
        }
        for character in word.chars() {
            if line.chars().count() == width {
                lines.push(std::mem::take(&mut line));
            }
            line.push(character);
        }
    }
    lines.push(line);
    lines
}
