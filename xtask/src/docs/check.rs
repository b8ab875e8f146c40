//! Checks of the pages: links and anchors, the table of contents, headings, length, and the tests that pages name.

use super::markdown::{self, MAX_LINES};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Pages outside of `docs` whose links are checked.
const OTHERS: [&str; 9] = [
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    CONTRIBUTING,
    "HISTORY.md",
    "README.md",
    "README.zh.md",
    "SECURITY.md",
    "examples/rules/README.md",
    "golden/README.md",
];

/// The page that lists the files of a change.
const CONTRIBUTING: &str = "CONTRIBUTING.md";

/// The table of contents, which is no page.
const SUMMARY: &str = "docs/SUMMARY.md";

/// Returns the number of pages in `docs`, and all problems, each with its place.
pub(super) fn of(root: &Path) -> Result<(usize, Vec<String>), String> {
    let mut problems = Vec::new();
    let pages = markdown::files(root, "docs")?.into_iter().filter(|path| markdown::is_markdown(path));
    let pages = pages.filter(|path| path != Path::new(SUMMARY)).collect::<Vec<_>>();
    contents(root, &pages, &mut problems)?;
    for page in &pages {
        let text = markdown::read(&root.join(page))?;
        shape(page, &text, &mut problems);
        named_tests(root, page, &text, &mut problems)?;
    }
    let others = OTHERS.iter().chain([&SUMMARY]).map(PathBuf::from);
    named_files(root, Path::new(CONTRIBUTING), &mut problems)?;
    for page in pages.iter().cloned().chain(others) {
        links(root, &page, &markdown::read(&root.join(&page))?, &mut problems)?;
    }
    Ok((pages.len(), problems))
}

/// Every page is in the table of contents, once.
fn contents(root: &Path, pages: &[PathBuf], problems: &mut Vec<String>) -> Result<(), String> {
    let summary = markdown::read(&root.join(SUMMARY))?;
    let mut listed = BTreeSet::new();
    for (number, line) in markdown::prose(&summary) {
        for range in markdown::link_ranges(line) {
            if !listed.insert(markdown::resolve(Path::new(SUMMARY), &line[range.clone()])) {
                problems.push(format!("{SUMMARY}:{number}: {} is listed twice", &line[range]));
            }
        }
    }
    let missing = pages.iter().filter(|page| !listed.contains(*page));
    problems.extend(missing.map(|page| format!("{}: not in {SUMMARY}", page.display())));
    Ok(())
}

/// A page has one title, no level of headings is left out, and it is not too long.
fn shape(page: &Path, text: &str, problems: &mut Vec<String>) {
    let lines = text.lines().count();
    if lines > MAX_LINES {
        problems.push(format!("{}: {lines} lines, at most {MAX_LINES} are allowed: split the page", page.display()));
    }
    let headings = markdown::headings(text);
    if headings.first().is_none_or(|(number, level, _)| (*number, *level) != (1, 1)) {
        problems.push(format!("{}:1: expected a title, `# ...`", page.display()));
    }
    for pair in headings.windows(2) {
        let (number, level, heading) = pair[1];
        if level == 1 || level > pair[0].1 + 1 {
            problems.push(format!(
                "{}:{number}: `{heading}` has level {level} after level {}",
                page.display(),
                pair[0].1
            ));
        }
    }
}

/// Every link leads to a file that exists, and every anchor to a heading.
fn links(root: &Path, page: &Path, text: &str, problems: &mut Vec<String>) -> Result<(), String> {
    for (number, line) in markdown::prose(text) {
        for link in markdown::link_ranges(line).into_iter().map(|range| &line[range]) {
            if link.contains("://") {
                continue;
            }
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = if file.is_empty() { page.to_owned() } else { markdown::resolve(page, file) };
            if !root.join(&target).exists() {
                problems.push(format!("{}:{number}: {link} does not exist", page.display()));
            } else if !anchor.is_empty() {
                let anchors = markdown::anchors(&markdown::read(&root.join(&target))?);
                if !anchors.iter().any(|known| known == anchor) {
                    problems.push(format!(
                        "{}:{number}: {link} has no such heading; expected one of {anchors:?}",
                        page.display()
                    ));
                }
            }
        }
    }
    Ok(())
}

/// A test that a page names, as `` `name` ([file.rs](path)) ``, exists in that file.
fn named_tests(root: &Path, page: &Path, text: &str, problems: &mut Vec<String>) -> Result<(), String> {
    for (number, line) in markdown::prose(text) {
        for (before, after) in line.match_indices("` ([").map(|(at, found)| (&line[..at], &line[at + found.len()..])) {
            let test = before.rsplit('`').next().unwrap_or_default();
            let Some(link) = after.split_once("](").and_then(|(_, rest)| rest.split(')').next()) else { continue };
            let file = root.join(markdown::resolve(page, link));
            let is_test =
                test.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') && link.ends_with(".rs");
            if is_test && file.exists() && !markdown::read(&file)?.contains(&format!("fn {test}(")) {
                problems.push(format!("{}:{number}: {link} has no test `{test}`", page.display()));
            }
        }
    }
    Ok(())
}

/// The files that a page names by their paths from the root, as `` `crates/...` ``, exist.
fn named_files(root: &Path, page: &Path, problems: &mut Vec<String>) -> Result<(), String> {
    let text = markdown::read(&root.join(page))?;
    for (number, line) in markdown::prose(&text) {
        let paths =
            line.split('`').skip(1).step_by(2).filter(|code| code.starts_with("crates/") && !code.contains(' '));
        let missing = paths.filter(|path| !root.join(path).exists());
        problems.extend(missing.map(|path| format!("{}:{number}: {path} does not exist", page.display())));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::of;
    use std::path::Path;

    /// A repository with the pages that are checked.
    fn repository(page: &str, summary: &str) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        for path in super::OTHERS {
            write(path, "# A page\n");
        }
        write("tests/it.rs", "#[test]\nfn it_holds() {}\n");
        write("docs/page.md", page);
        write("docs/SUMMARY.md", summary);
        folder
    }

    fn problems(page: &str) -> Vec<String> {
        of(repository(page, "# Summary\n\n- [Page](page.md)\n").path()).unwrap().1
    }

    #[test]
    fn a_valid_page_has_no_problems() {
        let page = "# Title\n\n[it](#a-part), [other](../README.md#a-page), [web](https://example.com), `[code](none)`.\n\n\
                    `it_holds` ([it.rs](../tests/it.rs))\n\n```md\n# [code](none)\n```\n\n## A part\n\n### Below\n";
        assert_eq!(problems(page), Vec::<String>::new());
    }

    #[test]
    fn problems_name_the_page_the_line_and_what_is_wrong() {
        let found =
            problems("# Title\n\n[it](none.md)\n[part](#none)\n`it_does_not` ([it.rs](../tests/it.rs))\n\n### Deep\n");
        assert_eq!(found.len(), 4, "{found:#?}");
        assert!(found[0].starts_with("docs/page.md:7: `Deep` has level 3 after level 1"), "{found:#?}");
        assert!(found[1].ends_with("it.rs has no test `it_does_not`"), "{found:#?}");
        assert_eq!(found[2], "docs/page.md:3: none.md does not exist");
        assert!(
            found[3].starts_with("docs/page.md:4: #none has no such heading; expected one of [\"title\""),
            "{found:#?}"
        );
        let long = problems(&format!("# Title\n{}", "\n".repeat(400)));
        assert_eq!(long, ["docs/page.md: 401 lines, at most 400 are allowed: split the page"]);
        assert_eq!(problems("no title\n"), ["docs/page.md:1: expected a title, `# ...`"]);
    }

    #[test]
    fn the_files_of_a_change_exist() {
        let repository = repository("# Title\n", "# Summary\n\n- [A](page.md)\n");
        let page = "# A page\n\n`crates/none.rs`, `crates/` and `cargo run crates/x`\n";
        std::fs::write(repository.path().join(super::CONTRIBUTING), page).unwrap();
        std::fs::create_dir(repository.path().join("crates")).unwrap();
        assert_eq!(of(repository.path()).unwrap().1, ["CONTRIBUTING.md:3: crates/none.rs does not exist"]);
    }

    #[test]
    fn every_page_is_in_the_table_of_contents_once() {
        let check = |summary: &str| of(repository("# Title\n", summary).path()).unwrap().1;
        assert_eq!(check("# Summary\n"), ["docs/page.md: not in docs/SUMMARY.md"]);
        let twice = check("# Summary\n\n- [A](page.md)\n- [B](page.md)\n");
        assert_eq!(twice, ["docs/SUMMARY.md:4: page.md is listed twice"]);
        assert!(of(Path::new("/nowhere")).is_err());
    }
}
