//! The examples of the README and of all pages of `docs` are valid, and errors are printed as the pages show them.
//!
//! The info string of a block names its kind after the language:
//!
//! | block | is |
//! |---|---|
//! | `yaml`, `json`, `toml` | a whole file |
//! | `yaml rule` | the fields of one rule, without its name |
//! | `yaml remote` | a document from a config server |
//! | `yaml wrong`, `yaml wrong remote` | one with mistakes, whose errors are printed in the next `text` block |
//! | `yaml resp`, `yaml program` | a file that the test of its page runs |
//!
//! Others are for other programs, or are run by the tests of their pages. Rust is run by doctests.

use diana_rules::limit::LimitRule;
use diana_rules::{Document, RuleFile};
use std::path::{Path, PathBuf};

/// A fenced block.
struct Block {
    /// The page, and the line of the opening fence.
    place: String,
    /// The words of the info string.
    info: Vec<String>,
    text: String,
}

impl Block {
    fn info(&self) -> Vec<&str> {
        self.info.iter().map(String::as_str).collect()
    }

    fn is_invalid(&self) -> bool {
        self.info.iter().any(|word| word == "wrong")
    }
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns the README in both languages, and everything in `docs`.
fn pages() -> Vec<PathBuf> {
    let mut pages = ["README.md", "README.zh.md"].map(|name| repository().join(name)).to_vec();
    let mut folders = vec![repository().join("docs")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.extension() {
                _ if path.is_dir() => folders.push(path),
                Some(end) if end == "md" => pages.push(path),
                _ => {}
            }
        }
    }
    pages.sort();
    assert!(pages.len() > 40, "only {pages:?} were found");
    pages
}

fn blocks_of(page: &Path) -> Vec<Block> {
    let name = page.strip_prefix(repository()).unwrap().display();
    let (mut blocks, mut open) = (Vec::new(), None::<Block>);
    for (number, line) in std::fs::read_to_string(page).unwrap().lines().enumerate() {
        match (line.strip_prefix("```"), &mut open) {
            (Some(info), None) => {
                let info = info.split(' ').map(str::to_owned).collect();
                open = Some(Block { place: format!("{name}:{}", number + 1), info, text: String::new() });
            }
            (Some(_), Some(_)) => blocks.extend(open.take()),
            (None, Some(block)) => {
                block.text.push_str(line);
                block.text.push('\n');
            }
            (None, None) => {}
        }
    }
    assert!(open.is_none(), "{name}: unclosed block");
    blocks
}

fn blocks() -> Vec<Block> {
    pages().iter().flat_map(|page| blocks_of(page)).collect()
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

/// Reads a file with one rule that has these fields.
fn read_rule(fields: &str) -> Result<RuleFile, String> {
    let indented = fields.lines().map(|line| format!("    {line}\n")).collect::<String>();
    read("diana.yaml", &format!("rules:\n  - name: example\n{indented}"))
}

/// The languages of blocks that are no rule files.
const OTHER_LANGUAGES: [&str; 14] = [
    "caddy",
    "console",
    "dockerfile",
    "go",
    "ini",
    "java",
    "js",
    "lua",
    "nginx",
    "php",
    "python",
    "rust",
    "sh",
    "text",
];

/// The second words of YAML blocks that are no rule files of Diana's own program.
const OTHER_YAML: [&str; 12] = [
    "compose",
    "envoy",
    "istio",
    "kong",
    "kubernetes",
    "limitador",
    "local_ratelimit",
    "program",
    "ratelimit",
    "resp",
    "traefik",
    "traefik.yaml",
];

/// Returns the result of a block; `None` if it is no rule file.
fn outcome(block: &Block) -> Option<Result<RuleFile, String>> {
    Some(match *block.info() {
        ["yaml"] | ["yaml", "wrong"] => read("diana.yaml", &block.text),
        ["json"] => read("diana.json", &block.text),
        ["toml"] => read("diana.toml", &block.text),
        ["yaml", "rule"] => read_rule(&block.text),
        ["yaml", "remote"] | ["yaml", "wrong", "remote"] => read_remote(&block.text),
        ["yaml", kind, ..] if OTHER_YAML.contains(&kind) => return None,
        ["toml", "cargo"] => return None,
        [language, ..] if OTHER_LANGUAGES.contains(&language.split(',').next().unwrap()) => return None,
        _ => panic!("{}: unknown info string {:?}", block.place, block.info),
    })
}

#[test]
fn every_example_is_valid() {
    let mut read = 0;
    for block in blocks().iter().filter(|block| !block.is_invalid()) {
        let Some(outcome) = outcome(block) else { continue };
        let file = outcome.unwrap_or_else(|problems| panic!("{}:\n{problems}", block.place));
        let has_rules = !file.rules.is_empty() || block.text.contains("rules: []");
        assert!(has_rules, "{}: an example without a rule", block.place);
        read += 1;
    }
    assert!(read > 110, "only {read} examples were found");
}

/// The headers that describe a request to `/check`. A header that nginx does not set is the client's, who could then choose it.
const DESCRIBED_BY: [&str; 5] = ["method", "uri", "host", "proto", "for"];

/// Regression: a configuration left `X-Forwarded-Proto` to the client, which could evade rules about `request.scheme`.
#[test]
fn every_nginx_example_sets_all_headers_that_describe_a_request() {
    let mut asking = 0;
    for block in blocks().iter().filter(|block| block.info[0] == "nginx" && block.text.contains("/check")) {
        let config = block.text.to_lowercase();
        for name in DESCRIBED_BY {
            let line = format!("proxy_set_header x-forwarded-{name} $");
            assert!(config.contains(&line), "{}: no {line:?}", block.place);
        }
        asking += 1;
    }
    assert!(asking >= 3, "only {asking} were found");
}

#[test]
fn problems_are_printed_as_shown() {
    let mut invalid = 0;
    for page in pages() {
        let blocks = blocks_of(&page);
        for (index, block) in blocks.iter().enumerate().filter(|(_, block)| block.is_invalid()) {
            let problems = match outcome(block) {
                Some(Err(text)) => text,
                Some(Ok(_)) => panic!("{}: expected problems, found a valid file", block.place),
                // The test of the page compares.
                None => continue,
            };
            let shown = blocks.get(index + 1).filter(|next| next.info == ["text"]);
            let shown = shown.unwrap_or_else(|| panic!("{}: the problems are not shown", block.place));
            assert_eq!(shown.text, problems, "{} should show:\n{problems}", shown.place);
            invalid += 1;
        }
    }
    assert!(invalid >= 3, "only {invalid} invalid examples found");
}

#[test]
fn all_formats_are_equivalent() {
    let blocks = blocks_of(&repository().join("docs/reference/rule-file.md"));
    let rules = |language: &str| {
        let block = blocks.iter().find(|block| block.info == [language] && block.text.contains("20000/h"));
        let file = outcome(block.unwrap_or_else(|| panic!("there is no {language}"))).unwrap().unwrap();
        let values = |limit: &LimitRule| (limit.written.clone(), limit.configured.clone());
        file.rules.iter().map(|rule| (rule.name.clone(), rule.limits.iter().map(values).collect())).collect::<Vec<_>>()
    };
    let yaml: Vec<(String, Vec<_>)> = rules("yaml");
    assert_eq!(yaml, rules("json"));
    assert_eq!(yaml, rules("toml"));
}

/// The files with the doctests of pages.
const DOCTESTS: [&str; 5] = [
    include_str!("../../../diana/src/lib.rs"),
    include_str!("../../../diana-client/src/lib.rs"),
    include_str!("../../../diana-gateway/src/lib.rs"),
    include_str!("../../../diana-http/src/lib.rs"),
    include_str!("../../../diana-redis/src/lib.rs"),
];

#[test]
fn the_rust_of_every_page_is_run() {
    let is_rust = |block: &Block| block.info[0].split(',').next() == Some("rust");
    let mut count = 0;
    for page in pages().into_iter().filter(|page| blocks_of(page).iter().any(is_rust)) {
        let name = page.strip_prefix(repository()).unwrap().display().to_string();
        if name != "README.zh.md" {
            let included = format!("include_str!(\"../../../{name}\")");
            assert!(DOCTESTS.iter().any(|lib| lib.contains(&included)), "no crate runs the Rust of {name}");
            count += 1;
        }
    }
    assert!(count >= 12, "only {count} pages were found");
}
