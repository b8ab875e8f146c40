//! The key of a zone, as `by`.

use super::map_and_geo::{Condition, Variables};

/// The key of a zone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ZoneKey {
    /// Empty means that all requests are counted together.
    pub(super) by: Vec<String>,
    pub(super) condition: Condition,
    /// Small differences from nginx.
    pub(super) notes: Vec<String>,
}

/// Parses a key such as `$binary_remote_addr$uri`; fails with the reason if rules can't express it. `servers` is the
/// number of servers that use the zone: a single one has a single `$server_name`. A variable with several values
/// becomes several keys, each with its condition.
pub(super) fn keys(text: &str, servers: usize, variables: &Variables) -> Result<Vec<ZoneKey>, String> {
    let mut keys = resolve(text, servers, variables, &Condition::default(), 0)?;
    for key in &mut keys {
        let optional = |part: &String| part.contains('(');
        if key.by.len() > 1 && key.by.iter().any(optional) {
            let what = "nginx also counts requests without one part of the key, Diana does not; `missing: shared` counts them together";
            key.notes.push(what.to_owned());
        }
    }
    Ok(keys)
}

/// The maximum depth of variables that refer to each other.
const MAX_DEPTH: usize = 4;
/// The maximum number of values of a variable that become separate rules.
const MAX_VALUES: usize = 8;

fn resolve(
    text: &str,
    servers: usize,
    variables: &Variables,
    condition: &Condition,
    depth: usize,
) -> Result<Vec<ZoneKey>, String> {
    let names = names(text);
    let defined = names.iter().find_map(|name| Some((name, variables.get(name)?)));
    if let Some((name, defined)) = defined {
        let values = defined.values();
        if values.is_empty() {
            return Err(format!("`${name}` is empty for every request, so nginx counts none"));
        }
        if values.len() > MAX_VALUES {
            return Err(format!(
                "`${name}` has more than {MAX_VALUES} values; write one rule for each, with its condition as `match`"
            ));
        }
        if depth == MAX_DEPTH {
            return Err(format!("`${name}` refers to too many other variables"));
        }
        if names.len() > 1 || *condition != Condition::default() {
            return Err(format!(
                "`${name}` is combined with other variables; write a rule with its condition as `match.when`"
            ));
        }
        let mut keys = Vec::new();
        for value in values {
            let condition = variables.condition(name, &|other| other == value, 0)?;
            keys.extend(resolve(value, servers, variables, &condition, depth + 1)?);
        }
        return Ok(keys);
    }
    let mut key = ZoneKey { condition: condition.clone(), ..ZoneKey::default() };
    for name in names {
        let part = match name.as_str() {
            "binary_remote_addr" | "remote_addr" => "ip/128".to_owned(),
            "server_name" if servers <= 1 => continue,
            "host" | "http_host" => "host".to_owned(),
            "server_name" => {
                let what =
                    "`$server_name` is the first name of a server, but `by: host` counts each of its names separately";
                key.notes.push(what.to_owned());
                "host".to_owned()
            }
            "uri" | "document_uri" => "resource".to_owned(),
            "request_uri" => {
                key.notes.push("`$request_uri` includes the query, but `by: resource` does not".to_owned());
                "resource".to_owned()
            }
            "request_method" => "method".to_owned(),
            "remote_user" => {
                return Err(
                    "`$remote_user` is known only to nginx; set a header in nginx, and write `by: header(x-user)`"
                        .to_owned(),
                );
            }
            _ => named(&name).ok_or_else(|| format!("`${name}` is not supported as a key; choose another `by`"))?,
        };
        if part == "header(x-forwarded-for)" {
            let what = "clients can forge `X-Forwarded-For`; `by: ip` with `gateway.trusted_proxies` is safer";
            key.notes.push(what.to_owned());
        }
        if !key.by.contains(&part) {
            key.by.push(part);
        }
    }
    Ok(vec![key])
}

/// Returns the key for a variable that contains another name, such as `$http_NAME`.
fn named(variable: &str) -> Option<String> {
    let named = |prefix: &str| variable.strip_prefix(prefix).filter(|name| !name.is_empty());
    let header = named("http_").map(|name| format!("header({})", name.to_lowercase().replace('_', "-")));
    header
        .or_else(|| named("cookie_").map(|name| format!("cookie({name})")))
        .or_else(|| named("arg_").map(|name| format!("query({name})")))
        .or_else(|| named("jwt_claim_").map(|name| format!("jwt({name})")))
}

/// Returns the variables of a text: `$name` and `${name}`. The text between them is the same for all requests.
fn names(text: &str) -> Vec<String> {
    let mut names = Vec::new();
    for part in text.split('$').skip(1) {
        let part = part.strip_prefix('{').unwrap_or(part);
        let end = part.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(part.len());
        names.extend(part.get(..end).filter(|name| !name.is_empty()).map(str::to_owned));
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn by(text: &str, servers: usize) -> Result<Vec<String>, String> {
        keys(text, servers, &Variables::default()).map(|mut keys| keys.remove(0).by)
    }

    #[test]
    fn nginx_variables_become_key_parts() {
        let cases: [(&str, &[&str]); 9] = [
            ("$binary_remote_addr", &["ip/128"]),
            ("$binary_remote_addr$uri", &["ip/128", "resource"]),
            ("${remote_addr}:$request_method", &["ip/128", "method"]),
            ("$http_x_api_key", &["header(x-api-key)"]),
            ("$cookie_session $arg_Token", &["cookie(session)", "query(Token)"]),
            ("$jwt_claim_sub", &["jwt(sub)"]),
            ("everyone", &[]),
            ("$host$http_host", &["host"]),
            ("", &[]),
        ];
        for (text, parts) in cases {
            assert_eq!(by(text, 1).unwrap(), parts, "{text}");
        }
        assert_eq!(by("$server_name", 1).unwrap(), Vec::<String>::new());
        assert_eq!(by("$server_name", 2).unwrap(), ["host"]);
        assert!(by("$remote_user", 1).unwrap_err().contains("header"));
        assert!(by("$connection", 1).is_err());
    }
}
