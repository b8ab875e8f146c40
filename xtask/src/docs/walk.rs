//! The walk of a request in ARCHITECTURE.md: each of its functions is in the crate that the walk names, on the type that it names.

use super::markdown;
use std::path::Path;

const PAGE: &str = "ARCHITECTURE.md";

/// Returns what the walk names and the code does not have.
pub(super) fn problems(root: &Path) -> Result<Vec<String>, String> {
    let text = markdown::read(&root.join(PAGE))?;
    let (mut problems, mut sources, mut krate) = (Vec::new(), Vec::new(), "");
    for (number, line) in text.lines().enumerate() {
        if line.starts_with("```") {
            krate = "";
        } else if line == "diana" || line.strip_prefix("diana-").is_some_and(|name| !name.contains(' ')) {
            krate = line;
            sources = sources_of(root, krate)?;
        } else if let Some(function) = step(line).filter(|_| !krate.is_empty()) {
            let (owner, name) = function.rsplit_once("::").unwrap_or(("", function));
            let has_function =
                |text: &String| text.contains(&format!("fn {name}(")) || text.contains(&format!("fn {name}<"));
            // A module is a file; a type is named where its functions are.
            let is_owner = |text: &String| owner.starts_with(char::is_lowercase) || text.contains(owner);
            if !sources.iter().any(|text| has_function(text) && is_owner(text)) {
                problems.push(format!("{PAGE}:{}: {krate} has no `{function}`", number + 1));
            }
        }
    }
    Ok(problems)
}

/// The function of a line of the walk: `12   RuleSet::find   what it does`.
fn step(line: &str) -> Option<&str> {
    let mut words = line.split_whitespace();
    words.next()?.parse::<u32>().ok()?;
    words.next()
}

/// The source files of a crate.
fn sources_of(root: &Path, krate: &str) -> Result<Vec<String>, String> {
    let files = markdown::files(root, &format!("crates/{krate}/src"))?;
    let files = files.iter().filter(|path| path.extension().is_some_and(|end| end == "rs"));
    files.map(|path| markdown::read(&root.join(path))).collect()
}

#[cfg(test)]
mod tests {
    use super::problems;
    use std::path::Path;

    #[test]
    fn a_function_that_the_crate_does_not_have_is_reported() {
        let folder = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("crates/diana-core/src/store.rs", "impl Store {\n    fn decide<'a>(&'a self) {}\n}\nfn open() {}\n");
        let walk = "```\ndiana-core\n 1 store::open        opens it\n 2  Store::decide     decides\n 3   Table::decide    is elsewhere\n\
                    12   Store::none      is gone\n```\n";
        write("ARCHITECTURE.md", walk);
        assert_eq!(
            problems(folder.path()).unwrap(),
            [
                "ARCHITECTURE.md:5: diana-core has no `Table::decide`",
                "ARCHITECTURE.md:6: diana-core has no `Store::none`"
            ]
        );
    }

    #[test]
    fn the_walk_is_that_of_the_code() {
        assert_eq!(problems(&Path::new(env!("CARGO_MANIFEST_DIR")).join("..")).unwrap(), Vec::<String>::new());
    }
}
