//! The screenshots of the docs: `DIANA_WRITE_SCREENSHOTS=1 cargo test -p diana-server --test it screenshots` takes them
//! again, after three minutes of traffic.

use super::{gateway_rewrite, open, wait_for_text};
use crate::support::client::Client;
use crate::support::program::Diana;
use crate::support::upstream::Upstream;
use diana_testing::{Browser, wait_until};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The maximum size of a screenshot, in bytes.
const MAX_SIZE: u64 = 200_000;

/// The seconds of traffic before the screenshots.
const SECONDS: u64 = 190;

const RULES: &str = "
identity: {account: header(x-account-id)}
rules:
  - name: each-account
    by: account
    limit: {rate: 5/s, burst: 10}   # ten at once
    status: 429

  - name: exports
    match: {path: /exports/**}
    limit: 20/s
    wait: 100ms
    queue: 4
    status: 429

  - name: each-address
    by: ip
    limit: 30/s
    shadow: true                    # counts whom it would deny

  - name: everyone
    limit: 1000/s
";

fn images() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/images")
}

#[test]
fn the_docs_have_small_screenshots() {
    if std::env::var_os("DIANA_WRITE_SCREENSHOTS").is_some() {
        take(&images());
    }
    let page = include_str!("../../../../../docs/tasks/see-who-is-limited.md");
    for name in ["dashboard.png", "dashboard-rule.png", "dashboard-dark.png", "dashboard-400.png"] {
        let size = std::fs::metadata(images().join(name)).unwrap().len();
        assert!(size < MAX_SIZE, "{name} has {size} bytes");
        assert!(page.contains(&format!("images/{name}")), "{name}");
    }
}

fn take(folder: &Path) {
    let upstream = Upstream::echo();
    let rules = |text: &str| format!("gateway: {{listen: $LISTEN, upstream: '{}'}}\n{text}", upstream.url());
    let diana = Diana::serve(&rules(&RULES.replace("rate: 5/s, burst: 10", "rate: 3/s, burst: 10")));
    for second in 0..SECONDS {
        if second == 60 {
            gateway_rewrite(&diana, &upstream, RULES);
        }
        send(&diana, second);
    }
    let browser = Browser::start().unwrap();
    open(&diana, &browser);
    for (name, width, height, scheme) in [
        ("dashboard.png", 1200, 1130, "light"),
        ("dashboard-dark.png", 1200, 1130, "dark"),
        ("dashboard-400.png", 400, 1130, "dark"),
    ] {
        show(&browser, width, height, scheme);
        wait_for_text(&browser, "#keys", "alice");
        browser.screenshot(&folder.join(name)).unwrap();
    }
    show(&browser, 1200, 1130, "light");
    browser.run("location.hash = '#/rule/each-account'").unwrap();
    wait_for_text(&browser, "#rule-keys", "alice");
    browser
        .run(
            "document.querySelector('#what-if input').value = '8/s'; document.querySelector('#what-if button').click()",
        )
        .unwrap();
    wait_for_text(&browser, "#what-if-result", "with 8/s about");
    browser.screenshot(&folder.join("dashboard-rule.png")).unwrap();
}

fn show(browser: &Browser, width: u32, height: u32, scheme: &str) {
    browser.resize(width, height).unwrap();
    browser.media(&[("prefers-color-scheme", scheme)]).unwrap();
    // Two frames later, the charts have their new width.
    browser
        .run("window.frames_ = 0; requestAnimationFrame(() => requestAnimationFrame(() => { window.frames_ = 2; }))")
        .unwrap();
    browser.wait_for("two frames", "return window.frames_ === 2").unwrap();
}

/// Sends the requests of a second: some accounts steadily, alice in bursts, and a few exports.
fn send(diana: &Diana, second: u64) {
    let burst = |period: u64, length: u64| second % period < length;
    let mut accounts = vec![("bob", 3), ("carol", 2), ("build-42", 4), ("dave", 1 + second % 3)];
    accounts.push(("alice", if burst(50, 22) { 8 + second % 9 } else { 2 }));
    accounts.push(("crawler-7", if burst(80, 12) { 14 } else { 0 }));
    let request =
        |path: &str, account: &str| format!("GET {path} HTTP/1.1\r\nhost: shop\r\nx-account-id: {account}\r\n\r\n");
    let mut client = Client::connect(diana.port());
    for (account, number) in accounts {
        for _ in 0..number {
            client.send(request("/shop", account)).response();
        }
    }
    if burst(9, 3) {
        // Over the rate, so that some wait; on connections of their own.
        let mut waiting = (0..26).map(|_| Client::connect(diana.port())).collect::<Vec<_>>();
        waiting.iter_mut().for_each(|client| {
            client.send("GET /exports/all HTTP/1.1\r\nhost: shop\r\n\r\n");
        });
        waiting.iter_mut().for_each(|client| {
            client.response();
        });
    }
    // The next second of the program's clock.
    let end = || diana.admin("/history?seconds=1").text().split_once("\"start\":").map(|(_, rest)| rest.to_owned());
    let before = end();
    wait_until("the next second", Duration::from_secs(10), || (end() != before).then_some(())).unwrap();
}
