//! Supported syntax, error messages, and that no expression and no request does harm.

mod random;

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

fn request(attributes: &[(&str, &str)]) -> Request {
    Request(attributes.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect())
}

fn usual() -> Request {
    request(&[
        ("method", "GET"),
        ("resource", "/users/7/Photo.PNG"),
        ("host", "api.example.com"),
        ("scheme", "https"),
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
fn evaluated(text: &str) -> String {
    compiled(text).text_of(&usual()).unwrap_or_else(|failed| format!("failed: {failed}"))
}

#[test]
fn reads_every_attribute_of_a_request() {
    for (text, value) in [
        ("request.method", "GET"),
        ("request.path", "/users/7/Photo.PNG"),
        ("request.host", "api.example.com"),
        ("request.scheme", "https"),
        ("has(request.scheme)", "true"),
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
        assert_eq!(evaluated(text), value, "{text}");
    }
}

#[test]
fn operators_and_functions_behave_as_in_cel() {
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
        assert_eq!(evaluated(text), value, "{text}");
    }
}

#[test]
fn a_decisive_operand_outweighs_a_failure() {
    for (text, value) in [
        ("int('') == 1 && false", "false"),
        ("false && int('') == 1", "false"),
        ("int('') == 1 || true", "true"),
        ("true ? 1 : int('')", "1"),
    ] {
        assert_eq!(evaluated(text), value, "{text}");
    }
}

#[test]
fn evaluation_errors_are_failures() {
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
        assert!(evaluated(text).starts_with("failed: "), "{text} gives {}", evaluated(text));
    }
}

#[test]
fn counts_are_rounded_up_and_not_negative() {
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
fn reports_invalid_expressions() {
    for (text, at, expected) in [
        ("", Some(0), "the expression is empty"),
        ("request.method ==", Some(17), "unexpected end of the expression"),
        ("'ä' == request.method == 'a' @", Some(30), "unexpected '@'"),
        ("request.method == 'GET", Some(18), "texts need quotes at both ends"),
        ("request.method = 'GET'", Some(15), "unexpected '= '"),
        ("f(1)(2)", Some(4), "mismatched input '('"),
        ("'ä' == request.methd", Some(15), "unknown request field `methd`: did you mean `method`?"),
        ("request.heders['x'] == ''", Some(7), "did you mean `headers`?"),
        ("request.magic", Some(7), "expected one of `method`, `path`"),
        ("request == ''", Some(0), "`request` is not a value"),
        ("request.headers == ''", Some(7), "`request.headers` is not a value"),
        ("request.headers[request.host] == ''", Some(23), "must be a constant"),
        ("request.host in request.headers", Some(7), "must be a constant"),
        ("has(request.headers)", None, "is not a value"),
        ("request['method']", None, "`request` cannot be indexed"),
        ("request.path.x", None, "a string has no field `x`"),
        ("request.path[0]", None, "a string cannot be indexed"),
        ("acount == ''", Some(0), "unknown name `acount`: did you mean `account`?"),
        ("GET == request.method", Some(0), "or a text in quotes"),
        (".account == ''", None, "unknown name `.account`"),
        ("request.path.startswith('/')", None, "unknown function `startswith`: did you mean `startsWith`?"),
        ("startsWith(request.path, '/')", None, "`a.startsWith(b)`"),
        ("request.path.explode()", None, "unknown function `explode`"),
        ("request.path.matches(request.host)", None, "a regex must be a constant"),
        ("request.path.matches('(')", None, "invalid regex `(`: unclosed group"),
        ("request.path.matches('(\\\\w{1,900}){900}')", None, "too large"),
        ("request.path.matches('[a-z]{9000}')", None, "it compiles to more than 64 KiB: use a shorter one"),
        ("cidr('10.0.0.0/33').containsIP(request.ip)", None, "invalid network `10.0.0.0/33`"),
        ("cidr(request.ip).containsIP(request.ip)", None, "a network must be a constant"),
        ("cidr('10.0.0.0/8')", None, "invalid call of `cidr`"),
        ("request.ip.containsIP('::1')", None, "invalid call of `containsIP`"),
        (
            "request.query.n > 5",
            None,
            "`>` cannot compare a string with an int: use int(…) to convert a string to an int",
        ),
        ("request.query.n == 5", None, "cannot compare a string with an int"),
        ("request.query.n && true", None, "`&&` expects a bool"),
        ("1 + 1.5", None, "`+` is not supported for an int and a double: use double(…)"),
        ("1.5 % 1.0", None, "`%` is not supported for"),
        ("true + true", None, "`+` is not supported for"),
        ("-'a'", None, "`-` is not supported for a string"),
        ("true ? 1 : 'a'", None, "mismatched types in `?:`: an int and a string"),
        ("int(true)", None, "cannot convert a bool to an int"),
        ("1 in ['a']", None, "mismatched types: expected an int, found a string"),
        ("'a' in request.path", None, "a.contains(b)"),
        ("account == null", None, "an absent value is an empty text"),
        ("b'x' == b'x'", None, "bytes are not supported"),
        ("['a'] == ['a']", None, "a list is only supported after `in`"),
        ("{'a': 1}.a == 1", None, "maps and messages"),
        ("['a'].map(x, x)", None, "only `exists` and `all` are supported"),
        ("['a'].filter(x, true)", None, "only `exists` and `all` are supported"),
        ("['a'].exists_one(x, true)", None, "only `exists` and `all` are supported"),
        ("[account].exists(x, true)", None, "a list of constants"),
        ("request.headers.exists(x, true)", None, "a list of constants"),
        ("99999999999999999999", Some(0), "invalid int literal"),
    ] {
        let error = Expression::compile(text).unwrap_err();
        assert!(error.to_string().contains(expected), "{text}: {error}");
        if let Some(at) = at {
            assert_eq!(error.at(), Some(at), "{text}: {error}");
        }
    }
}

#[test]
fn lists_the_attributes_that_it_reads() {
    let needed = |text| compiled(text).attributes().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(
        needed("request.headers['X-A'] == '1' && request.headers['x-a'] != account"),
        ["header(x-a)", "account"]
    );
    assert_eq!(needed("has(request.query.q) || 'c' in request.cookies"), ["query(q)", "cookie(c)"]);
    assert_eq!(needed("1 == 1"), [""; 0]);
}

#[test]
fn finds_constant_conditions() {
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
fn equality_and_display_use_the_text() {
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
    let max_depth = lower::MAX_DEPTH;
    let texts = [
        format!("request.path{} == ''", " + 'a'".repeat(max_depth - 2)),
        format!("1{} == 1", " + 1".repeat(max_depth - 2)),
        format!("request.path{} == ''", ".lowerAscii()".repeat(max_depth - 2)),
        format!("{}true{}", "!(".repeat(32), ")".repeat(32)),
        format!("{}false", "request.path == '' ? true : ".repeat(32)),
        format!("{}1{} == 1", "-(".repeat(31), ")".repeat(31)),
        format!("true{}", " == true".repeat(max_depth - 1)),
        format!("true{}", " && true".repeat(400)),
    ];
    on_a_small_stack(256, || {
        for text in &texts {
            assert!(compiled(text).holds(&usual()).is_ok(), "{text}");
        }
    });
    for text in [
        format!("1{} == 1", " + 1".repeat(max_depth)),
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
fn nested_lists_are_bounded() {
    let list = format!("[{}]", vec!["1"; 40].join(", "));
    let text = format!("{list}.all(a, {list}.all(b, {list}.all(c, a == b && b == c)))");
    assert!(Expression::compile(&text).unwrap_err().to_string().contains("too large"));
}

#[test]
fn hostile_values_do_no_harm() {
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
