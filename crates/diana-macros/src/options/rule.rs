//! A rule of the rule file: `#[limited("sms", phone = "{phone}")]`.

use super::given::AllGiven;
use crate::number;
use crate::text::{self, Piece};
use proc_macro2::Span;
use syn::{Error, Result};

/// A rule of the rule file, by its name.
pub(crate) struct Rule {
    pub(crate) name: String,
    /// The arguments that the call passes to it.
    pub(crate) tells: Vec<(String, Vec<Piece>)>,
}

/// Options, which are not passed to the rule.
const OPTIONS: [&str; 3] = ["in", "on_limit", "crate"];
/// Reserved words of rules, copied from `diana-rules`; building that crate for every compilation would take too long.
const TAKEN: [&str; 12] =
    ["global", "resource", "ip", "host", "method", "path", "request", "header", "cookie", "query", "param", "cel"];
/// The maximum length of a rule's name in `diana-rules`.
const LONGEST: usize = 128;

impl Rule {
    pub(super) fn read(given: &AllGiven) -> Result<Self> {
        let Some(name) = &given.first else {
            let problem = "`limited` needs the name of a rule first: write `#[limited(\"sms\")]`, and behind it what the rule \
                           is told, as `phone = \"{phone}\"`";
            return Err(Error::new(Span::call_site(), problem));
        };
        let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        if !(1..=LONGEST).contains(&name.value().len()) || !name.value().chars().all(is_name) {
            let problem = "no rule has such a name: it is letters, digits, `.`, `_` and `-`, at most 128 of them";
            return Err(Error::new(name.span(), problem));
        }
        let mut tells = Vec::new();
        for told in given.all.iter().filter(|told| !OPTIONS.iter().any(|option| told.name == option)) {
            let word = told.name.to_string();
            if TAKEN.contains(&&*word) {
                let problem = format!(
                    "`{word}` means something else in a rule; write another name, and that name in the rule's `match: {{call: ...}}`"
                );
                return Err(Error::new(told.name.span(), problem));
            }
            let text = number::text(&word, &told.value, &format!("\"{{{word}}}\""))?;
            tells.push((word, text::pieces(&text)?));
        }
        Ok(Self { name: name.value(), tells })
    }
}

#[cfg(test)]
mod tests {
    use super::{LONGEST, OPTIONS, TAKEN};
    use diana_rules::{Document, Registry, RuleFile};

    fn is_good(name: &str, told: &str) -> bool {
        let file = format!("rules: [{{name: {name}, match: {{call: {told}}}, limit: 1/s}}]");
        RuleFile::read(&Document::new("diana.yaml", file), &Registry::default()).is_ok()
    }

    #[test]
    fn rules_refuse_what_is_refused_here() {
        assert!(is_good("sms", "phone"));
        for word in TAKEN.iter().chain(&OPTIONS) {
            assert!(!is_good("sms", word), "{word}");
        }
        assert!(is_good(&"a".repeat(LONGEST), "phone"));
        assert!(!is_good(&"a".repeat(LONGEST + 1), "phone"));
    }
}
