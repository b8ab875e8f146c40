//! `GET /audit`.

use super::AuditEntry;
use crate::AdminState;
use crate::parameters::Parameters;
use crate::response::{HandlerResult, json};
use axum::extract::State;
use serde::Serialize;
use std::sync::Arc;

#[derive(Debug, Serialize)]
struct Audit<'a> {
    /// The file that also has older changes.
    file: Option<String>,
    /// The number of lines that could not be written to the file.
    dropped: u64,
    entries: Vec<&'a AuditEntry>,
}

pub(crate) async fn audit(State(state): State<Arc<AdminState>>, parameters: Parameters) -> HandlerResult {
    parameters.reject_unknown(&["limit"])?;
    let limit = parameters.number("limit")?.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
    let entries = state.audit.entries.lock().iter().take(limit).cloned().collect::<Vec<_>>();
    let file = state.audit.file.as_ref();
    json(Audit {
        file: file.map(|file| file.path.display().to_string()),
        dropped: file.map_or(0, |file| file.drops.count()),
        entries: entries.iter().map(|entry| &**entry).collect(),
    })
}
