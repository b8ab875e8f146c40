//! The state as a screen: a pure function, for any size.
//!
//! ```text
//!   title and totals
//!   what is degraded                 only if something is
//!   charts of all requests           if there is room
//!   rules                            rules.rs
//!   keys of the chosen rule          keys.rs; on a low screen, only one of the two lists
//!   the keys of the keyboard         or the text of the filter
//! ```

mod dialog;
mod keys;
mod rules;

use super::Window;
use super::state::{App, Dialog, Focus};
use super::text::{rate, sparkline, truncated};
use super::theme::Theme;
use crate::command::admin::describe::number;
use crate::command::admin::model::{Degraded, History};
use crate::command::output::{count_of, visible};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::Style;
use ratatui::text::{Line, Span};

/// The height from which there are charts of all requests.
const HEIGHT_WITH_CHARTS: u16 = 18;
/// The height of both lists from which both are shown.
const HEIGHT_OF_BOTH: u16 = 10;
/// The maximum number of lines about what is degraded.
const MAX_ALARMS: usize = 3;

/// Draws the whole screen.
pub(super) fn draw(app: &App, frame: &mut Frame<'_>) {
    let area = frame.area();
    let alarms = alarms(app);
    let charts = if area.height >= HEIGHT_WITH_CHARTS && history(app).is_some() { 2 } else { 0 };
    let alarm_lines = u16::try_from(alarms.len()).unwrap_or(0);
    let [title, totals, alarm_area, chart_area, lists, footer] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Length(alarm_lines),
        Constraint::Length(charts),
        Constraint::Fill(1),
        Constraint::Length(1),
    ])
    .areas(area);
    draw_title(app, frame, title);
    draw_totals(app, frame, totals);
    for (row, alarm) in (0..alarm_area.height).zip(&alarms) {
        let line = super::text::fit(&format!(" {alarm}"), usize::from(alarm_area.width));
        frame.render_widget(Line::styled(line, app.theme.alarm()), line_of(alarm_area, row));
    }
    if let Some(history) = history(app) {
        draw_charts(history, app.theme, frame, chart_area);
    }
    draw_lists(app, frame, lists);
    draw_footer(app, frame, footer);
    dialog::draw(app, frame);
}

fn history(app: &App) -> Option<&History> {
    app.snapshot.as_ref()?.history.as_ref()
}

/// Returns one line of an area; empty if the area has fewer.
fn line_of(area: Rect, row: u16) -> Rect {
    let y = area.y.saturating_add(row);
    Rect { y, height: u16::from(row < area.height), ..area }
}

fn alarms(app: &App) -> Vec<String> {
    let lost = app.lost.iter().map(|error| match error {
        error if error.is_temporary() => format!("{error}; trying again every second"),
        error => error.to_string(),
    });
    let degraded = app.snapshot.iter().flat_map(|snapshot| snapshot.status.degraded());
    let degraded = degraded.map(|degraded| format!("DEGRADED: {}", Degraded::describe(&degraded)));
    lost.chain(degraded).take(MAX_ALARMS).map(|alarm| visible(&alarm)).collect()
}

fn draw_title(app: &App, frame: &mut Frame<'_>, area: Rect) {
    let width = usize::from(area.width);
    let address = app.admin.trim_start_matches("http://");
    let text = match &app.snapshot {
        None => format!(" diana  {address}  connecting…"),
        Some(snapshot) => {
            let status = &snapshot.status;
            let rules = count_of(usize::try_from(status.rules).unwrap_or(usize::MAX), "rule");
            let phase = if app.lost.is_some() { "unreachable" } else { &*status.phase };
            let keys = number(status.keys);
            visible(&format!(" diana {}  {phase}  {rules}  {keys} keys  {address}", status.version))
        }
    };
    let window = match app.window {
        Window::Minute => " last minute ",
        Window::Hour => " last hour ",
    };
    let left = width.saturating_sub(window.len());
    let text = if left > 20 { super::text::fit(&text, left) + window } else { truncated(&text, width) };
    frame.render_widget(Line::styled(text, app.theme.heading()), area);
}

fn draw_totals(app: &App, frame: &mut Frame<'_>, area: Rect) {
    let Some(snapshot) = &app.snapshot else { return };
    let Some(totals) = app.totals() else {
        // An older server has counts, but no history.
        let requests = snapshot.status.requests.iter().filter(|(_, count)| **count > 0);
        let requests = requests.map(|(name, count)| format!("{} {name}", number(*count)));
        let text = format!(" since the start: {}", requests.collect::<Vec<_>>().join(", "));
        frame.render_widget(Line::raw(truncated(&visible(&text), usize::from(area.width))), area);
        return;
    };
    let theme = app.theme;
    let mut spans = Vec::new();
    let rates = [
        ("denied", totals.denied, theme.denied()),
        ("delayed", totals.delayed, theme.delayed()),
        ("allowed", totals.allowed, theme.allowed()),
    ];
    // A narrow screen has room for two.
    let is_shown = |name: &str| area.width >= 48 || name != "delayed";
    for (name, per_second, style) in rates.into_iter().filter(|(name, ..)| is_shown(name)) {
        spans.push(Span::raw(" "));
        spans.push(Span::styled(format!("{}/s {name}", rate(per_second)), style));
        spans.push(Span::raw(" "));
    }
    let latency = snapshot.now.as_ref().and_then(|now| now.latency.as_ref()).map(|latency| &latency.request);
    for (name, values) in latency.iter().flat_map(|latency| [("p50", &latency.p50), ("p99", &latency.p99)]) {
        if let Some(milliseconds) = values.iter().rev().flatten().next() {
            spans.push(Span::styled(format!(" {name} {milliseconds:.1} ms "), theme.dim()));
        }
    }
    frame.render_widget(Line::from(spans), area);
}

/// Draws two charts: the denied and the allowed requests.
fn draw_charts(history: &History, theme: Theme, frame: &mut Frame<'_>, area: Rect) {
    let denied =
        if history.denied.iter().all(|count| *count == 0) && history.shadow_denied.iter().any(|count| *count > 0) {
            ("would deny", &history.shadow_denied)
        } else {
            ("denied", &history.denied)
        };
    let charts = [(denied, theme.denied()), (("allowed", &history.allowed), theme.allowed())];
    for (row, ((name, values), style)) in (0..area.height).zip(charts) {
        frame.render_widget(chart(name, values, history.step, style, area.width), line_of(area, row));
    }
}

/// Draws ` denied   ··▁▂█  peak 12/s`.
fn chart(name: &str, values: &[u64], step: u64, style: Style, width: u16) -> Line<'static> {
    let highest = super::rates::precise(values.iter().copied().max().unwrap_or(0));
    let peak = format!("  peak {}/s ", rate(highest / super::rates::precise(step.max(1))));
    let label = format!(" {name:<8} ");
    let room = usize::from(width).saturating_sub(label.len() + peak.len());
    Line::from(vec![Span::raw(label), Span::styled(sparkline(values, room), style), Span::styled(peak, style)])
}

fn draw_lists(app: &App, frame: &mut Frame<'_>, area: Rect) {
    if area.height < HEIGHT_OF_BOTH {
        match app.focus {
            Focus::Rules => rules::draw(app, frame, area),
            Focus::Keys => keys::draw(app, frame, area),
        }
        return;
    }
    // A title, a heading, and the rules; the keys get the rest, which is at least half.
    let rules = u16::try_from(app.rows.len().max(1)).unwrap_or(u16::MAX).saturating_add(2);
    let [upper, lower] =
        Layout::vertical([Constraint::Length(rules.min(area.height * 2 / 5).max(4)), Constraint::Fill(1)]).areas(area);
    rules::draw(app, frame, upper);
    keys::draw(app, frame, lower);
}

fn draw_footer(app: &App, frame: &mut Frame<'_>, area: Rect) {
    let width = usize::from(area.width);
    if app.dialog == Some(Dialog::Filter) {
        let text = format!(" /{}█  Enter: done, Esc: clear", visible(&app.filter));
        frame.render_widget(Line::raw(truncated(&text, width)), area);
        return;
    }
    let words = [
        "? help",
        "q quit",
        "Tab keys",
        "/ filter",
        "p peek",
        "r reset",
        "f refund",
        "w what-if",
        "m window",
        "d a l n sort",
    ];
    let mut text = String::new();
    for word in words {
        if text.len() + word.len() + 2 > width {
            break;
        }
        text.push_str(&format!(" {word} "));
    }
    frame.render_widget(Line::styled(text, app.theme.dim()), area);
}

#[cfg(test)]
mod tests;
