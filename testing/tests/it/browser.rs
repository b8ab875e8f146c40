//! Chromium by its driver: a page, its keys, its console.

use diana_testing::Browser;
use serde_json::json;

#[test]
fn a_browser_runs_scripts_presses_keys_and_reports_errors() {
    let browser = Browser::start().unwrap();
    let page = "data:text/html,<title>a</title><input id=i autofocus><script>console.error('wrong')</script>";
    browser.open(page).unwrap();
    assert_eq!(browser.run("return document.title").unwrap(), "a");
    browser.run("document.getElementById('i').focus()").unwrap();
    browser.press(&["h", "i", "ArrowLeft", "o"]).unwrap();
    assert_eq!(browser.wait_for("the text", "return document.getElementById('i').value").unwrap(), "hoi");
    browser.resize(400, 300).unwrap();
    assert_eq!(browser.run("return [innerWidth, innerHeight]").unwrap(), json!([400, 300]));
    browser.media(&[("prefers-color-scheme", "dark")]).unwrap();
    assert_eq!(browser.run("return matchMedia('(prefers-color-scheme: dark)').matches").unwrap(), true);
    let file = browser.folder().join("page.png");
    browser.screenshot(&file).unwrap();
    assert!(std::fs::read(file).unwrap().starts_with(b"\x89PNG"));
    let messages = browser.console().unwrap();
    assert!(messages.iter().any(|message| message.contains("SEVERE") && message.contains("wrong")), "{messages:?}");
    assert!(browser.run("throw new Error('no')").unwrap_err().to_string().contains("no"));
}
