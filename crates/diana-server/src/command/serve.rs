//! `diana serve`: the gateway.

use anstyle::{AnsiColor, Style};
use clap::{Args, ValueEnum};
use diana_gateway::section::AccessLogFormat;
use diana_rules::upstream_url::Upstream;
use diana_server::program_log::{LogFilter, ProgramLog, ProgramLogFormat};
use diana_server::serve::{DEFAULT, ServeOptions, serve};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

const RED: Style = AnsiColor::Red.on_default().bold();
/// The timeout for writing the last lines of the log, which may have no reader.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

/// Run the gateway: requests over a limit are denied or delayed, the rest is proxied to the upstream
///
/// Without a file it uses sample rules, with counts in this process and a built-in upstream that echoes requests, and
/// prints what to try. With a file, these fields are applied as soon as you save it: `rules`, `version`,
/// `revision`, `identity`, `status`, `answer`, `permissions`, `log`, `log_keys`, `top_keys`, `gateway.upstream`, `gateway.routes`,
/// `gateway.balance`, `gateway.health`, `gateway.retries`, `admin.token` and `admin.tokens`. Other changes of `gateway` and
/// `admin`, and those of `services`, `store` and `remote`, need a restart; `diana status` lists them.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Serve {
    /// The rule file; it is reloaded when you save it. `-` is standard input, which is read once
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The address to listen on; overrides the file; may be repeated
    #[arg(short, long, value_name = "ADDRESS:PORT")]
    listen: Vec<SocketAddr>,
    /// The address of the admin server; overrides the file
    #[arg(long, value_name = "ADDRESS:PORT")]
    admin: Option<SocketAddr>,
    /// The upstream; overrides the file; several are used round robin
    #[arg(short, long, value_name = "URL")]
    upstream: Vec<Upstream>,
    /// The format of the access log on standard output; overrides the file
    #[arg(long, value_name = "FORMAT")]
    access_log: Option<Format>,
    /// Log to standard error as JSON, one object a line
    #[arg(long)]
    json_log: bool,
    /// Print the sample file and exit
    #[arg(long)]
    print_default: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    Off,
    Text,
    Json,
}

const EXAMPLES: &str = "\
Signals: SIGTERM or Ctrl-C drains the active requests and exits (a second one exits at once); SIGHUP reloads the rules, the \
settings that apply without a restart, and the certificates. DIANA_LOG sets the log level: error, warn, info (default), debug or trace.

Examples:
  diana serve                                                 sample rules, to try it
  diana serve --print-default > diana.yaml                    start with those
  diana serve --config diana.yaml                             your own rules
  diana serve -c diana.yaml -l 0.0.0.0:80 -u http://127.0.0.1:3000
  curl http://127.0.0.1:9090/rules                            the active rules, from another terminal";

impl Serve {
    pub(crate) fn run(self) -> ExitCode {
        if self.print_default {
            anstream::print!("{DEFAULT}");
            return ExitCode::SUCCESS;
        }
        let format = if self.json_log { ProgramLogFormat::Json } else { ProgramLogFormat::Text };
        let log = match ProgramLog::stderr(format) {
            Ok(log) => log,
            Err(error) => {
                anstream::eprintln!("{RED}error:{RED:#} can't start the log thread: {error}");
                return ExitCode::FAILURE;
            }
        };
        let code = self.serve(&log);
        log.flush(FLUSH_TIMEOUT);
        code
    }

    fn serve(self, log: &ProgramLog) -> ExitCode {
        let variable = std::env::var_os("DIANA_LOG").unwrap_or_default();
        match LogFilter::parse(&variable.to_string_lossy()) {
            Ok(filter) => log.install(filter),
            Err(invalid) => {
                log.error(&format!("DIANA_LOG: {invalid}"));
                return ExitCode::from(2);
            }
        }
        let access_log = self.access_log.map(|format| match format {
            Format::Off => AccessLogFormat::Off,
            Format::Text => AccessLogFormat::Text,
            Format::Json => AccessLogFormat::Json,
        });
        let options = ServeOptions::new(self.config).listen(self.listen).upstream(self.upstream).access_log(access_log);
        let options = options.admin(self.admin).program_log(log.clone());
        match serve(&options) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                log.error(&error);
                ExitCode::FAILURE
            }
        }
    }
}
