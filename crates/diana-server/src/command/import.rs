//! `diana import`: the limits of another program as a rule file.
//!
//! The rules go to standard output, and notes about what could not be migrated to standard error, one per line,
//! followed by hints about the remaining steps. The exit status is 0 if a rule file was written, also with notes, and 1
//! if not. With `--strict` none is written if the rules would differ from the original configuration.

use super::{input, output};
use clap::{Args, Subcommand};
use diana_import::{Imported, MAX_INPUT, NoteKind, import_envoy, import_limitador, import_nginx};
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The maximum number of files that one `include` returns; one more than the importer accepts, so that it reports it.
const MAX_FILES: usize = 1_001;

/// Convert another program's limits to a rule file
///
/// The rules are printed as YAML, each with a comment about its origin. Anything that could not be migrated, or only
/// approximately, is reported on standard error, as `FILE:LINE: directive: problem, and what to do`. With `--strict`, that
/// is an error: no rules are written, and the exit status is 1.
#[derive(Debug, Args)]
#[command(arg_required_else_help = true, after_help = EXAMPLES)]
pub(crate) struct Import {
    #[command(subcommand)]
    from: From,
}

const EXAMPLES: &str = "\
Examples:
  diana import nginx /etc/nginx/nginx.conf --output diana.yaml
  ssh gateway nginx -T | diana import nginx - > diana.yaml 2> to-do.txt
  diana import envoy ratelimit/config.yaml
  diana import limitador limits.yaml";

const NGINX: &str = "\
Converted directives:
  limit_req_zone, limit_req     a rule with `algorithm: leaky_bucket`, its burst, delay and nodelay
  limit_conn_zone, limit_conn   a rule with `concurrent`
  limit_rate, limit_rate_after  a rule `by: request` with `bandwidth`
  *_status, *_dry_run           `status`, `shadow`
  server_name, location         `match`; a location's limits don't apply to more specific ones, as in nginx
  *_log_level, zone=NAME:SIZE   `log`, `memory`
  map, geo                      `allow` or `match`, where they leave keys empty
  set_real_ip_from              `gateway.trusted_proxies`
  *_by_lua*                     rules, if they use lua-resty-limit-traffic with literal parameters

Examples:
  diana import nginx /etc/nginx/nginx.conf
  nginx -T | diana import nginx -
  diana import nginx /etc/nginx/sites-enabled/shop.conf --output diana.yaml
  diana import nginx /etc/nginx/nginx.conf --strict > diana.yaml      in a pipeline: fail if a limit would be lost";

const ENVOY: &str = "\
Each descriptor with a rate_limit becomes a rule for Envoy's requests: `match: {domain, descriptor}` with exactly its entries,
and `algorithm: fixed_window`. Serve them with `services: {envoy: 127.0.0.1:8081}`.

Examples:
  diana import envoy config.yaml
  diana import envoy - < config.yaml > diana.yaml";

const LIMITADOR: &str = "\
Each limit becomes a rule for Envoy's requests: its namespace is `match.domain`, its conditions are `match.descriptor` or
`match.when`, its variables are `by`. Serve them with `services: {envoy: 127.0.0.1:8081}`.

Examples:
  diana import limitador limits.yaml
  diana import limitador - < limits.yaml > diana.yaml";

#[derive(Debug, Subcommand)]
enum From {
    /// Import nginx's limit_req, limit_conn and limit_rate
    ///
    /// Reads a whole configuration with its includes, the output of `nginx -T`, or the file of a single site.
    #[command(after_help = NGINX)]
    Nginx(Files),
    /// Import the configuration of envoyproxy/ratelimit
    ///
    /// Reads the YAML with `domain` and `descriptors`.
    #[command(after_help = ENVOY)]
    Envoy(Files),
    /// Import the limits file of limitador
    ///
    /// Reads the YAML list of limits with `namespace`, `max_value` and `seconds`.
    #[command(after_help = LIMITADOR)]
    Limitador(Files),
}

#[derive(Debug, Args)]
struct Files {
    /// The file to import; `-` is standard input
    file: PathBuf,
    /// Write the rules to this file rather than to standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Fail, and write no rules, if something can't be migrated exactly
    #[arg(long)]
    strict: bool,
}

impl Import {
    pub(crate) fn run(self) -> ExitCode {
        let registry = diana_server::registry();
        let (files, imported) = match self.from {
            From::Nginx(files) => {
                let folder = files.file.parent().unwrap_or(Path::new("")).to_owned();
                let import = |name: &str, text: &str| {
                    import_nginx(name, text, &registry, &|pattern| included(&folder, pattern))
                        .map_err(|problems| problems.to_string())
                };
                let imported = files.read(import);
                (files, imported)
            }
            From::Envoy(files) => {
                let import = |name: &str, text: &str| {
                    import_envoy(name, text, &registry).map_err(|problems| problems.to_string())
                };
                let imported = files.read(import);
                (files, imported)
            }
            From::Limitador(files) => {
                let import = |name: &str, text: &str| {
                    import_limitador(name, text, &registry).map_err(|problems| problems.to_string())
                };
                let imported = files.read(import);
                (files, imported)
            }
        };
        match imported.and_then(|imported| files.write(&imported)) {
            Ok(()) => ExitCode::SUCCESS,
            Err(problem) => {
                let _ = writeln!(io::stderr(), "{}", problem.trim_end());
                ExitCode::FAILURE
            }
        }
    }
}

impl Files {
    fn read(&self, import: impl Fn(&str, &str) -> Result<Imported, String>) -> Result<Imported, String> {
        let name = input::name(&self.file);
        let bytes = input::bytes(&self.file).map_err(|error| format!("{name}: can't be read: {error}"))?;
        import(&name, &text(bytes))
    }

    fn write(&self, imported: &Imported) -> Result<(), String> {
        let mut errors = io::stderr().lock();
        for note in &imported.notes {
            // Errors are ignored: standard error may be closed.
            let _ = writeln!(errors, "{note}");
        }
        let differences = imported.notes.iter().filter(|note| note.kind == NoteKind::Difference).count();
        if self.strict && differences > 0 {
            let count = output::count_of(differences, "difference");
            return Err(format!("no rules written: {count}, and `--strict` allows none"));
        }
        for hint in &imported.hints {
            let _ = writeln!(errors, "hint: {hint}");
        }
        match &self.output {
            Some(path) => std::fs::write(path, &imported.rules)
                .map_err(|error| format!("{}: can't be written: {error}", path.display())),
            None => io::stdout()
                .write_all(imported.rules.as_bytes())
                .map_err(|error| format!("can't write to standard output: {error}")),
        }
    }
}

/// Decodes a file. Invalid UTF-8 can only be in comments and in strings that are never compared, so it is replaced.
fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

/// Returns the files that an `include` names. A file without `*` must exist.
fn included(folder: &Path, pattern: &str) -> io::Result<Vec<(String, String)>> {
    let path = folder.join(pattern);
    if !pattern.contains(['*', '?', '[']) {
        return Ok(vec![(path.display().to_string(), text(input::read_limited(File::open(&path)?)?))]);
    }
    // The folder's own name is not a pattern.
    let path = if Path::new(pattern).is_absolute() {
        pattern.to_owned()
    } else {
        Path::new(&glob::Pattern::escape(&folder.display().to_string())).join(pattern).display().to_string()
    };
    let paths = glob::glob(&path).map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
    let mut files = Vec::new();
    let mut bytes = 0;
    for path in paths.take(MAX_FILES) {
        let path = path.map_err(io::Error::from)?;
        let text = text(input::read_limited(File::open(&path)?)?);
        bytes += text.len();
        files.push((path.display().to_string(), text));
        if bytes > MAX_INPUT {
            // The importer reports it; reading more is not necessary.
            break;
        }
    }
    Ok(files)
}
