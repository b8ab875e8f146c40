//! The terminal: taken for the view, and restored however the program ends.
//!
//! Three threads: one reads keys, one asks the server (see [`worker`]), and this one waits for events of
//! both and draws. Nothing is drawn without an event.

use super::state::{App, Event};
use super::{view, worker};
use crate::command::admin::AdminClient;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event;
use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

/// Restores the terminal when it is dropped. A panic restores it too: `try_init` installs a hook for that.
struct RestoreGuard;

impl Drop for RestoreGuard {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

/// Shows the view until the user quits.
pub(super) fn run(app: App, client: AdminClient, limit: u32) -> io::Result<()> {
    let (events, received) = channel();
    let (requests, to_worker) = unbounded_channel();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (watch, worker_events) = (app.watch(), events.clone());
    let worker = move || runtime.block_on(worker::run(client, limit, watch, to_worker, worker_events));
    thread::Builder::new().name("diana-top-worker".to_owned()).spawn(worker)?;
    let _guard = RestoreGuard;
    let terminal = ratatui::try_init()?;
    // The thread is not joined: it waits for a key, and ends with the program.
    thread::Builder::new().name("diana-top-keys".to_owned()).spawn(move || read_keys(&events))?;
    show(app, terminal, &received, &requests)
}

fn show(
    mut app: App,
    mut terminal: DefaultTerminal,
    events: &Receiver<Event>,
    requests: &UnboundedSender<worker::Request>,
) -> io::Result<()> {
    let mut watch = app.watch();
    while !app.is_done {
        terminal.draw(|frame| view::draw(&app, frame))?;
        let Ok(event) = events.recv() else { return Ok(()) };
        // A held key, or a slow terminal: everything that has happened is applied before the next screen.
        for event in std::iter::once(event).chain(events.try_iter()) {
            if let Some(request) = app.apply(event) {
                // An error means that the worker has ended, and the next event reports it.
                let _ = requests.send(request);
            }
        }
        let wanted = app.watch();
        if wanted != watch {
            watch = wanted.clone();
            let _ = requests.send(worker::Request::Watch(wanted));
        }
    }
    Ok(())
}

fn read_keys(events: &Sender<Event>) {
    loop {
        let event = event::read().map_or(Event::Quit, Event::Terminal);
        let is_last = matches!(event, Event::Quit);
        if events.send(event).is_err() || is_last {
            return;
        }
    }
}

impl App {
    /// Applies an event, and returns what it needs of the server.
    fn apply(&mut self, event: Event) -> Option<worker::Request> {
        match event {
            Event::Terminal(event) => return self.terminal_event(&event),
            Event::Update(snapshot) => self.update(*snapshot),
            Event::Lost(error) => self.lost = Some(error),
            Event::Answer(answer) => self.answer(answer),
            Event::Quit => self.is_done = true,
        }
        None
    }
}
