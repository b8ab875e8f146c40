//! The sample files in `examples/rules` are complete, and their rules treat requests as their comments say.

use diana::RuleSet;
use diana::ruleset::{DenyReason, Matches, Purpose};
use diana_admin::AdminSection;
use diana_config::RemoteSection;
use diana_gateway::section::GatewaySection;
use diana_rules::rule::{CountedIn, Mode, OnStatus, OverLimit};
use diana_rules::{Attribute, Attributes, Document, RuleFile};
use std::borrow::Cow;
use std::path::Path;

const SAMPLES: [&str; 12] = [
    "api-plans-with-vip-accounts",
    "downloads-by-bandwidth",
    "failed-logins",
    "flash-sale-with-a-queue",
    "llm-tokens-by-cost",
    "login-brute-force",
    "nginx-migrated",
    "overload-protection",
    "public-edge-with-tls",
    "scraping",
    "shared-limit-over-100-gateways",
    "sms-once-a-minute",
];

const SECRET: &str = "a secret for tests, which nobody else has";
/// Alice's token, from `https://login.example.com`, signed with the secret above.
const TOKEN: &str = "Bearer eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.\
    eyJzdWIiOiJhbGljZSIsImlzcyI6Imh0dHBzOi8vbG9naW4uZXhhbXBsZS5jb20ifQ.\
    4rh1BLwfnnI8j8v-g93N3y36Piqd-gBQTMDNBHwerzE";

fn folder() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/rules"))
}

fn text(sample: &str) -> String {
    std::fs::read_to_string(folder().join(format!("{sample}.yaml"))).unwrap()
}

fn file(sample: &str) -> RuleFile {
    let document = Document::new(format!("{sample}.yaml"), text(sample));
    let variable = |name: &str| match name {
        "JWT_SECRET" => Some(SECRET.to_owned()),
        "REDIS_PASSWORD" => Some("opensesame".to_owned()),
        _ => None,
    };
    RuleFile::read_with(&document, &diana_server::registry(), variable).unwrap_or_else(|problems| panic!("{problems}"))
}

/// One HTTP request, as a gateway sees it.
struct Request {
    method: &'static str,
    path: &'static str,
    host: &'static str,
    ip: &'static str,
    more: Vec<(Attribute, &'static str)>,
}

fn request(method: &'static str, path: &'static str) -> Request {
    Request { method, path, host: "api.example.com", ip: "198.51.100.7", more: Vec::new() }
}

impl Request {
    fn from(self, ip: &'static str) -> Self {
        Self { ip, ..self }
    }

    fn host(self, host: &'static str) -> Self {
        Self { host, ..self }
    }

    fn with(mut self, attribute: Attribute, value: &'static str) -> Self {
        self.more.push((attribute, value));
        self
    }

    fn header(self, name: &str, value: &'static str) -> Self {
        self.with(Attribute::Header(name.into()), value)
    }

    fn cookie(self, name: &str, value: &'static str) -> Self {
        self.with(Attribute::Cookie(name.into()), value)
    }
}

impl Attributes for Request {
    fn get(&self, attribute: &Attribute) -> Option<Cow<'_, str>> {
        let more = || self.more.iter().find(|(known, _)| known == attribute).map(|(_, value)| *value);
        match attribute {
            Attribute::Method => Some(self.method.into()),
            Attribute::Path => Some(self.path.into()),
            Attribute::Host => Some(self.host.into()),
            Attribute::Ip => Some(self.ip.into()),
            _ => more().map(Cow::Borrowed),
        }
    }
}

/// Each rule that matches a request: its name, the key, the cost, and the limits.
fn matches_of(rules: &RuleSet, request: &Request) -> Vec<String> {
    let mut found = Matches::default();
    rules.find(&[request], Purpose::Charge, &mut found);
    let name = |number: u32| rules.rule(number).unwrap().rule().name.clone();
    let applied = found.matched().iter().map(|applied| {
        let rule = rules.rule(applied.rule).unwrap();
        let key = String::from_utf8_lossy(found.key(applied));
        let limits = rule.limits(applied).iter().map(|limit| limit.limit.name().to_owned()).collect::<Vec<_>>();
        format!("{} [{key}] cost {}: {}", name(applied.rule), applied.cost.get(), limits.join(", "))
    });
    let refused = found.denied().iter().map(|refused| {
        let reason = match refused.why {
            DenyReason::Listed => "listed",
            DenyReason::Cost => "cost",
            _ => "missing",
        };
        format!("{} denies: {reason}", name(refused.rule))
    });
    applied.chain(refused).collect()
}

fn rules(sample: &str) -> RuleSet {
    RuleSet::new(&file(sample))
}

/// Checks that a rule matches a request, among others.
#[track_caller]
fn has(rules: &RuleSet, request: &Request, line: &str) {
    let all = matches_of(rules, request);
    assert!(all.iter().any(|own| own == line), "{line} is not in {all:#?}");
}

#[test]
fn the_list_of_samples_is_complete() {
    let names = std::fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names = names.collect::<Vec<_>>();
    names.sort_unstable();
    let mut expected = SAMPLES.map(|sample| format!("{sample}.yaml")).to_vec();
    expected.insert(0, "README.md".to_owned());
    assert_eq!(names, expected);
    let readme = std::fs::read_to_string(folder().join("README.md")).unwrap();
    for sample in SAMPLES {
        assert_eq!(readme.matches(&format!("| [{sample}]({sample}.yaml) | ")).count(), 1, "{sample}");
    }
}

#[test]
fn each_sample_is_complete_and_documented() {
    for sample in SAMPLES {
        let (file, text) = (file(sample), text(sample));
        assert!(
            file.section::<GatewaySection>().unwrap().is_some() && file.section::<AdminSection>().unwrap().is_some(),
            "{sample} needs `gateway` and `admin`"
        );
        assert!(file.rules.len() >= 4, "{sample} has {} rules", file.rules.len());
        let opening = text.lines().take_while(|line| line.starts_with('#')).collect::<Vec<_>>().join(" ");
        assert!(
            opening.len() > 300 && opening.contains(" sees ") && opening.contains("# Assumes: "),
            "{sample} must describe its purpose, what it assumes and what a client sees"
        );
        assert!(!text.lines().any(|line| line.chars().count() > 140), "{sample} has a line that is too long");
        let admin = &file.section::<AdminSection>().unwrap().unwrap().clone().listen;
        assert!(admin.iter().all(|address| address.ip().is_loopback()), "the admin page of {sample} is public");
    }
}

#[test]
fn login_brute_force() {
    let rules = rules("login-brute-force");
    assert_eq!(
        matches_of(&rules, &request("POST", "/accounts/alice/login")),
        [
            "login-from-address [198.51.100.7] cost 1: login-from-address, login-from-address#2",
            "login-from-network [198.51.100.0] cost 1: login-from-network",
            "login-to-account [alice] cost 1: login-to-account",
            "known-guessers [] cost 1: ",
        ]
    );
    // A duplicate slash does not change the account.
    has(&rules, &request("POST", "//accounts/alice/login/"), "login-to-account [alice] cost 1: login-to-account");
    let office = matches_of(&rules, &request("POST", "/accounts/bob/login").from("198.51.100.20"));
    assert!(!office.iter().any(|own| own.starts_with("login-from-address")), "{office:#?}");
    // The IPv6 addresses of one customer share one key.
    has(
        &rules,
        &request("POST", "/accounts/bob/login").from("2001:db8:1:2:3::4"),
        "login-from-address [2001:db8:1:2::] cost 1: login-from-address, login-from-address#2",
    );
    has(&rules, &request("GET", "/accounts/bob").from("203.0.113.9"), "known-guessers denies: listed");
    assert_eq!(
        matches_of(&rules, &request("POST", "/accounts/bob/password-reset")),
        ["password-reset [bob] cost 1: password-reset, password-reset#2", "known-guessers [] cost 1: "]
    );
    assert_eq!(matches_of(&rules, &request("GET", "/")), Vec::<String>::new());
}

#[test]
fn failed_logins() {
    let rules = rules("failed-logins");
    assert_eq!(
        matches_of(&rules, &request("POST", "/accounts/alice/login")),
        [
            "failed-logins-from-address [198.51.100.7] cost 1: failed-logins-from-address",
            "failed-logins-to-account [alice] cost 1: failed-logins-to-account",
            "login-at-once [198.51.100.7] cost 1: login-at-once",
            "scans [198.51.100.7] cost 1: scans",
        ]
    );
    has(&rules, &request("GET", "/api/x").header("x-account-id", "acme"), "api-quota [acme] cost 1: api-quota");
    let charged = |rule: usize, status| {
        let count = rules.rules()[rule].rule().count.unwrap();
        (count.is_about(status), count.then)
    };
    for rule in [0, 1] {
        assert_eq!([200, 401, 403, 500].map(|status| charged(rule, status).0), [false, true, true, false]);
    }
    assert_eq!(charged(3, 404), (true, OnStatus::Charge));
    assert_eq!(charged(4, 503), (true, OnStatus::Refund));
}

#[test]
fn sms_once_a_minute() {
    let rules = rules("sms-once-a-minute");
    assert_eq!(
        // `when` of `sms-abroad` is true.
        matches_of(&rules, &request("POST", "/sms/+4915112345678")),
        [
            "sms-to-number [+4915112345678] cost 1: sms-to-number, sms-to-number#2",
            "sms-from-address [198.51.100.7] cost 1: sms-from-address, sms-from-address#2",
            "sms-abroad [] cost 1: sms-abroad",
            "sms-budget [] cost 1: sms-budget",
        ]
    );
    let at_home = matches_of(&rules, &request("POST", "/sms/+8613912345678"));
    assert!(!at_home.iter().any(|own| own.starts_with("sms-abroad")) && at_home.len() == 3, "{at_home:#?}");
    assert_eq!(rules.rules()[2].rule().mode, Mode::Shadow);
    let statuses = rules.rules().iter().map(|rule| rule.rule().status).collect::<Vec<_>>();
    assert_eq!(statuses, [429, 429, 429, 503]);
}

#[test]
fn api_plans_with_vip_accounts() {
    let rules = rules("api-plans-with-vip-accounts");
    let of = |account: &'static str, plan| {
        request("GET", "/v1/things").header("x-account-id", account).header("x-plan", plan)
    };
    assert_eq!(
        matches_of(&rules, &request("GET", "/v1/things")),
        ["anonymous [198.51.100.7] cost 1: anonymous, anonymous#2", "everyone [] cost 1: everyone"]
    );
    assert_eq!(
        matches_of(&rules, &of("carol", "free")),
        ["free [carol] cost 1: free, free#2", "everyone [] cost 1: everyone"]
    );
    has(&rules, &of("dave", "pro"), "pro [dave] cost 1: pro, pro#2");
    // An account with an unknown plan, or without one, has the smallest.
    let without_plan = request("GET", "/v1/things").header("x-account-id", "erin");
    for unknown in [of("erin", "gold"), of("erin", "Pro"), of("erin", ""), without_plan] {
        assert_eq!(matches_of(&rules, &unknown), ["free [erin] cost 1: free, free#2", "everyone [] cost 1: everyone"]);
    }
    has(&rules, &of("acme", "pro"), "pro [acme] cost 1: pro@acme, pro@acme#2");
    has(&rules, &of("globex", "pro"), "pro [globex] cost 1: pro@globex");
    let export = request("POST", "/v1/exports/7").header("x-account-id", "dave");
    has(&rules, &export, "exports [dave] cost 1: exports");
    let others = matches_of(&rules, &of("dave", "pro"));
    assert!(!others.iter().any(|own| own.starts_with("free") || own.starts_with("exports")), "{others:#?}");
}

#[test]
fn scraping() {
    let rules = rules("scraping");
    // Without a cookie, and with the user agent of a robot: both `when` are true.
    let robot = || request("GET", "/products/shoes/7").header("user-agent", "python-requests/2.31");
    assert_eq!(
        matches_of(&rules, &robot()),
        [
            "pages-of-address [198.51.100.7] cost 1: pages-of-address, pages-of-address#2",
            "pages-of-network [198.51.100.0] cost 1: pages-of-network",
            "pages-without-cookie [] cost 1: pages-without-cookie",
            "robots-by-name [198.51.100.7] cost 1: robots-by-name",
        ]
    );
    let engine = matches_of(&rules, &robot().from("66.249.66.1"));
    assert_eq!(engine, ["robots-by-name [66.249.66.1] cost 1: robots-by-name"]);
    let visitor = |id| request("GET", "/products/shoes/7").cookie("visitor", id);
    assert_eq!(
        matches_of(&rules, &visitor("v-1")),
        [
            "pages-of-address [198.51.100.7] cost 1: pages-of-address, pages-of-address#2",
            "pages-of-network [198.51.100.0] cost 1: pages-of-network",
            "pages-of-visitor [v-1] cost 1: pages-of-visitor",
        ]
    );
    has(&rules, &visitor("price-monitor"), "pages-of-visitor [price-monitor] cost 1: pages-of-visitor@price-monitor");
    has(&rules, &request("GET", "/search"), "search [198.51.100.7] cost 1: search");
}

#[test]
fn flash_sale_with_a_queue() {
    let rules = rules("flash-sale-with-a-queue");
    let order = |path| request("POST", path).cookie("session", "s-1");
    assert_eq!(
        matches_of(&rules, &order("/sale/blue-shoe/order")),
        [
            "orders [] cost 1: orders",
            "shoes [blue-shoe] cost 1: shoes",
            "tries [3:s-19:blue-shoe] cost 1: tries",
            "orders-of-address [198.51.100.7] cost 1: orders-of-address",
        ]
    );
    has(&rules, &order("/sale/red-shoe/order"), "shoes [red-shoe] cost 1: shoes@red-shoe");
    has(&rules, &request("POST", "/sale/blue-shoe/order"), "tries denies: missing");
    assert_eq!(rules.rules()[0].rule().over, OverLimit::Reroute("http://10.0.2.1:8000".parse().unwrap()));
    assert_eq!(
        matches_of(&rules, &request("GET", "/sale/blue-shoe")),
        ["reloading [12:198.51.100.715:/sale/blue-shoe] cost 1: reloading"]
    );
    assert_eq!(matches_of(&rules, &request("POST", "/payments")), ["payments [] cost 1: payments"]);
}

#[test]
fn downloads_by_bandwidth() {
    let rules = rules("downloads-by-bandwidth");
    // Rules with only `bandwidth` or `load` have no limits in a store.
    assert_eq!(
        matches_of(&rules, &request("GET", "/files/archive/1.0.tar.gz")),
        [
            "each-client [198.51.100.7] cost 1: ",
            "archive [] cost 1: ",
            "at-a-time [198.51.100.7] cost 1: at-a-time",
            "the-line [] cost 1: ",
            "the-machine [] cost 1: ",
        ]
    );
    let mirror = matches_of(&rules, &request("GET", "/files/2.0.tar.gz").from("192.0.2.8"));
    assert_eq!(mirror, ["the-line [] cost 1: ", "the-machine [] cost 1: "]);
    has(&rules, &request("PUT", "/upload/3.0.tar.gz"), "uploads [] cost 1: ");
    let rates = rules.rules().iter().filter_map(|rule| rule.rule().bandwidth.clone());
    let rates = rates.map(|bandwidth| (bandwidth.rate.permits(), bandwidth.after)).collect::<Vec<_>>();
    assert_eq!(rates, [(8 << 20, 16 << 20), (512 << 10, 0), (20 << 20, 0), (112_500_000, 0)]);
}

#[test]
fn llm_tokens_by_cost() {
    let rules = rules("llm-tokens-by-cost");
    let request_to = |path| request("POST", path).header("authorization", TOKEN);
    let chat = request_to("/v1/chat/completions").header("content-length", "800");
    has(&rules, &chat, "tokens [alice] cost 4200: tokens, tokens#2");
    has(&rules, &chat, "requests [alice] cost 1: requests");
    has(&rules, &chat, "at-a-time [alice] cost 1: at-a-time");
    has(&rules, &chat, "models [] cost 1: models");
    // No header that a client chooses lowers the cost below the longest response.
    for chosen in ["0", "1", "-4000", "abc"] {
        let chat = request_to("/v1/chat/completions").header("content-length", "800").header("x-max-tokens", chosen);
        has(&rules, &chat, "tokens [alice] cost 4200: tokens, tokens#2");
    }
    let min = request_to("/v1/chat/completions").header("content-length", "0");
    has(&rules, &min, "tokens [alice] cost 4000: tokens, tokens#2");
    let max = request_to("/v1/chat/completions").header("content-length", "18446744073709551614");
    has(&rules, &max, "tokens [alice] cost 9007199254740992: tokens, tokens#2");
    // Without a valid length, the text may be of any length.
    has(&rules, &request_to("/v1/chat/completions"), "tokens denies: cost");
    has(&rules, &request_to("/v1/embeddings"), "embeddings denies: cost");
    for invalid in ["-100", "-4000", "", "abc", "1e3", "1.5", "(several)", "99999999999999999999", " 7"] {
        let chat = request_to("/v1/chat/completions").header("content-length", invalid);
        has(&rules, &chat, "tokens denies: cost");
    }
    let embedding = request_to("/v1/embeddings").header("content-length", "4000");
    has(&rules, &embedding, "embeddings [alice] cost 101: embeddings");
    let stranger = request("POST", "/v1/chat/completions");
    has(&rules, &stranger, "tokens denies: missing");
    let forged = request("POST", "/v1/chat/completions").header("authorization", TOKEN.trim_end_matches('E'));
    has(&rules, &forged, "tokens denies: missing");
}

#[test]
fn shared_limit_over_100_gateways() {
    let file = file("shared-limit-over-100-gateways");
    assert!(file.store.redis.is_some() && file.section::<RemoteSection>().unwrap().is_some());
    let homes = file.rules.iter().map(|rule| rule.counted_in).collect::<Vec<_>>();
    assert_eq!(homes, [CountedIn::Shared, CountedIn::Shared, CountedIn::Local, CountedIn::Local]);
    let rules = RuleSet::new(&file);
    let of = |account: &'static str| request("GET", "/").header("x-account-id", account);
    assert_eq!(
        matches_of(&rules, &of("carol")),
        [
            "each-account [carol] cost 1: each-account, each-account#2",
            "each-address-here [198.51.100.7] cost 1: each-address-here",
            "this-gateway [] cost 1: this-gateway",
        ]
    );
    has(&rules, &of("acme"), "each-account [acme] cost 1: each-account@acme, each-account@acme#2");
    has(&rules, &request("POST", "/exports/all"), "exports [] cost 1: exports");
    assert!(!format!("{file:?}").contains("opensesame"), "the password must be redacted");
}

#[test]
fn overload_protection() {
    let rules = rules("overload-protection");
    assert_eq!(
        matches_of(&rules, &request("GET", "/api/reports/sales")),
        [
            "adaptive [] cost 1: adaptive",
            "at-a-time [] cost 1: at-a-time",
            "reports [/api/reports/sales] cost 1: reports",
            "each-client [198.51.100.7] cost 1: each-client",
            "machine [] cost 1: ",
        ]
    );
    has(&rules, &request("GET", "/api/search"), "cold-start [] cost 1: cold-start");
    let own = matches_of(&rules, &request("GET", "/api/search").from("10.1.2.3"));
    assert!(!own.iter().any(|own| own.starts_with("each-client")), "{own:#?}");
    assert_eq!(matches_of(&rules, &request("GET", "/style.css")), ["machine [] cost 1: "]);
}

#[test]
fn overload_protection_denies_before_connections_run_out() {
    let file = file("overload-protection");
    let max_connections = file.rules.iter().find_map(|rule| rule.load.as_ref()?.connections).unwrap();
    assert!(file.section::<GatewaySection>().unwrap().unwrap().clone().bounds.connections as u64 > max_connections);
}

#[test]
fn public_edge_with_tls() {
    let file = file("public-edge-with-tls");
    let rules = RuleSet::new(&file);
    let of_alice = |method, path| request(method, path).header("authorization", TOKEN);
    assert_eq!(
        matches_of(&rules, &of_alice("GET", "/v1/things")),
        [
            "each-client [198.51.100.7] cost 1: each-client",
            "api [alice] cost 1: api, api#2",
            "each-network [198.51.100.0] cost 1: each-network",
        ]
    );
    let order = of_alice("POST", "/shop.Orders/Place");
    has(&rules, &order, "orders [5:alice18:/shop.Orders/Place] cost 1: orders");
    has(&rules, &request("POST", "/shop.Orders/Place"), "orders denies: missing");
    has(&rules, &request("GET", "/search").host("shop.example.com"), "search [] cost 1: search");
    has(&rules, &of_alice("POST", "/v1/pictures/7"), "uploads [alice] cost 1: uploads");
    let gateway = file.section::<GatewaySection>().unwrap().unwrap().clone();
    assert!(gateway.listen.is_empty(), "there must be no listener without TLS");
    assert_eq!(gateway.route(&request("GET", "/v1/things")), Some(0));
    assert_eq!(gateway.route(&order), Some(1));
    assert_eq!(gateway.route(&request("GET", "/search").host("shop.example.com")), None);
}

#[test]
fn nginx_migrated() {
    let rules = rules("nginx-migrated");
    let request_to = |path| request("GET", path).host("Shop.example.com:8080");
    assert_eq!(
        matches_of(&rules, &request_to("/cart")),
        [
            "perhost [shop.example.com] cost 1: perhost",
            "perip [198.51.100.7] cost 1: perip",
            "conns [198.51.100.7] cost 1: conns",
        ]
    );
    assert_eq!(
        matches_of(&rules, &request_to("/cart").from("10.1.2.3")),
        ["perhost [shop.example.com] cost 1: perhost"]
    );
    assert_eq!(matches_of(&rules, &request_to("/login")), ["login [198.51.100.7] cost 1: login"]);
    assert_eq!(matches_of(&rules, &request_to("/files/a.iso")), ["files [] cost 1: "]);
    assert_eq!(matches_of(&rules, &request_to("/beta/new")), ["beta [198.51.100.7] cost 1: beta"]);
    assert_eq!(matches_of(&rules, &request_to("/cart").host("other.example.com")), Vec::<String>::new());
}
