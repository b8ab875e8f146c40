//! Supported syntax, error messages, and that no expression and no request does harm.

mod soup;

use super::*;
use std::borrow::Cow;
use std::collections::HashMap;

/// A request with these attributes, each by its name in rule syntax.
struct Request(HashMap<String, String>);

impl Attributes for Request {
    fn get(&self, attribute: &Attribute) -> Option<Cow<'_, str>> {
        self.0.get(&attribute.to_string()).map(|value| value.as_str().into())
    }
}

fn request(said: &[(&str, &str)]) -> Request {
    Request(said.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect())
}

fn usual() -> Request {
    request(&[
        ("method", "GET"),
        ("resource", "/users/7/Photo.PNG"),
        ("host", "api.example.com"),
        ("ip", "10.1.2.3"),
        ("header(x-plan)", "free"),
        ("header(x-empty)", ""),
        ("cookie(Session)", "s1"),
        ("query(n)", "20"),
        ("param(id)", "7"),
        ("jwt(sub)", "alice"),
        ("jwt(realm.role)", "admin"),
        ("account", "a1"),
        ("tenant", "acme"),
    ])
}

fn compiled(text: &str) -> Expression {
    Expression::compile_with(text, &["tenant"]).unwrap_or_else(|error| panic!("{text}: {error} at {:?}", error.at()))
}

/// Evaluates an expression for the usual request, as a text.
fn said(text: &str) -> String {
    compiled(text).text_of(&usual()).unwrap_or_else(|failed| format!("failed: {failed}"))
}

#[test]
fn everything_of_a_request_is_seen() {
    for (text, value) in [
        ("request.method", "GET"),
        ("request.path", "/users/7/Photo.PNG"),
        ("request.host", "api.example.com"),
        ("request.ip", "10.1.2.3"),
        ("request.headers['X-Plan']", "free"),
        ("request.headers.`x-plan`", "free"),
        ("request.cookies.Session", "s1"),
        ("request.query[\"n\"]", "20"),
        ("request.params.id", "7"),
        ("request.jwt.sub", "alice"),
        ("request.jwt['realm.role']", "admin"),
        ("request.jwt.realm.role", "admin"),
        ("account", "a1"),
        ("device", ""),
        ("tenant", "acme"),
        ("request.headers['x-absent']", ""),
        ("has(request.query.n)", "true"),
        ("has(request.query.m)", "false"),
        ("has(request.headers.`x-empty`)", "true"),
        ("'x-plan' in request.headers", "true"),
        ("'x-absent' in request.headers", "false"),
        ("!('X-Plan' in request.headers)", "false"),
    ] {
        assert_eq!(said(text), value, "{text}");
    }
}

#[test]
fn operators_and_functions_do_what_cel_says() {
    for (text, value) in [
        ("request.method == 'GET' && request.path != '/'", "true"),
        ("request.method == 'PUT' || request.method in ['GET', 'HEAD']", "true"),
        ("request.method in []", "false"),
        ("1 + 2 * 3 - 4 / 2 % 3", "5"),
        ("-7 / 2", "-3"),
        ("-7 % 2", "-1"),
        ("7u - 2u", "5"),
        ("1.5 * 2.0", "3"),
        ("-int(request.query.n)", "-20"),
        ("int(request.query.n) > 19", "true"),
        ("int(request.query.n) >= 19.5 && 1u < 2 && -1 < 1u", "true"),
        ("1 == 1.0 && 'a' < 'b' && false < true", "true"),
        ("0.0 / 0.0 == 0.0 / 0.0", "false"),
        ("request.path.startsWith('/users/') && request.path.endsWith('.PNG') && request.path.contains('/7/')", "true"),
        ("request.path.lowerAscii().endsWith('.png')", "true"),
        ("' x '.trim() + 'a'.upperAscii()", "xA"),
        ("request.path.matches('^/users/[0-9]+/')", "true"),
        ("matches(request.path, r'\\d{2}')", "false"),
        ("size('äöü') + request.query.n.size()", "5"),
        ("request.method == 'GET' ? 'read' : 'write'", "read"),
        ("string(1) + string(2u) + string(true) + string(1.5)", "12true1.5"),
        ("int('42') + int(1u) + int(2.9)", "45"),
        ("double(request.query.n) / 8.0", "2.5"),
        ("bool('true')", "true"),
        ("cidr('10.0.0.0/8').containsIP(request.ip)", "true"),
        ("cidr('11.0.0.0/8').containsIP(request.ip)", "false"),
        ("cidr('10.1.2.3').containsIP(request.ip)", "true"),
        ("cidr('::ffff:10.0.0.0/104').containsIP(request.ip)", "true"),
        ("'/v10/orders/77'.matches('^/v\\\\d+/\\\\w+/[0-9a-f-]{1,64}$')", "true"),
        ("cidr('10.0.0.0/8').containsIP('::ffff:10.9.9.9')", "true"),
        ("cidr('10.0.0.0/8').containsIP(request.host)", "false"),
        ("['/a', '/users'].exists(p, request.path.startsWith(p))", "true"),
        ("['/users', '/a'].all(p, request.path.startsWith(p))", "false"),
        ("[].exists(p, p == '') || ![].all(p, p == '')", "false"),
        ("['10.0.0.0/8', '::/0'].exists(net, cidr(net).containsIP(request.ip))", "true"),
        ("['x-a', 'x-plan'].exists(h, h in request.headers && request.headers[h] == 'free')", "true"),
        ("[1, 2].all(a, [1, 2].exists(b, a == b))", "true"),
        ("// a comment\ntrue", "true"),
    ] {
        assert_eq!(said(text), value, "{text}");
    }
}

#[test]
fn what_decides_outweighs_what_fails() {
    for (text, value) in [
        ("int('') == 1 && false", "false"),
        ("false && int('') == 1", "false"),
        ("int('') == 1 || true", "true"),
        ("true ? 1 : int('')", "1"),
    ] {
        assert_eq!(said(text), value, "{text}");
    }
}

#[test]
fn what_goes_wrong_with_a_request_is_a_failure() {
    for text in [
        "int('') == 1 && true",
        "int(request.headers.absent)",
        "int('1e3')",
        "double('x')",
        "uint('-1')",
        "uint(-1)",
        "bool('maybe')",
        "9223372036854775807 + 1",
        "-9223372036854775807 - 2",
        "(-9223372036854775807 - 1) / -1",
        "(-9223372036854775807 - 1) % -1",
        "-(-9223372036854775807 - 1)",
        "9223372036854775807 * 2",
        "0u - 1u",
        "1 / 0",
        "1 % 0",
        "1u / 0u",
        "int(1e30)",
        "int(0.0 / 0.0)",
        "int(18446744073709551615u)",
    ] {
        assert!(said(text).starts_with("failed: "), "{text} gives {}", said(text));
    }
}

#[test]
fn costs_are_whole_and_not_below_zero() {
    let count = |text: &str| compiled(text).count(&usual()).ok();
    assert_eq!(count("3"), Some(3));
    assert_eq!(count("18446744073709551615u"), Some(u64::MAX));
    assert_eq!(count("2.1"), Some(3));
    assert_eq!(count("-0.5"), Some(0));
    assert_eq!(count("int(request.query.n) / 7"), Some(2));
    for text in ["-1", "-1.5", "0.0 / 0.0", "1.0 / 0.0", "1e300", "'3'", "true", "int('')"] {
        assert_eq!(count(text), None, "{text}");
    }
    assert!(compiled("1").holds(&usual()).is_err());
    assert_eq!(compiled("request.method == 'GET'").holds(&usual()), Ok(true));
}

#[test]
fn what_is_wrong_is_told_when_the_rules_are_read() {
    for (text, at, said) in [
        ("", Some(0), "the expression is empty"),
        ("request.method ==", Some(17), "the expression ends too early"),
        ("'ä' == request.method == 'a' @", Some(30), "'@' is nothing that an expression has"),
        ("request.method == 'GET", Some(18), "texts have quotes at both ends"),
        ("request.method = 'GET'", Some(15), "'= ' is nothing"),
        ("f(1)(2)", Some(4), "mismatched input '('"),
        ("'ä' == request.methd", Some(15), "a request has no `methd`: did you mean `method`?"),
        ("request.heders['x'] == ''", Some(7), "did you mean `headers`?"),
        ("request.magic", Some(7), "expected one of `method`, `path`"),
        ("request == ''", Some(0), "`request` as a whole has no value"),
        ("request.headers == ''", Some(7), "`request.headers` as a whole has no value"),
        ("request.headers[request.host] == ''", Some(23), "has to be known when the rules are read"),
        ("request.host in request.headers", Some(7), "has to be known when the rules are read"),
        ("has(request.headers)", None, "as a whole has no value"),
        ("request['method']", None, "stand behind a dot"),
        ("request.path.x", None, "a string has no `x`"),
        ("request.path[0]", None, "a string can't be indexed"),
        ("acount == ''", Some(0), "nothing is called `acount`: did you mean `account`?"),
        ("GET == request.method", Some(0), "or a text in quotes"),
        (".account == ''", None, "nothing is called `.account`"),
        ("request.path.startswith('/')", None, "there is no function `startswith`: did you mean `startsWith`?"),
        ("startsWith(request.path, '/')", None, "`a.startsWith(b)`"),
        ("request.path.explode()", None, "there is no function `explode`"),
        ("request.path.matches(request.host)", None, "a regex has to be known"),
        ("request.path.matches('(')", None, "`(` is no regex: unclosed group"),
        ("request.path.matches('(\\\\w{1,900}){900}')", None, "too large"),
        ("request.path.matches('[a-z]{9000}')", None, "compiled, it has more than 64 KiB: a shorter one"),
        ("cidr('10.0.0.0/33').containsIP(request.ip)", None, "`10.0.0.0/33` is no network"),
        ("cidr(request.ip).containsIP(request.ip)", None, "a network has to be known"),
        ("cidr('10.0.0.0/8')", None, "`cidr` is called otherwise"),
        ("request.ip.containsIP('::1')", None, "`containsIP` is called otherwise"),
        ("request.query.n > 5", None, "`>` compares a string with an int: int(…) makes an int of a string"),
        ("request.query.n == 5", None, "compares a string with an int"),
        ("request.query.n && true", None, "`&&` is about a bool"),
        ("1 + 1.5", None, "`+` can't stand between an int and a double: double(…)"),
        ("1.5 % 1.0", None, "`%` can't stand between"),
        ("true + true", None, "`+` can't stand between"),
        ("-'a'", None, "`-` can't stand before a string"),
        ("true ? 1 : 'a'", None, "one side of `:` is an int, the other a string"),
        ("int(true)", None, "a bool can't become an int"),
        ("1 in ['a']", None, "an int is looked for, but this is a string"),
        ("'a' in request.path", None, "a.contains(b)"),
        ("account == null", None, "what is absent is an empty text"),
        ("b'x' == b'x'", None, "bytes are not part"),
        ("['a'] == ['a']", None, "a list can only stand behind `in`"),
        ("{'a': 1}.a == 1", None, "maps and messages"),
        ("['a'].map(x, x)", None, "there are only `exists` and `all`"),
        ("['a'].filter(x, true)", None, "there are only `exists` and `all`"),
        ("['a'].exists_one(x, true)", None, "there are only `exists` and `all`"),
        ("[account].exists(x, true)", None, "a list of constants"),
        ("request.headers.exists(x, true)", None, "a list of constants"),
        ("99999999999999999999", Some(0), "invalid int literal"),
    ] {
        let error = Expression::compile(text).unwrap_err();
        assert!(error.to_string().contains(said), "{text}: {error}");
        if let Some(at) = at {
            assert_eq!(error.at(), Some(at), "{text}: {error}");
        }
    }
}

#[test]
fn it_says_what_it_needs_to_know() {
    let needed = |text| compiled(text).attributes().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(
        needed("request.headers['X-A'] == '1' && request.headers['x-a'] != account"),
        ["header(x-a)", "account"]
    );
    assert_eq!(needed("has(request.query.q) || 'c' in request.cookies"), ["query(q)", "cookie(c)"]);
    assert_eq!(needed("1 == 1"), [""; 0]);
}

#[test]
fn what_is_true_of_every_request_is_known() {
    for (text, constant) in [
        ("true", Some(true)),
        ("1 > 2", Some(false)),
        ("false && request.path == '/'", Some(false)),
        ("request.path == '/' || true", Some(true)),
        ("request.path == '/'", None),
        ("has(request.query.q)", None),
        ("'text'", None),
        ("1 / 0 == 1", None),
        ("cidr('10.0.0.0/8').containsIP(request.ip)", None),
    ] {
        assert_eq!(compiled(text).constant(), constant, "{text}");
    }
}

#[test]
fn it_is_its_text() {
    let (one, other) = (compiled("1 == 1"), compiled("1 == 2"));
    assert_eq!((one.to_string(), format!("{one:?}")), ("1 == 1".to_owned(), "Expression(\"1 == 1\")".to_owned()));
    assert!(one == one.clone() && one != other);
}

/// Runs `work` on a thread with a stack of this size, as a user's thread may have.
fn on_a_small_stack<T: Send>(kib: usize, work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        std::thread::Builder::new().stack_size(kib << 10).spawn_scoped(scope, work).unwrap().join().unwrap()
    })
}

#[test]
fn the_deepest_expression_needs_little_stack() {
    let deepest = lower::DEEPEST;
    let texts = [
        format!("request.path{} == ''", " + 'a'".repeat(deepest - 2)),
        format!("1{} == 1", " + 1".repeat(deepest - 2)),
        format!("request.path{} == ''", ".lowerAscii()".repeat(deepest - 2)),
        format!("{}true{}", "!(".repeat(32), ")".repeat(32)),
        format!("{}false", "request.path == '' ? true : ".repeat(32)),
        format!("{}1{} == 1", "-(".repeat(31), ")".repeat(31)),
        format!("true{}", " == true".repeat(deepest - 1)),
        format!("true{}", " && true".repeat(400)),
    ];
    on_a_small_stack(256, || {
        for text in &texts {
            assert!(compiled(text).holds(&usual()).is_ok(), "{text}");
        }
    });
    for text in [
        format!("1{} == 1", " + 1".repeat(deepest)),
        format!("request{}", ".a".repeat(1900)),
        format!("request.jwt{}", ".a".repeat(2000)),
        format!("a{}", ".a".repeat(2000)),
        format!("{}a", "!".repeat(4000)),
        format!("{}1 == 1", "-".repeat(4000)),
        format!("{}1", "(".repeat(4000)),
        format!("{}1", "[".repeat(30)),
        format!("1{}", ")".repeat(4000)),
        format!("{}1", "a?".repeat(2000)),
        format!("'{}", "(".repeat(4000)),
        format!("1{}", "+1".repeat(2000)),
        format!("1{}", "<1".repeat(2000)),
        format!("f({})", "1,".repeat(2000)),
        "?".repeat(4096),
        "'".repeat(4096),
        "\\".repeat(4096),
    ] {
        on_a_small_stack(256, || {
            let _ = Expression::compile(&text).map(|expression| expression.holds(&usual()));
        });
    }
}

#[test]
fn lists_inside_lists_stay_small() {
    let list = format!("[{}]", vec!["1"; 40].join(", "));
    let text = format!("{list}.all(a, {list}.all(b, {list}.all(c, a == b && b == c)))");
    assert!(Expression::compile(&text).unwrap_err().to_string().contains("too large"));
}

#[test]
fn a_hostile_value_is_only_a_value() {
    let long = "a".repeat(1 << 20);
    let hostile =
        ["", "\0", "ä", "'", "9".repeat(400).as_str(), "-0", "nan", "inf", "1e999", "☃", &long].map(str::to_owned);
    let texts = [
        "int(account) > 1 || double(account) > 1.0 || uint(account) > 1u",
        "account.matches('(a+)+$') || account.matches('^(a|aa)+$')",
        "account.size() > 3 && account.lowerAscii().contains(account.upperAscii().trim())",
        "cidr('10.0.0.0/8').containsIP(account)",
    ];
    for value in &hostile {
        for text in texts {
            let expression = compiled(text);
            on_a_small_stack(256, || {
                let _ = expression.holds(&request(&[("account", value)]));
            });
        }
    }
    assert_eq!(compiled("double(account)").count(&request(&[("account", "nan")])).ok(), None);
    assert_eq!(compiled("double(account)").count(&request(&[("account", "inf")])).ok(), None);
}
