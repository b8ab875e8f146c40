//! The values of a script, as far as they are known without a request.

use super::LimiterKind;

/// The longest text that is composed of others.
const MAX_TEXT: usize = 256;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Value {
    Nil,
    Bool(bool),
    /// A number, in thousandths.
    Number(i64),
    Text(String),
    /// A text with variables of nginx: `${name}`.
    Key(String),
    /// A global variable, or a field of one: `ngx.var`.
    Path(String),
    /// All headers of the request.
    Headers,
    /// A module of lua-resty-limit-traffic; `None` is `resty.limit.traffic`.
    Module(Option<LimiterKind>),
    /// The function `new` of a module.
    New(LimiterKind),
    /// The function `combine` of `resty.limit.traffic`.
    Combine,
    /// A limiter, by its number.
    Limiter(usize),
    /// The delay of a request that is delayed: some time, and at least a millisecond.
    Delay,
    List(Vec<Self>),
    Unknown,
}

/// nginx's names of statuses.
const STATUSES: [(&str, i64); 7] = [
    ("ngx.OK", 0),
    ("ngx.HTTP_OK", 200),
    ("ngx.HTTP_FORBIDDEN", 403),
    ("ngx.HTTP_TOO_MANY_REQUESTS", 429),
    ("ngx.HTTP_CLOSE", 444),
    ("ngx.HTTP_INTERNAL_SERVER_ERROR", 500),
    ("ngx.HTTP_SERVICE_UNAVAILABLE", 503),
];

impl Value {
    /// Returns a module by its name.
    pub(super) fn module(name: &str) -> Self {
        if name == "resty.limit.traffic" {
            return Self::Module(None);
        }
        let kind = [LimiterKind::Requests, LimiterKind::Connections, LimiterKind::Count];
        kind.into_iter().find(|kind| kind.module() == name).map_or(Self::Unknown, |kind| Self::Module(Some(kind)))
    }

    /// Returns a list; one of lists is not known, so that no value grows exponentially.
    pub(super) fn list(items: Vec<Self>) -> Self {
        if items.iter().any(|item| matches!(item, Self::List(_))) { Self::Unknown } else { Self::List(items) }
    }

    /// Returns whether it is neither `nil` nor `false`; `None` if that is not known.
    pub(super) fn is_true(&self) -> Option<bool> {
        match self {
            Self::Nil => Some(false),
            Self::Bool(value) => Some(*value),
            Self::Key(_) | Self::Path(_) | Self::Unknown => None,
            _ => Some(true),
        }
    }

    /// Returns a field.
    pub(super) fn index(&self, index: &Self) -> Self {
        match (self, index) {
            (Self::Path(path), Self::Text(name)) if path == "ngx.var" => match is_name(name) {
                true => Self::Key(format!("${{{name}}}")),
                false => Self::Unknown,
            },
            (Self::Path(path), Self::Text(name)) => {
                let path = format!("{path}.{name}");
                let status = STATUSES.iter().find(|(known, _)| *known == path);
                status.map_or(Self::Path(path), |(_, status)| Self::Number(status * 1000))
            }
            (Self::Headers, Self::Text(name)) => {
                let name = name.to_ascii_lowercase().replace('-', "_");
                if is_name(&name) { Self::Key(format!("${{http_{name}}}")) } else { Self::Unknown }
            }
            (Self::Module(Some(kind)), Self::Text(name)) if name == "new" => Self::New(*kind),
            (Self::Module(None), Self::Text(name)) if name == "combine" => Self::Combine,
            (Self::List(items), Self::Number(number)) if number % 1000 == 0 => {
                let item = usize::try_from(number / 1000 - 1).ok().and_then(|index| items.get(index));
                item.cloned().unwrap_or(Self::Nil)
            }
            _ => Self::Unknown,
        }
    }

    /// Returns it as a key: a text in which variables are `${name}`.
    pub(super) fn template(&self) -> Option<String> {
        match self {
            Self::Key(key) => Some(key.clone()),
            Self::Text(text) if !text.contains('$') => Some(text.clone()),
            Self::Number(number) => Some(number.to_string()),
            _ => None,
        }
    }
}

fn is_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// Returns the value of an operator other than `and` and `or`.
pub(super) fn binary(sign: &str, left: &Value, right: &Value) -> Value {
    let number = |number: Option<i64>| number.map_or(Value::Unknown, Value::Number);
    match (left, sign, right) {
        (_, "..", _) => match (left.template(), right.template()) {
            (Some(left_text), Some(right_text)) if left_text.len() + right_text.len() <= MAX_TEXT => {
                let text = left_text + &right_text;
                let is_key = matches!(left, Value::Key(_)) || matches!(right, Value::Key(_));
                if is_key { Value::Key(text) } else { Value::Text(text) }
            }
            _ => Value::Unknown,
        },
        // Delays under a millisecond are none.
        (Value::Delay, ">" | ">=" | "~=", Value::Number(0 | 1)) => Value::Bool(true),
        (Value::Delay, "<" | "<=" | "==", Value::Number(0 | 1)) => Value::Bool(false),
        (Value::Number(left), _, Value::Number(right)) => match sign {
            "+" => number(left.checked_add(*right)),
            "-" => number(left.checked_sub(*right)),
            // Only exact products of thousandths are numbers.
            "*" => number(left.checked_mul(*right).filter(|product| product % 1000 == 0).map(|product| product / 1000)),
            "==" => Value::Bool(left == right),
            "~=" => Value::Bool(left != right),
            "<" => Value::Bool(left < right),
            "<=" => Value::Bool(left <= right),
            ">" => Value::Bool(left > right),
            ">=" => Value::Bool(left >= right),
            _ => Value::Unknown,
        },
        (_, "==" | "~=", _) => match is_equal(left, right) {
            Some(is_equal) => Value::Bool(is_equal == (sign == "==")),
            None => Value::Unknown,
        },
        _ => Value::Unknown,
    }
}

/// Returns whether two values are equal; `None` if that is not known.
fn is_equal(left: &Value, right: &Value) -> Option<bool> {
    match (left, right) {
        (Value::Nil | Value::Bool(_) | Value::Text(_), Value::Nil | Value::Bool(_) | Value::Text(_)) => {
            Some(left == right)
        }
        (Value::Nil, other) | (other, Value::Nil) if other.is_true().is_some() => Some(false),
        _ => None,
    }
}
