//! `${NAME}` in a value: what the environment says, for secrets that don't belong into a file.

use super::node::{Node, Value};
use crate::problem::Problem;

/// Replaces each variable in the texts under `node`; tells those that are missing or not closed.
pub(super) fn replace(node: &mut Node, variable: &impl Fn(&str) -> Option<String>, problems: &mut Vec<Problem>) {
    match &mut node.value {
        Value::Text(text) if text.contains("${") => match replaced(text, variable) {
            Ok(new) => *text = new,
            Err(problem) => problems.push(Problem::new(node.span, problem)),
        },
        Value::List(items) => items.iter_mut().for_each(|item| replace(item, variable, problems)),
        Value::Map(entries) => entries.iter_mut().for_each(|entry| replace(&mut entry.node, variable, problems)),
        _ => {}
    }
}

/// What a variable says is not looked at again, so it can't name another one. `$${` is `${` itself.
fn replaced(text: &str, variable: &impl Fn(&str) -> Option<String>) -> Result<String, String> {
    let (mut new, mut rest) = (String::new(), text);
    while let Some(at) = rest.find("${") {
        let (before, after) = (&rest[..at], &rest[at + 2..]);
        if let Some(before) = before.strip_suffix('$') {
            new.push_str(before);
            new.push_str("${");
            rest = after;
            continue;
        }
        new.push_str(before);
        let (name, after) = after.split_once('}').ok_or("`${` is not closed; `}` is missing, or write `$${`")?;
        let value = variable(name).ok_or_else(|| format!("the environment variable `{name}` is not set"))?;
        new.push_str(&value);
        rest = after;
    }
    new.push_str(rest);
    Ok(new)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_replaced_once() {
        let variable = |name: &str| match name {
            "HOST" => Some("h".to_owned()),
            "SLY" => Some("${HOST}".to_owned()),
            _ => None,
        };
        let replaced = |text: &str| replaced(text, &variable);
        assert_eq!(replaced("redis://${HOST}:6379/${HOST}"), Ok("redis://h:6379/h".to_owned()));
        assert_eq!(replaced("${SLY}"), Ok("${HOST}".to_owned()));
        assert_eq!(replaced("costs $5, $${HOST}"), Ok("costs $5, ${HOST}".to_owned()));
        assert_eq!(replaced("${NONE}"), Err("the environment variable `NONE` is not set".to_owned()));
        assert!(replaced("${HOST").is_err());
    }
}
