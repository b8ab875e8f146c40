//! `diana serve`: the gateway.

use anstyle::{AnsiColor, Style};
use clap::{Args, ValueEnum};
use diana_rules::{AccessLogFormat, Upstream};
use diana_server::program_log::{LogFilter, ProgramLog, ProgramLogFormat};
use diana_server::serve::{DEFAULT, ServeOptions, serve};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

const RED: Style = AnsiColor::Red.on_default().bold();
/// How long the last lines of the log may take: perhaps nobody reads them.
const LAST_LINES: Duration = Duration::from_secs(1);

/// Run the gateway: requests come in, those beyond a limit are refused or wait, the rest goes on to the upstream
///
/// Without a file it runs on sample rules, with counts in this process and an upstream of its own that echoes, and says what to
/// try. With one, rules are in force as soon as you save it; what it says about `gateway`, `admin`, `store` and `remote` takes
/// effect with the next start.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Serve {
    /// The rule file
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Listen there, whatever the file says; may be given several times
    #[arg(short, long, value_name = "ADDRESS:PORT")]
    listen: Vec<SocketAddr>,
    /// Let the admin server listen there, whatever the file says
    #[arg(long, value_name = "ADDRESS:PORT")]
    admin: Option<SocketAddr>,
    /// Send requests there, whatever the file says; several are used in turn
    #[arg(short, long, value_name = "URL")]
    upstream: Vec<Upstream>,
    /// Write a line for each request to standard output
    #[arg(long, value_name = "FORMAT")]
    access_log: Option<Format>,
    /// Write what the program itself has to say as JSON
    #[arg(long)]
    json_log: bool,
    /// Print the rule file that is used without one, and end
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
