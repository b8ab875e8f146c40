//! Dialogs over the view: help, questions, and answers of the server.

use crate::command::admin::describe;
use crate::command::output::visible;
use crate::command::top::state::{App, Dialog};
use crate::command::top::text::{fit, truncated, wrapped};
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear};

/// The maximum width of a dialog's text.
const MAX_WIDTH: usize = 76;

/// Each line fits into 36 columns, and all of them into 10 lines.
const HELP: &str = "\
up down  choose    Home End PgUp PgDn
Tab      rules or keys (Enter, Esc)
left right  denied, delayed, allowed
p  peek: what is left for the key
r  reset the key     f  refund it
w  what would another limit deny?
/  filter rules and keys, Esc clears
m  the last minute or hour
d a l n  sort by denied, allowed,
         delayed, name      q  quit";

pub(super) fn draw(app: &App, frame: &mut Frame<'_>) {
    let Some(dialog) = &app.dialog else { return };
    let (title, text) = match dialog {
        Dialog::Filter => return,
        Dialog::Help => ("help", HELP.to_owned()),
        Dialog::ConfirmReset(key) => {
            let (rule, name) = (visible(&key.rule), describe::key(&key.parts));
            (
                "reset",
                format!(
                    "Reset {name} of {rule}? It may send requests again as if it had sent none.\n\ny: reset, n: no"
                ),
            )
        }
        Dialog::Refund { key, cost } => {
            let (rule, name) = (visible(&key.rule), describe::key(&key.parts));
            ("refund", format!("Refund to {name} of {rule}. Cost (1 if empty):\n\n> {cost}█\n\nEnter: refund, Esc: no"))
        }
        Dialog::WhatIf { rule, limit } => {
            let (rule, limit) = (visible(rule), visible(limit));
            (
                "what if",
                format!("What would {rule} deny with this limit? (200/min)\n\n> {limit}█\n\nEnter: ask, Esc: no"),
            )
        }
        Dialog::Waiting(what) => (*what, "asking Diana…".to_owned()),
        Dialog::Message(answer) => (answer.title, answer.text.clone()),
    };
    popup(app, title, &text, frame);
}

fn popup(app: &App, title: &str, text: &str, frame: &mut Frame<'_>) {
    let area = frame.area();
    // Two columns and two lines for the border.
    let (room, rows) = (usize::from(area.width.saturating_sub(2)), area.height.saturating_sub(2));
    if room == 0 || rows == 0 {
        return;
    }
    let lines =
        if text == HELP { text.lines().map(str::to_owned).collect() } else { wrapped(text, room.min(MAX_WIDTH)) };
    let longest = lines.iter().map(|line| unicode_width::UnicodeWidthStr::width(&**line)).max().unwrap_or(0);
    let width = u16::try_from(longest.clamp(20, MAX_WIDTH).min(room)).unwrap_or(0);
    let height = u16::try_from(lines.len()).unwrap_or(u16::MAX).min(rows);
    let popup = Rect {
        x: area.x + (area.width - width - 2) / 2,
        y: area.y + (area.height - height - 2) / 2,
        width: width + 2,
        height: height + 2,
    };
    let title = truncated(&format!(" {title} "), usize::from(width));
    let block = Block::bordered().title(Span::styled(title, app.theme.heading()));
    let inner = block.inner(popup);
    frame.render_widget(Clear, popup);
    frame.render_widget(block, popup);
    for (row, line) in (0..inner.height).zip(&lines) {
        frame.render_widget(Line::raw(fit(line, usize::from(width))), super::line_of(inner, row));
    }
}
