//! Property tests: random tokens do no harm, and every valid expression compiles.

use super::super::*;
use super::{on_a_small_stack, request, usual};
use proptest::prelude::*;

/// Generates a valid expression of this type, with a maximum depth.
fn valid(kind: ValueType, depth: u32) -> BoxedStrategy<String> {
    let leaf = match kind {
        ValueType::Bool => {
            proptest::sample::select(vec!["true", "false", "has(request.query.n)", "('x' in request.headers)"])
        }
        ValueType::Int => proptest::sample::select(vec!["0", "-1", "9223372036854775807", "account.size()"]),
        ValueType::Uint => proptest::sample::select(vec!["0u", "18446744073709551615u"]),
        ValueType::Double => proptest::sample::select(vec!["0.0", "1.5", "-1e300"]),
        ValueType::String => {
            proptest::sample::select(vec!["''", "'ä\\''", "account", "request.path", "request.headers['x']"])
        }
    };
    let leaf = leaf.prop_map(str::to_owned);
    if depth == 0 {
        return leaf.boxed();
    }
    let of = |kind| valid(kind, depth - 1);
    let two = |kind, signs: Vec<&'static str>| {
        (of(kind), proptest::sample::select(signs), of(kind)).prop_map(|(a, sign, b)| format!("({a} {sign} {b})"))
    };
    let choice = (of(ValueType::Bool), of(kind), of(kind)).prop_map(|(a, b, c)| format!("({a} ? {b} : {c})"));
    let compared = vec!["==", "!=", "<", "<=", ">", ">="];
    let sums = vec!["+", "-", "*", "/", "%"];
    match kind {
        ValueType::Bool => prop_oneof![
            leaf,
            choice,
            two(ValueType::Bool, vec!["&&", "||", "=="]),
            two(ValueType::String, compared.clone()),
            two(ValueType::Int, compared.clone()),
            two(ValueType::Double, compared),
            of(ValueType::Bool).prop_map(|a| format!("!{a}")),
            (of(ValueType::String), of(ValueType::String)).prop_map(|(a, b)| format!("{a}.contains({b})")),
            (of(ValueType::String), of(ValueType::String)).prop_map(|(a, b)| format!("({a} in [{b}, 'x'])")),
        ]
        .boxed(),
        ValueType::Int => prop_oneof![
            leaf,
            choice,
            two(ValueType::Int, sums),
            of(ValueType::String).prop_map(|a| format!("int({a})")),
            of(ValueType::Double).prop_map(|a| format!("int({a})")),
        ]
        .boxed(),
        ValueType::Uint => prop_oneof![leaf, choice, two(ValueType::Uint, sums)].boxed(),
        ValueType::Double => prop_oneof![
            leaf,
            choice,
            two(ValueType::Double, vec!["+", "-", "*", "/"]),
            of(ValueType::Uint).prop_map(|a| format!("double({a})")),
        ]
        .boxed(),
        ValueType::String => prop_oneof![
            leaf,
            choice,
            two(ValueType::String, vec!["+"]),
            of(ValueType::Int).prop_map(|a| format!("string({a})")),
            of(ValueType::String).prop_map(|a| format!("{a}.trim()")),
        ]
        .boxed(),
    }
}

const PIECES: &[&str] = &[
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    "?",
    ":",
    ",",
    ".",
    "!",
    "-",
    "+",
    "*",
    "/",
    "%",
    "==",
    "!=",
    "<",
    ">=",
    "&&",
    "||",
    "in",
    "request",
    "headers",
    "request.path",
    "request.headers['x']",
    "account",
    "true",
    "1",
    "1u",
    "1.5",
    "''",
    "'ä'",
    "\"",
    "'",
    "r'",
    "'''",
    "\\",
    "has(",
    ".exists(p,",
    ".map(",
    "matches(",
    "size(",
    "int(",
    "null",
    "b'",
    "`",
    "@",
    "// ",
    "\n",
    " ",
    "é",
    "99999999999999999999",
    "0x",
    "_",
    "cidr(",
    ".containsIP(",
    "as",
    "for",
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_tokens_do_no_harm(pieces in proptest::collection::vec(proptest::sample::select(PIECES), 0..40)) {
        let text = pieces.concat();
        on_a_small_stack(128, || {
            if let Ok(expression) = Expression::compile(&text) {
                let _ = (expression.constant(), expression.holds(&usual()), expression.count(&usual()), expression.text_of(&usual()));
            } else {
                let spaced = Expression::compile(&pieces.join(" "));
                let _ = spaced.map(|expression| expression.text_of(&usual()));
            }
        });
    }

    #[test]
    fn valid_expressions_compile_and_evaluate(text in valid(ValueType::Bool, 3), value in ".{0,20}") {
        let expression = Expression::compile(&text).map_err(|error| TestCaseError::fail(format!("{text}: {error}")))?;
        let request = request(&[("account", &value), ("query(n)", "1")]);
        let held = on_a_small_stack(128, || expression.holds(&request));
        // Arithmetic may fail; type errors can't occur, since types are checked at compile time.
        let is_arithmetic = |failed: ExpressionFailed| {
            ["number out of range", "invalid number", "division by zero"].contains(&&*failed.to_string())
        };
        prop_assert!(held.map_or_else(is_arithmetic, |_| true), "{text}");
        prop_assert_eq!(expression.kind(), ValueType::Bool);
    }
}
