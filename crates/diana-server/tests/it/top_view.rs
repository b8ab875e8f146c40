//! `diana top` in a pseudo-terminal: it shows the rules, obeys keys, and leaves the terminal as it was.

use crate::support::client::get_with;
use crate::support::fake_admin::{FakeAdmin, recorded};
use crate::support::program::{Diana, LONG};
use diana_testing::wait_until;
use parking_lot::Mutex;
use rustix::fs::{Mode, OFlags, open};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, ExitStatus};
use std::sync::Arc;

/// A view in a pseudo-terminal.
struct View {
    child: Child,
    /// The side of the user.
    keyboard: File,
    /// The side of the program, which stays open to look at the terminal's modes.
    terminal: OwnedFd,
    /// Everything that the program has written.
    written: Arc<Mutex<String>>,
    modes_before: LocalModes,
}

impl View {
    fn open(args: &[&str]) -> Self {
        let user = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&user).unwrap();
        unlockpt(&user).unwrap();
        let name = ptsname(&user, Vec::new()).unwrap();
        let terminal = open(&name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).unwrap();
        tcsetwinsize(&terminal, Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
        let modes_before = tcgetattr(&terminal).unwrap().local_modes;
        let side = || terminal.try_clone().unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_diana"));
        command.arg("top").args(args).env("TERM", "xterm-256color").env_remove("NO_COLOR");
        let child = command.stdin(side()).stdout(side()).stderr(side()).spawn().unwrap();
        let keyboard = File::from(user);
        let (mut screen, written) = (keyboard.try_clone().unwrap(), Arc::new(Mutex::new(String::new())));
        let collected = Arc::clone(&written);
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count) = screen.read(&mut bytes) {
                collected.lock().push_str(&String::from_utf8_lossy(&bytes[..count]));
            }
        });
        Self { child, keyboard, terminal, written, modes_before }
    }

    /// Waits until a text is on the screen.
    fn wait_for(&self, text: &str) {
        let is_shown = || screen(&self.written.lock()).contains(text).then_some(());
        wait_until(text, LONG, is_shown).unwrap_or_else(|error| panic!("{error}:\n{}", screen(&self.written.lock())));
    }

    fn press(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
    }

    /// Waits for its end; the terminal must be as it was before.
    fn wait_for_exit(mut self) -> ExitStatus {
        let status = wait_until("the end", LONG, || self.child.try_wait().unwrap())
            .unwrap_or_else(|error| panic!("{error}: {:?}", self.written.lock()));
        // The alternate screen is left.
        let is_left = || self.written.lock().contains("\u{1b}[?1049l").then_some(());
        wait_until("the screen to be left", LONG, is_left).unwrap();
        let modes = tcgetattr(&self.terminal).unwrap().local_modes;
        assert_eq!(modes, self.modes_before);
        assert!(modes.contains(LocalModes::ICANON | LocalModes::ECHO));
        status
    }
}

/// Returns what a terminal shows after these bytes: text, and the sequences that move the cursor and clear the screen.
fn screen(written: &str) -> String {
    let (mut cells, mut at) = (BTreeMap::new(), (1_u16, 1_u16));
    let mut pieces = written.split('\u{1b}');
    let text = |text: &str, cells: &mut BTreeMap<(u16, u16), char>, at: &mut (u16, u16)| {
        for character in text.chars() {
            match character {
                '\n' => at.0 += 1,
                '\r' => at.1 = 1,
                character => {
                    cells.insert(*at, character);
                    at.1 += 1;
                }
            }
        }
    };
    text(pieces.next().unwrap_or_default(), &mut cells, &mut at);
    for piece in pieces {
        let end = piece.find(|character: char| character.is_ascii_alphabetic()).unwrap_or(piece.len());
        let (arguments, rest) = piece.split_at(end);
        match rest.chars().next() {
            Some('H') => {
                let mut numbers =
                    arguments.trim_start_matches('[').split(';').map(|number| number.parse().unwrap_or(1));
                at = (numbers.next().unwrap_or(1), numbers.next().unwrap_or(1));
            }
            Some('J') => cells.clear(),
            _ => {}
        }
        text(rest.get(1..).unwrap_or_default(), &mut cells, &mut at);
    }
    let mut lines = BTreeMap::<u16, String>::new();
    for ((row, column), character) in cells {
        let line = lines.entry(row).or_default();
        let missing = usize::from(column).saturating_sub(line.chars().count() + 1);
        line.extend(std::iter::repeat_n(' ', missing));
        line.push(character);
    }
    lines.into_values().collect::<Vec<_>>().join("\n")
}

impl Drop for View {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn the_view_shows_a_running_diana_until_q() {
    let rules = "gateway: {listen: $LISTEN}\nidentity: {account: header(x-account-id)}\n\
                 rules: [{name: each-account, by: account, limit: {rate: 1/h, burst: 3}}]\n";
    let diana = Diana::serve(rules);
    for expected in [204, 204, 204, 503] {
        assert_eq!(get_with(diana.port(), "/", "x-account-id: alice\r\n").status, expected);
    }
    let admin = format!("http://127.0.0.1:{}", diana.admin_port());
    let mut view = View::open(&["--admin", &admin]);
    view.wait_for("each-account");
    assert!(!tcgetattr(&view.terminal).unwrap().local_modes.contains(LocalModes::ICANON));
    view.press("?");
    view.wait_for("what would another limit deny?");
    view.press("x");
    view.press("q");
    assert_eq!(view.wait_for_exit().code(), Some(0));
}

#[test]
fn a_signal_ends_the_view_and_restores_the_terminal() {
    let server = FakeAdmin::recorded();
    let view = View::open(&["--admin", &server.url()]);
    view.wait_for("each-account");
    kill_process(Pid::from_child(&view.child), Signal::TERM).unwrap();
    assert_eq!(view.wait_for_exit().code(), Some(0));
}

#[test]
fn a_key_is_peeked_and_reset_from_the_view() {
    let server = FakeAdmin::recorded();
    let mut view = View::open(&["--admin", &server.url()]);
    view.wait_for("alice");
    view.press("p");
    view.wait_for("denied, retry after 600ms");
    view.press(" r");
    view.wait_for("y: reset, n: no");
    assert!(!server.requests().iter().any(|request| request.starts_with("POST")));
    view.press("y");
    view.wait_for("denied, retry after 600ms");
    view.press("q\u{3}");
    assert_eq!(view.wait_for_exit().code(), Some(0));
    let keys = server.requests().into_iter().filter(|request| request.contains("key=")).collect::<Vec<_>>();
    assert_eq!(keys, ["GET /peek?rule=each-account&key=alice", "POST /reset?rule=each-account&key=alice"]);
}

#[test]
fn the_view_connects_again_after_a_restart() {
    let server = FakeAdmin::recorded();
    let (port, url) = (server.port(), server.url());
    let mut view = View::open(&["--admin", &url]);
    view.wait_for("each-account");
    drop(server);
    view.wait_for("connection refused");
    let server = FakeAdmin::on(port, |request| match recorded(request) {
        (status, body) if request.starts_with("GET /rules") => (status, body.replace("search", "found-again")),
        other => other,
    });
    view.wait_for("found-again");
    view.press("q");
    assert_eq!(view.wait_for_exit().code(), Some(0));
    drop(server);
}

#[test]
fn a_change_of_the_size_is_followed() {
    let server = FakeAdmin::recorded();
    let mut view = View::open(&["--admin", &server.url()]);
    view.wait_for("DELAYED/S");
    tcsetwinsize(&view.terminal, Winsize { ws_row: 12, ws_col: 40, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
    // The kernel signals only the foreground group of a controlling terminal, which a pseudo-terminal of a test is not.
    kill_process(Pid::from_child(&view.child), Signal::WINCH).unwrap();
    // A row of the narrow list, which has no column for what was delayed.
    view.wait_for("DENIED/S ALLOWED/S\n");
    view.press("q");
    assert_eq!(view.wait_for_exit().code(), Some(0));
}

#[test]
fn an_unreachable_diana_is_an_error_before_the_screen_is_taken() {
    let port = diana_testing::Port::claim().unwrap();
    let mut view = View::open(&["--admin", &format!("http://127.0.0.1:{}", port.number())]);
    view.wait_for("connection refused; is `diana serve` running?");
    let status = wait_until("the end", LONG, || view.child.try_wait().unwrap()).unwrap();
    assert_eq!(status.code(), Some(1));
    assert!(!view.written.lock().contains("\u{1b}[?1049h"));
}
