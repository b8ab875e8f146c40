//! The page `docs/the-rule-file.md` is correct: its examples are valid, its errors are printed exactly like that, and
//! no field is missing.
//!
//! The info string of a block names its kind after the language:
//!
//! | block | is |
//! |---|---|
//! | `yaml`, `json`, `toml` | a whole file |
//! | `yaml rule` | the fields of one rule, without its name |
//! | `yaml remote` | a document from a config server |
//! | `yaml wrong`, `yaml wrong remote` | one with mistakes, whose errors are printed in the next `text` block |

use diana_rules::limit::LimitRule;
use diana_rules::{Document, RuleFile};
use std::collections::BTreeSet;

const PAGE: &str = include_str!("../../../../../docs/the-rule-file.md");

/// A fenced block.
struct Block {
    /// The words of the info string.
    info: Vec<&'static str>,
    /// The line of the opening fence.
    line: usize,
    text: String,
}

fn blocks() -> Vec<Block> {
    let (mut blocks, mut open) = (Vec::new(), None::<Block>);
    for (number, line) in PAGE.lines().enumerate() {
        match (line.strip_prefix("```"), &mut open) {
            (Some(info), None) => {
                open = Some(Block { info: info.split(' ').collect(), line: number + 1, text: String::new() });
            }
            (Some(_), Some(_)) => blocks.extend(open.take()),
            (None, Some(block)) => {
                block.text.push_str(line);
                block.text.push('\n');
            }
            (None, None) => {}
        }
    }
    assert!(open.is_none(), "unclosed block");
    blocks
}

fn variable(name: &str) -> Option<String> {
    Some(match name {
        "REDIS_URL" => "redis://10.0.0.7:6379".to_owned(),
        _ => format!("secret-of-{name}-that-is-long-enough"),
    })
}

fn read(name: &str, text: &str) -> Result<RuleFile, String> {
    let document = Document::new(name, text);
    RuleFile::read_with(&document, &diana_server::registry(), variable).map_err(|problems| problems.to_string())
}

/// Reads a document from a config server over a local file.
fn read_remote(text: &str) -> Result<RuleFile, String> {
    let local = read("local.yaml", "rules: []").unwrap();
    local
        .with_remote(&Document::new("diana.yaml", text), &diana_server::registry())
        .map_err(|problems| problems.to_string())
}

/// A file with one rule that has these fields.
fn read_rule(fields: &str) -> Result<RuleFile, String> {
    let indented = fields.lines().map(|line| format!("    {line}\n")).collect::<String>();
    read("diana.yaml", &format!("rules:\n  - name: example\n{indented}"))
}

/// The result of a block; `None` if it is not about rules.
fn outcome(block: &Block) -> Option<Result<RuleFile, String>> {
    Some(match *block.info {
        ["yaml"] | ["yaml", "wrong"] => read("diana.yaml", &block.text),
        ["json"] => read("diana.json", &block.text),
        ["toml"] => read("diana.toml", &block.text),
        ["yaml", "rule"] => read_rule(&block.text),
        ["yaml", "remote"] | ["yaml", "wrong", "remote"] => read_remote(&block.text),
        ["text" | "rust"] => return None,
        _ => panic!("line {}: unknown info string {:?}", block.line, block.info),
    })
}

fn is_invalid(block: &Block) -> bool {
    block.info.contains(&"wrong")
}

#[test]
fn every_example_is_valid() {
    let mut read = 0;
    for block in blocks().iter().filter(|block| !is_invalid(block)) {
        let Some(outcome) = outcome(block) else { continue };
        let file = outcome.unwrap_or_else(|problems| panic!("line {} of the page:\n{problems}", block.line));
        assert!(!file.rules.is_empty(), "line {}: an example without a rule", block.line);
        read += 1;
    }
    assert!(read > 40, "only {read} examples found");
}

#[test]
fn problems_are_printed_as_shown() {
    let blocks = blocks();
    let mut invalid = 0;
    for (index, block) in blocks.iter().enumerate().filter(|(_, block)| is_invalid(block)) {
        let problems = match outcome(block) {
            Some(Err(text)) => text,
            _ => panic!("line {}: expected problems, found a valid file", block.line),
        };
        let shown = blocks.get(index + 1).filter(|next| next.info == ["text"]);
        let shown = shown.unwrap_or_else(|| panic!("line {}: the problems are not shown", block.line));
        assert_eq!(shown.text, problems, "line {} should show:\n{problems}", shown.line);
        invalid += 1;
    }
    assert!(invalid >= 3, "only {invalid} invalid examples found");
}

#[test]
fn all_formats_are_equivalent() {
    let rules = |language: &str| {
        let block = blocks().into_iter().find(|block| block.info == [language] && block.text.contains("20000/h"));
        let block = block.unwrap_or_else(|| panic!("there is no {language}"));
        let file = outcome(&block).unwrap().unwrap();
        let values = |limit: &LimitRule| (limit.written.clone(), limit.configured.clone());
        file.rules.iter().map(|rule| (rule.name.clone(), rule.limits.iter().map(values).collect())).collect::<Vec<_>>()
    };
    let yaml: Vec<(String, Vec<_>)> = rules("yaml");
    assert_eq!(yaml, rules("json"));
    assert_eq!(yaml, rules("toml"));
}

/// The names that the parser expects in place of the unknown name `~`, from the hints of its errors.
fn expected(yaml: &str) -> Vec<String> {
    let nonsense = yaml.replace('~', "qqqqqqqqqqqqqqqq");
    let problems = read("diana.yaml", &nonsense).err().unwrap_or_else(|| panic!("{yaml} is valid"));
    let lists = problems.split("expected one of ").skip(1).flat_map(|list| list.lines().next());
    let names = lists.flat_map(|list| list.split(", ")).map(|name| name.trim_matches('`').to_owned());
    let names = names.collect::<Vec<_>>();
    assert!(!names.is_empty(), "no names for {yaml}:\n{problems}");
    names
}

#[test]
fn the_page_lists_every_field_and_value() {
    let registry = diana_server::registry();
    let mut names = LimitRule::fields(&registry).into_iter().map(str::to_owned).collect::<BTreeSet<_>>();
    names.extend(registry.algorithms().map(str::to_owned));
    for fields in [
        "{~: 1, rules: []}",
        "{gateway: {listen: '127.0.0.1:1', upstream: http://a, ~: 1}, rules: []}",
        "{gateway: {tls: {listen: '127.0.0.1:1', certificates: {certificate: a, key: b}, ~: 1}}, rules: []}",
        "{gateway: {tls: {listen: '127.0.0.1:1', certificates: {certificate: a, key: b, ~: 1}}}, rules: []}",
        "{gateway: {routes: [{match: {path: /a}, upstream: http://a, ~: 1}]}, rules: []}",
        "{gateway: {routes: [{match: {path: /a, ~: 1}, upstream: http://a}]}, rules: []}",
        "{gateway: {upstream: {url: http://a, ~: 1}}, rules: []}",
        "{gateway: {upstream: http://a, health: {path: /a, ~: 1}}, rules: []}",
        "{gateway: {upstream: http://a, retries: {~: 1}}, rules: []}",
        "{gateway: {signature: {secret: s, ~: 1}}, rules: []}",
        "{gateway: {timeouts: {~: 1}}, rules: []}",
        "{gateway: {bounds: {~: 1}}, rules: []}",
        "{gateway: {paths: {~: 1}}, rules: []}",
        "{gateway: {methods: {~: 1}}, rules: []}",
        "{answer: {type: text/plain, text: a, ~: 1}, rules: []}",
        "{services: {~: 1}, rules: []}",
        "{services: {resp: {listen: '127.0.0.1:1', ~: 1}}, rules: []}",
        "{admin: {listen: '127.0.0.1:1', ~: 1}, rules: []}",
        "{admin: {tokens: [{name: a, token: b, role: read, ~: 1}]}, rules: []}",
        "{identity: {jwt: {secret: s, ~: 1}}, rules: []}",
        "{store: {~: 1}, rules: []}",
        "{remote: {from: http://a/b, ~: 1}}",
        "rules: [{name: a, limit: 1/s, ~: 1}]",
        "rules: [{name: a, limit: {rate: 1/s, ~: 1}}]",
        "rules: [{name: a, limit: 1/s, match: {~: 1}}]",
        "rules: [{name: a, concurrent: {limit: 1, ~: 1}}]",
        "rules: [{name: a, bandwidth: {rate: 1MB/s, ~: 1}}]",
        "rules: [{name: a, load: {~: 1}}]",
        "rules: [{name: a, limit: 1/s, over: {divert: http://a, ~: 1}}]",
        "rules: [{name: a, by: ip, missing: {deny: 401, ~: 1}}]",
        "rules: [{name: a, concurrent: {limit: 1, ~: 1}}]",
        "rules: [{name: a, limit: 1/s, refill: {tokens: 1, every: 1s, ~: 1}}]",
        "rules: [{name: a, by: ip, limit: 1/s, overrides: [{key: b, limit: 1/s, ~: 1}]}]",
    ] {
        names.extend(expected(fields));
    }
    for words in [
        "rules: [{name: a, by: ip, limit: 1/s, missing: ~}]",
        "rules: [{name: a, limit: 1/s, store: ~}]",
        "rules: [{name: a, limit: 1/s, over: ~}]",
        "rules: [{name: a, limit: 1/s, algorithm: fixed_window, opens: ~}]",
        "rules: [{name: a, limit: 1/s, algorithm: smooth_bursty, starts: ~}]",
        "rules: [{name: a, concurrent: {limit: 1, until: ~}}]",
        "rules: [{name: a, bandwidth: {rate: 1MB/s, of: ~}}]",
        "{gateway: {rate_limit_headers: ~}, rules: []}",
        "{gateway: {access_log: ~}, rules: []}",
        "{gateway: {upstream: http://a, balance: ~}, rules: []}",
        "{gateway: {upstream: http://a, retries: {on: ~}}, rules: []}",
        "{gateway: {paths: {escaped_slash: ~}}, rules: []}",
        "{gateway: {methods: {any_case: ~}}, rules: []}",
        "{admin: {tokens: [{name: a, token: b, role: ~}]}, rules: []}",
        "{store: {on_full: ~}, rules: []}",
        "{store: {redis: 'redis://a', when_down: ~}, rules: []}",
        "{remote: {from: http://a/b, format: ~}}",
        "{remote: {from: http://a/b, when_down: ~}}",
    ] {
        names.extend(expected(words));
    }
    names.extend(["account", "device", "jwt"].map(str::to_owned));
    let is_mentioned = |name: &String| PAGE.contains(&format!("`{name}`"));
    let missing = names.iter().filter(|name| !is_mentioned(name)).collect::<Vec<_>>();
    assert!(missing.is_empty(), "the page does not mention {missing:?}");
    assert!(names.len() > 110, "only {} names were found: {names:?}", names.len());
}
