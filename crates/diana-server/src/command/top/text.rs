//! Texts that fit: truncated and padded to columns of the terminal, and sparklines.
//!
//! A character may take no, one or two columns, so lengths are those of `unicode-width`.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Returns a text of exactly `width` columns: padded on the right, or truncated with `…`.
pub(super) fn fit(text: &str, width: usize) -> String {
    let mut fitted = truncated(text, width);
    let used = fitted.width();
    fitted.extend(std::iter::repeat_n(' ', width.saturating_sub(used)));
    fitted
}

/// Fits a text into a width, padded on the left.
pub(super) fn fit_right(text: &str, width: usize) -> String {
    let fitted = truncated(text, width);
    let used = fitted.width();
    format!("{}{fitted}", " ".repeat(width.saturating_sub(used)))
}

/// Returns a text of at most `width` columns.
pub(super) fn truncated(text: &str, width: usize) -> String {
    // A key may be long; what is longer than the screen is not looked at.
    if text.chars().take(width.saturating_add(1)).count() <= width && text.width() <= width {
        return text.to_owned();
    }
    let (mut fitted, mut used) = (String::new(), 0);
    for character in text.chars() {
        let columns = character.width().unwrap_or(0);
        // One column is left for the mark.
        if used + columns + 1 > width {
            break;
        }
        used += columns;
        fitted.push(character);
    }
    if width > 0 {
        fitted.push('…');
    }
    fitted
}

/// Returns the lines of a text in a column: broken between words, or within a word that is too long.
pub(super) fn wrapped(text: &str, width: usize) -> Vec<String> {
    let width = width.max(1);
    let mut lines = Vec::new();
    for line in text.lines() {
        let indent = line.chars().take_while(|character| *character == ' ').count();
        let mut current = " ".repeat(indent.min(width / 2));
        let mut is_empty = true;
        for word in line.split_whitespace() {
            let gap = usize::from(!is_empty);
            if !is_empty && current.width() + gap + word.width() > width {
                lines.push(std::mem::take(&mut current));
            } else if gap > 0 {
                current.push(' ');
            }
            is_empty = false;
            for character in word.chars() {
                if current.width() + character.width().unwrap_or(0) > width {
                    lines.push(std::mem::take(&mut current));
                }
                current.push(character);
            }
        }
        lines.push(current);
    }
    lines
}

/// Formats a rate: `0`, `0.2`, `12.3`, `1,234`, `12.3k`, `1.2M`.
pub(super) fn rate(per_second: f64) -> String {
    match per_second {
        rate if rate.is_nan() || rate <= 0.0 => "0".to_owned(),
        rate if rate < 0.05 => "<0.1".to_owned(),
        rate if rate < 99.95 => format!("{rate:.1}"),
        rate if rate < 9_999.5 => format!("{rate:.0}"),
        rate if rate < 999_950.0 => format!("{:.1}k", rate / 1e3),
        rate => format!("{:.1}M", rate / 1e6),
    }
}

/// Draws a chart of at most `width` columns: the newest value is the last, zero is a dot, and the highest is a full bar.
pub(super) fn sparkline(values: &[u64], width: usize) -> String {
    if width == 0 || values.is_empty() {
        return String::new();
    }
    // With more values than columns, a column has the highest of its values: a short peak stays visible.
    let count = values.len().min(width);
    let columns = (0..count).map(|column| {
        let (first, last) = (column * values.len() / count, (column + 1) * values.len() / count);
        values.get(first..last).unwrap_or_default().iter().copied().max().unwrap_or(0)
    });
    let columns = columns.collect::<Vec<_>>();
    let highest = columns.iter().copied().max().unwrap_or(0);
    columns.into_iter().map(|value| bar(value, highest)).collect()
}

fn bar(value: u64, highest: u64) -> char {
    if value == 0 || highest == 0 {
        return '·';
    }
    let eighths = (u128::from(value) * 8).div_ceil(u128::from(highest));
    let index = usize::try_from(eighths).unwrap_or(8).saturating_sub(1);
    BARS.get(index).copied().unwrap_or('█')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_have_exactly_the_width() {
        for text in ["", "a", "each-account", "日本語のキー", "e\u{301}e\u{301}", "👩‍👩‍👧", "\u{200b}\u{200b}"]
        {
            for width in 0..12 {
                assert_eq!(fit(text, width).width(), width, "{text:?} in {width}");
                assert_eq!(fit_right(text, width).width(), width, "{text:?} in {width}");
            }
        }
        assert_eq!(fit("each-account", 8), "each-ac…");
        assert_eq!(fit("日本語", 4), "日… ");
        assert_eq!(fit_right("12", 4), "  12");
    }

    #[test]
    fn lines_are_broken_between_words() {
        assert_eq!(wrapped("  a limit of ten\n\nx", 9), ["  a limit", "of ten", "", "x"]);
        assert_eq!(wrapped("abcdefg hi", 3), ["abc", "def", "g", "hi"]);
        assert_eq!(wrapped("日本語", 4), ["日本", "語"]);
        assert_eq!(wrapped("ab", 0), ["a", "b"]);
    }

    #[test]
    fn rates_are_short() {
        let rates = [
            (0.0, "0"),
            (f64::NAN, "0"),
            (0.01, "<0.1"),
            (0.25, "0.2"),
            (12.34, "12.3"),
            (99.96, "100"),
            (1_234.0, "1234"),
            (12_345.0, "12.3k"),
            (1_234_567.0, "1.2M"),
        ];
        for (per_second, text) in rates {
            assert_eq!(rate(per_second), text);
        }
    }

    #[test]
    fn a_sparkline_ends_with_the_newest_value() {
        assert_eq!(sparkline(&[0, 1, 4, 8], 10), "·▁▄█");
        assert_eq!(sparkline(&[8, 0, 1, 3, 4], 3), "█▁▄", "8, then 0 and 1, then 3 and 4");
        assert_eq!(sparkline(&[1, 1_000_000], 2), "▁█", "a small value is visible");
        assert_eq!(sparkline(&[0, 0], 2), "··");
        assert_eq!(sparkline(&[], 5), "");
        assert_eq!(sparkline(&[5], 0), "");
        assert_eq!(sparkline(&[u64::MAX, u64::MAX], 1), "█");
    }
}
