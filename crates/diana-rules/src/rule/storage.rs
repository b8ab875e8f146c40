//! `store` and `memory`: where the counts of a rule are, and how much memory they may take.

use super::option::{Reader, RuleOption};
use crate::json_schema::{reference_with, word};
use crate::words::bytes;
use diana_document::{Node, Problem, bytes as sizes, scalar};

/// The minimum of `memory`: some thousand keys.
const MIN_MEMORY: u64 = 64 << 10;
/// The values of `store`.
const STORES: [&str; 2] = ["local", "shared"];

pub(super) const OPTIONS: &[RuleOption] = &[
RuleOption {
    describe: |rule| {
        let is_shared = rule.counted_in == CountedIn::Shared && !rule.limits.is_empty();
        is_shared.then(|| "counted for all instances together".to_owned())
    },
    check: |rule, fields| {
        if fields.entry("store").is_none_or(|entry| entry.node.text() != Some("shared")) {
            return;
        }
        if !fields.has_limit() {
            let what = "`store: shared` is not supported for `bandwidth` and `load`";
            fields.report("store", what, "remove `store`");
        }
        if rule.adaptive {
            let what = "`store: shared` is not supported for `concurrent: adaptive`";
            fields.report("store", what, "remove `store`");
        }
    },
    ..RuleOption::new(
        "store",
        |_| word("the store of its counts", &STORES),
        |node, rule, reader| {
            rule.counted_in = read_store(node, reader);
        },
    )
},
RuleOption {
    describe: |rule| {
        let memory = u64::try_from(rule.memory?).unwrap_or(u64::MAX);
        Some(format!("at most {} of memory for its keys", bytes(memory)))
    },
    check: |_, fields| {
        if fields.has(&["memory"]) && !fields.has_limit() && !fields.has(&["bandwidth"]) {
            fields.report("memory", "`memory` needs a `limit`", "remove `memory`, or add a `limit`");
        }
    },
    ..RuleOption::new(
        "memory",
        |_| {
            let what = "the maximum memory of its keys in this process, as the size of a zone in nginx; part of the \
                        store's, which is the default";
            reference_with("bytes", what, &["10MiB"])
        },
        |node, rule, reader| rule.memory = read_memory(node, reader.problems),
    )
    .without_effect_on_decisions(|rule| rule.memory = None)
},
];

/// Where the counts of a rule are stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CountedIn {
    /// In this process.
    #[default]
    Local,
    /// In the store that all instances share.
    Shared,
}

impl CountedIn {
    /// Where a rule without `store` is counted.
    pub(super) fn by_default(has_shared: bool) -> Self {
        if has_shared { Self::Shared } else { Self::Local }
    }
}

fn read_store(node: &Node, reader: &mut Reader<'_, '_>) -> CountedIn {
    let has_shared = reader.defaults.has_shared;
    match scalar::word(node, "`store`", &STORES, reader.problems) {
        Some(1) if !has_shared => {
            let problem = Problem::new(node.span, "`store: shared` needs a shared store");
            let expected = "add `store: {redis: redis://127.0.0.1:6379}` at the top of the file";
            reader.problems.push(problem.expected(expected));
            CountedIn::Local
        }
        Some(1) => CountedIn::Shared,
        Some(_) => CountedIn::Local,
        None => CountedIn::by_default(has_shared),
    }
}

fn read_memory(node: &Node, problems: &mut Vec<Problem>) -> Option<usize> {
    let parse = |text: &str| {
        let bytes = sizes::parse_byte_size(text).map_err(|error| error.to_string())?;
        (bytes >= MIN_MEMORY).then_some(bytes).ok_or_else(|| "expected at least 64KiB".to_owned())
    };
    scalar::parsed(node, "`memory`", parse, problems).and_then(|bytes| usize::try_from(bytes).ok())
}
