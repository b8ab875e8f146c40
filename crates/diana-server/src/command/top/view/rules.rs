//! The list of rules.

use super::line_of;
use crate::command::output::visible;
use crate::command::top::state::{App, Focus, Row};
use crate::command::top::text::{fit, fit_right, rate, truncated};
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders};

/// The columns of a rate, with a space before it.
const RATE: usize = 10;
/// The columns of `by` and of the limit, where there is room for them.
const BY: usize = 18;
const LIMIT: usize = 42;

/// The columns that have room.
struct Columns {
    name: usize,
    by: usize,
    limit: usize,
    rates: usize,
}

impl Columns {
    fn of(width: usize) -> Self {
        let (by, limit, rates) = match width {
            0..36 => (0, 0, 1),
            36..60 => (0, 0, 2),
            60..120 => (BY, 0, 3),
            _ => (BY, LIMIT, 3),
        };
        // Two columns mark the chosen rule.
        Self { name: width.saturating_sub(2 + by + limit + rates * RATE), by, limit, rates }
    }
}

pub(super) fn draw(app: &App, frame: &mut Frame<'_>, area: Rect) {
    let filter = match &*app.filter {
        "" => String::new(),
        text => format!("with `{text}` "),
    };
    let title = visible(&format!(" Rules {filter}by {} ", app.sort.name()));
    let title = truncated(&title, usize::from(area.width));
    let block = Block::new().borders(Borders::TOP).title(Span::styled(title, app.theme.heading()));
    let inner = block.inner(area);
    frame.render_widget(block, area);
    let columns = Columns::of(usize::from(inner.width));
    frame.render_widget(heading(&columns, app), line_of(inner, 0));
    if app.rows.is_empty() {
        let text = match &app.snapshot {
            None => " waiting for Diana…",
            Some(_) if app.filter.is_empty() => " there are no rules",
            Some(_) => " no rule or key has this text; Esc clears the filter",
        };
        frame.render_widget(Line::styled(text, app.theme.dim()), line_of(inner, 1));
        return;
    }
    let (chosen, room) = (app.row_index(), usize::from(inner.height.saturating_sub(1)));
    let first = (chosen + 1).saturating_sub(room);
    for (line, (index, row)) in (1..inner.height).zip(app.rows.iter().enumerate().skip(first)) {
        let (mark, style) = match (index == chosen, app.focus) {
            (true, Focus::Rules) => ("> ", app.theme.chosen()),
            (true, Focus::Keys) => ("> ", app.theme.chosen_elsewhere()),
            (false, _) => ("  ", Style::new()),
        };
        frame.render_widget(line_for(row, mark, &columns, app).style(style), line_of(inner, line));
    }
}

fn heading(columns: &Columns, app: &App) -> Line<'static> {
    let mut text = format!("  {}", fit("RULE", columns.name));
    text += &fit("BY", columns.by);
    text += &fit("LIMIT", columns.limit);
    for name in ["DENIED/S", "ALLOWED/S", "DELAYED/S"].into_iter().take(columns.rates) {
        text += &fit_right(name, RATE);
    }
    Line::styled(text, app.theme.dim())
}

fn line_for(row: &Row, mark: &'static str, columns: &Columns, app: &App) -> Line<'static> {
    let shadow = if row.rule.shadow { " (shadow)" } else { "" };
    let cell = |text: &str, width: usize| match width {
        0 => String::new(),
        width => format!("{} ", fit(&visible(text), width - 1)),
    };
    let mut spans = vec![
        Span::raw(mark),
        Span::raw(fit(&visible(&format!("{}{shadow}", row.rule.name)), columns.name)),
        Span::raw(cell(&row.rule.by, columns.by)),
        Span::raw(cell(&row.rule.limit, columns.limit)),
    ];
    let rates = row.rates.map(|rates| [rates.denied, rates.allowed, rates.delayed]);
    // Denials of a shadow rule are no alarm.
    let denied = if row.rule.shadow { Style::new() } else { app.theme.denied() };
    let styles = [denied, app.theme.allowed(), app.theme.delayed()];
    for (index, style) in styles.into_iter().enumerate().take(columns.rates) {
        let value = rates.and_then(|rates| rates.get(index).copied());
        // A zero is no reason to look at it.
        let style = if value.is_some_and(|value| value > 0.0) { style } else { app.theme.dim() };
        spans.push(Span::styled(fit_right(&value.map_or("-".to_owned(), rate), RATE), style));
    }
    Line::from(spans)
}
