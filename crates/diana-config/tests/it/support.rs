//! Shared helpers of the source tests.

use diana_config::{Apply, Sources, WatchHandle};
use diana_core::{Clock, SystemClock};
use diana_rules::document::{Span, Value};
use diana_rules::{Document, Problem, Problems};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;

/// Far longer than any test takes, even on a busy machine.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// A minimal engine: a document needs `rules` and must not have `nonsense`; remote rules `by: tenant` need a local
/// `identity`; it records the active document.
#[derive(Debug, Default)]
pub(crate) struct Recorder {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    active: String,
    applied: u64,
    rejected: u64,
}

impl Recorder {
    pub(crate) fn new() -> Arc<Self> {
        Arc::default()
    }

    /// The text of the document whose rules are active.
    pub(crate) fn active(&self) -> String {
        self.state.lock().active.clone()
    }

    pub(crate) fn applied(&self) -> u64 {
        self.state.lock().applied
    }

    pub(crate) fn rejected(&self) -> u64 {
        self.state.lock().rejected
    }

    fn check(document: &Document) -> Result<(), Problems> {
        let tree = document.parse()?;
        let problem = |what: &str| Err(document.problems([Problem::new(Span::default(), what)]));
        let Value::Map(entries) = tree.value else { return problem("expected a map") };
        let has = |key: &str| entries.iter().any(|entry| entry.key == key);
        if has("nonsense") {
            return problem("unknown field `nonsense`");
        }
        if has("rules") { Ok(()) } else { problem("missing `rules`") }
    }
}

impl Apply for Recorder {
    fn apply(&self, local: Option<&Document>, remote: Option<&Document>) -> Result<(), Problems> {
        let checked = [local, remote].into_iter().flatten().try_for_each(Self::check);
        let needs = remote.filter(|remote| remote.text().contains("by: tenant"));
        let has = local.is_some_and(|local| local.text().contains("identity: {tenant"));
        let checked = match needs {
            Some(remote) if !has => Err(remote.problems([Problem::new(Span::default(), "unknown attribute `tenant`")])),
            _ => checked,
        };
        let mut state = self.state.lock();
        match &checked {
            Ok(()) => {
                state.applied += 1;
                state.active = remote.or(local).unwrap().text().to_owned();
            }
            Err(_) => state.rejected += 1,
        }
        checked
    }
}

/// A document with one rule.
pub(crate) fn rules(name: &str) -> String {
    format!("rules:\n  - name: {name}\n    limit: 10/s\n")
}

/// Starts with a new recorder; a config server that responds has enough time even on a busy machine.
pub(crate) async fn start(sources: Sources) -> (WatchHandle, Arc<Recorder>) {
    let recorder = Recorder::new();
    let handle = sources.wait(LONG).start(Arc::clone(&recorder) as Arc<dyn Apply>).await.unwrap();
    (handle, recorder)
}

/// Waits until `holds` returns `true`. Fails after a very long time.
pub(crate) async fn until(what: &str, mut holds: impl FnMut() -> bool) -> Duration {
    let start = SystemClock.now();
    loop {
        let elapsed = SystemClock.now().since(start);
        if holds() {
            return elapsed;
        }
        assert!(elapsed < LONG, "timed out waiting for {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Waits until this document is active.
pub(crate) async fn until_active(recorder: &Recorder, text: &str) -> Duration {
    until(text, || recorder.active() == text).await
}

/// Waits until the last error contains this text.
pub(crate) async fn until_error(handle: &WatchHandle, what: &str) {
    let is_reported = || handle.status().last_error.is_some_and(|error| error.what.contains(what));
    until(&format!("an error with `{what}`"), is_reported).await;
}

/// The last error.
pub(crate) fn last_error(handle: &WatchHandle) -> String {
    handle.status().last_error.map(|error| error.what).unwrap_or_default()
}
