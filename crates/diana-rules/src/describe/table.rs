//! A whole file as a plain-text table.
//!
//! Columns are as wide as their content, up to a hundred characters in total; then the widest columns are narrowed, and
//! their text is wrapped. No column is narrower than its longest word as long as all columns fit. A longer word is
//! broken after a separator (`/`, `.`, `,` ...), and within letters only if that is not enough. Notes are printed below
//! their rule.

use super::RuleDescription;
use crate::file::RuleFile;
use diana_document::document::shown;

/// The maximum width of the table.
const WIDTH: usize = 100;
/// The space between two columns.
const GAP: usize = 2;
/// The minimum width of a column.
const MIN_WIDTH: usize = 8;
/// The maximum word length that widens a column; a longer word is broken.
const MAX_WORD: usize = 32;
/// The maximum length of a cell.
const MAX_CELL: usize = 1_000;
const HEADERS: [&str; 5] = ["rule", "key", "match", "limit", "over limit"];

/// Describes all rules of a file in a table.
///
/// ```
/// use diana_rules::describe::table;
/// use diana_rules::{Document, Registry, RuleFile};
///
/// let document = Document::new("diana.yaml", "rules: [{name: everyone, limit: 10000/s}, {name: slow, by: ip, bandwidth: 512KiB/s}]");
/// let file = RuleFile::read(&document, &Registry::default())?;
/// assert_eq!(table(&file), "\
/// rule      key                       match         limit                              over limit
/// --------  ------------------------  ------------  ---------------------------------  ---------------
/// everyone  everyone together         all requests  10000 a second, up to 10000 at     denied with 503
///                                                   once: at most 20000 in any second
/// slow      each address or IPv6 /64  all requests  responses at 512 KiB a second      throttled
/// ");
/// # Ok::<(), diana_rules::Problems>(())
/// ```
pub fn table(file: &RuleFile) -> String {
    let rows = file.rules.iter().map(|rule| {
        let RuleDescription { key, matches, limit, over_limit, notes } = super::rule(rule);
        let cells = [rule.name.clone(), key, matches, limit, over_limit].map(|cell| shown(&cell, MAX_CELL));
        (cells, notes)
    });
    let rows = rows.collect::<Vec<_>>();
    let widths = widths(rows.iter().map(|(cells, _)| cells));
    let mut table = String::new();
    line(&mut table, &HEADERS.map(str::to_owned), &widths);
    line(&mut table, &widths.map(|width| "-".repeat(width)), &widths);
    let indent = widths[0] + GAP;
    for (cells, notes) in &rows {
        let wrapped = [0, 1, 2, 3, 4].map(|column| wrap(&cells[column], widths[column]));
        for index in 0..wrapped.iter().map(Vec::len).max().unwrap_or(0) {
            line(&mut table, &wrapped.each_ref().map(|lines| lines.get(index).cloned().unwrap_or_default()), &widths);
        }
        for note in notes {
            let room = WIDTH.saturating_sub(indent + 2).max(MIN_WIDTH);
            for (index, text) in wrap(&shown(note, MAX_CELL), room).iter().enumerate() {
                let dash = if index == 0 { "- " } else { "  " };
                table.push_str(&format!("{:indent$}{dash}{text}\n", ""));
            }
        }
    }
    table
}

/// Computes the width of each column: that of its content, unless the table is too wide.
fn widths<'a>(rows: impl Iterator<Item = &'a [String; 5]> + Clone) -> [usize; 5] {
    let mut widths = HEADERS.map(str::len);
    for cells in rows.clone() {
        for (width, cell) in widths.iter_mut().zip(cells) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let room = WIDTH - GAP * (widths.len() - 1);
    let natural = widths;
    let rows = || rows.clone().map(|cells| cells.each_ref().map(String::as_str));
    // First keep whole words, then parts of words, then only the minimum width.
    let words = min_widths(rows(), |cell| cell.split(' ').map(length).max()).map(|width| width.min(MAX_WORD));
    let pieces = min_widths(rows(), |cell| cell.split(' ').flat_map(pieces).map(length).max());
    for minimum in [words, pieces, header_widths()] {
        while widths.iter().sum::<usize>() > room {
            let free = (0..widths.len()).filter(|column| widths[*column] > minimum[*column]);
            // A column that is wrapped already is narrowed before another one.
            let priority = |column: &usize| {
                let is_wrapped = widths[*column] < natural[*column];
                widths[*column] + if is_wrapped { GAP + MIN_WIDTH } else { 0 }
            };
            let Some(column) = free.max_by_key(priority) else { break };
            widths[column] -= 1;
        }
    }
    widths
}

/// Returns the minimum width of each column: headers are not wrapped.
fn header_widths() -> [usize; 5] {
    HEADERS.map(|header| header.len().max(MIN_WIDTH))
}

/// Computes the minimum width of each column from the result of `longest` for each cell.
fn min_widths<'a>(rows: impl Iterator<Item = [&'a str; 5]>, longest: impl Fn(&'a str) -> Option<usize>) -> [usize; 5] {
    let mut minimum = header_widths();
    for cells in rows {
        for (minimum, cell) in minimum.iter_mut().zip(cells) {
            *minimum = (*minimum).max(longest(cell).unwrap_or(0));
        }
    }
    minimum
}

fn length(text: &str) -> usize {
    text.chars().count()
}

/// Separators after which a word may be broken.
const SEPARATORS: [char; 12] = ['/', ',', '.', ';', ':', '-', '_', '=', '&', '|', '(', ')'];

/// Splits a word after its separators: `/accounts/`, `{name}/`, `login`.
fn pieces(word: &str) -> impl Iterator<Item = &str> {
    word.split_inclusive(SEPARATORS)
}

fn line(table: &mut String, cells: &[String; 5], widths: &[usize; 5]) {
    let padded = cells.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}")).collect::<Vec<_>>();
    table.push_str(padded.join(&" ".repeat(GAP)).trim_end());
    table.push('\n');
}

/// Wraps a text into lines of at most `width` characters, between words if possible, else after a separator.
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
