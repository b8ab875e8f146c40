//! The glossary in CONTRIBUTING.md: the words that it names as never used are not used, in code, metrics, JSON, schema and pages.

use super::markdown;
use std::path::Path;

const PAGE: &str = "CONTRIBUTING.md";
const HEADING: &str = "## One word for one thing";
/// Where the words are searched. `coming-from` explains the words of others.
const FOLDERS: [&str; 4] = ["bench/src", "crates", "docs", "packaging"];
const EXCEPT: [&str; 3] =
    ["docs/coming-from", "crates/diana-document/src/foreign_words.rs", "crates/diana-rules/tests/it/foreign_words.rs"];

/// A word that is not used, and the one that is used instead.
struct Word {
    never: String,
    instead: String,
}

/// Returns where a word is used that the glossary excludes.
pub(super) fn problems(root: &Path) -> Result<Vec<String>, String> {
    let words = words_of(&markdown::read(&root.join(PAGE))?);
    if words.is_empty() {
        return Ok(vec![format!("{PAGE}: no table below `{HEADING}`")]);
    }
    let mut problems = Vec::new();
    for folder in FOLDERS.into_iter().filter(|folder| root.join(folder).exists()) {
        for path in markdown::files(root, folder)? {
            let is_excepted = EXCEPT.iter().any(|except| path.starts_with(except));
            let Some(text) = (!is_excepted).then(|| std::fs::read_to_string(root.join(&path)).ok()).flatten() else {
                continue;
            };
            for (line, number) in text.lines().zip(1..) {
                let used = words.iter().filter(|word| has_word(line, &word.never));
                problems.extend(used.map(|Word { never, instead }| {
                    format!("{}:{number}: `{never}`, where the glossary says `{instead}`", path.display())
                }));
            }
        }
    }
    Ok(problems)
}

/// Reads the table: the word, what it means, and what is never used for it.
fn words_of(page: &str) -> Vec<Word> {
    let section = page.split(HEADING).nth(1).unwrap_or_default();
    let rows =
        section.lines().skip_while(|line| !line.starts_with("|---")).skip(1).take_while(|line| line.starts_with('|'));
    rows.flat_map(|row| {
        let mut cells = row.split('|').skip(1);
        let instead = cells.next().unwrap_or_default().trim().trim_matches('`').to_owned();
        let never = cells.nth(1).unwrap_or_default().split('`').skip(1).step_by(2).map(str::to_owned);
        never.map(move |never| Word { never, instead: instead.clone() }).collect::<Vec<_>>()
    })
    .collect()
}

/// Returns `true` if a line has a whole word.
fn has_word(line: &str, word: &str) -> bool {
    let is_part = |letter: char| letter.is_alphanumeric() || letter == '_';
    line.match_indices(word)
        .any(|(at, _)| !line[..at].ends_with(is_part) && !line[at + word.len()..].starts_with(is_part))
}

#[cfg(test)]
mod tests {
    use super::problems;
    use std::path::Path;

    #[test]
    fn a_word_that_the_glossary_excludes_is_reported() {
        let folder = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write(
            "CONTRIBUTING.md",
            "# Page\n\n## One word for one thing\n\n| word | what | never |\n|---|---|---|\n| `denied` | a | `refusal`, `no way` |\n",
        );
        write("crates/a/src/lib.rs", "fn refusal() {} // refusals\n");
        write("docs/page.md", "There is no way out.\n");
        write("docs/coming-from/page.md", "A refusal.\n");
        assert_eq!(
            problems(folder.path()).unwrap(),
            [
                "crates/a/src/lib.rs:1: `refusal`, where the glossary says `denied`",
                "docs/page.md:1: `no way`, where the glossary says `denied`"
            ]
        );
    }

    #[test]
    fn the_glossary_is_kept() {
        assert_eq!(problems(&Path::new(env!("CARGO_MANIFEST_DIR")).join("..")).unwrap(), Vec::<String>::new());
    }
}
