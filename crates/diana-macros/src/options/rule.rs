//! A rule of the rule file: `#[limited("sms", phone = "{phone}")]`.

use super::raw::RawOptions;
use crate::template::{self, Piece};
use crate::value;
use proc_macro2::Span;
use syn::{Error, Result};

/// A rule of the rule file, by its name.
pub(crate) struct Rule {
    pub(crate) name: String,
    /// The arguments that the call passes to it.
    pub(crate) args: Vec<(String, Vec<Piece>)>,
}

/// Options, which are not passed to the rule.
const OPTIONS: [&str; 3] = ["in", "on_limit", "crate"];
/// Reserved words of rules, copied from `diana-rules`; building that crate for every compilation would take too long.
const RESERVED: [&str; 12] =
    ["global", "resource", "ip", "host", "method", "path", "request", "header", "cookie", "query", "param", "cel"];
/// The maximum length of a rule's name in `diana-rules`.
const MAX_NAME_LEN: usize = 128;

impl Rule {
    pub(super) fn parse(raw: &RawOptions) -> Result<Self> {
        let Some(name) = &raw.first else {
            let problem = "missing rule name: write `#[limited(\"sms\")]`, followed by arguments for the rule, such as \
                           `phone = \"{phone}\"`";
            return Err(Error::new(Span::call_site(), problem));
        };
        let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        if !(1..=MAX_NAME_LEN).contains(&name.value().len()) || !name.value().chars().all(is_name) {
            let problem =
                format!("invalid rule name: expected at most {MAX_NAME_LEN} letters, digits, `.`, `_` and `-`");
            return Err(Error::new(name.span(), problem));
        }
        let mut args = Vec::new();
        for argument in raw.all.iter().filter(|option| !OPTIONS.iter().any(|known| option.name == known)) {
            let name = argument.name.to_string();
            if RESERVED.contains(&&*name) {
                let problem = format!(
                    "`{name}` is reserved in rules; choose another name, also in the rule's `match: {{call: ...}}`"
                );
                return Err(Error::new(argument.name.span(), problem));
            }
            let text = value::text(&name, &argument.value, &format!("\"{{{name}}}\""))?;
            args.push((name, template::pieces(&text)?));
        }
        Ok(Self { name: name.value(), args })
    }
}

#[cfg(test)]
mod tests {
    use super::{MAX_NAME_LEN, OPTIONS, RESERVED};
    use diana_rules::{Document, Registry, RuleFile};

    fn is_valid(name: &str, argument: &str) -> bool {
        let file = format!("rules: [{{name: {name}, match: {{call: {argument}}}, limit: 1/s}}]");
        RuleFile::read(&Document::new("diana.yaml", file), &Registry::default()).is_ok()
    }

    #[test]
    fn rule_files_reject_the_same_names() {
        assert!(is_valid("sms", "phone"));
        for word in RESERVED.iter().chain(&OPTIONS) {
            assert!(!is_valid("sms", word), "{word}");
        }
        assert!(is_valid(&"a".repeat(MAX_NAME_LEN), "phone"));
        assert!(!is_valid(&"a".repeat(MAX_NAME_LEN + 1), "phone"));
    }
}
