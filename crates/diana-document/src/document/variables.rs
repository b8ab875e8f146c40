//! `${NAME}` in a value: replaced by an environment variable, for secrets that don't belong in a file.
//!
//! A variable's value may be a secret, and problems are logged: so a problem shows `${NAME}`, never the value.

use crate::node::{Node, Span, Value};
use crate::problem::Problem;
use std::fmt;

/// The variables that were replaced, with their locations.
#[derive(Default)]
pub struct Replaced {
    locations: Vec<(Span, Vec<Variable>)>,
}

struct Variable {
    name: String,
    value: String,
}

/// Shorter values, and shorter parts of values, reveal no secret, and would occur in any text.
const MIN_SECRET: usize = 4;
/// Replaces each variable in the texts under `node`; reports those that are missing or not closed.
pub(super) fn replace(
    node: &mut Node,
    variable: &impl Fn(&str) -> Option<String>,
    all: &mut Replaced,
    problems: &mut Vec<Problem>,
) {
    match &mut node.value {
        Value::Text(text) if text.contains("${") => match replaced(text, variable) {
            Ok((new, variables)) => {
                *text = new;
                all.locations.push((node.span, variables));
            }
            Err(problem) => problems.push(Problem::new(node.span, problem)),
        },
        Value::List(items) => items.iter_mut().for_each(|item| replace(item, variable, all, problems)),
        Value::Map(entries) => entries.iter_mut().for_each(|entry| replace(&mut entry.node, variable, all, problems)),
        _ => {}
    }
}

/// Replaces the variables of one text. A variable's value is not expanded again. `$${` is a literal `${`.
fn replaced(text: &str, variable: &impl Fn(&str) -> Option<String>) -> Result<(String, Vec<Variable>), String> {
    let (mut new, mut rest, mut variables) = (String::new(), text, Vec::new());
    while let Some(at) = rest.find("${") {
        let (before, after) = (&rest[..at], &rest[at + 2..]);
        if let Some(before) = before.strip_suffix('$') {
            new.push_str(before);
            new.push_str("${");
            rest = after;
            continue;
        }
        new.push_str(before);
        let (name, after) = after.split_once('}').ok_or("unclosed `${`; add the missing `}`, or write `$${`")?;
        let value = variable(name).ok_or_else(|| format!("environment variable `{name}` is not set"))?;
        new.push_str(&value);
        variables.push(Variable { name: name.to_owned(), value });
        rest = after;
    }
    new.push_str(rest);
    Ok((new, variables))
}

impl fmt::Debug for Replaced {
    /// Omits the values, which may be secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replaced").field("locations", &self.locations.len()).finish_non_exhaustive()
    }
}

impl Replaced {
    /// Removes the values of variables from a problem.
    pub fn hide(&self, problem: Problem) -> Problem {
        let span = problem.span();
        self.locations.iter().fold(problem, |problem, (at, variables)| {
            let is_located_at_it = at.start <= span.end && span.start <= at.end;
            variables.iter().fold(problem, |problem, variable| variable.hide(problem, is_located_at_it))
        })
    }
}

impl Variable {
    /// Removes the value from a problem; also removes parts of the value if the problem is located at the variable.
    fn hide(&self, problem: Problem, is_located_at_it: bool) -> Problem {
        let shown = format!("${{{}}}", self.name);
        let is_short = self.value.chars().count() < MIN_SECRET;
        let hidden = |text: &str| {
            if is_short {
                return Some(text.replace(&format!("`{}`", self.value), &format!("`{shown}`")));
            }
            let hidden = text.replace(&*self.value, &shown);
            (!is_located_at_it || !self.is_revealed_by(&hidden.replace(&shown, ""))).then_some(hidden)
        };
        problem.map_texts(hidden, &format!("the value of `{shown}` is invalid"))
    }

    /// Returns `true` if a text contains a part of the value.
    fn is_revealed_by(&self, text: &str) -> bool {
        let (value, text) = (self.value.to_lowercase().chars().collect::<Vec<_>>(), text.to_lowercase());
        value.windows(MIN_SECRET).any(|part| text.contains(&part.iter().collect::<String>()))
    }
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
        let replaced = |text: &str| replaced(text, &variable).map(|(text, _)| text);
        assert_eq!(replaced("redis://${HOST}:6379/${HOST}"), Ok("redis://h:6379/h".to_owned()));
        assert_eq!(replaced("${SLY}"), Ok("${HOST}".to_owned()));
        assert_eq!(replaced("costs $5, $${HOST}"), Ok("costs $5, ${HOST}".to_owned()));
        assert_eq!(replaced("${NONE}"), Err("environment variable `NONE` is not set".to_owned()));
        assert!(replaced("${HOST").is_err());
    }
}
