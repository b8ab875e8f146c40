//! A real Chromium, driven by chromedriver over the WebDriver protocol, for tests of web pages.
//!
//! ```no_run
//! use diana_testing::Browser;
//!
//! let browser = Browser::start()?;
//! browser.open("http://127.0.0.1:9090/")?;
//! browser.wait_for("the heading", "return document.querySelector('h1')")?;
//! browser.screenshot("page.png".as_ref())?;
//! # Ok::<(), std::io::Error>(())
//! ```

use crate::ports::Port;
use crate::process::Process;
use crate::wait::{LONG, wait_until};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

/// Without a window, without requests of its own, and with a profile that is removed afterwards.
const FLAGS: [&str; 13] = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-extensions",
    "--no-proxy-server",
    "--hide-scrollbars",
    "--force-device-scale-factor=1",
];

/// A browser with one tab, ended on drop.
#[derive(Debug)]
pub struct Browser {
    // Fields are dropped in this order: first the processes, then their folder and port.
    _driver: Process,
    folder: TempDir,
    port: Port,
    session: String,
}

impl Browser {
    /// Starts chromedriver and a Chromium.
    pub fn start() -> io::Result<Self> {
        let port = Port::claim()?;
        let folder = tempfile::Builder::new().prefix("diana-browser-").tempdir()?;
        let log = folder.path().join("driver.log");
        let mut command = Command::new("chromedriver");
        // Chromium writes to its home and its temporary folder.
        command.arg(format!("--port={}", port.number())).env("HOME", folder.path()).env("TMPDIR", folder.path());
        let driver = Process::start_with_log(&mut command, &log)?;
        driver.wait_until_ready("chromedriver", &log, || Ok(port.is_listening()))?;
        let profile = format!("--user-data-dir={}", folder.path().join("profile").display());
        let flags = FLAGS.into_iter().map(str::to_owned).chain([profile]).collect::<Vec<_>>();
        let mut browser = Self { _driver: driver, folder, port, session: String::new() };
        let capabilities = json!({
            "browserName": "chrome",
            "goog:chromeOptions": {"args": flags},
            "goog:loggingPrefs": {"browser": "ALL"},
        });
        let created = browser.send("POST", "/session", &json!({"capabilities": {"alwaysMatch": capabilities}}))?;
        created["sessionId"].as_str().unwrap_or_default().clone_into(&mut browser.session);
        Ok(browser)
    }

    /// Opens an address, and waits until it is loaded.
    pub fn open(&self, url: &str) -> io::Result<()> {
        self.command("url", &json!({"url": url})).map(|_| ())
    }

    /// Runs the body of a function in the page, and returns what it returns.
    pub fn run(&self, script: &str) -> io::Result<Value> {
        self.command("execute/sync", &json!({"script": script, "args": []}))
    }

    /// Polls until a script returns something other than `null`, `false`, 0 or an empty text, and returns that.
    pub fn wait_for(&self, what: &str, script: &str) -> io::Result<Value> {
        let is_found = |value: &Value| *value != Value::Null && *value != json!(false) && *value != json!(0);
        let found = wait_until(what, LONG, || match self.run(script) {
            Ok(value) => (is_found(&value) && value != json!("")).then_some(Ok(value)),
            Err(error) => Some(Err(error)),
        });
        found.flatten().map_err(|error| {
            let text = self.run("return document.body.innerText").unwrap_or_default();
            io::Error::new(error.kind(), format!("{error}; the page:\n{}", text.as_str().unwrap_or_default()))
        })
    }

    /// Presses keys one after the other: characters, or names such as `Tab`, `Enter`, `ArrowLeft`, `Escape`.
    pub fn press(&self, keys: &[&str]) -> io::Result<()> {
        let code = |key: &str| match key {
            "Tab" => "\u{E004}".to_owned(),
            "Enter" => "\u{E007}".to_owned(),
            "Escape" => "\u{E00C}".to_owned(),
            "Space" => " ".to_owned(),
            "ArrowLeft" => "\u{E012}".to_owned(),
            "ArrowRight" => "\u{E014}".to_owned(),
            other => other.to_owned(),
        };
        let press =
            |key: &&str| [json!({"type": "keyDown", "value": code(key)}), json!({"type": "keyUp", "value": code(key)})];
        let actions = keys.iter().flat_map(press).collect::<Vec<_>>();
        let keyboard = json!({"type": "key", "id": "keyboard", "actions": actions});
        self.command("actions", &json!({"actions": [keyboard]})).map(|_| ())
    }

    /// Sets the size of the page, in CSS pixels.
    pub fn resize(&self, width: u32, height: u32) -> io::Result<()> {
        let size = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        self.devtools("Emulation.setDeviceMetricsOverride", &size).map(|_| ())
    }

    /// Sets media features, such as `("prefers-color-scheme", "dark")`.
    pub fn media(&self, features: &[(&str, &str)]) -> io::Result<()> {
        let features = features.iter().map(|(name, value)| json!({"name": name, "value": value})).collect::<Vec<_>>();
        self.devtools("Emulation.setEmulatedMedia", &json!({"features": features})).map(|_| ())
    }

    /// Runs a script in each page before its own scripts.
    pub fn before_load(&self, script: &str) -> io::Result<()> {
        self.devtools("Page.addScriptToEvaluateOnNewDocument", &json!({"source": script})).map(|_| ())
    }

    /// Writes the visible part of the page to a PNG file.
    pub fn screenshot(&self, file: &Path) -> io::Result<()> {
        let image = self.devtools("Page.captureScreenshot", &json!({"format": "png"}))?;
        let bytes = STANDARD.decode(image["data"].as_str().unwrap_or_default()).map_err(io::Error::other)?;
        std::fs::write(file, bytes)
    }

    /// Returns the messages of the console since the last call: errors of scripts, of requests, and of the content
    /// security policy.
    pub fn console(&self) -> io::Result<Vec<String>> {
        let entries = self.command("se/log", &json!({"type": "browser"}))?;
        let text = |entry: &Value| format!("{}: {}", entry["level"], entry["message"].as_str().unwrap_or_default());
        Ok(entries.as_array().into_iter().flatten().map(text).collect())
    }

    /// Returns its folder, for files of the test.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    fn devtools(&self, command: &str, parameters: &Value) -> io::Result<Value> {
        self.command("goog/cdp/execute", &json!({"cmd": command, "params": parameters}))
    }

    fn command(&self, name: &str, body: &Value) -> io::Result<Value> {
        self.send("POST", &format!("/session/{}/{name}", self.session), body)
    }

    fn send(&self, method: &str, path: &str, body: &Value) -> io::Result<Value> {
        let (body, port) = (body.to_string(), self.port.number());
        let head = format!("{method} {path} HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\ncontent-type: application/json");
        let request = format!("{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        stream.set_read_timeout(Some(LONG))?;
        stream.write_all(request.as_bytes())?;
        let mut response: Value = serde_json::from_slice(&read_body(stream)?).map_err(io::Error::other)?;
        let value = response["value"].take();
        match value.get("error") {
            Some(error) => Err(io::Error::other(format!("{path}: {error}: {}", value["message"]))),
            None => Ok(value),
        }
    }
}

/// Reads a response with a `content-length`: chromedriver leaves the connection open.
fn read_body(stream: TcpStream) -> io::Result<Vec<u8>> {
    let mut reader = BufReader::new(stream);
    let (mut length, mut line) = (0, String::new());
    while reader.read_line(&mut line)? > 2 {
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().map_err(io::Error::other)?;
        }
        line.clear();
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    Ok(body)
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Closes Chromium. Errors can't be reported in `drop`; without chromedriver, Chromium exits too.
        let _ = self.send("DELETE", &format!("/session/{}", self.session), &json!({}));
    }
}
