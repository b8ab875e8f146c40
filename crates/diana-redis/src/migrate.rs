//! Migrates a key to other parameters: the output of dump.lua, the converted state, and the input of swap.lua.

use crate::erased::ErasedAlgorithm;
use crate::kind;
use crate::limit_config::LimitConfig;
use crate::scripted::{Body, Written};
use diana_core::Timestamp;
use redis::Cmd;
use std::sync::Arc;

/// A state as returned by dump.lua.
#[derive(Debug)]
pub(crate) struct Dump {
    pub(crate) erased: Arc<dyn ErasedAlgorithm>,
    pub(crate) since: String,
    body: Body,
}

/// The first character of the sorted set member that contains the parameters.
const HEAD: char = '=';

impl Dump {
    /// Parses the output of dump.lua. Returns an error with the reason if it is not a Diana state.
    pub(crate) fn read(text: &str) -> Result<Self, String> {
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
                return Err(format!(
                    "it is a {rest}, which Diana never writes; delete it, or give Diana another prefix"
                ));
            }
        };
        let erased = kind::written_by(parameters).ok_or_else(foreign)?;
        Ok(Self { erased, since: since.to_owned(), body })
    }

    /// Returns `true` if the state can be parsed.
    pub(crate) fn makes_sense(&self, now: Timestamp) -> bool {
        self.erased.used(&self.body, now).is_some()
    }

    /// Returns the state migrated to `config`.
    pub(crate) fn carried(&self, config: &LimitConfig, now: Timestamp) -> Option<Written> {
        config.erased.carry(&*self.erased, &self.body, now)
    }
}

/// Returns the error message for a key that does not hold a state.
pub(crate) fn foreign() -> String {
    "it holds something that Diana did not write; delete it, or give Diana another prefix".to_owned()
}

/// Adds the arguments of swap.lua to write `written`.
pub(crate) fn push_swap(
    cmd: &mut Cmd,
    text: &str,
    config: &LimitConfig,
    dump: &Dump,
    written: &Written,
    handed_in: bool,
) {
    cmd.arg(text);
    match written.fresh_at {
        _ if handed_in => cmd.arg("PX").arg(3_600_000),
        Some(micros) => cmd.arg("PXAT").arg(micros.div_ceil(1_000)),
        None => cmd.arg("").arg(""),
    };
    let parameters = config.erased.parameters();
    // The creation time of the state does not change.
    let since = match dump.since.split_once('-') {
        Some((_, born)) => format!("{}-{born}", config.since),
        None => config.since.clone(),
    };
    match &written.body {
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
