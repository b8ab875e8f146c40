//! Migrates a key to other parameters: the output of dump.lua, the converted state, and the input of swap.lua.

use crate::algorithms;
use crate::erased_algorithm::ErasedAlgorithm;
use crate::limit_config_versions::LimitConfig;
use crate::scripted_algorithm::{Body, StoredState};
use diana_core::Timestamp;
use redis::Cmd;
use std::sync::Arc;

/// A state as returned by dump.lua.
#[derive(Debug)]
pub(crate) struct Dump {
    pub(crate) algorithm: Arc<dyn ErasedAlgorithm>,
    pub(crate) since: String,
    body: Body,
}

/// The first character of the sorted set member that contains the parameters.
const HEAD: char = '=';

impl Dump {
    /// Parses the output of dump.lua. Returns an error with the reason if it is not a Diana state.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut characters = text.chars();
        let kind = characters.next();
        let rest = characters.as_str();
        let (parameters, since, body) = match kind {
            Some('s') => {
                let (parameters, rest) = rest.split_once(' ').ok_or_else(foreign)?;
                let (fields, since) = rest.rsplit_once(' ').ok_or_else(foreign)?;
                (parameters, since, Body::Text(fields.to_owned()))
            }
            Some('z') => {
                let mut lines = rest.lines();
                let mut members = Vec::new();
                while let (Some(member), Some(score)) = (lines.next(), lines.next()) {
                    members.push((member.to_owned(), score.to_owned()));
                }
                let head = rest.lines().step_by(2).find_map(|member| member.strip_prefix(HEAD)).ok_or_else(foreign)?;
                let (parameters, since) = head.split_once(' ').ok_or_else(foreign)?;
                members.retain(|(member, _)| !member.starts_with(HEAD));
                (parameters, since, Body::Set(members))
            }
            _ => {
                return Err(format!("unexpected type `{rest}`; delete the key, or set another prefix"));
            }
        };
        let algorithm = algorithms::written_by(parameters).ok_or_else(foreign)?;
        Ok(Self { algorithm, since: since.to_owned(), body })
    }

    /// Returns `true` if the state can be parsed.
    pub(crate) fn is_valid(&self, now: Timestamp) -> bool {
        self.algorithm.used(&self.body, now).is_some()
    }

    /// Returns the state migrated to `config`.
    pub(crate) fn migrate(&self, config: &LimitConfig, now: Timestamp) -> Option<StoredState> {
        config.algorithm.migrate(&*self.algorithm, &self.body, now)
    }
}

/// Returns the error message for a key that does not hold a state.
pub(crate) fn foreign() -> String {
    "not a Diana state; delete the key, or set another prefix".to_owned()
}

/// Adds the arguments of swap.lua to write `state`.
pub(crate) fn push_swap(
    cmd: &mut Cmd,
    text: &str,
    config: &LimitConfig,
    dump: &Dump,
    state: &StoredState,
    is_caller_time: bool,
) {
    cmd.arg(text);
    match state.fresh_at {
        _ if is_caller_time => cmd.arg("PX").arg(3_600_000),
        Some(micros) => cmd.arg("PXAT").arg(micros.div_ceil(1_000)),
        None => cmd.arg("").arg(""),
    };
    let parameters = config.algorithm.parameters();
    // The creation time of the state does not change.
    let since = match dump.since.split_once('-') {
        Some((_, born)) => format!("{}-{born}", config.since),
        None => config.since.clone(),
    };
    match &state.body {
        None => {}
        Some(Body::Text(fields)) => {
            cmd.arg("s").arg(format!("{parameters} {fields} {since}"));
        }
        Some(Body::Set(members)) => {
            cmd.arg("z").arg("-inf").arg(format!("{HEAD}{parameters} {since}"));
            for (member, score) in members {
                cmd.arg(score).arg(member);
            }
        }
    }
}
