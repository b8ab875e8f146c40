//! The web page of the admin server in a real Chromium, in front of the running program.
//!
//! Screenshots are written to `target/screenshots`; with `DIANA_WRITE_SCREENSHOTS=1` those of the docs too, after a few
//! minutes of traffic.

mod screenshots;

use crate::support::client::{Client, ClientResponse};
use crate::support::program::Diana;
use crate::support::upstream::Upstream;
use diana_testing::Browser;
use serde_json::json;
use std::path::PathBuf;

const RULES: &str = "
identity: {account: header(x-account-id)}
rules:
  - name: each-account
    by: account
    limit: {rate: 5/h, burst: 5}   # five, then one every 12 minutes
    status: 429
  - name: each-address
    by: ip
    limit: 8/h
    shadow: true
";

const HOSTILE: &str = "<img src=x onerror=document.title='run'>";

fn gateway(upstream: &Upstream, rules: &str) -> Diana {
    Diana::serve(&format!("gateway: {{listen: $LISTEN, upstream: '{}'}}\n{rules}", upstream.url()))
}

fn open(diana: &Diana, browser: &Browser) {
    browser.open(&format!("http://127.0.0.1:{}/", diana.admin_port())).unwrap();
}

/// Sends requests of an account over one connection.
fn requests(diana: &Diana, account: &str, number: usize) -> Vec<ClientResponse> {
    let mut client = Client::connect(diana.port());
    let request = format!("GET /shop HTTP/1.1\r\nhost: a\r\nx-account-id: {account}\r\n\r\n");
    (0..number).map(|_| client.send(&request).response()).collect()
}

fn screenshot(browser: &Browser, name: &str) {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../target/screenshots");
    std::fs::create_dir_all(&folder).unwrap();
    browser.screenshot(&folder.join(name)).unwrap();
}

/// No script failed, and the content security policy was not violated.
fn assert_no_errors(browser: &Browser) {
    let messages = browser.console().unwrap();
    let errors = messages.iter().filter(|message| !message.starts_with("\"DEBUG\"")).collect::<Vec<_>>();
    assert!(errors.is_empty(), "{errors:#?}");
}

/// Waits until an element has a text.
fn wait_for_text(browser: &Browser, selector: &str, text: &str) {
    let script = format!(
        "const e = document.querySelector({}); return !!e && e.checkVisibility() && e.textContent.includes({})",
        json!(selector),
        json!(text)
    );
    browser.wait_for(&format!("`{text}` in {selector}"), &script).unwrap();
}

fn click(browser: &Browser, selector: &str) {
    let script = format!("const e = document.querySelector({}); e.click(); return true", json!(selector));
    browser.run(&script).unwrap();
}

fn type_into(browser: &Browser, selector: &str, text: &str) {
    browser.run(&format!("document.querySelector({}).focus()", json!(selector))).unwrap();
    let keys = text.chars().map(String::from).collect::<Vec<_>>();
    browser.press(&keys.iter().map(|key| &**key).collect::<Vec<_>>()).unwrap();
}

#[test]
fn the_page_shows_who_is_limited_and_resets_a_key() {
    let upstream = Upstream::echo();
    let (diana, browser) = (gateway(&upstream, RULES), Browser::start().unwrap());
    open(&diana, &browser);
    wait_for_text(&browser, "#no-traffic", "No request yet");
    let statuses = requests(&diana, "alice", 7).iter().map(|response| response.status).collect::<Vec<_>>();
    assert_eq!(statuses, [200, 200, 200, 200, 200, 429, 429]);
    requests(&diana, "bob", 1);
    requests(&diana, HOSTILE, 6);

    // The charts: the latest values are those of the last second, so the summary of the whole span is read.
    let denied = "const text = document.querySelector('#chart-requests svg').getAttribute('aria-label');
                  return /denied: [0-9.]+ now, at most [1-9]/.test(text) && /shadow: [0-9.]+ now, at most [1-9]/.test(text)";
    browser.wait_for("denied requests in the chart", denied).unwrap();
    browser.wait_for("an area", "return document.querySelector('.f-denied').getBBox().height > 0").unwrap();
    browser
        .wait_for("a line", "return document.querySelector('#chart-latency .s-p99').getAttribute('d').length > 0")
        .unwrap();
    wait_for_text(&browser, "#rules tr:first-child", "each-account");
    wait_for_text(&browser, "#rules tr:first-child .n-denied", "3");
    browser.wait_for("no empty state", "return document.querySelector('#no-traffic').hidden").unwrap();

    // Who is limited: alice, by which rule.
    wait_for_text(&browser, "#keys tr:first-child", "alice");
    wait_for_text(&browser, "#keys", HOSTILE);
    type_into(&browser, "#find", "alic");
    wait_for_text(&browser, "#found-keys tr:first-child", "2 denied");
    wait_for_text(&browser, "#found-keys tr:first-child .of-rule a", "each-account");
    screenshot(&browser, "search.png");

    click(&browser, "#found-keys button[aria-label='Reset alice in each-account']");
    wait_for_text(&browser, "#key-status", "0 of 5 remaining");
    wait_for_text(&browser, "#key-confirm", "Reset this key?");
    assert_eq!(requests(&diana, "alice", 1)[0].status, 429, "nothing happens before the confirmation");
    screenshot(&browser, "reset.png");
    click(&browser, "#key-do");
    wait_for_text(&browser, "#key-status", "Reset.");
    assert_eq!(requests(&diana, "alice", 1)[0].status, 200);
    browser.press(&["Escape"]).unwrap();
    browser.wait_for("the end of the dialog", "return !document.querySelector('#key-dialog').open").unwrap();

    // A key is a text, whatever it contains.
    assert_eq!(browser.run("return [document.images.length, document.title]").unwrap(), json!([0, "Diana"]));
    assert_no_errors(&browser);
}

#[test]
fn a_rule_has_a_page_with_its_text_its_chart_and_its_changes() {
    let upstream = Upstream::echo();
    let (diana, browser) = (gateway(&upstream, RULES), Browser::start().unwrap());
    requests(&diana, "alice", 7);
    open(&diana, &browser);
    wait_for_text(&browser, "#rules", "each-account");
    click(&browser, "#rules a[href='#/rule/each-account']");
    wait_for_text(&browser, "#rule-name", "each-account");
    let yaml = "- name: each-account\n  by: account\n  limit: {rate: 5/h, burst: 5}   # five, then one every 12 minutes\n  status: 429";
    wait_for_text(&browser, "#yaml", yaml);
    wait_for_text(&browser, "#rule-tiles .t-denied", "2");
    wait_for_text(&browser, "#rule-keys", "alice");
    browser.wait_for("an area", "return document.querySelector('#chart-rule .f-denied').getBBox().height > 0").unwrap();

    type_into(&browser, "#what-if input", "4/h");
    browser.press(&["Enter"]).unwrap();
    wait_for_text(&browser, "#what-if-result", "shadow: true");
    type_into(&browser, "#rule-explain textarea", "x-account-id: alice");
    click(&browser, "#rule-explain button");
    wait_for_text(&browser, "#rule-explained", "Denied by each-account");

    gateway_rewrite(&diana, &upstream, &RULES.replace("5/h, burst: 5", "5/h, burst: 9"));
    wait_for_text(&browser, "#rule-changes .difference ins", "5 an hour, up to 9 at once: at most 14 in any hour");
    wait_for_text(&browser, "#rule-changes", "local file");
    wait_for_text(&browser, "#yaml", "burst: 9");
    gateway_rewrite(&diana, &upstream, &RULES.replace("by: account", "bye: account"));
    wait_for_text(&browser, "#degraded", "The rule file is invalid");
    click(&browser, "header h1 a");
    wait_for_text(&browser, "#changes", "rejected");
    screenshot(&browser, "degraded.png");
    assert_no_errors(&browser);
}

fn gateway_rewrite(diana: &Diana, upstream: &Upstream, rules: &str) {
    diana.rewrite(&format!("gateway: {{listen: $LISTEN, upstream: '{}'}}\n{rules}", upstream.url()));
}

#[test]
fn the_page_signs_in_once_and_survives_a_restart_of_the_program() {
    let rules = "admin: {listen: '$ADMIN', token: opensesame}\ngateway: {listen: $LISTEN, echo: true}\nrules: [{name: a, limit: 9/s}]\n";
    let browser = Browser::start().unwrap();
    let mut diana = Diana::serve(rules);
    let url = format!("http://127.0.0.1:{}/", diana.admin_port());
    browser.open(&url).unwrap();
    wait_for_text(&browser, "#login", "Sign in");
    let _ = browser.console().unwrap();
    type_into(&browser, "#token", "guess");
    browser.press(&["Enter"]).unwrap();
    wait_for_text(&browser, "#error", "Invalid token");
    type_into(&browser, "#token", "opensesame");
    browser.press(&["Enter"]).unwrap();
    wait_for_text(&browser, "#rules", "a");
    browser.open(&url).unwrap();
    wait_for_text(&browser, "#rules", "a");
    // A link can't send the token, so the script does.
    click(&browser, "#links a[href='/metrics']");
    wait_for_text(&browser, "#raw-text", "diana_requests_total");
    browser.press(&["Escape"]).unwrap();
    diana.request_stop();
    diana.wait_for_exit();
    wait_for_text(&browser, "#lost", "Connection lost, retrying");
    diana.restart();
    browser.wait_for("the connection", "return document.querySelector('#lost').hidden").unwrap();
    click(&browser, "#sign-out");
    wait_for_text(&browser, "#login", "Sign in");
    assert_eq!(
        browser.run("return [sessionStorage.length, document.querySelector('#main').hidden]").unwrap(),
        json!([0, true])
    );
}

/// The page shows who is signed in, hides what the role does not permit, and lists who changed what.
#[test]
fn the_page_permits_what_the_role_permits_and_shows_who_changed_what() {
    let rules = "
admin:
  listen: $ADMIN
  tokens: [{name: alice, token: opensesame, role: operate}, {name: grafana, token: lookonly, role: read}]
gateway: {listen: $LISTEN, echo: true}
identity: {account: header(x-account-id)}
rules: [{name: each-account, by: account, limit: 5/h, status: 429}]
";
    let (diana, browser) = (Diana::serve(rules), Browser::start().unwrap());
    requests(&diana, HOSTILE, 7);
    open(&diana, &browser);
    let sign_in = |token: &str| {
        wait_for_text(&browser, "#login", "Sign in");
        type_into(&browser, "#token", token);
        browser.press(&["Enter"]).unwrap();
        wait_for_text(&browser, "#keys", HOSTILE);
    };
    // The buttons that a user can see, by their text.
    let buttons = || {
        let script = "return [...document.querySelectorAll('#keys button, #key-choices button, #reload')]
                      .filter(e => e.checkVisibility()).map(e => e.textContent)";
        browser.run(script).unwrap()
    };
    sign_in("lookonly");
    wait_for_text(&browser, "#who", "grafana, read");
    assert_eq!(buttons(), json!(["Peek"]));
    click(&browser, "#keys button");
    wait_for_text(&browser, "#key-status", "0 of 5 remaining");
    assert_eq!(buttons(), json!(["Peek", "Peek again"]));
    screenshot(&browser, "read-only.png");
    browser.press(&["Escape"]).unwrap();
    click(&browser, "#sign-out");

    sign_in("opensesame");
    wait_for_text(&browser, "#who", "alice, operate");
    assert_eq!(buttons(), json!(["Peek", "Refund", "Reset", "Reload"]));
    click(&browser, "#keys button[aria-label^=Reset]");
    click(&browser, "#key-do");
    wait_for_text(&browser, "#key-status", "Reset.");
    browser.press(&["Escape"]).unwrap();
    wait_for_text(&browser, "#audit li:first-child", "0 of 5 left → 5 of 5 left");
    wait_for_text(&browser, "#audit li:first-child", HOSTILE);
    wait_for_text(&browser, "#audit li:first-child .quiet", "alice, admin, 127.0.0.1:");
    click(&browser, "#reload");
    wait_for_text(&browser, "#reloaded", "Reloaded: 1 rule.");
    wait_for_text(&browser, "#audit li:first-child", "reload of rules and certificates");
    wait_for_text(&browser, "#audit li:last-child", "start with 1 rule");
    browser.run("document.querySelector('#audit-card').scrollIntoView()").unwrap();
    screenshot(&browser, "audit.png");
    assert_eq!(browser.run("return [document.images.length, document.title]").unwrap(), json!([0, "Diana"]));
}

#[test]
fn changed_settings_that_need_a_restart_are_shown_until_they_are_changed_back() {
    let file = |gateway: &str| format!("gateway: {{listen: $LISTEN{gateway}}}\nrules: [{{name: a, limit: 5/h}}]\n");
    let (diana, browser) = (Diana::serve(&file("")), Browser::start().unwrap());
    open(&diana, &browser);
    let is_shown = || browser.run("return document.querySelector('#waiting').checkVisibility()").unwrap();
    wait_for_text(&browser, "#total", "1");
    assert_eq!(is_shown(), json!(false));
    diana.rewrite(&file(", workers: 1, timeouts: {body: 5s}"));
    let expected = "Changed settings need a restart: gateway.workers, gateway.timeouts.body.";
    wait_for_text(&browser, "#waiting", expected);
    assert_eq!(is_shown(), json!(true));
    click(&browser, "#reload");
    wait_for_text(&browser, "#reloaded", "Reloaded: 1 rule. Some changes need a restart.");
    screenshot(&browser, "waiting.png");
    diana.rewrite(&file(""));
    let is_hidden = "return !document.querySelector('#waiting').checkVisibility()";
    browser.wait_for("the note to disappear", is_hidden).unwrap();
}

#[test]
fn the_page_fits_400_pixels_and_is_dark_or_light() {
    let upstream = Upstream::echo();
    let (diana, browser) = (gateway(&upstream, RULES), Browser::start().unwrap());
    requests(&diana, &"a-long-account-name-".repeat(6), 7);
    let mut grounds = Vec::new();
    for scheme in ["light", "dark"] {
        browser.media(&[("prefers-color-scheme", scheme), ("prefers-reduced-motion", "reduce")]).unwrap();
        for width in [400, 1280] {
            browser.resize(width, 900).unwrap();
            for page in ["", "#/rule/each-account"] {
                browser.open("about:blank").unwrap();
                browser.open(&format!("http://127.0.0.1:{}/{page}", diana.admin_port())).unwrap();
                let tile = if page.is_empty() { "#tiles .t-denied" } else { "#rule-tiles .t-denied" };
                browser.wait_for("counts", &format!("return document.querySelector('{tile}')?.textContent")).unwrap();
                let overflow = browser.run("return document.documentElement.scrollWidth - innerWidth").unwrap();
                assert_eq!(overflow, json!(0), "{scheme}, {width} px, {page}");
                screenshot(&browser, &format!("{scheme}-{width}{}.png", if page.is_empty() { "" } else { "-rule" }));
            }
        }
        let ground = browser.run("return getComputedStyle(document.body).backgroundColor").unwrap();
        grounds.push(ground);
        let low = browser.run(CONTRAST).unwrap();
        assert_eq!(low, json!([]), "{scheme}: texts with a contrast below 4.5");
    }
    assert_ne!(grounds[0], grounds[1]);
    assert_no_errors(&browser);
}

/// Returns the visible texts whose contrast with their background is below 4.5 (WCAG AA).
const CONTRAST: &str = r"
    const parse = color => color.match(/[0-9.]+/g).map(Number);
    const light = ([r, g, b]) => [r, g, b].map(c => c / 255).map(c => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
        .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
    const ground = e => { for (; e; e = e.parentElement) { const c = parse(getComputedStyle(e).backgroundColor); if (c.length < 4 || c[3] === 1) return c; } return [255, 255, 255]; };
    const low = [];
    for (const e of document.querySelectorAll('main *, header *')) {
        const own = [...e.childNodes].some(node => node.nodeType === 3 && node.textContent.trim());
        if (!own || !e.checkVisibility() || e.closest('svg, [hidden], option, .visually-hidden') || e.disabled) continue;
        const [a, b] = [light(parse(getComputedStyle(e).color)), light(ground(e))].sort((x, y) => y - x);
        if ((a + 0.05) / (b + 0.05) < 4.5) low.push(`${e.tagName} ${e.className} ${e.textContent.slice(0, 30)}`);
    }
    return low;
";

#[test]
fn the_page_is_usable_by_keyboard_and_has_names_for_screen_readers() {
    let upstream = Upstream::echo();
    let (diana, browser) = (gateway(&upstream, RULES), Browser::start().unwrap());
    requests(&diana, "alice", 7);
    open(&diana, &browser);
    wait_for_text(&browser, "#keys", "alice");
    browser.press(&["Tab"]).unwrap();
    assert_eq!(browser.run("return document.activeElement.id").unwrap(), "skip");
    browser.press(&["Enter"]).unwrap();
    assert_eq!(browser.run("return document.activeElement.id").unwrap(), "main");
    // Every control has a name, and every focused control a visible outline.
    let (mut seen, mut names) = (0, Vec::new());
    while seen < 200 {
        browser.press(&["Tab"]).unwrap();
        let focus = browser.run(FOCUS).unwrap();
        assert!(focus["name"] != "" && focus["outline"] == true, "{focus}");
        if focus["id"] == "skip" || focus["tag"] == "BODY" {
            break;
        }
        names.push(focus["name"].as_str().unwrap().to_owned());
        seen += 1;
    }
    for control in
        ["Requests per second", "Find rules and keys", "Peek alice in each-account", "each-account", "Explain"]
    {
        assert!(names.iter().any(|name| name.starts_with(control)), "{control}: {names:#?}");
    }
    // A chart reads its values by the arrow keys, and has a table.
    browser.run("document.querySelector('#chart-requests svg').focus()").unwrap();
    browser.press(&["ArrowLeft", "ArrowLeft"]).unwrap();
    wait_for_text(&browser, "#chart-requests [aria-live]", "allowed");
    browser.run("document.querySelector('#chart-requests summary').focus()").unwrap();
    browser.press(&["Enter"]).unwrap();
    browser
        .wait_for("a table", "return document.querySelectorAll('#chart-requests table tbody tr').length > 5")
        .unwrap();
    // From the list of keys to a reset, and to the page of the rule.
    browser.run("document.querySelector('#keys button[aria-label^=Reset]').focus()").unwrap();
    browser.press(&["Enter"]).unwrap();
    browser.run("document.querySelector('#key-do').focus()").unwrap();
    browser.press(&["Enter"]).unwrap();
    wait_for_text(&browser, "#key-status", "Reset.");
    browser.press(&["Escape"]).unwrap();
    browser.run("document.querySelector('#rules a').focus()").unwrap();
    browser.press(&["Enter"]).unwrap();
    browser.wait_for("the rule", "return document.activeElement.id === 'rule-name'").unwrap();
    assert_no_errors(&browser);
}

/// Returns the focused element: its accessible name, and whether it has a visible outline.
const FOCUS: &str = r"
    const e = document.activeElement;
    const labelled = e.labels && e.labels[0] ? e.labels[0].textContent : '';
    const name = (e.getAttribute('aria-label') || labelled || e.textContent || e.placeholder || '').trim();
    const shown = e.type === 'radio' ? e.nextElementSibling : e;
    const style = getComputedStyle(shown);
    const outline = style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 2;
    return { id: e.id, tag: e.tagName, name: e.tagName === 'BODY' ? 'body' : name, outline: e.tagName === 'BODY' || outline };
";

#[test]
fn thousands_of_rules_are_shown_in_pages() {
    let rules = (0..3_000)
        .map(|number| format!("  - {{name: rule-{number}, by: account, match: {{path: /p/{number}}}, limit: 5/h}}\n"));
    let rules = format!("identity: {{account: header(x-account-id)}}\nrules:\n{}", rules.collect::<String>());
    let upstream = Upstream::echo();
    let (diana, browser) = (gateway(&upstream, &rules), Browser::start().unwrap());
    Client::connect(diana.port()).send("GET /p/2876 HTTP/1.1\r\nhost: a\r\nx-account-id: alice\r\n\r\n").response();
    open(&diana, &browser);
    wait_for_text(&browser, "#rules-range", "1 to 50 of 3,000");
    wait_for_text(&browser, "#rules tr:first-child", "rule-2876");
    assert_eq!(browser.run("return document.querySelectorAll('#rules tr').length").unwrap(), 50);
    click(&browser, "#rules-next");
    wait_for_text(&browser, "#rules-range", "51 to 100 of 3,000");
    type_into(&browser, "#find", "rule-77");
    wait_for_text(&browser, "#total", "11 of 3,000");
    assert_no_errors(&browser);
}
