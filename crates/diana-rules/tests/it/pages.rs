//! All links in the user documentation are valid: the file and the heading exist.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The README, and everything in `docs`.
fn pages() -> Vec<PathBuf> {
    let docs = std::fs::read_dir(repository().join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let pages = docs.filter(|path| path.extension().is_some_and(|end| end == "md"));
    pages.chain([repository().join("README.md")]).collect()
}

/// A page without its fenced blocks, where `#` and `](` have other meanings.
fn prose(page: &Path) -> String {
    let text = std::fs::read_to_string(page).unwrap();
    text.split("```").step_by(2).collect()
}

/// The anchors of the headings of a page.
fn anchors(page: &Path) -> BTreeSet<String> {
    let text = prose(page);
    let headings = text.lines().filter(|line| line.starts_with('#')).map(|line| line.trim_start_matches('#').trim());
    let called = headings.map(|heading| {
        let called = heading.to_lowercase().replace(' ', "-");
        called.chars().filter(|character| character.is_alphanumeric() || matches!(character, '-' | '_')).collect()
    });
    called.collect()
}

#[test]
fn every_link_leads_somewhere() {
    let mut followed = 0;
    for page in pages() {
        let text = prose(&page);
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            if link.contains("://") {
                continue;
            }
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let to = if file.is_empty() { page.clone() } else { page.parent().unwrap().join(file) };
            assert!(to.exists(), "{}: {link} is not there", page.display());
            let has_anchor = || anchors(&to).contains(anchor);
            assert!(anchor.is_empty() || has_anchor(), "{}: {link} leads nowhere: {:?}", page.display(), anchors(&to));
            followed += 1;
        }
    }
    assert!(followed > 40, "only {followed} links were found");
}
