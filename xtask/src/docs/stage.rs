//! The copy of the pages that mdBook reads. A link to a file outside of `docs` leads to a page with its text, in the folder `source`.

use super::markdown;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// The folder with the settings of the site, which are not part of it.
const SETTINGS: &str = "docs/site";

/// Copies the pages and the settings to a folder, which is emptied first.
pub(super) fn copy(root: &Path, to: &Path) -> Result<(), String> {
    let problem = |path: &Path, error: std::io::Error| format!("can't write {}: {error}", path.display());
    if to.exists() {
        std::fs::remove_dir_all(to).map_err(|error| problem(to, error))?;
    }
    let write = |path: &Path, bytes: &[u8]| {
        let folder = path.parent().unwrap_or(to);
        std::fs::create_dir_all(folder).map_err(|error| problem(folder, error))?;
        std::fs::write(path, bytes).map_err(|error| problem(path, error))
    };
    let mut sources = BTreeSet::new();
    for path in markdown::files(root, "docs")? {
        let below = path.strip_prefix("docs").unwrap_or(&path);
        if let Ok(setting) = path.strip_prefix(SETTINGS) {
            write(&to.join(setting), &read(&root.join(&path))?)?;
        } else if markdown::is_markdown(&path) {
            let text = with_source_links(root, &path, &markdown::read(&root.join(&path))?, &mut sources);
            write(&to.join("src").join(below), text.as_bytes())?;
        } else {
            write(&to.join("src").join(below), &read(&root.join(&path))?)?;
        }
    }
    for source in sources {
        let page = if root.join(&source).is_dir() { list(root, &source)? } else { source_page(root, &source)? };
        write(&to.join("src").join(page_of(&source)), page.as_bytes())?;
    }
    Ok(())
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    std::fs::read(path).map_err(|error| format!("can't read {}: {error}", path.display()))
}

/// The page of a file, below the folder of the site.
fn page_of(source: &Path) -> PathBuf {
    PathBuf::from(format!("source/{}.html", source.display()))
}

/// Replaces the links to files outside of `docs`, and adds these files to `sources`.
fn with_source_links(root: &Path, page: &Path, text: &str, sources: &mut BTreeSet<PathBuf>) -> String {
    let up = "../".repeat(page.components().count() - 2);
    let prose = markdown::prose(text).map(|(number, _)| number).collect::<BTreeSet<_>>();
    let mut copy = String::with_capacity(text.len());
    for (number, line) in text.lines().enumerate() {
        let mut rest = 0;
        let ranges = if prose.contains(&(number + 1)) { markdown::link_ranges(line) } else { Vec::new() };
        for range in ranges {
            let file = line[range.clone()].split('#').next().unwrap_or_default();
            let target = markdown::resolve(page, file);
            if file.is_empty() || file.contains("://") || target.starts_with("docs") || !root.join(&target).exists() {
                continue;
            }
            let _ = write!(copy, "{}{up}{}", &line[rest..range.start], page_of(&target).display());
            rest = range.end;
            sources.insert(target);
        }
        copy.push_str(&line[rest..]);
        copy.push('\n');
    }
    copy
}

/// A file as a page.
fn source_page(root: &Path, source: &Path) -> Result<String, String> {
    let text = String::from_utf8_lossy(&read(&root.join(source))?).into_owned();
    Ok(html(source, &format!("<pre>{}</pre>", escaped(&text))))
}

/// A folder as a page: the names of its files, since only what a page links to is part of the site.
fn list(root: &Path, folder: &Path) -> Result<String, String> {
    let files = markdown::files(root, &folder.display().to_string())?;
    let files = files.iter().map(|file| format!("{}\n", escaped(&file.display().to_string())));
    Ok(html(folder, &format!("<pre>{}</pre>", files.collect::<String>())))
}

fn html(source: &Path, body: &str) -> String {
    let title = escaped(&source.display().to_string());
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" content=\"width=device-width\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<title>{title}</title>\n<h1 style=\"font: 1.2em monospace\">{title}</h1>\n\
         {body}\n</html>\n"
    )
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::copy;

    #[test]
    fn links_to_other_files_lead_to_a_copy_of_them() {
        let [from, to] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let write = |path: &str, text: &str| {
            let path = from.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("src/lib.rs", "if a < b && c > d {}\n");
        write("docs/site/book.toml", "[book]\n");
        write("docs/images/a.svg", "<svg/>");
        write(
            "docs/tasks/page.md",
            "# T\n\n[lib](../../src/lib.rs#x) and [T](#t), ![a](../images/a.svg)\n\n```\n](../../src/lib.rs)\n```\n",
        );
        copy(from.path(), to.path()).unwrap();
        let read = |path: &str| std::fs::read_to_string(to.path().join(path)).unwrap();
        assert_eq!(
            read("src/tasks/page.md"),
            "# T\n\n[lib](../source/src/lib.rs.html) and [T](#t), ![a](../images/a.svg)\n\n```\n](../../src/lib.rs)\n```\n"
        );
        assert!(read("src/source/src/lib.rs.html").contains("<pre>if a &lt; b &amp;&amp; c &gt; d {}\n</pre>"));
        assert_eq!((read("book.toml"), read("src/images/a.svg")), ("[book]\n".to_owned(), "<svg/>".to_owned()));
    }
}
