//! A whole file as a table of plain text.
//!
//! Columns are as wide as what is in them, up to a hundred characters together; then the widest give way, and texts go on in
//! the next line. No column gets narrower than its longest word as long as all of them fit. A word that fits no column is
//! broken behind one of its signs (`/`, `.`, `,` ...), and within letters only where even that does not help. Notes stand below
//! their rule.

use super::{RuleDescription, describe};
use crate::file::RuleFile;
use crate::problem::shown;

/// How wide the table is at most.
const WIDTH: usize = 100;
/// What stands between two columns.
const GAP: usize = 2;
/// No column gets narrower than this.
const NARROWEST: usize = 8;
/// The longest word that a column is made as wide as; a longer one is broken.
const LONGEST_WORD: usize = 32;
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
        let RuleDescription { who, what, limit, beyond, notes } = describe(rule);
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
fn widths<'a>(rows: impl Iterator<Item = &'a [String; 5]> + Clone) -> [usize; 5] {
    let mut widths = HEADS.map(str::len);
    for cells in rows.clone() {
        for (width, cell) in widths.iter_mut().zip(cells) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let room = WIDTH - GAP * (widths.len() - 1);
    let natural = widths;
    let rows = || rows.clone().map(|cells| cells.each_ref().map(String::as_str)).chain([HEADS]);
    // Whole words first, then pieces of words, then whatever is left.
    let words = least(rows(), |cell| cell.split(' ').map(length).max()).map(|width| width.min(LONGEST_WORD));
    let pieces = least(rows(), |cell| cell.split(' ').flat_map(pieces).map(length).max());
    for least in [words, pieces, [NARROWEST; 5]] {
        while widths.iter().sum::<usize>() > room {
            let free = (0..widths.len()).filter(|column| widths[*column] > least[*column]);
            // A column that goes on in the next line anyway gives way before another one has to.
            let gives_way = |column: &usize| {
                let is_wrapped = widths[*column] < natural[*column];
                widths[*column] + if is_wrapped { GAP + NARROWEST } else { 0 }
            };
            let Some(column) = free.max_by_key(gives_way) else { break };
            widths[column] -= 1;
        }
    }
    widths
}

/// How wide each column must be, by what `longest` finds in a cell.
fn least<'a>(rows: impl Iterator<Item = [&'a str; 5]>, longest: impl Fn(&'a str) -> Option<usize>) -> [usize; 5] {
    let mut least = [NARROWEST; 5];
    for cells in rows {
        for (least, cell) in least.iter_mut().zip(cells) {
            *least = (*least).max(longest(cell).unwrap_or(0));
        }
    }
    least
}

fn length(text: &str) -> usize {
    text.chars().count()
}

/// Signs behind which a word may be broken.
const SIGNS: [char; 12] = ['/', ',', '.', ';', ':', '-', '_', '=', '&', '|', '(', ')'];

/// A word in pieces, each with its sign at the end: `/accounts/`, `{name}/`, `login`.
fn pieces(word: &str) -> impl Iterator<Item = &str> {
    word.split_inclusive(SIGNS)
}

fn line(table: &mut String, cells: &[String; 5], widths: &[usize; 5]) {
    let padded = cells.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}")).collect::<Vec<_>>();
    table.push_str(padded.join(&" ".repeat(GAP)).trim_end());
    table.push('\n');
}

/// A text in lines of at most `width` characters, broken between words where that is possible, else behind a sign.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = String::new();
    for word in text.split(' ') {
        let space = usize::from(!line.is_empty());
        if length(&line) + space + length(word) <= width {
            line.push_str(if space == 1 { " " } else { "" });
            line.push_str(word);
            continue;
        }
        if !line.is_empty() {
            lines.push(std::mem::take(&mut line));
        }
        for piece in pieces(word) {
            if length(&line) + length(piece) > width && !line.is_empty() {
                lines.push(std::mem::take(&mut line));
            }
            for character in piece.chars() {
                if length(&line) == width {
                    lines.push(std::mem::take(&mut line));
                }
                line.push(character);
            }
        }
    }
    lines.push(line);
    lines
}
