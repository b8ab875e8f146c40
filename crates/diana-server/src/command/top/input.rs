//! The effect of each key. Each function returns the request that it needs of the server, if any.

use super::Window;
use super::state::{Answer, App, Dialog, Focus, KeyList, Sort};
use super::worker::Request;
use ratatui::crossterm::event::{Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

/// The maximum length of a text that is typed.
const MAX_TEXT: usize = 200;
/// The rows that Page Up and Page Down move.
const PAGE: usize = 10;

impl App {
    /// Applies an event of the terminal. A change of the size needs nothing: the next screen has it.
    pub(super) fn terminal_event(&mut self, event: &Event) -> Option<Request> {
        match event {
            Event::Key(key) if key.kind != KeyEventKind::Release => self.key(*key),
            _ => None,
        }
    }

    /// Applies an answer, which is shown unless the user does something else by now.
    pub(super) fn answer(&mut self, answer: Answer) {
        if matches!(self.dialog, None | Some(Dialog::Waiting(_))) {
            self.dialog = Some(Dialog::Message(answer));
        }
    }

    fn key(&mut self, key: KeyEvent) -> Option<Request> {
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            self.is_done |= matches!(key.code, KeyCode::Char('c' | 'd'));
            return None;
        }
        match self.dialog.take() {
            None => self.view_key(key.code),
            Some(dialog) => self.dialog_key(dialog, key.code),
        }
    }

    fn view_key(&mut self, code: KeyCode) -> Option<Request> {
        match code {
            KeyCode::Char('q') => self.is_done = true,
            KeyCode::Char('?' | 'h') | KeyCode::F(1) => self.dialog = Some(Dialog::Help),
            KeyCode::Char('/') => self.dialog = Some(Dialog::Filter),
            KeyCode::Char('m') => {
                self.window = if self.window == Window::Minute { Window::Hour } else { Window::Minute };
            }
            KeyCode::Char('d') => self.sort_by(Sort::Denied),
            KeyCode::Char('a') => self.sort_by(Sort::Allowed),
            KeyCode::Char('l') => self.sort_by(Sort::Delayed),
            KeyCode::Char('n') => self.sort_by(Sort::Name),
            KeyCode::Tab | KeyCode::BackTab => {
                self.focus = if self.focus == Focus::Rules { Focus::Keys } else { Focus::Rules };
            }
            KeyCode::Esc if self.focus == Focus::Keys => self.focus = Focus::Rules,
            KeyCode::Esc => self.set_filter(String::new()),
            KeyCode::Up | KeyCode::Char('k') => self.choose(|index| index.saturating_sub(1)),
            KeyCode::Down | KeyCode::Char('j') => self.choose(|index| index.saturating_add(1)),
            KeyCode::PageUp => self.choose(|index| index.saturating_sub(PAGE)),
            KeyCode::PageDown => self.choose(|index| index.saturating_add(PAGE)),
            KeyCode::Home | KeyCode::Char('g') => self.choose(|_| 0),
            KeyCode::End | KeyCode::Char('G') => self.choose(|_| usize::MAX),
            KeyCode::Right => self.next_list(1),
            KeyCode::Left => self.next_list(KeyList::ALL.len() - 1),
            KeyCode::Enter if self.focus == Focus::Rules => self.focus = Focus::Keys,
            KeyCode::Enter | KeyCode::Char('p') => return self.peek(),
            KeyCode::Char('r') => match self.key_name() {
                Ok(key) => self.dialog = Some(Dialog::ConfirmReset(key)),
                Err(reason) => self.tell("reset", reason),
            },
            KeyCode::Char('f') => match self.key_name() {
                Ok(key) => self.dialog = Some(Dialog::Refund { key, cost: String::new() }),
                Err(reason) => self.tell("refund", reason),
            },
            KeyCode::Char('w') => match self.row() {
                Some(row) => {
                    let rule = row.rule.name.clone();
                    self.dialog = Some(Dialog::WhatIf { rule, limit: String::new() });
                }
                None => self.tell("what if", "no rule is chosen".to_owned()),
            },
            _ => {}
        }
        None
    }

    /// Handles a key for a dialog, which is closed unless it is opened again.
    fn dialog_key(&mut self, dialog: Dialog, code: KeyCode) -> Option<Request> {
        match (dialog, code) {
            (Dialog::Filter, KeyCode::Enter) | (Dialog::Help | Dialog::Message(_) | Dialog::Waiting(_), _) => None,
            (Dialog::Filter, KeyCode::Esc) => {
                self.set_filter(String::new());
                None
            }
            (Dialog::Filter, code) => {
                let mut text = self.filter.clone();
                edit(&mut text, code, |_| true);
                self.set_filter(text);
                self.dialog = Some(Dialog::Filter);
                None
            }
            (_, KeyCode::Esc) => None,
            (Dialog::ConfirmReset(key), KeyCode::Char('y' | 'Y') | KeyCode::Enter) => {
                self.dialog = Some(Dialog::Waiting("reset"));
                Some(Request::Reset(key))
            }
            (Dialog::ConfirmReset(key), code) => {
                let is_no = matches!(code, KeyCode::Char('n' | 'N' | 'q'));
                self.dialog = (!is_no).then_some(Dialog::ConfirmReset(key));
                None
            }
            (Dialog::Refund { key, cost }, KeyCode::Enter) => {
                match if cost.is_empty() { Ok(1) } else { cost.parse() } {
                    Ok(cost) if cost > 0 => {
                        self.dialog = Some(Dialog::Waiting("refund"));
                        Some(Request::Refund { key, cost })
                    }
                    _ => {
                        self.dialog = Some(Dialog::Refund { key, cost: String::new() });
                        None
                    }
                }
            }
            (Dialog::Refund { key, mut cost }, code) => {
                edit(&mut cost, code, |character| character.is_ascii_digit());
                self.dialog = Some(Dialog::Refund { key, cost });
                None
            }
            (Dialog::WhatIf { rule, limit }, KeyCode::Enter) if !limit.trim().is_empty() => {
                self.dialog = Some(Dialog::Waiting("what if"));
                Some(Request::WhatIf { rule, limit: limit.trim().to_owned() })
            }
            (Dialog::WhatIf { rule, mut limit }, code) => {
                edit(&mut limit, code, |_| true);
                self.dialog = Some(Dialog::WhatIf { rule, limit });
                None
            }
        }
    }

    fn peek(&mut self) -> Option<Request> {
        match self.key_name() {
            Ok(key) => {
                self.dialog = Some(Dialog::Waiting("peek"));
                Some(Request::Peek(key))
            }
            Err(reason) => {
                self.tell("peek", reason);
                None
            }
        }
    }

    fn tell(&mut self, title: &'static str, text: String) {
        self.dialog = Some(Dialog::Message(Answer { title, text }));
    }

    fn sort_by(&mut self, sort: Sort) {
        self.sort = sort;
        self.arrange();
    }

    fn set_filter(&mut self, text: String) {
        self.filter = text;
        self.arrange();
    }

    fn choose(&mut self, change: impl Fn(usize) -> usize) {
        match self.focus {
            Focus::Rules => self.choose_row(change(self.row_index())),
            Focus::Keys => self.choose_key(change(self.key_index())),
        }
    }

    fn next_list(&mut self, steps: usize) {
        let index = KeyList::ALL.iter().position(|list| *list == self.list).unwrap_or(0);
        if let Some(list) = KeyList::ALL.get((index + steps) % KeyList::ALL.len()) {
            self.choose_list(*list);
        }
    }
}

fn edit(text: &mut String, code: KeyCode, is_valid: impl Fn(char) -> bool) {
    match code {
        KeyCode::Backspace => {
            text.pop();
        }
        KeyCode::Char(character) if is_valid(character) && text.chars().count() < MAX_TEXT => text.push(character),
        _ => {}
    }
}
