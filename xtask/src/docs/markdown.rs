//! What the checks and the copy need of Markdown: lines outside of fenced code, links, headings.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Component, Path, PathBuf};

/// The most lines of a page.
pub(super) const MAX_LINES: usize = 400;

/// Returns the lines outside of fenced code, each with its number from 1.
pub(super) fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_code = false;
    text.lines().enumerate().filter_map(move |(number, line)| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        (!is_code && !is_fence).then_some((number + 1, line))
    })
}

/// Returns where the targets of links and pictures are in a line: what is between `](` and `)`, outside of inline code.
pub(super) fn link_ranges(line: &str) -> Vec<Range<usize>> {
    let mut ranges = Vec::new();
    let mut at = 0;
    while let Some(found) = line[at..].find("](") {
        let start = at + found + 2;
        let Some(length) = line[start..].find(')') else { break };
        // An odd number of backticks before it: the text is in inline code.
        if line[..start].matches('`').count().is_multiple_of(2) {
            ranges.push(start..start + length);
        }
        at = start + length;
    }
    ranges
}

/// Returns the headings: line, level and text.
pub(super) fn headings(text: &str) -> Vec<(usize, usize, &str)> {
    let heading = |(number, line): (usize, &'_ str)| {
        let level = line.bytes().take_while(|byte| *byte == b'#').count();
        (1..=6).contains(&level).then_some((number, level))
    };
    let found = prose(text).filter_map(|(number, line)| {
        let (number, level) = heading((number, line))?;
        Some((number, level, line[level..].strip_prefix(' ')?.trim()))
    });
    found.collect()
}

/// Returns the anchors of the headings, as mdBook and the repository's page name them: a repeated one gets a number.
pub(super) fn anchors(text: &str) -> Vec<String> {
    let mut seen = BTreeMap::<String, usize>::new();
    let anchor = |heading: &str| {
        let name = heading.to_lowercase().replace(' ', "-");
        let name: String = name.chars().filter(|c| c.is_alphanumeric() || matches!(c, '-' | '_')).collect();
        let count = seen.entry(name.clone()).or_default();
        *count += 1;
        if *count == 1 { name } else { format!("{name}-{}", *count - 1) }
    };
    headings(text).into_iter().map(|(_, _, heading)| heading).map(anchor).collect()
}

/// Resolves a link of a page to a path, without looking at the disk.
pub(super) fn resolve(page: &Path, link: &str) -> PathBuf {
    let mut resolved = page.parent().unwrap_or(Path::new("")).to_owned();
    for part in Path::new(link).components() {
        match part {
            Component::ParentDir if resolved.file_name().is_some() => {
                resolved.pop();
            }
            Component::CurDir => {}
            part => resolved.push(part),
        }
    }
    resolved
}

/// Returns all files below a folder with this ending, as paths relative to `root`, sorted.
pub(super) fn files(root: &Path, folder: &str) -> Result<Vec<PathBuf>, String> {
    let (mut files, mut folders) = (Vec::new(), vec![PathBuf::from(folder)]);
    while let Some(folder) = folders.pop() {
        let unreadable = |error| format!("can't read {}: {error}", folder.display());
        for entry in std::fs::read_dir(root.join(&folder)).map_err(unreadable)? {
            let path = folder.join(entry.map_err(unreadable)?.file_name());
            if root.join(&path).is_dir() { folders.push(path) } else { files.push(path) }
        }
    }
    files.sort();
    Ok(files)
}

pub(super) fn is_markdown(path: &Path) -> bool {
    path.extension().is_some_and(|end| end == "md")
}

pub(super) fn read(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|error| format!("can't read {}: {error}", path.display()))
}
