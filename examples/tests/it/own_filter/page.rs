//! The pages "Your own filter" and "Your own section and algorithm" have the code of the example, its file and its errors. Its other code is run as doctests of
//! `diana-gateway`.

use super::{RULES, example, failure};
use diana::rules::{Document, RuleFile};

const PAGE: &str = concat!(
    include_str!("../../../../docs/tasks/your-own-filter.md"),
    include_str!("../../../../docs/tasks/your-own-section-and-algorithm.md"),
);

/// Returns the blocks with this info string.
fn blocks(info: &str) -> Vec<&'static str> {
    let opening = format!("\n```{info}\n");
    PAGE.split(&opening).skip(1).map(|rest| rest.split("```\n").next().unwrap()).collect()
}

/// Returns the marked parts of a file, as the page shows them: without visibility and indentation.
fn parts(source: &str) -> Vec<String> {
    let marked = source.split("// docs: begin").skip(1).map(|rest| {
        let (_, rest) = rest.split_once('\n').unwrap();
        rest.split_once("// docs: end").unwrap().0.trim_end()
    });
    let shown = marked.map(|part| {
        let indent = part.len() - part.trim_start().len();
        let lines = part.lines().map(|line| line.get(indent..).unwrap_or_default());
        lines.collect::<Vec<_>>().join("\n").replace("pub(crate) ", "")
    });
    shown.collect()
}

#[test]
fn the_page_shows_the_code_of_the_example() {
    let sources = [
        include_str!("../../../own_filter/api_keys.rs"),
        include_str!("../../../own_filter/backoff.rs"),
        include_str!("../../../own_filter/main.rs"),
    ];
    let (shown, parts) = (blocks("rust,ignore"), sources.into_iter().flat_map(parts).collect::<Vec<_>>());
    assert_eq!(shown.len(), parts.len());
    for part in parts {
        assert!(shown.contains(&&*format!("{part}\n")), "the page does not show:\n{part}");
    }
    assert_eq!(blocks("yaml program"), [RULES]);
    let file = RuleFile::read(&Document::new("rules.yaml", RULES), &example::registry()).unwrap();
    assert_eq!(file.warnings.map(|warnings| warnings.to_string()), None);
}

#[test]
fn keys_may_be_in_the_environment() {
    let text = RULES.replace("the-key-of-acme-1", "'${ACME_KEY}'");
    let read = |key: &str| {
        let variable = |name: &str| (name == "ACME_KEY").then(|| key.to_owned());
        RuleFile::read_with(&Document::new("rules.yaml", &*text), &example::registry(), variable)
    };
    assert!(read("a-key-from-the-environment").is_ok());
    let error = read("hunter2").unwrap_err().to_string();
    assert!(error.contains("invalid API key of `acme`") && !error.contains("hunter2"), "{error}");
}

#[test]
fn the_page_shows_the_errors_as_they_are_printed() {
    let [errors, filter] = blocks("text")[..] else { panic!("expected two blocks") };
    let [wrong] = blocks("yaml program wrong")[..] else { panic!("expected one block") };
    let problems = RuleFile::read(&Document::new("diana.yaml", wrong), &example::registry()).unwrap_err();
    assert_eq!(problems.to_string(), errors);
    // Without the program's names, as for `diana check`.
    let unknown = RuleFile::read(&Document::new("diana.yaml", wrong), &diana::registry()).unwrap_err();
    assert!(unknown.to_string().contains("field `api_keys`"), "{unknown}");
    let order = "gateway: {listen: 127.0.0.1:0, filters: [limits, api-keys]}\n\
                 api_keys: {customers: {acme: a-key-of-sixteen}}\nrules: []\n";
    assert!(failure(order).ends_with(filter), "{}", failure(order));
}

#[test]
fn the_page_has_every_field() {
    let schema = diana::rules::schema::rule_file(&example::registry());
    let section = schema["properties"]["api_keys"]["properties"].as_object().unwrap();
    for field in section.keys().map(String::as_str).chain(["limit", "max"]) {
        assert!(PAGE.contains(&format!("\n| `{field}` | ")), "{field}");
    }
}
