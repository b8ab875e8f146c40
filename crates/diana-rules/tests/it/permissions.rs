//! `permissions`: who may call what, whatever the spelling.

use diana_rules::attributes::SyntheticRequest;
use diana_rules::permissions::Permissions;
use diana_rules::{Attribute, Attributes, Document, Registry, RuleFile};
use proptest::prelude::*;
use std::borrow::Cow;
use std::net::IpAddr;

fn file(permissions: &str) -> RuleFile {
    let text = format!(
        "identity: {{account: header(x-account-id), role: header(x-role)}}\npermissions:\n{permissions}\nrules: []\n"
    );
    RuleFile::read(&Document::new("diana.yaml", text), &Registry::default()).unwrap()
}

fn problems(permissions: &str) -> String {
    let text = format!("identity: {{account: header(x-account-id)}}\npermissions: {permissions}\nrules: []\n");
    RuleFile::read(&Document::new("diana.yaml", text), &Registry::default()).unwrap_err().to_string()
}

/// Returns the decision, and its reason.
fn decide(file: &RuleFile, request: &dyn Attributes) -> (bool, String) {
    let permission = file.permissions.as_ref().unwrap().decide(request, &file.identity);
    (permission.is_allowed(), permission.to_string())
}

/// The example of the essay: the permission filter beside the limits.
const ADMIN: &str = "
  rules:
    - {allow: true, path: /admin/**, account: root}
    - {allow: false, path: /admin/**}";

#[test]
fn the_first_rule_that_applies_decides() {
    let file = file(ADMIN);
    let call =
        |path: &str, account: &str| decide(&file, &SyntheticRequest::new("GET", path).header("x-account-id", account));
    assert_eq!(call("/admin/keys", "root"), (true, "rule 1: allow /admin/**, account is root".to_owned()));
    assert_eq!(call("/admin/keys", "bob"), (false, "rule 2: deny /admin/**".to_owned()));
    assert_eq!(call("/orders", "bob"), (true, "no rule applies: allow".to_owned()));
    assert!(!decide(&file, &SyntheticRequest::new("GET", "/admin")).0, "without an account");
    assert_eq!(
        file.permissions.as_ref().map(|permissions| permissions.describe()).unwrap(),
        ["allow /admin/**, account is root", "deny /admin/**", "allow the rest"]
    );
}

#[test]
fn every_condition_of_a_rule_must_hold() {
    let file = file(
        "
  default: deny
  rules:
    - {allow: true, path: [/a/**, /b], method: [GET, PUT], host: '*.example.com', ip: [10.0.0.0/8, '::1'], role: [ops, 'dev-*']}",
    );
    let request = |method: &str, path: &str, host: &str, ip: &str, role: &str| {
        let request = SyntheticRequest::new(method, path).host(host).ip(ip.parse::<IpAddr>().unwrap());
        decide(&file, &request.header("x-role", role)).0
    };
    assert!(request("GET", "/a/x", "api.example.com:80", "10.1.2.3", "ops"));
    assert!(request("PUT", "/b", "API.example.com", "::1", "dev-1"));
    for (method, path, host, ip, role) in [
        ("POST", "/b", "a.example.com", "::1", "ops"),
        ("GET", "/c", "a.example.com", "::1", "ops"),
        ("GET", "/b", "example.org", "::1", "ops"),
        ("GET", "/b", "a.example.com", "11.0.0.1", "ops"),
        ("GET", "/b", "a.example.com", "::1", "guest"),
        ("GET", "/b", "a.example.com", "::1", "(several)"),
    ] {
        assert!(!request(method, path, host, ip, role), "{method} {path} {host} {ip} {role}");
    }
}

/// A request whose path services read in several ways.
struct Forms(Vec<String>);

impl Attributes for Forms {
    fn get(&self, attribute: &Attribute) -> Option<Cow<'_, str>> {
        (*attribute == Attribute::Path).then(|| Cow::Borrowed(&*self.0[0]))
    }

    fn other_paths(&self) -> &[String] {
        &self.0[1..]
    }

    fn ip(&self) -> Option<IpAddr> {
        None
    }
}

#[test]
fn an_ambiguous_path_is_allowed_only_in_all_forms_and_denied_in_any() {
    let forms = |paths: &[&str]| Forms(paths.iter().map(|path| (*path).to_owned()).collect());
    let public = file("\n  default: deny\n  rules: [{allow: true, path: /public/**}]");
    assert!(decide(&public, &forms(&["/public/a", "/public/b"])).0);
    assert!(!decide(&public, &forms(&["/public/a", "/admin"])).0);
    assert!(!decide(&public, &forms(&["/admin", "/public/a"])).0);
    let admin = file("\n  rules: [{allow: false, path: /admin/**}]");
    assert!(decide(&admin, &forms(&["/a", "/b"])).0);
    assert!(!decide(&admin, &forms(&["/a", "/admin/b"])).0);
}

#[test]
fn a_value_that_may_be_the_denied_one_is_denied() {
    let file = file("\n  rules: [{allow: false, account: mallory}]");
    let call = |account: &str| decide(&file, &SyntheticRequest::new("GET", "/").header("x-account-id", account)).0;
    assert!(call("bob"));
    assert!(!call("mallory"));
    assert!(!call("(several)"), "one of several values may be the service's");
}

#[test]
fn tokens_that_cannot_be_verified_have_no_permission() {
    let text = "
identity: {role: jwt(role), jwt: {secret: a secret that nobody else knows}}
permissions:
  rules:
    - {allow: true, path: /admin/**, role: admin}
    - {allow: false, path: /admin/**}
    - {allow: false, role: banned}
rules: []
";
    let file = RuleFile::read(&Document::new("diana.yaml", text), &Registry::default()).unwrap();
    let with = |path: &str, token: &str| {
        decide(&file, &SyntheticRequest::new("GET", path).header("authorization", format!("Bearer {token}"))).0
    };
    assert!(!with("/admin/a", "eyJhbGciOiJub25lIn0.eyJyb2xlIjoiYWRtaW4ifQ."), "unsigned");
    assert!(!with("/a", "a.b.c"), "it may be that of the banned role");
    assert!(decide(&file, &SyntheticRequest::new("GET", "/a")).0, "without a token");
}

#[test]
fn mistakes_are_reported_with_a_fix() {
    let report = problems("{default: maybe, rules: [{path: /a}, {allow: yes, role: x}, {allow: true, path: a}, 7]}");
    for expected in [
        "invalid value `maybe` for `default`",
        "missing `allow` in a permission rule",
        "unknown permission rule field `role`",
        "invalid path `a`",
        "invalid permission rule: expected a map, found a number",
    ] {
        assert!(report.contains(expected), "{expected}:\n{report}");
    }
    assert!(problems("{}").contains("missing `rules` in `permissions`"));
    assert!(
        problems("{rules: {allow: true}}").contains("invalid `rules` of `permissions`: expected a list, found a map")
    );
    assert!(problems("{rules: [], shadows: true}").contains("did you mean `shadow`?"));
    assert!(problems("{rules: [{allow: true, account: []}]}").contains("`account` is empty"));
}

#[test]
fn permissions_come_from_the_config_server_or_stay() {
    let local = file(ADMIN);
    let remote = |text: &str| local.with_remote(&Document::new("rules.yaml", text), &Registry::default()).unwrap();
    let admin = SyntheticRequest::new("GET", "/admin").header("x-account-id", "bob");
    assert!(!decide(&remote("rules: []"), &admin).0, "those of the local file stay");
    let replaced = remote("identity: {account: header(x-account-id)}\npermissions: {rules: []}\nrules: []");
    assert!(decide(&replaced, &admin).0);
}

proptest! {
    /// The specification: the rules one by one, by the forms of the path.
    #[test]
    fn permissions_are_those_of_a_model(
        rules in prop::collection::vec((any::<bool>(), 0_usize..4, prop::option::of(0_usize..3)), 0..6),
        default in any::<bool>(),
        forms in prop::collection::vec(0_usize..4, 1..4),
        account in prop::option::of(0_usize..3),
    ) {
        const PATHS: [&str; 4] = ["/**", "/a/**", "/a/b", "/c"];
        const FORMS: [&str; 4] = ["/a", "/a/b", "/c", "/d"];
        const ACCOUNTS: [&str; 3] = ["alice", "bob", "(several)"];
        let matches = |path: usize, form: usize| match path {
            0 => true,
            1 => form < 2,
            2 => form == 1,
            _ => form == 2,
        };
        let written = rules.iter().map(|(allow, path, account)| {
            let account = account.filter(|index| *index < 2).map(|index| format!(", account: {}", ACCOUNTS[index]));
            format!("    - {{allow: {allow}, path: '{}'{}}}\n", PATHS[*path], account.unwrap_or_default())
        });
        let default_word = if default { "allow" } else { "deny" };
        let list = written.collect::<String>();
        let list = if list.is_empty() { " []".to_owned() } else { format!("\n{list}") };
        let file = file(&format!("  default: {default_word}\n  rules:{list}"));
        let expected = rules.iter().find(|(allow, path, own)| {
            let mut of_forms = forms.iter().map(|form| matches(*path, *form));
            let is_path = if *allow { of_forms.all(|is_match| is_match) } else { of_forms.any(|is_match| is_match) };
            let is_account = match (own.filter(|index| *index < 2), account) {
                (None, _) => true,
                (Some(_), Some(2)) => !*allow,
                (Some(own), Some(account)) => own == account,
                (Some(_), None) => false,
            };
            is_path && is_account
        });
        let request = Modelled {
            forms: forms.iter().map(|form| FORMS[*form].to_owned()).collect(),
            account: account.map(|index| ACCOUNTS[index]),
        };
        prop_assert_eq!(decide(&file, &request).0, expected.map_or(default, |(allow, ..)| *allow));
    }
}

struct Modelled {
    forms: Vec<String>,
    account: Option<&'static str>,
}

impl Attributes for Modelled {
    fn get(&self, attribute: &Attribute) -> Option<Cow<'_, str>> {
        match attribute {
            Attribute::Path => Some(Cow::Borrowed(&*self.forms[0])),
            Attribute::Header(name) if &**name == "x-account-id" => self.account.map(Cow::Borrowed),
            _ => None,
        }
    }

    fn other_paths(&self) -> &[String] {
        &self.forms[1..]
    }
}

#[test]
fn permissions_without_rules_are_the_default() {
    let file = file("  default: deny\n  rules: []");
    let permissions: &Permissions = file.permissions.as_ref().unwrap();
    assert_eq!(permissions.describe(), ["deny the rest"]);
    assert!(!decide(&file, &SyntheticRequest::new("GET", "/")).0);
}
