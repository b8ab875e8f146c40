//! The top-level modules of a crate form layers: no module imports one that imports it, directly or through others. So a
//! module can be read after those that it imports, and moved to another crate with them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Each module, with those that it imports.
type Imports = BTreeMap<String, BTreeSet<String>>;

/// Reads the sources of a crate.
fn imports_of(krate: &Path) -> Imports {
    let source = krate.join("src");
    let root = code_of(&source.join("lib.rs"));
    let exports = exports_of(&root);
    let mut imports = Imports::new();
    let mut folders = vec![source.clone()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let is_test = path.file_stem().is_some_and(|name| name == "tests");
            let module = path.strip_prefix(&source).unwrap().iter().next().unwrap().to_str().unwrap();
            let module = module.trim_end_matches(".rs").to_owned();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|end| end == "rs") && !is_test && module != "lib" {
                let names = names_after(&code_of(&path), "crate::");
                let modules = names.into_iter().map(|name| exports.get(&name).cloned().unwrap_or(name));
                imports.entry(module.clone()).or_default().extend(modules.filter(|other| *other != module));
            }
        }
    }
    let modules = imports.keys().cloned().collect::<BTreeSet<_>>();
    imports.values_mut().for_each(|others| others.retain(|other| modules.contains(other)));
    imports
}

/// The code of a file, without comments and unit tests.
fn code_of(path: &Path) -> String {
    let text = std::fs::read_to_string(path).unwrap();
    let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    code.lines().map(|line| line.split("//").next().unwrap_or_default()).collect::<Vec<_>>().join("\n")
}

/// What `lib.rs` exports at the root of the crate, with its module.
fn exports_of(root: &str) -> BTreeMap<String, String> {
    let mut exports = BTreeMap::new();
    for export in root.split("pub use ").skip(1).filter_map(|rest| rest.split(';').next()) {
        let Some((module, names)) = export.split_once("::") else { continue };
        let names = names.split(|letter: char| !letter.is_alphanumeric() && letter != '_');
        exports.extend(names.map(|name| (name.to_owned(), module.to_owned())));
    }
    exports
}

/// The names that follow a path: one, or several in braces.
fn names_after(code: &str, path: &str) -> Vec<String> {
    let is_name = |letter: char| letter.is_alphanumeric() || letter == '_';
    let mut names = Vec::new();
    for rest in code.split(path).skip(1) {
        let list = rest.strip_prefix('{');
        let end = if list.is_some() { ';' } else { '\n' };
        let text = list.unwrap_or(rest).split(end).next().unwrap_or_default();
        let parts = text.split(if list.is_some() { ',' } else { '\0' });
        names.extend(
            parts.map(|part| part.trim_start().chars().take_while(|letter| is_name(*letter)).collect::<String>()),
        );
    }
    names.retain(|name| !name.is_empty());
    names
}

/// Returns a circle of modules, if there is one.
fn circle_in(imports: &Imports) -> Option<Vec<&str>> {
    imports.keys().find_map(|start| {
        let mut path = vec![start.as_str()];
        leads_back(imports, start, &mut path, &mut BTreeSet::new()).then_some(path)
    })
}

/// Extends a path until it comes back to its start.
fn leads_back<'a>(imports: &'a Imports, start: &str, path: &mut Vec<&'a str>, visited: &mut BTreeSet<&'a str>) -> bool {
    let Some(others) = path.last().and_then(|last| imports.get(*last)) else { return false };
    for other in others {
        if other == start {
            return true;
        }
        if visited.insert(other) {
            path.push(other);
            if leads_back(imports, start, path, visited) {
                return true;
            }
            path.pop();
        }
    }
    false
}

#[test]
fn modules_do_not_import_each_other_in_a_circle() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates");
    for krate in std::fs::read_dir(crates).unwrap() {
        let krate = krate.unwrap().path();
        let imports = imports_of(&krate);
        assert!(imports.len() > 1, "{}", krate.display());
        assert_eq!(circle_in(&imports), None, "{}: each of these modules imports the next one", krate.display());
    }
}

#[test]
fn a_circle_is_found_through_the_exports_of_the_crate() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(folder.path().join("src/b")).unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join("src").join(name), text).unwrap();
    write("lib.rs", "mod a;\nmod b;\nmod c;\npub use c::{First, Third};\n");
    write("a.rs", "use crate::b::Second;\n");
    write("b.rs", "mod part;\n");
    write("b/part.rs", "use crate::{Third, a::First}; // crate::c\n");
    write("c.rs", "// use crate::a;\n");
    let imports = imports_of(folder.path());
    assert_eq!(imports["b"], BTreeSet::from(["a".to_owned(), "c".to_owned()]));
    assert_eq!(circle_in(&imports), Some(vec!["a", "b"]));
    write("b/part.rs", "use crate::Third;\n#[cfg(test)]\nmod tests {\n    use crate::a::First;\n}\n");
    assert_eq!(circle_in(&imports_of(folder.path())), None);
}
