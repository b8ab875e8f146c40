//! A Prometheus that scrapes one program.

use crate::ports::Port;
use crate::process::Process;
use std::fmt::Write as _;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

const CONFIG: &str = "prometheus.yml";
const LOG: &str = "prometheus.log";

/// A `prometheus`, killed on drop.
#[derive(Debug)]
pub struct PrometheusServer {
    // Fields are dropped in this order: first the process, then its folder and its port.
    process: Process,
    folder: TempDir,
    port: Port,
}

impl PrometheusServer {
    /// Starts a Prometheus that scrapes `/metrics` of this port of 127.0.0.1 every 100 ms, as the job `diana`, and
    /// evaluates the alerts of a file. Waits until it answers queries.
    ///
    /// # Errors
    /// It can't be started, or rejects the file.
    pub fn start(scraped: u16, alerts: Option<&Path>) -> io::Result<Self> {
        let port = Port::claim()?;
        let folder = tempfile::Builder::new().prefix("diana-prometheus-").tempdir()?;
        let mut config = format!(
            "global: {{scrape_interval: 100ms, scrape_timeout: 100ms, evaluation_interval: 100ms}}\n\
             scrape_configs:\n  - job_name: diana\n    static_configs: [{{targets: ['127.0.0.1:{scraped}']}}]\n"
        );
        if let Some(alerts) = alerts {
            let _ = writeln!(config, "rule_files: ['{}']", alerts.canonicalize()?.display());
        }
        std::fs::write(folder.path().join(CONFIG), config)?;
        let mut command = Command::new("prometheus");
        command
            .current_dir(folder.path())
            .arg(format!("--config.file={CONFIG}"))
            .arg(format!("--storage.tsdb.path={}", folder.path().join("data").display()))
            .arg(format!("--web.listen-address=127.0.0.1:{}", port.number()));
        let process = Process::start_with_log(&mut command, &folder.path().join(LOG))?;
        let server = Self { process, folder, port };
        let is_ready = || Ok(server.get("/-/ready").is_ok_and(|response| response.starts_with("HTTP/1.0 200")));
        server.process.wait_until_ready("a Prometheus", &server.folder.path().join(LOG), is_ready)?;
        Ok(server)
    }

    /// Evaluates an expression now; returns the JSON of the response.
    ///
    /// # Errors
    /// The connection failed.
    pub fn query(&self, expression: &str) -> io::Result<String> {
        self.json(&format!("/api/v1/query?query={}", percent_encoded(expression)))
    }

    /// Returns the JSON of the evaluated rules and alerts.
    ///
    /// # Errors
    /// The connection failed.
    pub fn rules(&self) -> io::Result<String> {
        self.json("/api/v1/rules")
    }

    fn json(&self, path: &str) -> io::Result<String> {
        let response = self.get(path)?;
        let (_, body) = response.split_once("\r\n\r\n").ok_or_else(|| io::Error::other("no response"))?;
        Ok(body.to_owned())
    }

    /// HTTP/1.0, so that the body ends with the connection.
    fn get(&self, path: &str) -> io::Result<String> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port.number()))?;
        write!(stream, "GET {path} HTTP/1.0\r\n\r\n")?;
        let mut response = String::new();
        stream.read_to_string(&mut response)?;
        Ok(response)
    }
}

fn percent_encoded(text: &str) -> String {
    text.bytes().fold(String::new(), |mut encoded, byte| {
        if byte.is_ascii_alphanumeric() {
            encoded.push(char::from(byte));
        } else {
            let _ = write!(encoded, "%{byte:02X}");
        }
        encoded
    })
}
