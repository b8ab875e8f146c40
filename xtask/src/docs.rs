//! `cargo xtask docs`: checks the pages of `docs`, and builds the site with mdBook. `cargo xtask docs plots` draws the pictures of the
//! algorithms.
//!
//! The pages are also read on the repository's own page, so they link to files outside of `docs`. The site is built from a copy, in
//! which these links lead to a copy of the file as HTML.

mod check;
mod glossary;
mod markdown;
mod stage;
mod walk;

use crate::test::cargo_command;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

pub(crate) fn run(args: &[String]) -> ExitCode {
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let result = match args[..] {
        [] => site(),
        ["check"] => check().map(|pages| println!("docs: {pages} pages, all links lead somewhere")),
        ["plots"] => plots(),
        _ => {
            eprintln!("docs: unknown arguments `{}`; expected none, `check` or `plots`", args.join(" "));
            return ExitCode::from(2);
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("docs: {problem}");
            ExitCode::FAILURE
        }
    }
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Checks the pages; returns how many there are.
fn check() -> Result<usize, String> {
    let (pages, mut problems) = check::of(&repository())?;
    problems.extend(walk::problems(&repository())?);
    problems.extend(glossary::problems(&repository())?);
    if problems.is_empty() { Ok(pages) } else { Err(format!("invalid pages\n{}", problems.join("\n"))) }
}

/// Checks the pages, and builds the site.
pub(crate) fn site() -> Result<(), String> {
    crate::install::mdbook()?;
    let pages = check()?;
    let site = build(&repository().join("target/docs"))?;
    println!("docs: {pages} pages, open {}", site.join("index.html").display());
    Ok(())
}

/// Builds the site in a folder; returns the folder of its pages.
fn build(folder: &Path) -> Result<PathBuf, String> {
    stage::copy(&repository(), folder)?;
    let built = Command::new("mdbook").arg("build").arg(folder).output();
    let built = built.map_err(|error| format!("can't start mdbook: {error}"))?;
    let messages = String::from_utf8_lossy(&built.stderr);
    // mdBook warns of what a page does wrong, and goes on.
    if !built.status.success() || messages.contains("WARN") || messages.contains("ERROR") {
        return Err(format!("mdbook: {}", messages.trim()));
    }
    let site = folder.join("site");
    site.canonicalize().map_err(|error| format!("can't read {}: {error}", site.display()))
}

/// Draws the pictures of the algorithms, by the code that decides.
fn plots() -> Result<(), String> {
    let run = ["run", "--quiet", "--package", "diana-limit", "--all-features", "--example", "algorithm_plots"];
    match cargo_command().args(run).status() {
        Ok(status) if status.success() => Ok(()),
        Ok(_) => Err("the pictures were not drawn".to_owned()),
        Err(error) => Err(format!("can't start cargo: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::{build, check, repository};
    use diana_testing::Browser;
    use serde_json::Value;

    #[test]
    fn every_page_is_valid_and_every_link_leads_somewhere() {
        assert!(check().unwrap() > 50);
    }

    /// The words of the essays that Diana comes from, and of those who look for a rate limiter, each with a page that must be found.
    const SEARCHED: [(&str, &str); 22] = [
        ("限流算法", "essays.zh"),
        ("计数器", "essays.zh"),
        ("滑动窗口", "essays.zh"),
        ("漏桶", "essays.zh"),
        ("令牌桶", "essays.zh"),
        ("分布式限流", "essays.zh"),
        ("平滑突发", "essays.zh"),
        ("双倍流量", "essays.zh"),
        ("接入层限流", "essays.zh"),
        ("注解限流", "essays.zh"),
        ("责任链", "essays.zh"),
        ("配置中心", "essays.zh"),
        ("自动降级", "essays.zh"),
        ("总并发数", "essays.zh"),
        ("削峰填谷", "essays.zh"),
        ("rate limiting", "index"),
        ("OpenResty", "lua-resty"),
        ("filter chain", "filter"),
        ("connection pool", "pools"),
        ("config center", "essays"),
        ("traffic shaping", "algorithms"),
        ("microservice", "essays"),
    ];

    /// Returns the links that the search finds.
    fn search(browser: &Browser, words: &str) -> Vec<String> {
        let words = Value::from(words);
        let show = "const bar = document.getElementById('mdbook-searchbar') ?? document.getElementById('searchbar'); ";
        let typed = format!(
            "{show} bar.value = {words}; bar.dispatchEvent(new KeyboardEvent('keyup', {{bubbles: true}})); \
                             bar.dispatchEvent(new Event('input', {{bubbles: true}})); return true"
        );
        browser.run(&typed).unwrap();
        let ready = format!(
            "const header = document.getElementById('mdbook-searchresults-header') ?? \
             document.getElementById('searchresults-header'); return header.textContent.includes({words})"
        );
        browser.wait_for("search results", &ready).unwrap();
        let links =
            "return [...document.querySelectorAll('#mdbook-searchresults a, #searchresults a')].map((a) => a.href)";
        let links = browser.run(links).unwrap();
        links.as_array().unwrap().iter().map(|link| link.as_str().unwrap().to_owned()).collect()
    }

    #[test]
    fn the_site_is_searched_in_both_languages_and_fits_any_width() {
        let folder = tempfile::tempdir().unwrap();
        let site = build(folder.path()).unwrap();
        let browser = Browser::start().unwrap();
        let open = |page: &str| browser.open(&format!("file://{}/{page}", site.display())).unwrap();
        open("index.html");
        browser.run("(document.getElementById('mdbook-search-toggle') ?? document.getElementById('search-toggle')).click(); return true").unwrap();
        for (words, page) in SEARCHED {
            let found = search(&browser, words);
            assert!(found.iter().any(|link| link.contains(page)), "{words:?} does not find {page}: {found:#?}");
        }
        let pictures = repository().join("target/screenshots/docs");
        std::fs::create_dir_all(&pictures).unwrap();
        for (width, scheme) in [(1400, "light"), (400, "dark")] {
            browser.resize(width, 900).unwrap();
            browser.media(&[("prefers-color-scheme", scheme)]).unwrap();
            for page in
                ["index", "start/first-steps", "explanations/algorithms", "reference/limits", "coming-from/essays.zh"]
            {
                open(&format!("{page}.html"));
                let wider = "return document.documentElement.scrollWidth - document.documentElement.clientWidth";
                assert_eq!(browser.run(wider).unwrap(), 0, "{page} scrolls sideways at {width} px");
                let broken = "return [...document.images].filter((image) => image.complete && !image.naturalWidth).map((image) => image.src)";
                assert_eq!(browser.run(broken).unwrap(), Value::Array(Vec::new()), "{page}");
                let name = format!("{}-{width}.png", page.replace('/', "-"));
                browser.screenshot(&pictures.join(name)).unwrap();
            }
        }
        let errors = browser.console().unwrap();
        assert!(errors.is_empty(), "{errors:?}");
    }
}
