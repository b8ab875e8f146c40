//! Expressions over a request: `when: 'request.headers["x-test"] != "1"'`, `cost: 'int(request.query.n)'`, `by: cel("...")`.
//!
//! They are written in [CEL], the language that gateways and Kubernetes use for the same purpose. The crate `cel`
//! parses them; its tree is checked at load time and lowered into our own small tree, which is evaluated for each
//! request. So a typo is an error when the rules are loaded, not a failure in production; and evaluation builds no maps
//! and compiles no regexes.
//!
//! [CEL]: https://cel.dev
//!
//! # Supported syntax
//!
//! | | |
//! |---|---|
//! | the request | `request.method`, `.path`, `.host`, `.scheme`, `.ip`, `.headers["x-a"]`, `.cookies["c"]`, `.query["q"]`, `.params["id"]`, `.jwt["sub"]`; also `.params.id`, and `` .headers.`x-a` `` |
//! | names | `account`, `device`, and those that `identity` defines |
//! | presence | `has(request.query.q)`, `"x-a" in request.headers` |
//! | constants | `"text"`, `'text'`, `r'raw'`, `1`, `1u`, `1.5`, `true` |
//! | logic | `a && b`, <code>a &#124;&#124; b</code>, `!a`, `a ? b : c` |
//! | comparison | `==`, `!=`, `<`, `<=`, `>`, `>=`; `a in ['x', 'y']` |
//! | numbers | `+`, `-`, `*`, `/`, `%`, with both operands of one type; `int(a)`, `uint(a)`, `double(a)` |
//! | texts | `a + b`, `a.startsWith(b)`, `a.endsWith(b)`, `a.contains(b)`, `a.matches('regex')`, `a.size()`, `a.lowerAscii()`, `a.upperAscii()`, `a.trim()`, `string(a)`, `bool(a)` |
//! | addresses | `cidr('10.0.0.0/8').containsIP(request.ip)`, as in Kubernetes; an invalid address is in no network |
//! | lists | `['/a', '/b'].exists(p, request.path.startsWith(p))`, and `all`: only over constants, which bounds their cost |
//!
//! Types are checked as CEL's own checker does: every attribute of a request is a string, and an absent one is `""`.
//! Not supported: `null`, bytes, maps, messages, times, lists as values, `map`, `filter`, `exists_one`. A compiled
//! regex may take 64 KiB.
//!
//! # What always holds (expression/tests.rs)
//! - No text makes [`compile`](Expression::compile) panic or overflow a stack, on any thread.
//! - No request makes an expression panic, run long or use much stack.

mod call;
mod error;
mod evaluate;
mod lower;
mod lowered;
mod nesting;
mod parse;
mod request;

pub use error::{ExpressionFailed, InvalidExpression};
pub use lowered::ValueType;

use crate::attributes::{Attribute, Attributes};
use evaluate::{evaluate, whole, written};
use lower::Lowering;
use lowered::{Tree, Value};
use std::fmt;
use std::sync::Arc;

/// Names that every expression may use.
const NAMES: [&str; 2] = ["account", "device"];

/// A compiled expression over a request. The [module](self) documents the syntax.
///
/// ```
/// use diana_rules::expression::Expression;
/// use diana_rules::{Attribute, Attributes};
/// use std::borrow::Cow;
///
/// struct Request;
///
/// impl Attributes for Request {
///     fn get(&self, attribute: &Attribute) -> Option<Cow<'_, str>> {
///         match attribute {
///             Attribute::Header(name) if &**name == "x-plan" => Some("free".into()),
///             Attribute::Query(name) if &**name == "n" => Some("20".into()),
///             _ => None,
///         }
///     }
/// }
///
/// let when = Expression::compile("request.headers['X-Plan'] == 'free' && request.headers['x-test'] != '1'")?;
/// assert_eq!(when.holds(&Request), Ok(true));
///
/// let cost = Expression::compile("has(request.query.n) ? int(request.query.n) / 10 : 1")?;
/// assert_eq!(cost.count(&Request), Ok(2));
/// # Ok::<(), diana_rules::expression::InvalidExpression>(())
/// ```
#[derive(Clone)]
pub struct Expression {
    inner: Arc<ExpressionParts>,
}

struct ExpressionParts {
    text: Box<str>,
    tree: Tree,
    kind: ValueType,
    attributes: Box<[Attribute]>,
}

impl Expression {
    /// Compiles an expression. It can be at most 4 KiB long, and nest 32 levels deep.
    ///
    /// The parser needs a big stack, so this runs on a temporary thread: call it at load time, not for each request.
    pub fn compile(text: &str) -> Result<Self, InvalidExpression> {
        Self::compile_with(text, &[])
    }

    /// Like [`compile`](Self::compile), with additional names, such as those of `identity`.
    ///
    /// ```
    /// use diana_rules::expression::Expression;
    ///
    /// assert!(Expression::compile_with("tenant == 'acme'", &["tenant"]).is_ok());
    /// let error = Expression::compile_with("tennant == 'acme'", &["tenant"]).unwrap_err();
    /// assert_eq!(error.to_string(), "unknown name `tennant`: did you mean `tenant`?");
    /// ```
    pub fn compile_with(text: &str, names: &[&str]) -> Result<Self, InvalidExpression> {
        let further = names.iter().filter(|name| !NAMES.contains(name));
        let names = NAMES.iter().chain(further).copied().collect::<Vec<_>>();
        Self::with_names(text, &names)
    }

    /// Compiles an expression that may use `request`, but no names.
    pub(crate) fn of_request_only(text: &str) -> Result<Self, InvalidExpression> {
        Self::with_names(text, &[])
    }

    fn with_names(text: &str, names: &[&str]) -> Result<Self, InvalidExpression> {
        let inner = parse::parsed(text, |parsed, source| {
            let mut lowering = Lowering::new(names, source);
            let (tree, kind) = lowering.lower(parsed)?;
            Ok(ExpressionParts { text: text.into(), tree, kind, attributes: lowering.attributes.into() })
        })?;
        Ok(Self { inner: Arc::new(inner) })
    }

    /// The source text.
    pub fn text(&self) -> &str {
        &self.inner.text
    }

    /// The type of the result. A condition must be a `bool`, and a cost a number.
    pub fn kind(&self) -> ValueType {
        self.inner.kind
    }

    /// The attributes that the expression reads.
    pub fn attributes(&self) -> impl Iterator<Item = &Attribute> {
        self.inner.attributes.iter()
    }

    /// Returns the result of a condition that is the same for every request, else `None`.
    ///
    /// ```
    /// use diana_rules::expression::Expression;
    ///
    /// assert_eq!(Expression::compile("false && account == ''")?.constant(), Some(false));
    /// assert_eq!(Expression::compile("account == ''")?.constant(), None);
    /// # Ok::<(), diana_rules::expression::InvalidExpression>(())
    /// ```
    pub fn constant(&self) -> Option<bool> {
        match evaluate(&self.inner.tree, None) {
            Ok(Value::Bool(value)) => Some(value),
            _ => None,
        }
    }

    /// Returns `true` if one of two conditions is the negation of the other, as they are written.
    pub(crate) fn is_negation_of(&self, other: &Self) -> bool {
        let (left, right) = (self.inner.tree.without_negation(), other.inner.tree.without_negation());
        left.0 != right.0 && format!("{:?}", left.1) == format!("{:?}", right.1)
    }

    /// Returns `true` if the condition is true for a request.
    pub fn holds(&self, request: &dyn Attributes) -> Result<bool, ExpressionFailed> {
        match evaluate(&self.inner.tree, Some(request))? {
            Value::Bool(value) => Ok(value),
            _ => Err(ExpressionFailed::new("the condition is not a boolean")),
        }
    }

    /// Evaluates a number for a request. A fraction is rounded up.
    pub fn count(&self, request: &dyn Attributes) -> Result<u64, ExpressionFailed> {
        let below = ExpressionFailed::new("the count is negative or too large");
        match evaluate(&self.inner.tree, Some(request))? {
            Value::Uint(value) => Ok(value),
            Value::Int(value) => u64::try_from(value).map_err(|_| below),
            Value::Double(value) => whole(value.ceil()).and_then(|whole| u64::try_from(whole).ok()).ok_or(below),
            Value::Bool(_) | Value::Text(_) => Err(ExpressionFailed::new("the count is not a number")),
        }
    }

    /// Evaluates the expression for a request, as a string.
    pub fn text_of(&self, request: &dyn Attributes) -> Result<String, ExpressionFailed> {
        evaluate(&self.inner.tree, Some(request)).map(|value| written(value).into_owned())
    }
}

impl PartialEq for Expression {
    /// Compares the source texts.
    fn eq(&self, other: &Self) -> bool {
        self.text() == other.text()
    }
}

impl Eq for Expression {}

impl fmt::Debug for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Expression").field(&self.text()).finish()
    }
}

impl fmt::Display for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

#[cfg(test)]
mod tests;
