//! `diana explain`: each rule's decision about one request, and why.
//!
//! Only the file is used: all counts start at zero, in this process, also those that would be shared. The clock is
//! stopped unless `--every` advances it, so the same command gives the same result (except for windows aligned to the
//! clock).

mod request;

use super::json::{self, Counted, Explained};
use super::{input, output};
use clap::Args;
use diana::{Clock, ManualClock, SystemClock};
use diana::{DecideMode, EngineOptions, Verdict};
use diana_config::RemoteSection;
use diana_gateway::section::GatewaySection;
use diana_http::head::{DescribedRequest, InvalidRequest};
use diana_rules::RuleFile;
use diana_rules::rule::{CountedIn, Rule};
use futures_util::FutureExt;
use request::{Header, Name, Target};
use std::io::{self, Write};
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Show which rules match a request, and what each decides
///
/// Every rule of the file has a line: `✓` counts the request and allows it, `✗` denies it, `-` does not match it, with
/// the reason. No store is contacted: all counts start at zero, also those that would be shared.
#[derive(Debug, Args)]
#[command(arg_required_else_help = true, after_help = EXAMPLES)]
pub(crate) struct Explain {
    /// The rule file; `-` is standard input
    file: PathBuf,
    /// The path with its query, or a whole URL, as a client sends it: it is normalised as in the gateway
    #[arg(value_name = "PATH", default_value = "/", value_parser = request::target)]
    target: Target,
    /// The method
    #[arg(short = 'X', long, default_value = "GET", value_parser = request::method)]
    method: String,
    /// The value of `Host`
    #[arg(long)]
    host: Option<String>,
    /// A header, as `name: value`; may be given several times
    #[arg(short = 'H', long = "header", value_name = "HEADER", value_parser = request::header)]
    headers: Vec<Header>,
    /// The client's address
    #[arg(long)]
    ip: Option<IpAddr>,
    /// The account, if the file's `identity` does not define its source
    #[arg(long, value_name = "NAME")]
    account: Option<String>,
    /// Any other named attribute that an application would provide, as `name=value`; may be given several times
    #[arg(long = "set", value_name = "NAME=VALUE", value_parser = request::name)]
    names: Vec<Name>,
    /// Decide the request N times first, and count each; all of them stay active
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(..=100_000))]
    times: u32,
    /// The time between two requests: 200ms, 1s
    #[arg(long, value_name = "TIME", default_value = "0s", hide_default_value = true, value_parser = request::time)]
    every: Duration,
    /// Explain the rules of a config server's document, in place of the file's own
    #[arg(long, value_name = "DOC")]
    remote: Option<PathBuf>,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

/// The exit status if the request is denied, or rejected by the gateway.
const DENIED: u8 = 3;

const EXAMPLES: &str = "\
The exit status is 0 if the request is allowed (also after a delay), 3 if it is denied, 1 if the file is invalid, and 2 for an
invalid command line. With `--times` it is about the last, explained request.

Examples:
  diana explain diana.yaml '/search?q=shoes' --ip 203.0.113.7
  diana explain diana.yaml -X POST --host api.example.com -H 'x-account-id: alice' /login
  diana explain diana.yaml https://api.example.com/login -H 'cookie: session=a1'
  diana explain diana.yaml / --ip 203.0.113.7 --times 5               when is it denied?
  diana explain diana.yaml / --account alice --times 50 --every 10ms  ... at a hundred a second?
  diana explain diana.yaml /admin > /dev/null; [ $? = 3 ] && echo denied
  diana explain diana.yaml / --json | jq '.denied_by'";

impl Explain {
    pub(crate) fn run(self) -> ExitCode {
        self.try_run().unwrap_or_else(|code| code)
    }

    fn try_run(&self) -> Result<ExitCode, ExitCode> {
        input::require_single_stdin(std::iter::once(&self.file).chain(&self.remote))?;
        let file = input::rule_file(&self.file, self.remote.as_deref(), &diana_server::registry());
        let file = file.map_err(|error| {
            if self.json {
                let printed = json::print(&Explained::invalid_file(&input::name(&self.file), &error));
                return printed.err().unwrap_or(ExitCode::FAILURE);
            }
            output::report_count(error.report())
        })?;
        let request = self.request(&file)?;
        let gateway = file.section_or_default::<GatewaySection>();
        let gateway = gateway.map_err(|error| output::usage_error(&error.to_string()))?;
        if let Some(rejected) = request.rejected(&gateway.server_settings().heads()) {
            if self.json {
                json::print(&Explained::rejected(rejected))?;
            } else {
                output::print(&format!("=> {rejected}\n"))?;
            }
            return Ok(ExitCode::from(DENIED));
        }

        let clock = ManualClock::at(SystemClock.now());
        let engine = EngineOptions::of(&file).clock(clock.clone()).build(&file);
        // The requests stay active, so that `concurrent` limits show up as used.
        let (mut in_flight, mut counted) = (Vec::new(), Vec::new());
        for number in 1..=self.times {
            let decided = ready_now(engine.decide(&[&request], DecideMode::Deny))?;
            let verdict = Verdict::of(&decided);
            if self.json {
                counted.push(Counted::new(number, verdict));
            } else {
                output::print(&format!("{number}: {verdict}\n"))?;
            }
            in_flight.push(decided);
            clock.advance(self.every);
        }
        let explanation = ready_now(engine.explain(&request))?;
        let notes = self.notes(&file);
        if self.json {
            json::print(&Explained::new(&explanation, counted, notes))?;
        } else {
            let heading = if self.times == 0 { "" } else { "\nnext request:\n" };
            let notes = notes.iter().map(|note| format!("note: {note}\n")).collect::<String>();
            output::print(&format!("{heading}{explanation}{notes}"))?;
        }
        let is_denied = explanation.is_denied();
        Ok(if is_denied { ExitCode::from(DENIED) } else { ExitCode::SUCCESS })
    }

    fn request(&self, file: &RuleFile) -> Result<DescribedRequest, ExitCode> {
        let mut request = self.typed_request().map_err(|error| output::usage_error(&error.to_string()))?;
        let account = self.account.iter().map(|account| ("account", account));
        for (name, value) in account.chain(self.names.iter().map(|Name { name, value }| (&**name, value))) {
            if file.identity.names().any(|known| known == name) {
                let help = "the file's `identity` takes it from the request; describe the request instead, as with -H";
                return Err(output::usage_error(&format!("can't set `{name}`: {help}")));
            }
            request = request.named(name, value);
        }
        Ok(request)
    }

    /// Returns the request as a client sends it.
    fn typed_request(&self) -> Result<DescribedRequest, InvalidRequest> {
        let mut request = DescribedRequest::new(&self.method, &self.target.path)?;
        if let Some((scheme, host)) = &self.target.origin {
            request = request.host(host)?.scheme(scheme);
        }
        for Header { name, value } in &self.headers {
            request = request.header(name, value)?;
        }
        if let Some(host) = &self.host {
            request = request.host(host)?;
        }
        Ok(match self.ip {
            Some(ip) => request.ip(ip),
            None => request,
        })
    }

    /// Notes about what differs from a running gateway.
    fn notes(&self, file: &RuleFile) -> Vec<String> {
        let mut notes = Vec::new();
        let mut note = |what: &str, applies: &dyn Fn(&Rule) -> bool| {
            let names = file.rules.iter().filter(|rule| applies(rule)).map(|rule| &*rule.name).collect::<Vec<_>>();
            if !names.is_empty() {
                notes.push(format!("{what}: {}", names.join(", ")));
            }
        };
        let is_shared = |rule: &Rule| rule.counted_in == CountedIn::Shared && !rule.limits.is_empty();
        note("shared with other instances, but counted from zero in this process", &is_shared);
        let depends_on_load = |rule: &Rule| rule.load.is_some() || rule.adaptive;
        note("depends on the load of the machine, which is unknown here", &depends_on_load);
        if !matches!(file.section::<RemoteSection>(), Ok(None)) && self.remote.is_none() {
            notes.push("the rules of the config server replace these; --remote explains a copy of them".to_owned());
        }
        notes
    }
}

/// Polls the future once: with counts in this process and a stopped clock, it is ready at once.
fn ready_now<T>(decision: impl Future<Output = T>) -> Result<T, ExitCode> {
    decision.now_or_never().ok_or_else(|| {
        let _ = writeln!(
            io::stderr(),
            "internal error: a decision with local counts was not ready at once; please report it"
        );
        ExitCode::FAILURE
    })
}
