//! Carrying one key over to other parameters: what dump.lua tells, what it comes to, and what swap.lua writes.

use crate::erased::ErasedAlgorithm;
use crate::kind;
use crate::limit_config::LimitConfig;
use crate::scripted::{Body, Written};
use diana_core::Timestamp;
use redis::Cmd;
use std::sync::Arc;

/// A state as dump.lua tells it.
#[derive(Debug)]
pub(crate) struct Dump {
    pub(crate) erased: Arc<dyn ErasedAlgorithm>,
    pub(crate) since: String,
    body: Body,
}

/// What the member of a sorted set begins with that tells its parameters.
const HEAD: char = '=';

impl Dump {
    /// Reads what dump.lua said; the reason why it is none of Diana's states, if it isn't.
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

    /// Whether the state can be read.
    pub(crate) fn makes_sense(&self, now: Timestamp) -> bool {
        self.erased.used(&self.body, now).is_some()
    }

    /// What the state comes to under `config`.
    pub(crate) fn carried(&self, config: &LimitConfig, now: Timestamp) -> Option<Written> {
        config.erased.carry(&*self.erased, &self.body, now)
    }
}

/// What is wrong with a key that holds no state.
pub(crate) fn foreign() -> String {
    "it holds something that Diana did not write; delete it, or give Diana another prefix".to_owned()
}

/// Adds what swap.lua needs in order to write `written`.
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
    // When the state came to be, it still came to be.
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
