//! The statements of Lua that are understood: assignments, calls, `if` and `return`.
//!
//! Loops, functions and everything else are an error: a script that has them is reported, not converted.

use super::Unclear;
use super::token::{Kind, Token};
use std::iter::Peekable;
use std::vec::IntoIter;

/// The maximum depth of blocks and of expressions, so that recursion is safe.
const MAX_DEPTH: usize = 40;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Statement {
    pub(super) what: Action,
    /// The line, from 0.
    pub(super) line: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// `local a, b = x`
    Local(Vec<String>, Vec<Expression>),
    /// `a, b.c = x`
    Assign(Vec<Expression>, Vec<Expression>),
    Call(Expression),
    /// Each condition with its block; `else` has the condition `true`.
    If(Vec<(Expression, Vec<Statement>)>),
    Return(Vec<Expression>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Expression {
    Nil,
    Bool(bool),
    /// A number in thousandths.
    Number(i64),
    Text(String),
    Name(String),
    /// A list `{a, b}`.
    List(Vec<Self>),
    /// `a.b` or `a[b]`
    Index(Box<Self>, Box<Self>),
    Call(Box<Self>, Vec<Self>),
    /// `a:b(c)`
    Method(Box<Self>, String, Vec<Self>),
    Not(Box<Self>),
    Binary(&'static str, Box<Self>, Box<Self>),
    /// A value that is not understood.
    Unknown,
}

/// Parses a script.
pub(super) fn parse(tokens: Vec<Token>) -> Result<Vec<Statement>, Unclear> {
    let mut parser = Parser { tokens: tokens.into_iter().peekable(), line: 0, depth: 0 };
    let statements = parser.block()?;
    match parser.tokens.next() {
        None => Ok(statements),
        Some(token) => Err(unexpected(&token)),
    }
}

struct Parser {
    tokens: Peekable<IntoIter<Token>>,
    /// The line of the last token.
    line: usize,
    depth: usize,
}

/// Binary operators with their precedence.
const OPERATORS: [(&str, u8); 14] = [
    ("==", 3),
    ("~=", 3),
    ("<=", 3),
    (">=", 3),
    ("<", 3),
    (">", 3),
    ("..", 4),
    ("+", 5),
    ("-", 5),
    ("*", 6),
    ("/", 6),
    ("%", 6),
    ("or", 1),
    ("and", 2),
];
const UNARY: u8 = 7;

impl Parser {
    fn unclear<T>(&self, what: impl Into<String>) -> Result<T, Unclear> {
        Err(Unclear { line: self.line, what: what.into() })
    }

    fn is_next(&mut self, text: &str) -> bool {
        self.tokens.peek().is_some_and(|token| match &token.kind {
            Kind::Sign(sign) => *sign == text,
            Kind::Name(name) => name == text,
            _ => false,
        })
    }

    fn next_if(&mut self, text: &str) -> bool {
        let is_next = self.is_next(text);
        if is_next {
            self.next();
        }
        is_next
    }

    fn next(&mut self) -> Option<Kind> {
        let token = self.tokens.next()?;
        self.line = token.line;
        Some(token.kind)
    }

    fn expect(&mut self, text: &str) -> Result<(), Unclear> {
        match self.next_if(text) {
            true => Ok(()),
            false => self.unclear(format!("expected `{text}`")),
        }
    }

    fn name(&mut self) -> Result<String, Unclear> {
        match self.next() {
            Some(Kind::Name(name)) => Ok(name),
            _ => self.unclear("expected a name"),
        }
    }

    fn deeper(&mut self) -> Result<(), Unclear> {
        self.depth += 1;
        if self.depth > MAX_DEPTH { self.unclear("it is nested too deep") } else { Ok(()) }
    }

    /// Parses statements up to the end, or the keyword that ends the block.
    fn block(&mut self) -> Result<Vec<Statement>, Unclear> {
        self.deeper()?;
        let mut statements = Vec::new();
        while self.tokens.peek().is_some() && !["end", "else", "elseif"].iter().any(|word| self.is_next(word)) {
            if self.next_if(";") {
                continue;
            }
            let line = self.tokens.peek().map_or(0, |token| token.line);
            let what = self.statement()?;
            statements.push(Statement { what, line });
        }
        self.depth -= 1;
        Ok(statements)
    }

    fn statement(&mut self) -> Result<Action, Unclear> {
        for word in ["for", "while", "repeat", "function", "do", "goto", "break"] {
            if self.next_if(word) {
                return self.unclear(format!("`{word}` is not supported"));
            }
        }
        if self.next_if("if") {
            return self.condition();
        }
        if self.next_if("return") {
            let ends = ["end", "else", "elseif", ";"].iter().any(|word| self.is_next(word));
            let values = if ends || self.tokens.peek().is_none() { Vec::new() } else { self.list()? };
            return Ok(Action::Return(values));
        }
        if self.next_if("local") {
            if self.is_next("function") {
                return self.unclear("functions are not supported");
            }
            let mut names = vec![self.name()?];
            while self.next_if(",") {
                names.push(self.name()?);
            }
            let values = if self.next_if("=") { self.list()? } else { Vec::new() };
            return Ok(Action::Local(names, values));
        }
        let mut targets = vec![self.suffixed()?];
        while self.next_if(",") {
            targets.push(self.suffixed()?);
        }
        if self.next_if("=") {
            return Ok(Action::Assign(targets, self.list()?));
        }
        match targets.pop() {
            Some(call @ (Expression::Call(..) | Expression::Method(..))) if targets.is_empty() => {
                Ok(Action::Call(call))
            }
            _ => self.unclear("expected a call or an assignment"),
        }
    }

    fn condition(&mut self) -> Result<Action, Unclear> {
        let mut arms = Vec::new();
        loop {
            let condition = self.expression(0)?;
            self.expect("then")?;
            arms.push((condition, self.block()?));
            if self.next_if("elseif") {
                continue;
            }
            if self.next_if("else") {
                arms.push((Expression::Bool(true), self.block()?));
            }
            self.expect("end")?;
            return Ok(Action::If(arms));
        }
    }

    fn list(&mut self) -> Result<Vec<Expression>, Unclear> {
        let mut values = vec![self.expression(0)?];
        while self.next_if(",") {
            values.push(self.expression(0)?);
        }
        Ok(values)
    }

    fn expression(&mut self, above: u8) -> Result<Expression, Unclear> {
        self.deeper()?;
        let mut left = if self.next_if("not") {
            Expression::Not(Box::new(self.expression(UNARY)?))
        } else if self.next_if("-") {
            self.expression(UNARY)?;
            Expression::Unknown
        } else {
            self.simple()?
        };
        let mut length = 0;
        while let Some((sign, precedence)) =
            OPERATORS.into_iter().find(|(sign, precedence)| *precedence > above && self.is_next(sign))
        {
            self.next();
            length += 1;
            if length > MAX_DEPTH {
                return self.unclear("it is nested too deep");
            }
            let right = self.expression(precedence)?;
            left = Expression::Binary(sign, Box::new(left), Box::new(right));
        }
        self.depth -= 1;
        Ok(left)
    }

    fn simple(&mut self) -> Result<Expression, Unclear> {
        for (word, value) in
            [("nil", Expression::Nil), ("true", Expression::Bool(true)), ("false", Expression::Bool(false))]
        {
            if self.next_if(word) {
                return Ok(value);
            }
        }
        if self.is_next("function") {
            return self.unclear("functions are not supported");
        }
        match self.tokens.peek().map(|token| token.kind.clone()) {
            Some(Kind::Number(number)) => {
                self.next();
                Ok(thousandths(&number).map_or(Expression::Unknown, Expression::Number))
            }
            Some(Kind::Text(text)) => {
                self.next();
                Ok(Expression::Text(text))
            }
            Some(Kind::Sign("{")) => self.table(),
            _ => self.suffixed(),
        }
    }

    /// Parses a list; a table with named entries is [`Expression::Unknown`].
    fn table(&mut self) -> Result<Expression, Unclear> {
        self.expect("{")?;
        let (mut items, mut is_list) = (Vec::new(), true);
        while !self.next_if("}") {
            if self.next_if("[") {
                self.expression(0)?;
                self.expect("]")?;
                self.expect("=")?;
                is_list = false;
            }
            let item = self.expression(0)?;
            if self.next_if("=") {
                self.expression(0)?;
                is_list = false;
            }
            items.push(item);
            if !self.next_if(",") && !self.next_if(";") {
                self.expect("}")?;
                break;
            }
        }
        Ok(if is_list { Expression::List(items) } else { Expression::Unknown })
    }

    /// Parses a name or an expression in parentheses, with its indexes and calls.
    fn suffixed(&mut self) -> Result<Expression, Unclear> {
        let mut value = if self.next_if("(") {
            let value = self.expression(0)?;
            self.expect(")")?;
            value
        } else {
            Expression::Name(self.name()?)
        };
        let mut length = 0;
        loop {
            length += 1;
            if length > MAX_DEPTH {
                return self.unclear("it is nested too deep");
            }
            value = if self.next_if(".") {
                Expression::Index(Box::new(value), Box::new(Expression::Text(self.name()?)))
            } else if self.next_if("[") {
                let index = self.expression(0)?;
                self.expect("]")?;
                Expression::Index(Box::new(value), Box::new(index))
            } else if self.next_if(":") {
                let method = self.name()?;
                let args = self.args()?.unwrap_or_default();
                Expression::Method(Box::new(value), method, args)
            } else if let Some(args) = self.args()? {
                Expression::Call(Box::new(value), args)
            } else {
                return Ok(value);
            };
        }
    }

    /// Parses `(a, b)`, `"text"` or `{table}` after a function; `None` if there is none.
    fn args(&mut self) -> Result<Option<Vec<Expression>>, Unclear> {
        match self.tokens.peek().map(|token| token.kind.clone()) {
            Some(Kind::Sign("(")) => {
                self.next();
                let args = if self.is_next(")") { Vec::new() } else { self.list()? };
                self.expect(")")?;
                Ok(Some(args))
            }
            Some(Kind::Text(text)) => {
                self.next();
                Ok(Some(vec![Expression::Text(text)]))
            }
            Some(Kind::Sign("{")) => Ok(Some(vec![self.table()?])),
            _ => Ok(None),
        }
    }
}

fn unexpected(token: &Token) -> Unclear {
    let what = match &token.kind {
        Kind::Name(name) => format!("unexpected `{name}`"),
        Kind::Sign(sign) => format!("unexpected `{sign}`"),
        _ => "not understood".to_owned(),
    };
    Unclear { line: token.line, what }
}

/// Parses a decimal number with up to three decimals.
fn thousandths(text: &str) -> Option<i64> {
    let (whole, decimals) = text.split_once('.').unwrap_or((text, ""));
    if decimals.len() > 3 || !text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
        return None;
    }
    let decimals = format!("{decimals:0<3}").parse::<i64>().ok()?;
    whole.parse::<i64>().ok()?.checked_mul(1000)?.checked_add(decimals)
}
