//! Expressions of limitador: which entries of a descriptor they read, and the same for Diana.

/// Parses `descriptors[0].key`, `descriptors[0]["key"]`, or the older form `key`. Returns the key, and the text after it.
pub(super) fn entry_of(text: &str) -> Option<(String, &str)> {
    let text = text.trim();
    let name = |text: &str| {
        let end = text.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(text.len());
        (end > 0 && !text.starts_with(|c: char| c.is_ascii_digit())).then_some(end)
    };
    let Some(rest) = text.strip_prefix("descriptors[") else {
        // The older form is a bare word, or `word.word`.
        let end = text.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '.')).unwrap_or(text.len());
        name(text)?;
        return (!text[end..].starts_with('(')).then(|| (text[..end].to_owned(), text[end..].trim_start()));
    };
    let (index, rest) = rest.split_once(']')?;
    index.parse::<u32>().ok()?;
    if let Some(rest) = rest.strip_prefix('.') {
        let end = name(rest)?;
        return Some((rest[..end].to_owned(), rest[end..].trim_start()));
    }
    let rest = rest.strip_prefix('[')?;
    let quote = rest.chars().next().filter(|quote| matches!(quote, '"' | '\''))?;
    let (key, rest) = rest[1..].split_once(quote)?;
    let rest = rest.strip_prefix(']')?;
    (!key.contains('\\')).then(|| (key.to_owned(), rest.trim_start()))
}

/// Parses a condition that an entry has a value (`true`), or has another one.
pub(super) fn equality(condition: &str) -> Option<(String, bool, String)> {
    let (key, rest) = entry_of(condition)?;
    let (is_equal, rest) = match (rest.strip_prefix("=="), rest.strip_prefix("!=")) {
        (Some(rest), _) => (true, rest.trim()),
        (_, Some(rest)) => (false, rest.trim()),
        _ => return None,
    };
    let quote = rest.chars().next()?;
    let value = match quote {
        '"' | '\'' => {
            let value = rest.strip_prefix(quote)?.strip_suffix(quote)?;
            if value.contains([quote, '\\']) { None } else { Some(value) }?
        }
        // The older form has no quotes.
        _ if !condition.contains("descriptors[")
            && rest.chars().all(|c| c.is_ascii_alphanumeric() || "_-./".contains(c)) =>
        {
            rest
        }
        _ => return None,
    };
    (!value.is_empty()).then(|| (key, is_equal, value.to_owned()))
}

/// The sides of the operators `||` of a condition.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Alternatives<'a> {
    sides: Vec<&'a str>,
    /// Whether there are others within a side, or `? :`.
    pub(super) has_nested: bool,
}

/// Splits a condition at its operators `||`.
pub(super) fn alternatives(condition: &str) -> Alternatives<'_> {
    let (mut sides, mut start, mut depth, mut quote, mut has_nested) = (Vec::new(), 0, 0_usize, None, false);
    let mut characters = condition.char_indices().peekable();
    while let Some((at, character)) = characters.next() {
        match (quote, character) {
            (Some(_), '\\') => drop(characters.next()),
            (Some(open), _) if character == open => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') => quote = Some(character),
            (None, '(' | '[' | '{') => depth += 1,
            (None, ')' | ']' | '}') => depth = depth.saturating_sub(1),
            (None, '?') => has_nested = true,
            (None, '|') if characters.next_if(|(_, next)| *next == '|').is_some() => {
                has_nested |= depth > 0;
                if depth == 0 {
                    sides.push(&condition[start..at]);
                    start = at + 2;
                }
            }
            _ => {}
        }
    }
    sides.push(&condition[start..]);
    // `? :` binds weaker than `||`.
    if has_nested { Alternatives { sides: vec![condition], has_nested } } else { Alternatives { sides, has_nested } }
}

impl Alternatives<'_> {
    /// Translates the condition. Returns the keys of the entries that limitador always reads, too; it reads the others only if
    /// the sides before do not hold, and without them the condition does not hold.
    pub(super) fn translated(&self) -> (String, Vec<String>) {
        let sides = self.sides.iter().rev().map(|side| translated(side.trim()));
        let joined = sides.reduce(|(after, keys_after), (side, keys)| {
            let other = keys_after.iter().filter(|key| !keys.contains(key));
            let present = other.map(|key| format!("{key:?} in request.descriptor && "));
            (format!("{side} || ({}({after}))", present.collect::<String>()), keys)
        });
        joined.unwrap_or_default()
    }
}

/// Translates an expression of limitador. Returns the keys of the entries that it reads, too.
pub(super) fn translated(expression: &str) -> (String, Vec<String>) {
    let (mut text, mut keys, mut rest) = (String::new(), Vec::new(), expression);
    while let Some(at) = rest.find("descriptors[") {
        text.push_str(&rest[..at]);
        match entry_of(&rest[at..]) {
            Some((key, after)) => {
                text.push_str(&format!("request.descriptor[{key:?}]"));
                if !after.is_empty() && !after.starts_with(['.', ')', ']', ',']) {
                    text.push(' ');
                }
                keys.push(key);
                rest = after;
            }
            None => {
                text.push_str("descriptors[");
                rest = &rest[at + "descriptors[".len()..];
            }
        }
    }
    text.push_str(rest);
    (text, keys)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_are_read() {
        let of = |text: &str| equality(text).map(|(key, is, value)| format!("{key} {is} {value}"));
        assert_eq!(of("descriptors[0].req_method == 'GET'").as_deref(), Some("req_method true GET"));
        assert_eq!(of("descriptors[1][\"a.b\"] != \"x y\"").as_deref(), Some("a.b false x y"));
        assert_eq!(of("req.method == GET").as_deref(), Some("req.method true GET"));
        for other in [
            "descriptors[0].a in ['b']",
            "descriptors[0].a == descriptors[0].b",
            "size(descriptors[0].a) == 1",
            "a",
            "",
        ] {
            assert_eq!(of(other), None, "{other}");
        }
    }

    #[test]
    fn alternatives_are_split_outside_of_quotes_and_parentheses() {
        let of = |text| alternatives(text).sides;
        assert_eq!(of("a || b||c"), ["a ", " b", "c"]);
        assert_eq!(of("a == '||' || b == \"\\\"||\""), ["a == '||' ", " b == \"\\\"||\""]);
        let nested = |text| alternatives(text).has_nested;
        assert_eq!(["a || b", "a && (b || c)", "a ? b : c || d", "a == '?'"].map(nested), [false, true, true, false]);
        let (text, keys) = alternatives("descriptors[0].a == 'x' || descriptors[0].b == 'y'").translated();
        assert_eq!(
            text,
            r#"request.descriptor["a"] == 'x' || ("b" in request.descriptor && (request.descriptor["b"] == 'y'))"#
        );
        assert_eq!(keys, ["a"]);
    }

    #[test]
    fn other_expressions_are_translated() {
        let (text, keys) = translated("descriptors[0].path.startsWith('/a') && descriptors[0]['m'] in ['x', 'y']");
        assert_eq!(text, r#"request.descriptor["path"].startsWith('/a') && request.descriptor["m"] in ['x', 'y']"#);
        assert_eq!(keys, ["path", "m"]);
    }
}
