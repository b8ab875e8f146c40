//! Writes YAML for people: plain scalars where they are safe, quotes where they are not.

use std::fmt::Write;

/// The widest list that is written on one line.
const MAX_WIDTH: usize = 100;

/// Words that would not be strings, or that some parsers read as something else.
const KEYWORDS: [&str; 11] = ["true", "false", "null", "~", "yes", "no", "on", "off", "y", "n", ".nan"];

/// Formats a text, quoted if necessary. `${` would start a variable, so it is written `$${`.
pub(crate) fn scalar(value: &str) -> String {
    let value = value.replace("${", "$${");
    let is_safe = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '.' | '_' | '-' | '(' | ')' | '*' | '$');
    let has_safe_start = value.starts_with(|c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '_'));
    // Neither a network nor an address can be a number.
    let is_network = value.contains('/') || value.matches('.').count() == 3;
    let looks_like_a_number = value.starts_with(|c: char| c.is_ascii_digit()) && !is_network;
    let is_keyword = KEYWORDS.iter().any(|word| word.eq_ignore_ascii_case(&value));
    if has_safe_start && !looks_like_a_number && !is_keyword && value.chars().all(is_safe) {
        return value;
    }
    if value.chars().any(|c| c.is_control() || matches!(c, '\u{feff}' | '\u{2028}' | '\u{2029}')) {
        return escaped(&value);
    }
    format!("'{}'", value.replace('\'', "''"))
}

/// Formats a text in double quotes, if nothing else can express it.
fn escaped(value: &str) -> String {
    let mut quoted = String::from('"');
    for character in value.chars() {
        match character {
            '"' | '\\' => quoted.extend(['\\', character]),
            '\n' => quoted.push_str("\\n"),
            '\t' => quoted.push_str("\\t"),
            '\r' => quoted.push_str("\\r"),
            c if c.is_control() || matches!(c, '\u{feff}' | '\u{2028}' | '\u{2029}') => {
                let _ = write!(quoted, "\\u{:04X}", u32::from(c));
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

/// Writes a field with several values: on one line if they fit.
pub(crate) fn list(text: &mut String, indent: &str, field: &str, values: &[String]) {
    let values = values.iter().map(|value| scalar(value)).collect::<Vec<_>>();
    let inline = values.join(", ");
    if inline.len() <= MAX_WIDTH {
        let _ = writeln!(text, "{indent}{field}: [{inline}]");
        return;
    }
    let _ = writeln!(text, "{indent}{field}:");
    for value in values {
        let _ = writeln!(text, "{indent}  - {value}");
    }
}

/// Writes a comment.
pub(crate) fn comment(text: &mut String, indent: &str, line: &str) {
    let line = line.chars().map(|c| if c.is_control() { ' ' } else { c }).collect::<String>();
    let _ = writeln!(text, "{}", format!("{indent}# {}", line.trim_end()).trim_end());
}

#[cfg(test)]
mod tests {
    use super::*;
    use diana_rules::Document;
    use diana_rules::document::Value;

    #[test]
    fn written_scalars_parse_back() {
        let texts = [
            "",
            " ",
            "plain",
            "/x*",
            "*.example.org",
            "10.0.0.0/8",
            "10.0.0.1",
            "2001:db8::/32",
            "10",
            "1e5",
            "0x1f",
            "no",
            "Null",
            "a: b",
            "a #b",
            "- a",
            "it's",
            "\"q\"",
            "{a}",
            "[b]",
            "a,b",
            "&a",
            "!b",
            "%c",
            "@d",
            "`e`",
            "|",
            ">",
            "a\nb",
            "\t",
            "\u{1}\u{7f}\u{85}",
            "ü",
            "\u{feff}",
            "\\.php$",
            "a\u{2028}b",
            "1/2",
            "header(x-y)",
            "---",
            "...",
            "?",
            "a\\b\n",
            "=",
            "<<",
        ];
        for text in texts {
            for document in [format!("a: {}\n", scalar(text)), format!("a: [{}, b]\n", scalar(text))] {
                let tree = Document::new("t.yaml", &document).parse().unwrap_or_else(|error| panic!("{error}"));
                let Value::Map(entries) = tree.value else { panic!("{document}") };
                let value = match &entries[0].node.value {
                    Value::List(items) => items[0].value.clone(),
                    other => other.clone(),
                };
                assert_eq!(value, Value::Text(text.to_owned()), "{document}");
            }
        }
    }

    #[test]
    fn variables_stay_as_they_are() {
        for text in ["${HOME}", "$${x", "a$${b}c", "$"] {
            let document = format!("a: {}\n", scalar(text));
            let tree =
                Document::new("t.yaml", &document).parse_with(|_| None).unwrap_or_else(|error| panic!("{error}"));
            let Value::Map(entries) = tree.value else { panic!("{document}") };
            assert_eq!(entries[0].node.value, Value::Text(text.to_owned()), "{document}");
        }
    }
}
