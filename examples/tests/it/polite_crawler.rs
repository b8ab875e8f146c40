//! The example `polite_crawler`: which pages it requests, and which not.

#[path = "../../polite_crawler/main.rs"]
#[allow(dead_code, reason = "the example\'s `main`")]
mod example;

/// Crawls the built-in site. It takes some three seconds, because its hosts ask for pauses.
#[tokio::test]
async fn each_allowed_page_is_fetched_once_and_pauses_are_respected() {
    use example::site::{PAGES, Site};

    let site = Site::start().await.unwrap();
    let mut out = Vec::new();
    example::run(site.roots().unwrap(), &mut out).await.unwrap();
    let out = String::from_utf8(out).unwrap();
    // Each page once, though one host denied its ninth and its eighteenth request, and none that is disallowed.
    for page in 0..PAGES {
        let line = format!("  200  {}  (waited ", site.address(page));
        assert_eq!(out.matches(&line).count(), 1, "page {page}:\n{out}");
    }
    assert_eq!(out.matches("  429  http").count(), 2, "{out}");
    assert_eq!(site.requests(), [1 + PAGES / 2, 1 + PAGES / 2 + 2], "{out}");
    assert!(!out.contains("/private"), "{out}");
    // An immediate retry would have been served, too: only the wait shows that the crawler respects the pauses.
    let (_, summary) = out.split_once("40 pages in ").unwrap();
    let (_, rest) = summary.split_once(" s: 2 denied, 0 failed, longest wait ").unwrap();
    let (wait, hosts) = rest.split_once(" s\n").unwrap();
    assert!(wait.parse::<f64>().unwrap() >= 0.5, "{out}");
    assert_eq!((hosts.matches(": 20 requests, ").count(), hosts.matches(": 22 requests, ").count()), (1, 1), "{out}");
}
