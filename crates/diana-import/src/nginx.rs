//! nginx: `limit_req`, `limit_conn`, `limit_rate` and literal uses of lua-resty-limit-traffic become rules.
//!
//! A zone is a rule's limit with its `by`; the locations that use it are the rule's `match`. All uses of a zone with
//! the same parameters are one rule, since nginx counts them together. [`location_set`] describes how locations become
//! paths.

mod convert;
mod dump;
mod gateway_hint;
mod host;
mod include;
mod key;
mod limit_directives;
mod location_set;
mod lua;
mod map_and_geo;
mod merge;
mod notes;
mod scope;
mod syntax;
mod unsupported;

pub use include::Include;

use crate::{GATEWAY, GATEWAY_FIELDS, Imported};
use diana_rules::{Problems, Registry};
use dump::Dump;
use notes::Notes;

const NO_LIMITS: &str = "has no limit_req, limit_conn or limit_rate, so there are no rules; if they are in other files, import the main file or the output of `nginx -T`";
const NONE_CONVERTED: &str = "no limit could be converted, so there are no rules; see the notes";

/// Converts an nginx configuration to a rule file. `include` returns the files that an `include` names, as `nginx`
/// finds them: relative to the folder of the main file, sorted by name. The output of `nginx -T` contains all files,
/// and is split.
///
/// ```
/// use diana_import::import_nginx;
/// use diana_rules::Registry;
///
/// let conf = "\
/// limit_req_zone $binary_remote_addr zone=login:10m rate=5r/m;
/// server {
///     location = /login { limit_req zone=login burst=3 nodelay; limit_req_status 429; }
/// }
/// ";
/// let imported = import_nginx("site.conf", conf, &Registry::default(), &|_| Ok(Vec::new())).unwrap();
/// assert!(imported.notes.is_empty());
/// assert!(imported.rules.ends_with("\
/// rules:
///   ## site.conf:1: limit_req_zone $binary_remote_addr, zone login
///   ## site.conf:3: limit_req in location = /login
///   - name: login
///     by: ip/128
///     match:
///       path: /login
///     limit: 5/min
///     algorithm: leaky_bucket
///     burst: 3
///     nodelay: true
///     status: 429
///     memory: 10MiB
/// "), "{}", imported.rules);
/// ```
pub fn import_nginx(
    name: &str,
    text: &str,
    registry: &Registry,
    include: Include<'_>,
) -> Result<Imported, Box<Problems>> {
    let mut notes = Notes::default();
    let directives = match Dump::read(text) {
        Some(dump) => {
            let (main, text) = dump.main();
            include::load(main, text, &|pattern| dump.include(pattern), &mut notes)?
        }
        None => include::load(name, text, include, &mut notes)?,
    };
    let http = scope::read(&directives, &mut notes);
    let mut file = convert::convert(name, &http, &mut notes);
    file.suggested = gateway_hint::suggested(&directives);
    let has_gateway = !file.trusted_proxies.is_empty();
    let mut notes = notes.finish();
    let rules = file.finish(registry, &mut notes);
    let mut hints = Vec::new();
    if rules.ends_with("\nrules: []\n") {
        let has_limits = unsupported::has_limits(&directives);
        hints.push(if has_limits { NONE_CONVERTED.to_owned() } else { format!("{name} {NO_LIMITS}") });
    }
    // A second `gateway` would be a duplicate key.
    hints.push(if has_gateway { GATEWAY_FIELDS } else { GATEWAY }.to_owned());
    Ok(Imported { rules, notes, hints })
}
