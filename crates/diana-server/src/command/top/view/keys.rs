//! The chosen rule: its limit, its charts, and its heaviest keys.

use super::{draw_charts, line_of};
use crate::command::admin::describe::{key_text, number};
use crate::command::admin::model::{TopKey, TopRule};
use crate::command::output::visible;
use crate::command::top::rates::precise;
use crate::command::top::state::{App, Focus, KeyList};
use crate::command::top::text::{fit, fit_right, truncated};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders};

/// The width from which all three lists are shown.
const WIDTH_OF_ALL: u16 = 72;
/// The height from which there are charts.
const HEIGHT_WITH_CHARTS: u16 = 8;
/// The columns of a count, and of a share, each with a space before it.
const COUNT: usize = 9;
const SHARE: usize = 5;

pub(super) fn draw(app: &App, frame: &mut Frame<'_>, area: Rect) {
    let title = match app.row() {
        None => " Keys ".to_owned(),
        Some(row) => {
            let by = if row.rule.by.is_empty() { String::new() } else { format!(", by {}", row.rule.by) };
            format!(" {}{by}, last {} ", row.rule.name, app.window.name())
        }
    };
    let title = truncated(&visible(&title), usize::from(area.width));
    let block = Block::new().borders(Borders::TOP).title(Span::styled(title, app.theme.heading()));
    let inner = block.inner(area);
    frame.render_widget(block, area);
    let Some(row) = app.row() else { return };
    let history = app.rule_history().filter(|_| inner.height >= HEIGHT_WITH_CHARTS);
    let charts = if history.is_some() { 2 } else { 0 };
    let limit_line = u16::from(inner.height >= 5);
    let [limit, chart_area, lists] =
        Layout::vertical([Constraint::Length(limit_line), Constraint::Length(charts), Constraint::Fill(1)])
            .areas(inner);
    let text = truncated(&visible(&format!(" {}", row.rule.limit)), usize::from(limit.width));
    frame.render_widget(Line::raw(text), limit);
    if let Some(history) = history {
        draw_charts(history, app.theme, frame, chart_area);
    }
    match app.top() {
        Some(top) => draw_lists(app, top, frame, lists),
        None => {
            let text = truncated(missing(app), usize::from(lists.width));
            frame.render_widget(Line::styled(text, app.theme.dim()), line_of(lists, 0));
        }
    }
}

/// Returns why there are no keys.
fn missing(app: &App) -> &'static str {
    let Some(snapshot) = &app.snapshot else { return "" };
    let is_current = snapshot.watch.rule == app.row().map(|row| row.rule.name.clone());
    match &snapshot.top {
        _ if !is_current || snapshot.watch.window != app.window => " loading…",
        None => " no keys: this Diana has no /top, so it is an older version",
        Some(top) if top.off => " no keys are recorded: the rule file has `top_keys: off`",
        Some(_) => match app.window {
            super::Window::Minute => " no requests in the last minute (m: the last hour)",
            super::Window::Hour => " no requests in the last hour",
        },
    }
}

fn draw_lists(app: &App, top: &TopRule, frame: &mut Frame<'_>, area: Rect) {
    if area.width < WIDTH_OF_ALL {
        draw_list(app, top, app.list, frame, area);
        return;
    }
    let areas: [Rect; 3] = Layout::horizontal([Constraint::Fill(1); 3]).spacing(2).areas(area);
    for (list, area) in KeyList::ALL.into_iter().zip(areas) {
        draw_list(app, top, list, frame, area);
    }
}

fn draw_list(app: &App, top: &TopRule, list: KeyList, frame: &mut Frame<'_>, area: Rect) {
    let keys = list.select(top);
    let name = match list {
        KeyList::Denied if top.shadow => "WOULD DENY",
        KeyList::Denied => "DENIED",
        KeyList::Delayed => "DELAYED",
        // Only some of them are counted.
        KeyList::Allowed => "ALLOWED ABOUT",
    };
    let is_chosen = list == app.list;
    let arrows = if is_chosen && area.width < WIDTH_OF_ALL && app.focus == Focus::Keys { "  ← →" } else { "" };
    let heading = format!("  {name} {}{arrows}", number(keys.total));
    let style = if is_chosen { app.theme.heading() } else { app.theme.dim() };
    frame.render_widget(Line::styled(truncated(&heading, usize::from(area.width)), style), line_of(area, 0));
    let chosen = is_chosen.then(|| app.key_index());
    let room = usize::from(area.height.saturating_sub(1));
    let first = chosen.map_or(0, |chosen| (chosen + 1).saturating_sub(room));
    for (line, (index, key)) in (1..area.height).zip(keys.keys.iter().enumerate().skip(first)) {
        let (mark, style) = match (chosen == Some(index), app.focus) {
            (true, Focus::Keys) => ("> ", app.theme.chosen()),
            (true, Focus::Rules) => ("> ", app.theme.chosen_elsewhere()),
            (false, _) => ("  ", Style::new()),
        };
        let text = line_for(key, keys.total, mark, usize::from(area.width));
        frame.render_widget(Line::styled(text, style), line_of(area, line));
    }
    if keys.keys.is_empty() {
        let style = app.theme.dim().add_modifier(Modifier::ITALIC);
        frame.render_widget(Line::styled(truncated("  none", usize::from(area.width)), style), line_of(area, 1));
    }
}

/// Draws `> alice      1,234  81%`.
fn line_for(key: &TopKey, total: u64, mark: &str, width: usize) -> String {
    let share = if width >= 24 { SHARE } else { 0 };
    let name = width.saturating_sub(2 + COUNT + share);
    let mut text = format!("{mark}{}{}", fit(&key_text(&key.text), name), fit_right(&number(key.count), COUNT));
    if share > 0 {
        let percent = if total == 0 { 0.0 } else { (precise(key.count) * 100.0 / precise(total)).min(100.0) };
        text += &fit_right(&format!("{percent:.0}%"), share);
    }
    text
}
