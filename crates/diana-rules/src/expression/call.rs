//! The functions of an expression. Constant arguments (regexes, networks) are compiled here, once.

use super::lower::{Lowered, Lowering};
use super::lowered::{Position, TextTransform, Tree, ValueType};
use crate::networks::parse_network;
use cel::IdedExpr;
use cel::common::ast::{CallExpr, Expr};
use diana_document::map_reader::nearest;
use regex::RegexBuilder;

/// The maximum size of a compiled regex, in bytes: a hundred thousand rules may have one each.
const MAX_REGEX_SIZE: usize = 64 << 10;

/// Each function, and its call syntax.
const FUNCTIONS: [(&str, &str); 15] = [
    ("startsWith", "a.startsWith(b)"),
    ("endsWith", "a.endsWith(b)"),
    ("contains", "a.contains(b)"),
    ("matches", "a.matches('regex')"),
    ("size", "size(a)"),
    ("lowerAscii", "a.lowerAscii()"),
    ("upperAscii", "a.upperAscii()"),
    ("trim", "a.trim()"),
    ("int", "int(a)"),
    ("uint", "uint(a)"),
    ("double", "double(a)"),
    ("string", "string(a)"),
    ("bool", "bool(a)"),
    ("containsIP", "cidr('10.0.0.0/8').containsIP(request.ip)"),
    ("cidr", "cidr('10.0.0.0/8').containsIP(request.ip)"),
];

impl Lowering<'_> {
    pub(super) fn function(&mut self, node: &IdedExpr, call: &CallExpr) -> Lowered {
        let name = call.func_name.as_str();
        match (name, call.target.as_deref(), call.args.as_slice()) {
            ("startsWith", Some(of), [piece]) => self.piece(name, Position::Start, of, piece),
            ("endsWith", Some(of), [piece]) => self.piece(name, Position::End, of, piece),
            ("contains", Some(of), [piece]) => self.piece(name, Position::Anywhere, of, piece),
            ("matches", Some(of), [regex]) | ("matches", None, [of, regex]) => self.matches(of, regex),
            ("size", Some(of), []) | ("size", None, [of]) => {
                Ok((Tree::Size(Box::new(self.of_kind(of, ValueType::String, name)?)), ValueType::Int))
            }
            ("lowerAscii", Some(of), []) => self.transformed(name, TextTransform::Lower, of),
            ("upperAscii", Some(of), []) => self.transformed(name, TextTransform::Upper, of),
            ("trim", Some(of), []) => self.transformed(name, TextTransform::Trimmed, of),
            ("int", None, [of]) => self.converted(node, ValueType::Int, of),
            ("uint", None, [of]) => self.converted(node, ValueType::Uint, of),
            ("double", None, [of]) => self.converted(node, ValueType::Double, of),
            ("string", None, [of]) => self.converted(node, ValueType::String, of),
            ("bool", None, [of]) => self.converted(node, ValueType::Bool, of),
            ("containsIP", Some(network), [of]) => self.within(network, of),
            _ => Err(self.unknown(node, name)),
        }
    }

    fn unknown(&self, node: &IdedExpr, name: &str) -> super::error::InvalidExpression {
        if let Some((_, example)) = FUNCTIONS.iter().find(|(known, _)| *known == name) {
            return self.invalid(node, format!("invalid call of `{name}`")).expected(format!("expected `{example}`"));
        }
        let known = FUNCTIONS.map(|(name, _)| name);
        // The name may differ only in case, as other languages spell it.
        let same = known.iter().copied().find(|known| known.eq_ignore_ascii_case(name));
        let expected = match same.or_else(|| nearest(name, &known)) {
            Some(meant) => format!("did you mean `{meant}`?"),
            None => format!("expected one of {}", diana_document::map_reader::all(&known)),
        };
        self.invalid(node, format!("unknown function `{name}`")).expected(expected)
    }

    fn piece(&mut self, name: &str, position: Position, of: &IdedExpr, piece: &IdedExpr) -> Lowered {
        let sides = [self.of_kind(of, ValueType::String, name)?, self.of_kind(piece, ValueType::String, name)?];
        Ok((Tree::Contains(position, Box::new(sides)), ValueType::Bool))
    }

    fn transformed(&mut self, name: &str, transform: TextTransform, of: &IdedExpr) -> Lowered {
        Ok((Tree::Transform(transform, Box::new(self.of_kind(of, ValueType::String, name)?)), ValueType::String))
    }

    fn converted(&mut self, node: &IdedExpr, kind: ValueType, of: &IdedExpr) -> Lowered {
        let (tree, from) = self.lower(of)?;
        if from == kind {
            return Ok((tree, kind));
        }
        let fits = kind == ValueType::String || from == ValueType::String || (from.is_number() && kind.is_number());
        if !fits {
            return Err(self.invalid(node, format!("cannot convert {from:#} to {kind:#}")));
        }
        Ok((Tree::Convert(kind, Box::new(tree)), kind))
    }

    fn matches(&mut self, of: &IdedExpr, regex: &IdedExpr) -> Lowered {
        let of = self.of_kind(of, ValueType::String, "matches")?;
        let Some(text) = self.constant_text(regex) else {
            let invalid = self.invalid(regex, "a regex must be a constant");
            return Err(invalid.expected("expected a text in quotes, such as '^/v[0-9]+/'"));
        };
        match RegexBuilder::new(&text).size_limit(MAX_REGEX_SIZE).build() {
            Ok(regex) => Ok((Tree::Matches(Box::new(of), regex), ValueType::Bool)),
            Err(regex::Error::CompiledTooBig(_)) => {
                let invalid = self.invalid(regex, "the regex is too large: it compiles to more than 64 KiB");
                Err(invalid.expected("use a shorter one, with smaller counts in `{}`, or `[0-9]` instead of `\\d`"))
            }
            // The last line has the message; those before it draw the location.
            Err(error) => {
                let error = error.to_string();
                let reason = error.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned();
                Err(self.invalid(regex, format!("invalid regex `{text}`")).expected(reason))
            }
        }
    }

    /// Lowers `cidr('10.0.0.0/8').containsIP(request.ip)`, as in Kubernetes.
    fn within(&mut self, network: &IdedExpr, of: &IdedExpr) -> Lowered {
        let called = match &network.expr {
            Expr::Call(call) if call.func_name == "cidr" && call.target.is_none() => call.args.as_slice(),
            _ => return Err(self.unknown(network, "containsIP")),
        };
        let [name] = called else { return Err(self.unknown(network, "cidr")) };
        let text = self.constant_text(name);
        let Some(network) = text.as_deref().and_then(parse_network) else {
            let what =
                text.map_or("a network must be a constant".to_owned(), |text| format!("invalid network `{text}`"));
            return Err(self
                .invalid(name, what)
                .expected("expected a network such as '10.0.0.0/8' or '2001:db8::/32'"));
        };
        Ok((Tree::Within(Box::new(self.of_kind(of, ValueType::String, "containsIP")?), network), ValueType::Bool))
    }
}
