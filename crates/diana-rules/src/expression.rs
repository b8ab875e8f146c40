//! Expressions over a request: `when: 'request.headers["x-test"] != "1"'`, `cost: 'int(request.query.n)'`, `by: cel("...")`.
//!
//! They are written in [CEL], the language that gateways and Kubernetes use for the same. The crate `cel` parses them; what it
//! gives is checked at load and made into a small tree of our own, which is what requests are asked with. So a typo is an
//! error when the rules are read, and not a surprise at night; and a request builds no maps and compiles no regexes.
//!
//! [CEL]: https://cel.dev
//!
//! # What there is
//!
//! | | |
//! |---|---|
//! | the request | `request.method`, `.path`, `.host`, `.ip`, `.headers["x-a"]`, `.cookies["c"]`, `.query["q"]`, `.params["id"]`, `.jwt["sub"]`; also `.params.id`, and `` .headers.`x-a` `` |
//! | names | `account`, `device`, and those that `identity` defines |
//! | is it there? | `has(request.query.q)`, `"x-a" in request.headers` |
//! | constants | `"text"`, `'text'`, `r'raw'`, `1`, `1u`, `1.5`, `true` |
//! | truth | `a && b`, <code>a &#124;&#124; b</code>, `!a`, `a ? b : c` |
//! | comparing | `==`, `!=`, `<`, `<=`, `>`, `>=`; `a in ['x', 'y']` |
//! | numbers | `+`, `-`, `*`, `/`, `%`, with two of one type; `int(a)`, `uint(a)`, `double(a)` |
//! | texts | `a + b`, `a.startsWith(b)`, `a.endsWith(b)`, `a.contains(b)`, `a.matches('regex')`, `a.size()`, `a.lowerAscii()`, `a.upperAscii()`, `a.trim()`, `string(a)`, `bool(a)` |
//! | addresses | `cidr('10.0.0.0/8').containsIP(request.ip)`, as in Kubernetes; what is no address is in no network |
//! | lists | `['/a', '/b'].exists(p, request.path.startsWith(p))`, and `all`: over constants only, which bounds them |
//!
//! Types are checked as CEL's own checker does: everything of a request is a text, and an absent one is `""`. Not there: `null`,
//! bytes, maps, messages, times, lists as values, `map`, `filter`, `exists_one`. A regex may have 64 KiB once it is compiled.
//!
//! # What always holds (expression/tests.rs)
//! - No text makes [`compile`](Expression::compile) panic or overflow a stack, on any thread.
//! - No request makes an expression panic, run long or need much stack, whatever it says.

mod call;
mod error;
mod evaluate;
mod lower;
mod parse;
mod request;
mod scan;
mod tree;

pub use error::{ExpressionFailed, InvalidExpression};
pub use tree::Kind;

use crate::attributes::{Attribute, Attributes};
use evaluate::{evaluate, whole, written};
use lower::Lowering;
use std::fmt;
use std::sync::Arc;
use tree::{Tree, Value};

/// Names that every expression knows.
const NAMES: [&str; 2] = ["account", "device"];

/// An expression over a request, ready to be asked. The [module](self) tells what can be written.
///
/// ```
/// use diana_rules::{Attribute, Attributes, Expression};
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
/// # Ok::<(), diana_rules::InvalidExpression>(())
/// ```
#[derive(Clone)]
pub struct Expression {
    inner: Arc<Inner>,
}

struct Inner {
    text: Box<str>,
    tree: Tree,
    kind: Kind,
    attributes: Box<[Attribute]>,
}

impl Expression {
    /// Reads an expression. It can be at most 4 KiB long, and nest 32 deep.
    ///
    /// The parser needs a big stack, so this runs on a thread of its own for a moment: it is for loading, not for requests.
    pub fn compile(text: &str) -> Result<Self, InvalidExpression> {
        Self::compile_with(text, &[])
    }

    /// As [`compile`](Self::compile), with further names that a request may be known by, such as those of `identity`.
    ///
    /// ```
    /// use diana_rules::Expression;
    ///
    /// assert!(Expression::compile_with("tenant == 'acme'", &["tenant"]).is_ok());
    /// let error = Expression::compile_with("tennant == 'acme'", &["tenant"]).unwrap_err();
    /// assert_eq!(error.to_string(), "nothing is called `tennant`: did you mean `tenant`?");
    /// ```
    pub fn compile_with(text: &str, names: &[&str]) -> Result<Self, InvalidExpression> {
        let further = names.iter().filter(|name| !NAMES.contains(name));
        let names = NAMES.iter().chain(further).copied().collect::<Vec<_>>();
        Self::with_names(text, &names)
    }

    /// An expression that sees the request, and no names at all.
    pub(crate) fn of_request_only(text: &str) -> Result<Self, InvalidExpression> {
        Self::with_names(text, &[])
    }

    fn with_names(text: &str, names: &[&str]) -> Result<Self, InvalidExpression> {
        let inner = parse::parsed(text, |parsed, source| {
            let mut lowering = Lowering::new(names, source);
            let (tree, kind) = lowering.lower(parsed)?;
            Ok(Inner { text: text.into(), tree, kind, attributes: lowering.attributes.into() })
        })?;
        Ok(Self { inner: Arc::new(inner) })
    }

    /// The text, as it was written.
    pub fn text(&self) -> &str {
        &self.inner.text
    }

    /// What it gives. A condition has to give a `bool`, and a cost a number.
    pub fn kind(&self) -> Kind {
        self.inner.kind
    }

    /// What must be known about a request.
    pub fn attributes(&self) -> impl Iterator<Item = &Attribute> {
        self.inner.attributes.iter()
    }

    /// The truth that it is for every request, if it is one whatever they say.
    ///
    /// ```
    /// use diana_rules::Expression;
    ///
    /// assert_eq!(Expression::compile("false && account == ''")?.constant(), Some(false));
    /// assert_eq!(Expression::compile("account == ''")?.constant(), None);
    /// # Ok::<(), diana_rules::InvalidExpression>(())
    /// ```
    pub fn constant(&self) -> Option<bool> {
        match evaluate(&self.inner.tree, None) {
            Ok(Value::Bool(value)) => Some(value),
            _ => None,
        }
    }

    /// Whether it holds for a request.
    pub fn holds(&self, request: &dyn Attributes) -> Result<bool, ExpressionFailed> {
        match evaluate(&self.inner.tree, Some(request))? {
            Value::Bool(value) => Ok(value),
            _ => Err(ExpressionFailed::new("a condition gave something else than true or false")),
        }
    }

    /// How much it is for a request, in whole numbers: a fraction is rounded up.
    pub fn count(&self, request: &dyn Attributes) -> Result<u64, ExpressionFailed> {
        let below = ExpressionFailed::new("a count was below zero, or too large");
        match evaluate(&self.inner.tree, Some(request))? {
            Value::Uint(value) => Ok(value),
            Value::Int(value) => u64::try_from(value).map_err(|_| below),
            Value::Double(value) => whole(value.ceil()).and_then(|whole| u64::try_from(whole).ok()).ok_or(below),
            Value::Bool(_) | Value::Text(_) => Err(ExpressionFailed::new("a count gave something else than a number")),
        }
    }

    /// What it is for a request, as a text.
    pub fn text_of(&self, request: &dyn Attributes) -> Result<String, ExpressionFailed> {
        evaluate(&self.inner.tree, Some(request)).map(|value| written(value).into_owned())
    }
}

impl PartialEq for Expression {
    /// By the text.
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
