//! Limits in Lua beside those of nginx: literal uses of lua-resty-limit-traffic become rules, and no script that may
//! deny a request is lost without a note.

use crate::support::{compare, diana_in, err, folder, out, rule_names};
use diana::{DecideMode, Denial, Engine, EngineOptions, ManualClock, Permit, Timestamp};
use diana_import::{Imported, NoteKind, import_nginx};
use diana_rules::attributes::SyntheticRequest;
use diana_rules::{Document, RuleFile};
use diana_server::registry;
use proptest::prelude::*;
use std::collections::HashMap;
use std::time::Duration;

fn imported(text: &str) -> Imported {
    let imported =
        import_nginx("nginx.conf", text, &registry(), &|_| Err(std::io::Error::from(std::io::ErrorKind::NotFound)))
            .unwrap_or_else(|error| panic!("{error}"));
    rule_names(&imported.rules);
    imported
}

fn notes_of(imported: &Imported) -> Vec<String> {
    imported.notes.iter().map(ToString::to_string).collect()
}

/// Returns the rules of a script in `location /x/`, without the comments, and the notes.
fn script(lua: &str) -> (String, Vec<String>) {
    let imported = imported(&format!("server {{ location /x/ {{ access_by_lua_block {{\n{lua}\n}} }} }}"));
    let rules = imported.rules.split_once("\nrules:").map_or("", |(_, rules)| rules);
    let rules = rules.lines().filter(|line| !line.trim_start().starts_with('#'));
    (rules.map(|line| format!("{line}\n")).collect(), notes_of(&imported))
}

/// The essay's script and limit.lua, README examples of lua-resty-limit-traffic, and counters with resty.lock.
#[test]
fn a_gateway_of_openresty_is_converted_as_far_as_it_is_literal() {
    let folder = folder("nginx_lua");
    let output = diana_in(&folder, &["import", "nginx", "gateway.conf"], "", &[]);
    assert!(output.status.success(), "{}", err(&output));
    compare(&folder.join("gateway.expected.yaml"), &out(&output));
    compare(&folder.join("gateway.expected.notes"), &err(&output));
    assert!(!rule_names(&out(&output)).is_empty());
}

const DENY: &str = "if not delay then return ngx.exit(429) end";

#[test]
fn sleeping_is_queueing_and_no_sleep_is_nodelay() {
    let lua = |end: &str| {
        format!(
            "local lim = require('resty.limit.req').new('store', 0.5, 3)\nlocal delay = lim:incoming(ngx.var.uri, true)\n{DENY}\n{end}"
        )
    };
    let rule = "  - name: store\n    by: resource\n    match:\n      path: /x/**\n    limit: 1/2s\n    algorithm: leaky_bucket\n    burst: 3\n";
    let (rules, notes) = script(&lua("if delay >= 0.001 then ngx.sleep(delay) end"));
    assert_eq!((rules, notes), (format!("\n{rule}    status: 429\n"), Vec::new()));
    let (rules, notes) = script(&lua(""));
    assert_eq!((rules, notes), (format!("\n{rule}    nodelay: true\n    status: 429\n"), Vec::new()));
}

#[test]
fn connections_over_the_limit_wait_only_if_the_script_sleeps() {
    let lua = |end: &str| {
        format!(
            "local lim = require('resty.limit.conn').new('store', 10, 5, 0.25)\nlocal delay = lim:incoming('all', true)\n{DENY}\n{end}"
        )
    };
    let (rules, notes) = script(&lua("if delay > 0 then ngx.sleep(delay) end"));
    assert!(rules.contains("by: global\n"), "{rules}");
    assert!(rules.contains("    concurrent: {limit: 10, burst: 5, delay: 250ms}\n"), "{rules}");
    assert!(notes.is_empty(), "{notes:?}");
    assert!(script(&lua("")).0.contains("    concurrent: 15\n"));
}

#[test]
fn keys_are_variables_headers_and_texts() {
    for (key, by) in [
        ("ngx.var.binary_remote_addr", "ip/128"),
        ("ngx.var['remote_addr']", "ip/128"),
        ("ngx.var.host", "host"),
        ("ngx.var.uri", "resource"),
        ("'everyone'", "global"),
        ("ngx.var.http_x_api_key", "header(x-api-key)"),
        ("ngx.req.get_headers()['X-Api-Key']", "header(x-api-key)"),
        ("ngx.req.get_headers().authorization", "header(authorization)"),
        ("ngx.var.arg_user", "query(user)"),
        ("'limit:' .. ngx.var.host .. ':' .. ngx.var.uri", "[host, resource]"),
        ("tostring(ngx.var.host)", "host"),
    ] {
        let (rules, notes) = script(&format!(
            "local lim = require 'resty.limit.count'.new('store', 5, 60)\nlocal key = {key}\nlocal delay = lim:incoming(key, true)\n{DENY}"
        ));
        assert!(rules.contains(&format!("    by: {by}\n")), "{key}: {rules} {notes:?}");
        assert!(rules.contains("    limit: 5/60s\n    algorithm: fixed_window\n    opens: first_request\n"), "{rules}");
        assert!(notes.is_empty(), "{key}: {notes:?}");
    }
}

#[test]
fn a_location_has_its_own_script_or_that_of_its_server() {
    let lua = |rate: u32| {
        format!(
            "access_by_lua_block {{ local lim = require('resty.limit.req').new('s{rate}', {rate}, 0)\nlocal delay = lim:incoming(ngx.var.host, true)\n{DENY} }}"
        )
    };
    let imported = imported(&format!(
        "server {{ server_name a.example; {} location /own/ {{ {} }} location /none/ {{ access_by_lua_block {{ return }} }} }}
         server {{ server_name b.example; }}",
        lua(1),
        lua(2)
    ));
    let rules = imported.rules;
    assert!(
        rules.contains("- name: s1\n    by: host\n    match:\n      when: '!(request.host == \"b.example\" || request.path.startsWith(\"/none/\") || request.path.startsWith(\"/own/\"))'\n    limit: 1/s\n"),
        "{rules}"
    );
    assert!(rules.contains("      path: /own/**\n"), "{rules}");
}

#[test]
fn what_is_not_literal_is_reported_with_its_line() {
    let new = "local lim = require('resty.limit.req').new('store', 2, 3)\n";
    let ask = "local delay, err = lim:incoming(ngx.var.uri, true)\n";
    for (lua, problem) in [
        (
            format!("local lim = require('resty.limit.req').new('store', rate, 3)\n{ask}{DENY}"),
            "a parameter of `resty.limit.req` is not a literal number (line 2)",
        ),
        (
            format!("local lim = require('resty.limit.req').new(name, 2, 3)\n{ask}{DENY}"),
            "the dictionary of `resty.limit.req` is not literal (line 2)",
        ),
        (
            format!("local lim = require('resty.limit.req').new('store', 2, 0.5)\n{ask}{DENY}"),
            "`resty.limit.req` has a number that should be whole (line 2)",
        ),
        (
            format!("local lim = require('resty.limit.req').new('store', 0, 5)\n{ask}{DENY}"),
            "`resty.limit.req` has an invalid number (line 2)",
        ),
        (
            format!("local lim = require('resty.limit.req').new('store', 1)\n{ask}{DENY}"),
            "`resty.limit.req` has a wrong number of parameters (line 2)",
        ),
        (
            format!("{new}local delay = lim:incoming(user(), true)\n{DENY}"),
            "it calls `user` in a way that is not supported (line 3)",
        ),
        (
            format!("{new}local delay = lim:incoming(ngx.var.uri, false)\n{DENY}"),
            "`incoming` is not called with a key and `true` (line 3)",
        ),
        (format!("{new}{ask}"), "no `ngx.exit` with a status from 400 to 599 follows a rejection (line 3)"),
        (
            format!("{new}{ask}if not delay then ngx.log(ngx.WARN, 'over') end"),
            "no `ngx.exit` with a status from 400 to 599 follows a rejection (line 3)",
        ),
        (format!("{new}{ask}{DENY}\nif delay > 0 then ngx.exit(503) end"), "it denies delayed requests (line 3)"),
        (
            format!("{new}{ask}{DENY}\nif delay > 2 then ngx.exit(503) end"),
            "a condition depends on more than the limiter's answer (line 5)",
        ),
        (
            format!("{new}if ngx.var.uri == '/a' then\n{ask}{DENY} end"),
            "a condition depends on more than the limiter's answer (line 3)",
        ),
        (
            format!("{new}if ngx.var.uri then return end\n{ask}{DENY}"),
            "a condition depends on more than the limiter's answer (line 3)",
        ),
        (format!("{new}lim:set_rate(5)\n{ask}{DENY}"), "it calls `set_rate`, which is not supported (line 3)"),
        (format!("{new}for i = 1, 2 do\n{ask}{DENY} end"), "`for` is not supported (line 3)"),
        (format!("{new}local f = function() end\n{ask}{DENY}"), "functions are not supported (line 3)"),
        (format!("{new}limit = 5\n{ask}{DENY}"), "it assigns the global variable `limit` (line 3)"),
        (format!("{new}ngx.var.limit_rate = 5\n{ask}{DENY}"), "it assigns to a table (line 3)"),
        (format!("{new}{ask}{DENY}\nngx.exit(403)"), "it denies requests that no limit rejects (line 5)"),
        (format!("{new}{ask}{DENY}\n("), "expected a name (line 5)"),
        (format!("{new}{ask}{DENY} end"), "unexpected `end` (line 4)"),
    ] {
        let (rules, notes) = script(&lua);
        assert_eq!(rules, " []\n", "{lua}");
        let expected = format!(
            "nginx.conf:1: access_by_lua_block: not converted: a limit in Lua that is not literal: {problem}; write "
        );
        assert!(notes.len() == 1 && notes[0].starts_with(&expected), "{lua}\n{notes:?}");
    }
}

#[test]
fn limits_asked_one_after_the_other_differ_from_combined_ones() {
    let (rules, notes) = script(&format!(
        "local a = require('resty.limit.count').new('a', 5, 1)\nlocal b = require('resty.limit.count').new('b', 9, 60)\n\
         local delay = a:incoming('x', true)\n{DENY}\ndelay = b:incoming('x', true)\nif delay == nil then ngx.exit(503) end"
    ));
    assert!(rules.contains("limit: 5/s\n") && rules.contains("limit: 9/60s\n"), "{rules}");
    assert_eq!(rules.matches("status: 429").count(), 1, "each has its own status: {rules}");
    assert_eq!(
        notes,
        [
            "nginx.conf:6: access_by_lua_block: the script counts a request in its first limits even if a later one rejects it; Diana counts it in all or none"
        ]
    );
}

#[test]
fn every_directive_that_may_deny_is_reported() {
    let script = "the script may deny requests; if it limits them, write a rule with its numbers";
    let other = "unknown directive; if it limits requests, write a rule with its numbers";
    let asks = "the server that it asks may deny requests; if it limits them, write a rule with its numbers";
    for (directive, reason) in [
        ("access_by_lua_block { check() }", script.to_owned()),
        ("access_by_lua 'check()';", script.to_owned()),
        ("rewrite_by_lua_block { check() }", script.to_owned()),
        (
            "access_by_lua_file /etc/limit.lua;",
            "`/etc/limit.lua` can't be read here, and may deny requests; if it limits them, write rules for it"
                .to_owned(),
        ),
        (
            "access_by_lua_file $file;",
            "`$file` can't be read here, and may deny requests; if it limits them, write rules for it".to_owned(),
        ),
        ("content_by_lua_block { ngx.exit(503) }", "a limit in Lua; write a rule with its numbers".to_owned()),
        (
            "content_by_lua 'ngx.exit(ngx.HTTP_TOO_MANY_REQUESTS)';",
            "a limit in Lua; write a rule with its numbers".to_owned(),
        ),
        ("js_access main.check;", script.to_owned()),
        ("js_content main.rateLimit;", "a limit in JavaScript; write a rule with its numbers".to_owned()),
        ("auth_request /auth;", asks.to_owned()),
        ("limit_traffic_rate one 5k;", other.to_owned()),
        ("limit_req_whitelist geo_var_name=x;", other.to_owned()),
        ("req_limit 5;", other.to_owned()),
        ("throttle on;", other.to_owned()),
        ("testcookie on;", other.to_owned()),
        ("vhost_traffic_status_limit_traffic in:64G;", other.to_owned()),
    ] {
        let imported = imported(&format!(
            "limit_req_zone $remote_addr zone=a:1m rate=1r/s;\nserver {{\n limit_req zone=a; location /x/ {{\n  {directive} }} }}"
        ));
        let name = directive.split(' ').next().unwrap();
        assert_eq!(notes_of(&imported), [format!("nginx.conf:4: {name}: not converted: {reason}")], "{directive}");
        assert_eq!(imported.notes[0].kind, NoteKind::Difference);
    }
    for directive in [
        "auth_request off;",
        "content_by_lua_block { ngx.say('limit') }",
        "log_by_lua_block { ngx.exit(503) }",
        "js_content main.hello;",
        "access_by_lua_no_postpone on;",
        "lua_regex_match_limit 100;",
    ] {
        let imported = imported(&format!("server {{ {directive} }}"));
        assert!(imported.notes.is_empty(), "{:?}", notes_of(&imported));
    }
    let other_blocks = imported(
        "worker_rlimit_nofile 5; map $uri $limit { limit_a 1; throttle 2; }
upstream app { server 127.0.0.1; limit_upstream_conn limit=8; }
stream { server { preread_by_lua_block { ngx.exit(503) } js_access main.a; } }",
    );
    assert_eq!(
        notes_of(&other_blocks),
        [
            "nginx.conf:2: limit_upstream_conn: not converted: it limits requests to one upstream; write a rule with its numbers",
            "nginx.conf:3: preread_by_lua_block: not converted: it applies to TCP or UDP streams, but Diana limits HTTP requests",
            "nginx.conf:3: js_access: not converted: it applies to TCP or UDP streams, but Diana limits HTTP requests",
        ]
    );
}

#[test]
fn strict_import_fails_on_lua_beside_a_limit() {
    let zone = "limit_req_zone $remote_addr zone=a:1m rate=1r/s;\n";
    let strict = |lua: &str| {
        diana_in(
            &std::env::temp_dir(),
            &["import", "nginx", "-", "--strict"],
            &format!("{zone}server {{ limit_req zone=a; {lua} }}\n"),
            &[],
        )
    };
    let output = strict("access_by_lua_block { check() }");
    assert_eq!((output.status.code(), out(&output)), (Some(1), String::new()));
    assert!(err(&output).starts_with("stdin:2: access_by_lua_block: not converted: "), "{}", err(&output));
    assert!(err(&output).ends_with("no rules written: 1 difference, and `--strict` allows none\n"), "{}", err(&output));

    let output = strict("log_by_lua_block { log() }");
    assert!(output.status.success(), "{}", err(&output));
    let converted = std::fs::read_to_string(folder("nginx_lua").join("lua/essay.lua")).unwrap();
    let output = strict(&format!("access_by_lua_block {{ {converted} }}"));
    assert!(output.status.success(), "{}", err(&output));
    assert!(out(&output).contains("- name: limit_req_store\n"), "{}", out(&output));
}

#[test]
fn blocks_of_awkward_lua_end_where_nginx_ends_them() {
    let rest = " server { limit_req zone=a; }";
    for lua in [
        "local t = { '}', \"}\", [[}]], [==[ ]] } ]==] }",
        "-- don't }\n",
        "--[[ } \" ]] local a = 'it\\'s }'",
        "--[==[ ]] } ]==]",
        "local s = \"\\\\\" .. '\\\\' if a then b = {{}} end",
        "x = t[t[1]] -- [[ }\n",
    ] {
        let text = format!("limit_req_zone $remote_addr zone=a:1m rate=1r/s;\nlog_by_lua_block {{ {lua} }}{rest}");
        let imported = imported(&text);
        assert!(
            imported.rules.contains("- name: a\n") && imported.notes.is_empty(),
            "{lua}: {:?}",
            notes_of(&imported)
        );
    }
}

#[test]
fn log_levels_become_the_log_of_their_rules() {
    let zones = "limit_req_zone $remote_addr zone=a:1m rate=1r/s; limit_conn_zone $remote_addr zone=c:1m;\n";
    for (level, log) in [("info", "info"), ("notice", "info"), ("warn", "warn"), ("error", "error")] {
        let imported =
            imported(&format!("{zones}limit_req_log_level {level};\nserver {{ limit_req zone=a; limit_conn c 1; }}"));
        assert_eq!(imported.rules.matches("    log: ").count(), 1, "{}", imported.rules);
        assert!(
            imported.rules.contains(&format!("    burst: 0\n    log: {log}\n    memory: 1MiB\n")),
            "{}",
            imported.rules
        );
        assert!(imported.notes.is_empty(), "{:?}", notes_of(&imported));
    }
    let different = imported(&format!(
        "{zones}limit_conn_log_level info;\nserver {{ location /a/ {{ limit_conn c 1; limit_conn_log_level warn; }}
location /b/ {{ limit_conn c 1; }} }}"
    ));
    assert!(different.rules.contains("    concurrent: 1\n    log: warn\n    memory: 1MiB\n"), "{}", different.rules);
    assert_eq!(
        notes_of(&different)[1..],
        [
            "nginx.conf:4: limit_conn: its denials have different log levels in different locations; the rule has the highest"
        ]
    );
    assert_eq!(different.notes[1].kind, NoteKind::Info);
    let unknown = imported("server { limit_req_log_level loud; }");
    assert_eq!(
        notes_of(&unknown),
        ["nginx.conf:1: limit_req_log_level: not converted: the level must be `info`, `notice`, `warn` or `error`"]
    );
}

#[test]
fn sizes_of_zones_become_the_memory_of_their_rules() {
    let rules = |key: &str, size: &str| {
        let imported = imported(&format!(
            "limit_req_zone {key} zone=a:{size} rate=1r/s;\nserver {{ server_name a.example; limit_req zone=a; }}"
        ));
        (
            imported.rules.lines().find_map(|line| line.strip_prefix("    memory: ")).map(str::to_owned),
            notes_of(&imported),
        )
    };
    let memory = |size: &str| rules("$binary_remote_addr", size).0;
    assert_eq!(memory("10m").as_deref(), Some("10MiB"));
    assert_eq!(memory("1536k").as_deref(), Some("1536KiB"));
    // nginx's minimum is smaller than that of a rule.
    assert_eq!(memory("32k").as_deref(), Some("64KiB"));
    // One key needs no bound.
    assert_eq!(rules("$server_name", "10m"), (None, Vec::new()));
    let (large, notes) = rules("$binary_remote_addr", "128m");
    assert_eq!(large.as_deref(), Some("128MiB"));
    assert_eq!(
        notes,
        [
            "nginx.conf:1: limit_req_zone: the zones have 128MiB together, but all rules 64MiB by default, which is enough for some 2 million keys; for more, write `store: {memory: 128MiB}`"
        ]
    );
}

/// The page shows what is imported.
#[test]
fn the_page_shows_the_rules_of_a_script() {
    let page = include_str!("../../../../docs/coming-from/lua-resty.md");
    let (_, script) = page.split_once("```nginx\n").unwrap();
    let (script, rest) = script.split_once("```\n").unwrap();
    let (_, shown) = rest.split_once("```yaml\n").unwrap();
    let (shown, rest) = shown.split_once("```\n").unwrap();
    let imported = imported(script);
    assert!(imported.notes.is_empty(), "{:?}", notes_of(&imported));
    let written = imported.rules.lines().filter(|line| !line.trim_start().starts_with('#') && !line.is_empty());
    assert_eq!(written.map(|line| format!("{line}\n")).collect::<String>(), shown);

    let (_, console) = rest.split_once("--strict > diana.yaml; echo $?\n").unwrap();
    let note = console.lines().next().unwrap();
    let expected = std::fs::read_to_string(folder("nginx_lua").join("gateway.expected.notes")).unwrap();
    assert!(expected.lines().any(|line| line == note), "{note}");
}

/// Returns an engine with the rules of a script.
fn engine(lua: &str) -> (Engine, ManualClock) {
    let imported = imported(&format!("access_by_lua_block {{\n{lua}\n}}"));
    assert!(imported.notes.is_empty(), "{:?}\n{lua}", notes_of(&imported));
    let document = Document::new("diana.yaml", imported.rules);
    let file = RuleFile::read_with(&document, &registry(), |_| None).unwrap_or_else(|all| panic!("{all}"));
    let clock = ManualClock::at(Timestamp::from_secs(1_700_000_000));
    (EngineOptions::of(&file).clock(clock.clone()).build(&file), clock)
}

/// Decides about a request of a client.
fn decide(engine: &Engine, client: u8) -> Result<Permit, Denial> {
    let request = SyntheticRequest::new("GET", "/").ip([203, 0, 113, client]);
    engine.decide(&[&request], DecideMode::Deny).now().expect("nothing waits")
}

fn delay(decided: &Result<Permit, Denial>) -> Option<Duration> {
    decided.as_ref().ok().map(|permit| permit.wait().unwrap_or_default())
}

#[test]
fn the_essays_script_delays_three_and_denies_the_fifth() {
    let script = std::fs::read_to_string(folder("nginx_lua").join("lua/essay.lua")).unwrap();
    let (engine, clock) = engine(&script);
    // 2 a second and a burst of 3: one at once, three each half a second after the other.
    let milliseconds = |count: u64| Some(Duration::from_millis(count));
    let five = [(); 5].map(|()| delay(&decide(&engine, 1)));
    assert_eq!(five, [milliseconds(0), milliseconds(500), milliseconds(1000), milliseconds(1500), None]);
    assert_eq!(decide(&engine, 1).unwrap_err().status(), Some(503));
    clock.advance(Duration::from_millis(500));
    assert_eq!(delay(&decide(&engine, 1)), milliseconds(1500));
    assert_eq!(delay(&decide(&engine, 2)), milliseconds(0));
}

#[test]
fn connections_wait_as_long_as_in_lua() {
    let (engine, _) = engine(
        "local lim = require('resty.limit.conn').new('store', 2, 3, 0.25)
         local delay, err = lim:incoming(ngx.var.binary_remote_addr, true)
         if not delay then return ngx.exit(429) end
         if delay >= 0.001 then ngx.sleep(delay) end",
    );
    let requests = [(); 6].map(|()| decide(&engine, 1));
    // resty.limit.conn: the delay is `unit_delay * floor((conn - 1) / max)`, and more than `max + burst` are rejected.
    let expected = (1..=6_u64).map(|conn| (conn <= 5).then(|| Duration::from_millis(250 * ((conn - 1) / 2))));
    assert_eq!(requests.iter().map(delay).collect::<Vec<_>>(), expected.collect::<Vec<_>>());
}

/// What resty.limit.req computes: the excess in thousandths of requests, and the time in milliseconds.
#[derive(Default)]
struct RequestModel {
    clients: HashMap<u8, (u64, u64)>,
}

impl RequestModel {
    /// Returns the new excess; `None` if the request is rejected. `rate` is in thousandths of requests per second.
    fn excess(&self, client: u8, now: u64, rate: u64, burst: u64) -> Option<u64> {
        let Some((excess, last)) = self.clients.get(&client) else { return Some(0) };
        let excess = (excess + 1000).saturating_sub(rate * (now - last) / 1000);
        (excess <= burst * 1000).then_some(excess)
    }
}

proptest! {
    /// `resty.limit.traffic` rejects if one of its limiters does, and commits to all or none.
    #[test]
    fn rules_decide_as_combined_limiters_do(
        rate in prop::sample::select(vec![500_u64, 1000, 2000, 4000, 5000, 10_000]),
        burst in 0..6_u64,
        (count, window) in (1..12_u64, 1..4_u64),
        requests in prop::collection::vec((prop::sample::select(vec![0_u64, 2, 14, 126, 334, 722, 1514]), 0..2_u8), 1..60),
    ) {
        let rate_text = if rate < 1000 { format!("0.{}", rate / 100) } else { (rate / 1000).to_string() };
        let (engine, clock) = engine(&format!(
            "local req = require('resty.limit.req').new('req', {rate_text}, {burst})
             local count = require('resty.limit.count').new('count', {count}, {window})
             local traffic, key = require 'resty.limit.traffic', ngx.var.binary_remote_addr
             local delay, err = traffic.combine({{req, count}}, {{key, 'everyone'}}, {{}})
             if not delay then return ngx.exit(503) end
             if delay >= 0.001 then ngx.sleep(delay) end"
        ));
        let mut model = RequestModel::default();
        let (mut now, mut opened, mut counted) = (0, None::<u64>, 0);
        for (elapsed, client) in requests {
            now += elapsed;
            clock.advance(Duration::from_millis(elapsed));
            if opened.is_none_or(|opened| now - opened >= window * 1000) {
                (opened, counted) = (None, 0);
            }
            let excess = model.excess(client, now, rate, burst).filter(|_| counted < count);
            if let Some(excess) = excess {
                model.clients.insert(client, (excess, now));
                opened.get_or_insert(now);
                counted += 1;
            }
            let expected = excess.map(|excess| Duration::from_millis(excess * 1000 / rate));
            prop_assert_eq!(delay(&decide(&engine, client)), expected, "client {} after {} ms", client, now);
        }
    }
}

#[test]
fn a_file_that_is_included_into_a_server_may_have_only_limits() {
    let imported = imported("limit_req_zone $uri zone=a:1m rate=1r/s;\nlimit_req zone=a;\nlimit_req zone=b;\n");
    assert!(imported.rules.contains("- name: a\n    by: resource\n    limit: 1/s\n"), "{}", imported.rules);
    assert_eq!(
        notes_of(&imported),
        [
            "nginx.conf:3: limit_req: not converted: unknown zone `b`: no `limit_req_zone` defines it; import the main file"
        ]
    );
}
