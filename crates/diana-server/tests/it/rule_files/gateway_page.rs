//! The page `docs/gateway.md` is correct: its files pass `diana check`, and its links are valid.
//!
//! A block with the info string `yaml` is a whole file. Other YAML (a compose file, say) names its kind after the
//! language.

use diana_gateway::section::{GatewayLimits, Timeouts};
use diana_rules::{Document, RuleFile};

const PAGE: &str = include_str!("../../../../../docs/gateway.md");

/// The blocks with exactly this info string, each with its line on the page.
fn blocks(info: &str) -> Vec<(usize, String)> {
    let (mut blocks, mut open) = (Vec::new(), None);
    for (number, line) in PAGE.lines().enumerate() {
        match (line.strip_prefix("```"), &mut open) {
            (Some(opens), None) => open = Some((opens == info, number + 1, String::new())),
            (Some(_), Some(_)) => blocks.extend(open.take()),
            (None, Some((_, _, text))) => text.push_str(&format!("{line}\n")),
            (None, None) => {}
        }
    }
    assert!(open.is_none(), "a block is not closed");
    blocks.into_iter().filter(|(is_meant, ..)| *is_meant).map(|(_, line, text)| (line, text)).collect()
}

fn variable(name: &str) -> Option<String> {
    Some(format!("secret-of-{name}-that-is-long-enough"))
}

#[test]
fn every_file_is_good() {
    let files = blocks("yaml");
    for (line, text) in &files {
        let read = RuleFile::read_with(&Document::new("diana.yaml", text), &diana_server::registry(), variable);
        let file = read.unwrap_or_else(|problems| panic!("line {line} of the page:\n{problems}"));
        assert!(!file.rules.is_empty(), "line {line}: a file without a rule");
    }
    assert!(files.len() >= 10, "only {} files were found", files.len());
}

/// The cells of the table row whose first cell is this.
fn row(first: &str) -> Vec<&'static str> {
    let begins = format!("| {first} | ");
    let row = PAGE.lines().find(|line| line.starts_with(&begins)).unwrap_or_else(|| panic!("no row for {first}"));
    row.trim_matches('|').split(" | ").map(str::trim).collect()
}

#[test]
fn the_defaults_are_those_of_the_program() {
    let Timeouts { header, body, idle, connect, response, tunnel, stop, .. } = Timeouts::default();
    let times = [header, body, idle, connect, response, tunnel, stop];
    let names = ["header", "body", "idle", "connect", "response", "tunnel", "stop"];
    for (name, time) in names.into_iter().zip(times) {
        let shown = row(&format!("`timeouts.{name}`"))[1];
        let seconds = if time.as_secs() == 3_600 { "1h".to_owned() } else { format!("{}s", time.as_secs()) };
        assert_eq!(shown, seconds, "timeouts.{name}");
    }
    let GatewayLimits { header, headers, body, connections, streams, memory, .. } = GatewayLimits::default();
    assert_eq!(row("`bounds.header`")[1], format!("{}KiB", header >> 10));
    assert_eq!(row("`bounds.headers`")[1], headers.to_string());
    assert_eq!((row("`bounds.body`")[1], body), ("any length", None));
    assert_eq!(row("`bounds.connections`")[1], connections.to_string());
    assert_eq!(row("`bounds.streams`")[1], streams.to_string());
    assert_eq!(row("`bounds.memory`")[1], format!("{}GiB", memory >> 30));
}
