//! The tokens of Lua, as far as needed to find the end of a block and to read the calls of lua-resty-limit-traffic.
//!
//! Like the lexer of lua-nginx-module, it knows quotes, long brackets and comments, in which braces don't count.

/// A token and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Token {
    pub(super) kind: Kind,
    /// The line, from 0.
    pub(super) line: usize,
    /// The offset after it.
    end: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A name or a keyword.
    Name(String),
    /// A number, as written.
    Number(String),
    Text(String),
    /// A sign such as `==` or `{`.
    Sign(&'static str),
    /// Anything else, such as an unclosed quote.
    Unknown,
}

/// Signs, those that begin with another one first.
const SIGNS: [&str; 25] = [
    "...", "..", "==", "~=", "<=", ">=", "<", ">", "=", "(", ")", "{", "}", "[", "]", ";", ":", ",", ".", "+", "-",
    "*", "/", "%", "^",
];

/// Returns the tokens of a text, without comments.
pub(super) fn tokens(text: &str) -> impl Iterator<Item = Token> + '_ {
    let mut lexer = Lexer { text, at: 0, line: 0 };
    std::iter::from_fn(move || lexer.next())
}

/// Returns the length of a block up to and including its `}`; `None` if it is unclosed.
pub(in super::super) fn block_length(text: &str) -> Option<usize> {
    let mut depth = 1_usize;
    for token in tokens(text) {
        match token.kind {
            Kind::Sign("{") => depth += 1,
            Kind::Sign("}") => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(token.end);
        }
    }
    None
}

struct Lexer<'a> {
    text: &'a str,
    at: usize,
    line: usize,
}

impl<'a> Lexer<'a> {
    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    /// Skips bytes, which must end at a character.
    fn skip(&mut self, length: usize) -> &'a str {
        let skipped = self.rest().get(..length).unwrap_or(self.rest());
        self.line += skipped.bytes().filter(|byte| *byte == b'\n').count();
        self.at += skipped.len();
        skipped
    }

    fn skip_while(&mut self, is_part: impl Fn(char) -> bool) -> &'a str {
        let rest = self.rest();
        self.skip(rest.find(|c| !is_part(c)).unwrap_or(rest.len()))
    }

    /// Skips `[[text]]` or `[=[text]=]`, and returns its text.
    fn long_bracket(&mut self) -> Option<&'a str> {
        let inside = self.rest().strip_prefix('[')?;
        let level = inside.len() - inside.trim_start_matches('=').len();
        let inside = inside.get(level..)?.strip_prefix('[')?;
        let end = format!("]{}]", "=".repeat(level));
        let length = inside.find(&end);
        self.skip(2 + level);
        let content = self.skip(length.unwrap_or(inside.len()));
        self.skip(if length.is_some() { end.len() } else { 0 });
        Some(content)
    }

    fn next(&mut self) -> Option<Token> {
        loop {
            self.skip_while(char::is_whitespace);
            if !self.rest().starts_with("--") {
                break;
            }
            self.skip(2);
            if self.long_bracket().is_none() {
                self.skip_while(|c| c != '\n');
            }
        }
        let line = self.line;
        let kind = match self.rest().chars().next()? {
            quote @ ('"' | '\'') => self.quoted(quote),
            c if c.is_ascii_digit() => Kind::Number(self.number()),
            c if c.is_ascii_alphabetic() || c == '_' => {
                Kind::Name(self.skip_while(|c| c.is_ascii_alphanumeric() || c == '_').to_owned())
            }
            other => match self.long_bracket() {
                // A line break after the opening bracket is not part of the text.
                Some(text) => Kind::Text(text.strip_prefix('\n').unwrap_or(text).to_owned()),
                None => match SIGNS.into_iter().find(|sign| self.rest().starts_with(sign)) {
                    Some(sign) => {
                        self.skip(sign.len());
                        Kind::Sign(sign)
                    }
                    None => {
                        self.skip(other.len_utf8());
                        Kind::Unknown
                    }
                },
            },
        };
        Some(Token { kind, line, end: self.at })
    }

    /// Reads digits with a point; a second point is the sign `..`.
    fn number(&mut self) -> String {
        let mut number = self.skip_while(|c| c.is_ascii_alphanumeric()).to_owned();
        if self.rest().starts_with('.') && !self.rest().starts_with("..") {
            number.push_str(self.skip(1));
            number.push_str(self.skip_while(|c| c.is_ascii_alphanumeric()));
        }
        number
    }

    fn quoted(&mut self, quote: char) -> Kind {
        let mut text = String::new();
        let mut is_plain = true;
        self.skip(1);
        while let Some(character) = self.rest().chars().next() {
            if character == '\n' {
                return Kind::Unknown;
            }
            self.skip(character.len_utf8());
            match character {
                '\\' => match self.rest().chars().next() {
                    Some(escaped) => {
                        self.skip(escaped.len_utf8());
                        is_plain &= matches!(escaped, '"' | '\'' | '\\');
                        text.push(escaped);
                    }
                    None => return Kind::Unknown,
                },
                _ if character == quote => return if is_plain { Kind::Text(text) } else { Kind::Unknown },
                _ => text.push(character),
            }
        }
        Kind::Unknown
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(text: &str) -> Vec<Kind> {
        tokens(text).map(|token| token.kind).collect()
    }

    #[test]
    fn names_numbers_texts_and_signs() {
        let name = |text: &str| Kind::Name(text.to_owned());
        let text = |text: &str| Kind::Text(text.to_owned());
        assert_eq!(
            kinds("local x_1=.5..'a\\'b' -- no {\n--[==[ ]] } ]==] \"c\"[==[\nd]]]==] é \"\\n\""),
            [
                name("local"),
                name("x_1"),
                Kind::Sign("="),
                Kind::Sign("."),
                Kind::Number("5".to_owned()),
                Kind::Sign(".."),
                text("a'b"),
                text("c"),
                text("d]]"),
                Kind::Unknown,
                Kind::Unknown,
            ]
        );
        assert_eq!(
            kinds("0.5 1..2 "),
            [
                Kind::Number("0.5".to_owned()),
                Kind::Number("1".to_owned()),
                Kind::Sign(".."),
                Kind::Number("2".to_owned()),
            ]
        );
        assert_eq!(tokens("a\n[[\n\n]]\nb").map(|token| token.line).collect::<Vec<_>>(), [0, 1, 4]);
    }

    #[test]
    fn a_block_ends_at_its_own_brace() {
        let blocks = [
            "}",
            " local t = { a = '}', b = \"}\" } }",
            " -- don't }\n }",
            " --[[ } ' ]] }",
            " --[==[ ]] } ]==] }",
            " --[=x } not a long comment\n}",
            " s = [[ } ']] }",
            " s = [=[ ]] } ]=] }",
            " s = '\\'}' }",
            " s = \"\\\\\" }",
            " t[t[1]] = {{}} }",
            " a = b--}\n}",
            "é }",
        ];
        for block in blocks {
            let text = format!("{block}; more }}");
            assert_eq!(block_length(&text), Some(block.len()), "{block}");
        }
        assert_eq!([block_length(""), block_length("{}"), block_length("[[ }"), block_length("--}")], [None; 4]);
        // As in Lua, a quote ends at the end of its line, so a brace on the next one counts.
        assert_eq!(block_length("s = 'a\n}"), Some(8));
    }
}
