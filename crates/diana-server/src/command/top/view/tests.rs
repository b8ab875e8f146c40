//! Whole screens, compared with the files in `tests/top/`. The server's answers are recorded there too.

use super::*;
use crate::command::admin::AdminError;
use crate::command::top::state::{Answer, KeyList, Snapshot, Sort};
use crate::command::top::worker::{KeyName, Request, Watch};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{Event, KeyCode, KeyEvent, KeyModifiers};
use ratatui::style::{Color, Modifier};
use std::path::Path;
use std::time::Duration;

fn recorded(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/top").join(name);
    std::fs::read_to_string(&path).unwrap_or_default()
}

fn parsed<T: serde::de::DeserializeOwned>(name: &str) -> T {
    serde_json::from_str(&recorded(name)).unwrap()
}

fn snapshot(second: u64, watch: Watch) -> Snapshot {
    let (status, rules) = (parsed("status.json"), parsed("rules.json"));
    let top = Some(parsed("top.json"));
    let history = Some(parsed("history.json"));
    let at = Duration::from_secs(second);
    let (now, rule_history) = (history.clone(), history.clone());
    Snapshot { at, watch, status, rules, top, filtered_top: None, now, history, rule_history }
}

/// A view after two polls, in which 40 requests a second of `each-account` were denied.
fn app() -> App {
    let mut app = App::new("http://127.0.0.1:9090".to_owned(), Window::Minute, None, String::new());
    app.theme = Theme::Color;
    let mut first = snapshot(0, app.watch());
    first.rules.rules[1].counts.denied -= 40;
    first.rules.rules[1].counts.allowed -= 85;
    first.rules.rules[2].counts.delayed -= 5;
    first.rules.rules[3].counts.shadow_denied -= 2;
    app.update(first);
    let second = snapshot(1, app.watch());
    app.update(second);
    app
}

fn press(app: &mut App, keys: &str) -> Option<Request> {
    let mut request = None;
    for key in keys.chars() {
        let code = match key {
            '\n' => KeyCode::Enter,
            '\t' => KeyCode::Tab,
            '\u{1b}' => KeyCode::Esc,
            '\u{8}' => KeyCode::Backspace,
            '↓' => KeyCode::Down,
            '↑' => KeyCode::Up,
            '→' => KeyCode::Right,
            '←' => KeyCode::Left,
            key => KeyCode::Char(key),
        };
        request = app.terminal_event(&Event::Key(KeyEvent::new(code, KeyModifiers::NONE))).or(request);
    }
    request
}

fn screen(app: &App, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(app, frame)).unwrap();
    let buffer = terminal.backend().buffer();
    let lines = buffer.content.chunks(usize::from(width).max(1)).map(|cells| {
        let line = cells.iter().map(ratatui::buffer::Cell::symbol).collect::<String>();
        format!("{}\n", line.trim_end())
    });
    lines.collect()
}

/// Compares with a recorded screen, or records it if `DIANA_WRITE_EXPECTED` is set.
fn compare(name: &str, actual: &str) {
    if std::env::var_os("DIANA_WRITE_EXPECTED").is_some() {
        std::fs::write(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/top").join(name), actual).unwrap();
    }
    assert_eq!(actual, recorded(name), "{name} differs; if that is intended, run again with DIANA_WRITE_EXPECTED=1");
}

#[test]
fn the_screens_are_as_recorded() {
    for (width, height) in [(80, 24), (40, 12), (200, 50)] {
        compare(&format!("{width}x{height}.txt"), &screen(&app(), width, height));
    }
    let mut keys = app();
    press(&mut keys, "\t");
    compare("40x12_keys.txt", &screen(&keys, 40, 12));
    press(&mut keys, "?");
    compare("40x12_help.txt", &screen(&keys, 40, 12));
}

#[test]
fn no_size_panics() {
    let mut apps = vec![App::new("http://127.0.0.1:9090".to_owned(), Window::Hour, None, String::new()), app()];
    for keys in ["?", "/a", "w200", "r", "\t", "\tf", "p", "\t↓→"] {
        let mut app = app();
        press(&mut app, keys);
        apps.push(app);
    }
    let mut lost = app();
    lost.lost = Some(AdminError::Unreachable { admin: "a".to_owned(), reason: "日本".repeat(90) });
    apps.push(lost);
    for app in &apps {
        for width in [0, 1, 2, 3, 7, 19, 20, 21, 35, 36, 39, 59, 60, 71, 72, 79, 119, 120, 300] {
            for height in [0, 1, 2, 3, 4, 5, 8, 11, 13, 17, 18, 24, 70] {
                screen(app, width, height);
            }
        }
    }
}

#[test]
fn rules_are_sorted_by_what_is_denied_now() {
    let names = |app: &App| app.rows.iter().map(|row| row.rule.name.clone()).collect::<Vec<_>>();
    let mut app = app();
    assert_eq!(names(&app), ["each-account", "stricter", "search", "everyone"]);
    press(&mut app, "a");
    assert_eq!((names(&app)[0].as_str(), app.sort), ("each-account", Sort::Allowed));
    press(&mut app, "l");
    assert_eq!(names(&app)[0], "search");
    press(&mut app, "n");
    assert_eq!(names(&app), ["each-account", "everyone", "search", "stricter"]);
}

#[test]
fn the_chosen_rule_stays_chosen_when_the_order_changes() {
    let mut app = app();
    press(&mut app, "↓↓");
    assert_eq!(app.row().unwrap().rule.name, "search");
    press(&mut app, "n");
    assert_eq!(app.row().unwrap().rule.name, "search");
    assert_eq!(app.watch().rule.as_deref(), Some("search"));
    // The first one is whichever is first.
    press(&mut app, "gd");
    assert_eq!(app.row_index(), 0);
    press(&mut app, "a");
    assert_eq!(app.row_index(), 0);
    press(&mut app, "↓↓↓↓↓↓↓↓G");
    assert_eq!(app.row_index(), 3);
}

#[test]
fn the_filter_selects_rules_by_their_names_and_by_their_keys() {
    let mut app = app();
    press(&mut app, "/SEAR\n");
    assert_eq!(app.rows.len(), 1);
    assert_eq!(app.row().unwrap().rule.name, "search");
    press(&mut app, "\u{1b}/alice");
    assert!(app.rows.is_empty(), "the server has not been asked yet");
    assert!(screen(&app, 80, 24).contains("no rule or key has this text"));
    assert_eq!(app.watch().find, "alice");
    let snapshot = Snapshot { filtered_top: Some(parsed("top.json")), top: None, ..snapshot(2, app.watch()) };
    app.update(snapshot);
    assert_eq!(app.row().unwrap().rule.name, "each-account");
    assert_eq!(app.keys()[0].text, "alice");
    press(&mut app, "\u{8}\u{1b}");
    assert_eq!((app.filter.as_str(), app.rows.len()), ("", 4));
}

#[test]
fn a_key_is_reset_only_after_a_confirmation() {
    let alice = KeyName { rule: "each-account".to_owned(), parts: vec!["alice".to_owned()] };
    let mut app = app();
    assert_eq!(press(&mut app, "r"), None);
    assert!(screen(&app, 80, 24).contains("Reset alice of each-account?"));
    assert_eq!(press(&mut app, "xn"), None);
    assert_eq!(app.dialog, None);
    assert_eq!(press(&mut app, "ry"), Some(Request::Reset(alice.clone())));
    app.answer(Answer { title: "reset", text: "each-account for alice".to_owned() });
    assert!(screen(&app, 80, 24).contains("each-account for alice"));
    press(&mut app, " ");
    assert_eq!(app.dialog, None);

    assert_eq!(press(&mut app, "f\u{8}x5"), None);
    assert_eq!(press(&mut app, "0\n"), Some(Request::Refund { key: alice.clone(), cost: 50 }));
    app.dialog = None;
    assert_eq!(press(&mut app, "f\u{8}0\n\u{1b}"), None, "a cost of zero is not sent");
    assert_eq!(press(&mut app, "p"), Some(Request::Peek(alice.clone())));
    app.dialog = None;
    assert_eq!(press(&mut app, "\n\n"), Some(Request::Peek(alice)));
}

#[test]
fn keys_that_cannot_be_named_are_explained() {
    let mut app = app();
    press(&mut app, "\t↓↓");
    assert_eq!(press(&mut app, "r"), None);
    assert!(screen(&app, 120, 24).contains("is not a whole key"));
    press(&mut app, " →");
    assert_eq!(app.list, KeyList::Delayed);
    assert_eq!(press(&mut app, "p"), None);
    assert!(screen(&app, 80, 24).contains("no key was delayed in the last minute"));
    press(&mut app, " ←←");
    assert_eq!(app.list, KeyList::Allowed);
}

#[test]
fn another_limit_can_be_tried() {
    let mut app = app();
    assert_eq!(press(&mut app, "w\n"), None, "no limit was typed");
    let request = press(&mut app, "200/min\n");
    assert_eq!(request, Some(Request::WhatIf { rule: "each-account".to_owned(), limit: "200/min".to_owned() }));
    let estimate = parsed::<crate::command::admin::model::WhatIf>("what_if.json");
    app.answer(Answer { title: "what if", text: estimate.describe() });
    compare("80x24_what_if.txt", &screen(&app, 80, 24));
}

#[test]
fn the_window_is_toggled() {
    let mut app = app();
    press(&mut app, "m");
    assert_eq!(app.watch().window, Window::Hour);
    assert!(screen(&app, 80, 24).contains("last hour"));
    press(&mut app, "m");
    assert_eq!(app.watch().window, Window::Minute);
}

#[test]
fn q_and_control_c_quit_also_from_a_dialog() {
    let mut view = app();
    press(&mut view, "q");
    assert!(view.is_done);
    let mut dialog = app();
    press(&mut dialog, "/q");
    assert!(!dialog.is_done, "a letter of the filter");
    dialog.terminal_event(&Event::Key(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)));
    assert!(dialog.is_done);
}

#[test]
fn what_is_degraded_is_on_the_screen() {
    let mut app = app();
    let mut degraded = snapshot(2, app.watch());
    degraded.status.degraded = vec![Degraded {
        part: "redis".to_owned(),
        since: Some("2026-11-18T10:00:00Z".to_owned()),
        reason: Some("connection\u{1b} refused".to_owned()),
    }];
    app.update(degraded);
    let shown = screen(&app, 100, 24);
    assert!(
        shown.contains("DEGRADED: Redis unreachable since 2026-11-18T10:00:00Z: connection\u{fffd} refused"),
        "{shown}"
    );
    app.lost = Some(AdminError::Unreachable { admin: "http://a".to_owned(), reason: "connection refused".to_owned() });
    let shown = screen(&app, 240, 24);
    assert!(shown.contains("trying again every second") && shown.contains("unreachable"), "{shown}");
    assert!(shown.contains("each-account"), "the last answers stay");
}

#[test]
fn an_older_server_is_understood() {
    let mut app = app();
    let old = Snapshot { top: None, history: None, now: None, rule_history: None, ..snapshot(2, app.watch()) };
    app.update(old);
    let shown = screen(&app, 80, 24);
    assert!(shown.contains("this Diana has no /top, so it is an older version"), "{shown}");
    assert!(shown.contains("2 failed, 91,204 forwarded"), "{shown}");
    let off = Snapshot { top: serde_json::from_str(r#"{"off": true}"#).unwrap(), ..snapshot(3, app.watch()) };
    app.update(off);
    assert!(screen(&app, 80, 24).contains("`top_keys: off`"));
}

#[test]
fn without_colours_nothing_is_coloured() {
    for (theme, expected) in [(Theme::Color, true), (Theme::NoColor, false)] {
        let mut app = app();
        app.theme = theme;
        app.lost = Some(AdminError::MissingToken { admin: "http://a".to_owned() });
        let mut terminal = Terminal::new(TestBackend::new(80, 24)).unwrap();
        terminal.draw(|frame| draw(&app, frame)).unwrap();
        let cells = &terminal.backend().buffer().content;
        assert_eq!(cells.iter().any(|cell| cell.fg != Color::Reset || cell.bg != Color::Reset), expected);
        assert!(cells.iter().any(|cell| cell.modifier.contains(Modifier::REVERSED)), "the chosen row");
    }
}
