//! The effect of a script with lua-resty-limit-traffic.
//!
//! The script is followed once for each answer that a limiter can give: allowed, delayed, rejected. Everything in it
//! must be literal, or known to have no effect on the decision; otherwise it is [`Unclear`], with its line. So no
//! condition is guessed, and it does not matter how the script is written.

use super::parse::{Action, Expression, Statement};
use super::value::{Value, binary};
use super::{Limiter, LimiterKind, Unclear};

/// The maximum number of limiters of a script.
const MAX_LIMITERS: usize = 16;

/// Functions that change nothing, and whose values are not known.
const HARMLESS: [&str; 13] = [
    "math.ceil",
    "math.floor",
    "math.max",
    "math.min",
    "ngx.md5",
    "ngx.now",
    "ngx.time",
    "ngx.update_time",
    "string.format",
    "string.lower",
    "string.sub",
    "table.concat",
    "type",
];

/// The limiters that a script calls together, which are charged all or nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Group {
    /// Each limiter with its key, in which variables are written as nginx's `${name}`.
    pub(super) limiters: Vec<(Limiter, String)>,
    /// The status of a rejected request.
    pub(super) status: u16,
    /// Whether a delayed request sleeps.
    pub(super) sleeps: bool,
    /// The line of the call, from 0.
    pub(super) line: usize,
}

/// The effect of a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Outcome {
    pub(super) groups: Vec<Group>,
    /// The first line that sets a header of the response.
    pub(super) header: Option<usize>,
}

/// Returns what a script does.
pub(super) fn outcome(script: &[Statement]) -> Result<Outcome, Unclear> {
    let mut allowed = Run::new(None);
    if let Some(line) = allowed.denial(script)?.map(|(_, line)| line) {
        return Err(Unclear { line, what: "it denies requests that no limit rejects".to_owned() });
    }
    let mut groups = Vec::new();
    let mut header = allowed.header;
    for (index, (line, limiters)) in allowed.calls.into_iter().enumerate() {
        let unclear = |what: &str| Err(Unclear { line, what: what.to_owned() });
        let mut rejected = Run::new(Some((index, Answer::Rejected)));
        let Some((status @ 400..=599, _)) = rejected.denial(script)? else {
            return unclear("no `ngx.exit` with a status from 400 to 599 follows a rejection");
        };
        let mut delayed = Run::new(Some((index, Answer::Delayed)));
        if limiters.iter().any(|(limiter, _)| limiter.kind != LimiterKind::Count) && delayed.denial(script)?.is_some() {
            return unclear("it denies delayed requests");
        }
        header = header.or(rejected.header);
        groups.push(Group { limiters, status, sleeps: delayed.slept, line });
    }
    Ok(Outcome { groups, header })
}

/// The answer of a limiter that does not simply allow a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Delayed,
    Rejected,
}

/// The reason why a script does not continue.
enum Stop {
    /// The script returns, or calls `ngx.exit(ngx.OK)`.
    Forwarded,
    Denied {
        status: u16,
        line: usize,
    },
    Unclear(Unclear),
}

/// One run of a script.
struct Run {
    /// The call that is not simply allowed.
    answer: Option<(usize, Answer)>,
    variables: Vec<(String, Value)>,
    limiters: Vec<Limiter>,
    /// The calls so far, each with its line, its limiters and their keys.
    calls: Vec<(usize, Vec<(Limiter, String)>)>,
    slept: bool,
    header: Option<usize>,
    line: usize,
}

impl Run {
    fn new(answer: Option<(usize, Answer)>) -> Self {
        let (variables, limiters, calls) = (Vec::new(), Vec::new(), Vec::new());
        Self { answer, variables, limiters, calls, slept: false, header: None, line: 0 }
    }

    /// Follows a script; returns the status and the line of the denial.
    fn denial(&mut self, script: &[Statement]) -> Result<Option<(u16, usize)>, Unclear> {
        match self.block(script) {
            Ok(()) | Err(Stop::Forwarded) => Ok(None),
            Err(Stop::Denied { status, line }) => Ok(Some((status, line))),
            Err(Stop::Unclear(unclear)) => Err(unclear),
        }
    }

    fn unclear<T>(&self, what: impl Into<String>) -> Result<T, Stop> {
        Err(Stop::Unclear(Unclear { line: self.line, what: what.into() }))
    }

    fn block(&mut self, statements: &[Statement]) -> Result<(), Stop> {
        let outer = self.variables.len();
        for statement in statements {
            self.line = statement.line;
            self.statement(&statement.what)?;
        }
        self.variables.truncate(outer);
        Ok(())
    }

    fn statement(&mut self, action: &Action) -> Result<(), Stop> {
        match action {
            Action::Local(names, values) => {
                let mut values = self.list(values)?.into_iter();
                let new = names.iter().map(|name| (name.clone(), values.next().unwrap_or(Value::Nil)));
                self.variables.extend(new);
            }
            Action::Assign(targets, values) => {
                let mut values = self.list(values)?.into_iter();
                for target in targets {
                    self.assign(target, values.next().unwrap_or(Value::Nil))?;
                }
            }
            Action::Call(call) => _ = self.values(call)?,
            Action::Return(values) => {
                self.list(values)?;
                return Err(Stop::Forwarded);
            }
            Action::If(arms) => {
                for (condition, block) in arms {
                    let line = self.line;
                    match self.value(condition)?.is_true() {
                        Some(true) => return self.block(block),
                        Some(false) => self.line = line,
                        None => return self.unclear("a condition depends on more than the limiter's answer"),
                    }
                }
            }
        }
        Ok(())
    }

    fn assign(&mut self, target: &Expression, value: Value) -> Result<(), Stop> {
        match target {
            Expression::Name(name) => match self.variables.iter_mut().rev().find(|(known, _)| known == name) {
                Some((_, variable)) => *variable = value,
                None => return self.unclear(format!("it assigns the global variable `{name}`")),
            },
            Expression::Index(table, _) => match self.value(table)? {
                // `ngx.ctx` is for later phases.
                Value::Path(path) if path == "ngx.ctx" => {}
                Value::Path(path) if path == "ngx.header" => _ = self.header.get_or_insert(self.line),
                _ => return self.unclear("it assigns to a table"),
            },
            _ => return self.unclear("it assigns to a table"),
        }
        Ok(())
    }

    /// Returns the values of a list; the last one may be several.
    fn list(&mut self, expressions: &[Expression]) -> Result<Vec<Value>, Stop> {
        let Some((last, first)) = expressions.split_last() else { return Ok(Vec::new()) };
        let mut values = Vec::with_capacity(expressions.len());
        for expression in first {
            values.push(self.value(expression)?);
        }
        values.extend(self.values(last)?);
        Ok(values)
    }

    fn value(&mut self, expression: &Expression) -> Result<Value, Stop> {
        Ok(self.values(expression)?.into_iter().next().unwrap_or(Value::Nil))
    }

    fn values(&mut self, expression: &Expression) -> Result<Vec<Value>, Stop> {
        let value = match expression {
            Expression::Nil => Value::Nil,
            Expression::Bool(value) => Value::Bool(*value),
            Expression::Number(value) => Value::Number(*value),
            Expression::Text(text) => Value::Text(text.clone()),
            Expression::Unknown => Value::Unknown,
            Expression::Name(name) => {
                let known = self.variables.iter().rev().find(|(known, _)| known == name);
                known.map_or_else(|| Value::Path(name.clone()), |(_, value)| value.clone())
            }
            Expression::List(items) => Value::list(self.list(items)?),
            Expression::Index(table, index) => {
                let table = self.value(table)?;
                let index = self.value(index)?;
                table.index(&index)
            }
            Expression::Not(inner) => {
                self.value(inner)?.is_true().map_or(Value::Unknown, |is_true| Value::Bool(!is_true))
            }
            Expression::Binary(sign @ ("and" | "or"), left, right) => {
                let left = self.value(left)?;
                match (left.is_true(), *sign) {
                    (Some(true), "and") | (Some(false), "or") => self.value(right)?,
                    (Some(_), _) => left,
                    (None, _) => return self.unclear("a condition depends on more than the limiter's answer"),
                }
            }
            Expression::Binary(sign, left, right) => {
                let left = self.value(left)?;
                let right = self.value(right)?;
                binary(sign, &left, &right)
            }
            Expression::Method(object, method, args) => return self.method(object, method, args),
            Expression::Call(function, args) => return self.call(function, args),
        };
        Ok(vec![value])
    }

    fn method(&mut self, object: &Expression, method: &str, args: &[Expression]) -> Result<Vec<Value>, Stop> {
        let object = self.value(object)?;
        let args = self.list(args)?;
        match (object, method) {
            (Value::Limiter(limiter), "incoming") => match &*args {
                [key, Value::Bool(true)] => self.ask(&[Value::Limiter(limiter)], std::slice::from_ref(key)),
                _ => self.unclear("`incoming` is not called with a key and `true`"),
            },
            (Value::Limiter(_), "is_committed") => Ok(vec![Value::Bool(true)]),
            (Value::Limiter(_), "uncommit") => Ok(vec![Value::Bool(true)]),
            _ => self.unclear(format!("it calls `{method}`, which is not supported")),
        }
    }

    fn call(&mut self, function: &Expression, args: &[Expression]) -> Result<Vec<Value>, Stop> {
        let function = self.value(function)?;
        let Value::Path(path) = &function else {
            let args = self.list(args)?;
            return match (function, &*args) {
                (Value::New(kind), args) => self.limiter(kind, args),
                (Value::Combine, [Value::List(limiters), Value::List(keys), ..]) => self.ask(limiters, keys),
                _ => self.unclear("it calls a function that is not supported"),
            };
        };
        // Logging has no effect.
        if path == "ngx.log" || path == "print" {
            return Ok(Vec::new());
        }
        let args = self.list(args)?;
        match (path.as_str(), &*args) {
            ("require", [Value::Text(module)]) => Ok(vec![Value::module(module)]),
            ("tonumber" | "tostring", [value]) => Ok(vec![value.clone()]),
            ("assert", [value, ..]) if value.is_true() == Some(true) => Ok(args),
            ("ngx.req.get_headers", _) => Ok(vec![Value::Headers]),
            ("ngx.sleep", [Value::Delay]) => {
                self.slept = true;
                Ok(Vec::new())
            }
            ("ngx.sleep", [Value::Number(0)]) => Ok(Vec::new()),
            ("ngx.exit", [Value::Number(0)]) => Err(Stop::Forwarded),
            ("ngx.exit", [Value::Number(status)]) => {
                let status = u16::try_from(status / 1000).unwrap_or_default();
                Err(Stop::Denied { status, line: self.line })
            }
            (path, _) if HARMLESS.contains(&path) => Ok(vec![Value::Unknown]),
            (path, _) => self.unclear(format!("it calls `{path}` in a way that is not supported")),
        }
    }

    /// Creates a limiter.
    fn limiter(&mut self, kind: LimiterKind, args: &[Value]) -> Result<Vec<Value>, Stop> {
        let Some((Value::Text(dictionary), numbers)) = args.split_first() else {
            return self.unclear(format!("the dictionary of `{}` is not literal", kind.module()));
        };
        let literal = numbers.iter().map(|value| match value {
            Value::Number(number) => Some(*number),
            _ => None,
        });
        let Some(numbers) = literal.collect::<Option<Vec<_>>>() else {
            return self.unclear(format!("a parameter of `{}` is not a literal number", kind.module()));
        };
        if self.limiters.len() == MAX_LIMITERS {
            return self.unclear(format!("more than {MAX_LIMITERS} limiters"));
        }
        self.limiters.push(Limiter { kind, dictionary: dictionary.clone(), numbers, line: self.line });
        Ok(vec![Value::Limiter(self.limiters.len() - 1)])
    }

    /// Asks limiters for a request.
    fn ask(&mut self, limiters: &[Value], keys: &[Value]) -> Result<Vec<Value>, Stop> {
        let mut asked = Vec::new();
        for (limiter, key) in limiters.iter().zip(keys) {
            let limiter = match limiter {
                Value::Limiter(index) => self.limiters.get(*index).cloned(),
                _ => None,
            };
            let Some(limiter) = limiter else { return self.unclear("a limiter is not known") };
            let Some(key) = key.template() else {
                return self.unclear("the key is not a literal or a variable of the request");
            };
            asked.push((limiter, key));
        }
        if asked.is_empty() || limiters.len() != keys.len() {
            return self.unclear("there are not as many keys as limiters");
        }
        if self.calls.len() == MAX_LIMITERS {
            return self.unclear(format!("more than {MAX_LIMITERS} calls of limiters"));
        }
        let index = self.calls.len();
        self.calls.push((self.line, asked));
        Ok(match self.answer.filter(|(call, _)| *call == index) {
            None => vec![Value::Number(0), Value::Unknown],
            Some((_, Answer::Delayed)) => vec![Value::Delay, Value::Unknown],
            Some((_, Answer::Rejected)) => vec![Value::Nil, Value::Text("rejected".to_owned())],
        })
    }
}
