//! Sends requests to the server: once a second for everything on the screen, and for each request of the user.
//!
//! It runs on its own thread, so that a slow server never blocks the screen. It continues when the server can't be
//! reached: the next poll connects again.

use super::Window;
use super::state::{Answer, Event, Snapshot};
use crate::command::admin::model::KeyStatus;
use crate::command::admin::{AdminClient, AdminError};
use std::sync::mpsc::Sender;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::{Instant, MissedTickBehavior};

const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// The time until the poll after a change by the user: not at once, since a held key changes the chosen rule often.
const SOON: Duration = Duration::from_millis(100);

/// A request of the state to the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Request {
    /// Changes the subject of polls.
    Watch(Watch),
    Peek(KeyName),
    Reset(KeyName),
    Refund {
        key: KeyName,
        cost: u64,
    },
    WhatIf {
        rule: String,
        limit: String,
    },
}

/// The subject of polls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Watch {
    /// The chosen rule, if there is one.
    pub(super) rule: Option<String>,
    pub(super) window: Window,
    /// The text that keys must contain; may be empty.
    pub(super) find: String,
}

/// A key, as the API names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KeyName {
    pub(super) rule: String,
    pub(super) parts: Vec<String>,
}

/// Runs until the view is gone.
pub(super) async fn run(
    client: AdminClient,
    limit: u32,
    mut watch: Watch,
    mut requests: UnboundedReceiver<Request>,
    events: Sender<Event>,
) {
    let started = Instant::now();
    let mut polls = tokio::time::interval(POLL_INTERVAL);
    polls.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut terminate, mut hang_up) = (signal(SignalKind::terminate()).ok(), signal(SignalKind::hangup()).ok());
    loop {
        let event = tokio::select! {
            () = received(&mut terminate) => Event::Quit,
            () = received(&mut hang_up) => Event::Quit,
            request = requests.recv() => match request {
                None => return,
                Some(Request::Watch(new)) => {
                    watch = new;
                    polls.reset_after(SOON);
                    continue;
                }
                Some(request) => {
                    polls.reset_after(SOON);
                    Event::Answer(answer(&client, request).await)
                }
            },
            _ = polls.tick() => match poll(&client, limit, &watch).await {
                Ok(snapshot) => Event::Update(Box::new(Snapshot { at: started.elapsed(), ..snapshot })),
                Err(error) => Event::Lost(error),
            },
        };
        if events.send(event).is_err() {
            return;
        }
    }
}

/// Waits for a signal; forever if it can't be received.
async fn received(signal: &mut Option<tokio::signal::unix::Signal>) {
    match signal {
        Some(signal) => {
            signal.recv().await;
        }
        None => std::future::pending().await,
    }
}

async fn poll(client: &AdminClient, limit: u32, watch: &Watch) -> Result<Snapshot, AdminError> {
    let limit = limit.to_string();
    let (window, limit) = (("window", watch.window.name()), ("limit", &*limit));
    let (seconds, step) = watch.window.history();
    let (seconds, step) = (("seconds", seconds), ("step", step));
    let top = async {
        let Some(rule) = &watch.rule else { return Ok(None) };
        optional(client.top(&[("rule", rule), window, limit]).await)
    };
    let rule_history = async {
        let Some(rule) = &watch.rule else { return Ok(None) };
        optional(client.history(&[("rule", rule), seconds, step]).await)
    };
    let filtered_top = async {
        if watch.find.is_empty() {
            return Ok(None);
        }
        optional(client.top(&[window, limit, ("find", &watch.find)]).await)
    };
    let now = async { optional(client.history(&[("seconds", "60"), ("step", "1")]).await) };
    let history = async { optional(client.history(&[seconds, step]).await) };
    let (status, rules, top, filtered_top, now, history, rule_history) =
        tokio::join!(client.status(), client.rules(), top, filtered_top, now, history, rule_history);
    let (status, rules, watch) = (status?, rules?, watch.clone());
    let (top, filtered_top, now, history, rule_history) = (top?, filtered_top?, now?, history?, rule_history?);
    Ok(Snapshot { at: Duration::ZERO, watch, status, rules, top, filtered_top, now, history, rule_history })
}

/// Returns a response that may be missing: an older server does not know the path, and a rule may just have been removed.
fn optional<T>(response: Result<T, AdminError>) -> Result<Option<T>, AdminError> {
    match response {
        Ok(response) => Ok(Some(response)),
        Err(AdminError::UnknownPath { .. } | AdminError::Rejected { status: 400..500, .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

async fn answer(client: &AdminClient, request: Request) -> Answer {
    let (title, text) = match request {
        Request::Watch(_) => return Answer::default(),
        Request::Peek(name) => ("peek", name.send(client, "/peek", None).await.map(|status| status.describe())),
        Request::Reset(name) => ("reset", name.send(client, "/reset", None).await.map(|status| status.describe())),
        Request::Refund { key, cost } => {
            let status = key.send(client, "/refund", Some(cost)).await;
            ("refund", status.map(|status| format!("{cost} refunded\n{}", status.describe())))
        }
        Request::WhatIf { rule, limit } => {
            ("what if", client.what_if(&rule, &limit).await.map(|estimate| estimate.describe()))
        }
    };
    Answer { title, text: text.unwrap_or_else(|error| error.to_string()) }
}

impl KeyName {
    async fn send(&self, client: &AdminClient, path: &'static str, cost: Option<u64>) -> Result<KeyStatus, AdminError> {
        let cost = cost.map(|cost| cost.to_string());
        let mut parameters = vec![("rule", &*self.rule)];
        parameters.extend(self.parts.iter().map(|part| ("key", &**part)));
        parameters.extend(cost.as_deref().map(|cost| ("cost", cost)));
        client.key(path, &parameters).await
    }
}
