//! The walk of a request in ARCHITECTURE.md: each of its functions is in the crate that the walk names, on the type that it names,
//! and the function under which it is indented calls it.

use super::markdown;
use std::path::Path;

const PAGE: &str = "ARCHITECTURE.md";
/// The maximum number of its lines: it is read from top to bottom.
const MAX_LINES: usize = 250;

/// One line of the walk: `12   RuleSet::find   what it does`.
struct Step<'a> {
    /// Where the name of the function begins.
    indent: usize,
    function: &'a str,
    /// The function's text, and that of others with its name on its type.
    body: String,
}

/// Returns what the walk names and the code does not have.
pub(super) fn problems(root: &Path) -> Result<Vec<String>, String> {
    let text = markdown::read(&root.join(PAGE))?;
    let (mut problems, mut sources, mut krate) = (Vec::new(), Vec::new(), "");
    let mut callers = Vec::<Step<'_>>::new();
    for (number, line) in text.lines().enumerate() {
        if line.starts_with("```") {
            krate = "";
            callers.clear();
        } else if line == "diana" || line.strip_prefix("diana-").is_some_and(|name| !name.contains(' ')) {
            krate = line;
            sources = sources_of(root, krate)?;
        } else if let Some((indent, function)) = step(line).filter(|_| !krate.is_empty()) {
            let (owner, name) = function.rsplit_once("::").unwrap_or(("", function));
            // A module is a file; a type is named where its functions are.
            let is_owner = |text: &&String| owner.starts_with(char::is_lowercase) || text.contains(owner);
            let body = sources.iter().filter(is_owner).map(|text| body_of(text, name)).collect::<String>();
            if body.is_empty() {
                problems.push(format!("{PAGE}:{}: {krate} has no `{function}`", number + 1));
            }
            while callers.last().is_some_and(|caller| caller.indent >= indent) {
                callers.pop();
            }
            if let Some(caller) = callers.last().filter(|caller| !calls(&caller.body, name)) {
                problems.push(format!("{PAGE}:{}: `{}` does not call `{function}`", number + 1, caller.function));
            }
            callers.push(Step { indent, function, body });
        }
    }
    let lines = text.lines().count();
    if lines > MAX_LINES {
        problems.push(format!("{PAGE}: {lines} lines, at most {MAX_LINES} are allowed"));
    }
    Ok(problems)
}

/// The function of a line of the walk, and where its name begins.
fn step(line: &str) -> Option<(usize, &str)> {
    let mut words = line.split_whitespace();
    words.next()?.parse::<u32>().ok()?;
    let function = words.next()?;
    Some((line.find(function)?, function))
}

/// The text of the functions with a name.
fn body_of(text: &str, name: &str) -> String {
    let starts = [format!("fn {name}("), format!("fn {name}<")];
    let mut bodies = String::new();
    let mut rest = text.lines();
    while let Some(line) = rest.next() {
        if starts.iter().any(|start| line.contains(start)) {
            let end = format!("{}}}", " ".repeat(line.len() - line.trim_start().len()));
            bodies.push_str("fn\n");
            if line.ends_with('{') || !line.ends_with(['}', ';']) {
                rest.by_ref().take_while(|line| *line != end).for_each(|line| bodies.extend([line, "\n"]));
            }
        }
    }
    bodies
}

/// Returns `true` if a function calls another one, or passes it on.
fn calls(body: &str, name: &str) -> bool {
    let is_name = |letter: char| letter.is_alphanumeric() || letter == '_';
    body.match_indices(name)
        .any(|(at, _)| !body[..at].ends_with(is_name) && !body[at + name.len()..].starts_with(is_name))
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
    fn a_function_that_is_not_there_or_not_called_is_reported() {
        let folder = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let store = "impl Store {\n    fn decide<'a>(&'a self) {}\n}\nfn open() {\n    closed.decide();\n}\n";
        write("crates/diana-core/src/store.rs", store);
        let walk = "```\ndiana-core\n 1 store::open        opens it\n 2  Store::decide     decides\n 3  Table::decide     is elsewhere\n\
                    12  Store::none       is gone\n13 Store::decide      decides\n14  store::open       is not called by it\n```\n";
        write("ARCHITECTURE.md", walk);
        assert_eq!(
            problems(folder.path()).unwrap(),
            [
                "ARCHITECTURE.md:5: diana-core has no `Table::decide`",
                "ARCHITECTURE.md:6: diana-core has no `Store::none`",
                "ARCHITECTURE.md:6: `store::open` does not call `Store::none`",
                "ARCHITECTURE.md:8: `Store::decide` does not call `store::open`",
            ]
        );
    }

    #[test]
    fn the_walk_is_that_of_the_code() {
        assert_eq!(problems(&Path::new(env!("CARGO_MANIFEST_DIR")).join("..")).unwrap(), Vec::<String>::new());
    }
}
