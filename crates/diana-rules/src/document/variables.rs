//! `${NAME}` in a value: what the environment says, for secrets that don't belong into a file.
//!
//! What a variable stands for may be a secret, and problems go to logs: so a problem shows `${NAME}`, and never the value.

use super::node::{Node, Span, Value};
use crate::problem::Problem;

/// The variables that were replaced, and where.
#[derive(Default)]
pub(crate) struct Replaced {
    places: Vec<(Span, Vec<Variable>)>,
}

struct Variable {
    name: String,
    value: String,
}

/// Shorter values are no secrets, and would be found in any text.
const SHORTEST: usize = 4;
/// So many characters of a value tell something about it.
const TELLING: usize = 6;

/// Replaces each variable in the texts under `node`; tells those that are missing or not closed.
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
                all.places.push((node.span, variables));
            }
            Err(problem) => problems.push(Problem::new(node.span, problem)),
        },
        Value::List(items) => items.iter_mut().for_each(|item| replace(item, variable, all, problems)),
        Value::Map(entries) => entries.iter_mut().for_each(|entry| replace(&mut entry.node, variable, all, problems)),
        _ => {}
    }
}

/// What a variable says is not looked at again, so it can't name another one. `$${` is `${` itself.
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
        let (name, after) = after.split_once('}').ok_or("`${` is not closed; `}` is missing, or write `$${`")?;
        let value = variable(name).ok_or_else(|| format!("the environment variable `{name}` is not set"))?;
        new.push_str(&value);
        variables.push(Variable { name: name.to_owned(), value });
        rest = after;
    }
    new.push_str(rest);
    Ok((new, variables))
}

impl Replaced {
    /// A problem without the values of variables.
    pub(crate) fn hide(&self, problem: Problem) -> Problem {
        let span = problem.span();
        let is_about = |at: &Span| at.start <= span.end && span.start <= at.end;
        self.places.iter().fold(problem, |problem, (at, variables)| {
            variables
                .iter()
                .fold(problem, |problem, variable| problem.map_texts(|text| variable.hidden(text, is_about(at))))
        })
    }
}

impl Variable {
    /// A text without the value; one that is about the place of the variable, without parts of it, too.
    fn hidden(&self, text: &str, is_about: bool) -> String {
        let Self { name, value } = self;
        let shown = format!("${{{name}}}");
        if value.chars().count() < SHORTEST {
            return text.replace(&format!("`{value}`"), &format!("`{shown}`"));
        }
        let hidden = text.replace(&**value, &shown);
        let rest = hidden.replace(&shown, "").to_lowercase();
        let letters = value.to_lowercase().chars().collect::<Vec<_>>();
        let is_telling = |part: &[char]| rest.contains(&part.iter().collect::<String>());
        if is_about && letters.windows(TELLING.min(letters.len())).any(is_telling) {
            return format!("what `{shown}` stands for is invalid here");
        }
        hidden
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
        assert_eq!(replaced("${NONE}"), Err("the environment variable `NONE` is not set".to_owned()));
        assert!(replaced("${HOST").is_err());
    }
}
