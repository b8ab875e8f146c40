//! `diana serve`: the gateway.

use anstyle::{AnsiColor, Style};
use clap::{Args, ValueEnum};
use diana_gateway::section::AccessLogFormat;
use diana_rules::upstream::Upstream;
use diana_server::program_log::{LogFilter, ProgramLog, ProgramLogFormat};
use diana_server::serve::{DEFAULT, ServeOptions, serve};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

const RED: Style = AnsiColor::Red.on_default().bold();
/// The timeout for writing the last lines of the log, which may have no reader.
const LAST_LINES: Duration = Duration::from_secs(1);

/// Run the gateway: requests over a limit are denied or delayed, the rest is proxied to the upstream
///
/// Without a file it uses sample rules, with counts in this process and a built-in upstream that echoes requests, and
/// prints what to try. With a file, rules are applied as soon as you save it; changes of `gateway`, `admin`, `store`
/// and `remote` take effect at the next start.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Serve {
    /// The rule file
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Listen on this address, overriding the file; may be given several times
    #[arg(short, long, value_name = "ADDRESS:PORT")]
    listen: Vec<SocketAddr>,
    /// The address of the admin server, overriding the file
    #[arg(long, value_name = "ADDRESS:PORT")]
    admin: Option<SocketAddr>,
    /// Send requests to this upstream, overriding the file; several are used in turn
    #[arg(short, long, value_name = "URL")]
    upstream: Vec<Upstream>,
    /// Write a line for each request to standard output
    #[arg(long, value_name = "FORMAT")]
    access_log: Option<Format>,
    /// Write the program's own log as JSON
    #[arg(long)]
    json_log: bool,
    /// Print the rule file that is used without one, and exit
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
Signals: SIGTERM or Ctrl-C finishes what was begun and ends (a second one ends at once); SIGHUP reads the rules and the
certificates again. DIANA_LOG=debug says more about what happens (error, warn, info, debug, trace).

Examples:
  diana serve                                                 sample rules, to look around
  diana serve --print-default > diana.yaml                    begin with those
  diana serve --config diana.yaml                             your own
  diana serve -c diana.yaml -l 0.0.0.0:80 -u http://127.0.0.1:3000
  curl http://127.0.0.1:9090/rules                            what is in force, from another terminal";

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
                anstream::eprintln!("{RED}error:{RED:#} no thread for the log: {error}");
                return ExitCode::FAILURE;
            }
        };
        let code = self.serve(&log);
        log.flush(LAST_LINES);
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
