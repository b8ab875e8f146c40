//! The syntax of nginx's configuration: words, `;` and `{ }`.
//!
//! It is parsed as by nginx's `ngx_conf_read_token`: a word ends at a space, `;` or `{`; quotes and `#` are special
//! only at the beginning of a word; a backslash escapes the next character; `${` does not open a block. The parser does
//! not interpret directives, except for blocks of Lua, which are not configuration: it keeps their text.

use super::lua::{Script, block_length, phase};
use diana_rules::Problem;
use diana_rules::document::Span;

/// The maximum depth of blocks, over all included files: more than in practice, and safe for recursive functions.
pub(super) const MAX_DEPTH: usize = 64;
/// The maximum number of directives of one file.
const MAX_COUNT: usize = 1_000_000;

/// `name args;` or `name args { block }`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Directive {
    pub(super) name: String,
    pub(super) args: Vec<String>,
    pub(super) block: Option<Vec<Directive>>,
    /// The directive's Lua, if it is a script that may deny requests.
    pub(super) script: Option<Script>,
    pub(super) position: Position,
}

/// The location of a directive: the number of its file, its line from 1, and the bytes of its name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Position {
    pub(super) file: usize,
    pub(super) line: usize,
    pub(super) span: Span,
}

impl Directive {
    /// Returns an argument, counted from 0; an empty text if there is none.
    pub(super) fn arg(&self, index: usize) -> &str {
        self.args.get(index).map_or("", String::as_str)
    }

    /// Returns the directives of its block.
    pub(super) fn inside(&self) -> &[Self] {
        self.block.as_deref().unwrap_or_default()
    }
}

/// Parses a file.
pub(super) fn parse(text: &str, file: usize) -> Result<Vec<Directive>, Problem> {
    let mut words = Words { text, at: 0, line: 1 };
    // The open blocks, each with the directive that opened it and the directives before it.
    let mut open: Vec<(Directive, Vec<Directive>)> = Vec::new();
    let mut level = Vec::new();
    let mut current: Option<Directive> = None;
    let mut count = 0;
    while let Some((token, line, span)) = words.next()? {
        match (token, current.take()) {
            (Token::Word(name), None) => {
                count += 1;
                if count > MAX_COUNT {
                    return Err(Problem::new(span, format!("more than {MAX_COUNT} directives")));
                }
                let position = Position { file, line, span };
                current = Some(Directive { name, args: Vec::new(), block: None, script: None, position });
            }
            (Token::Word(word), Some(mut directive)) => {
                directive.args.push(word);
                current = Some(directive);
            }
            (Token::End, Some(mut directive)) => {
                // `access_by_lua 'script';`
                if directive.name.ends_with("_by_lua") && phase(&directive.name).is_some() {
                    let (text, position) = (directive.arg(0).to_owned(), directive.position);
                    directive.script = Some(Script { text, position });
                }
                level.push(directive);
            }
            (Token::Open, Some(mut directive)) if directive.name.ends_with("_by_lua_block") => {
                let text = words.lua_block(span)?;
                let position = Position { line, ..directive.position };
                directive.script = phase(&directive.name).is_some().then_some(Script { text, position });
                directive.block = Some(Vec::new());
                level.push(directive);
            }
            (Token::Open, Some(directive)) => {
                if open.len() == MAX_DEPTH {
                    return Err(Problem::new(span, format!("blocks are nested deeper than {MAX_DEPTH}")));
                }
                open.push((directive, std::mem::take(&mut level)));
            }
            (Token::Close, None) => match open.pop() {
                Some((mut directive, before)) => {
                    directive.block = Some(std::mem::replace(&mut level, before));
                    level.push(directive);
                }
                None => return Err(Problem::new(span, "unexpected `}`")),
            },
            (Token::Close, Some(directive)) => {
                let what = format!("missing `;` after `{}`", directive.name);
                return Err(Problem::new(directive.position.span, what).expected("expected `;` at its end"));
            }
            (Token::End, None) => {
                return Err(Problem::new(span, "unexpected `;`").expected("expected a directive before it"));
            }
            (Token::Open, None) => {
                return Err(
                    Problem::new(span, "unexpected `{`").expected("expected a directive before it, such as `server {`")
                );
            }
        }
    }
    if let Some(directive) = current {
        let what = format!("unexpected end of file in `{}`", directive.name);
        return Err(Problem::new(directive.position.span, what).expected("expected `;` at its end"));
    }
    if let Some((directive, _)) = open.last() {
        let what = format!("unclosed block `{}`", directive.name);
        return Err(Problem::new(directive.position.span, what).expected("expected `}` at its end"));
    }
    Ok(level)
}

enum Token {
    Word(String),
    /// `;`
    End,
    /// `{`
    Open,
    /// `}`
    Close,
}

struct Words<'a> {
    text: &'a str,
    at: usize,
    line: usize,
}

impl Words<'_> {
    fn peek(&self) -> Option<char> {
        self.text.get(self.at..).and_then(|rest| rest.chars().next())
    }

    fn bump(&mut self) -> Option<char> {
        let character = self.peek()?;
        self.at += character.len_utf8();
        self.line += usize::from(character == '\n');
        Some(character)
    }

    /// Returns the next token, its line, and its span.
    fn next(&mut self) -> Result<Option<(Token, usize, Span)>, Problem> {
        loop {
            match self.peek() {
                None => return Ok(None),
                Some(' ' | '\t' | '\r' | '\n') => {
                    self.bump();
                }
                // Some editors begin a file with a byte order mark; nginx skips it, too.
                Some('\u{feff}') if self.at == 0 => {
                    self.bump();
                }
                Some('#') => while self.bump().is_some_and(|c| c != '\n') {},
                Some(_) => break,
            }
        }
        let (start, line) = (self.at, self.line);
        let token = match self.peek() {
            Some(';') => Token::End,
            Some('{') => Token::Open,
            Some('}') => Token::Close,
            Some(quote @ ('"' | '\'')) => {
                self.bump();
                Token::Word(self.quoted(quote, start)?)
            }
            _ => Token::Word(self.plain()),
        };
        if !matches!(token, Token::Word(_)) {
            self.bump();
        }
        Ok(Some((token, line, Span { start, end: self.at })))
    }

    fn plain(&mut self) -> String {
        let mut word = String::new();
        let mut after_dollar = false;
        while let Some(character) = self.peek() {
            match character {
                ' ' | '\t' | '\r' | '\n' | ';' => break,
                '{' if !after_dollar => break,
                _ => {}
            }
            self.bump();
            after_dollar = character == '$';
            self.push(character, &mut word);
        }
        word
    }

    fn quoted(&mut self, quote: char, start: usize) -> Result<String, Problem> {
        let mut word = String::new();
        while let Some(character) = self.bump() {
            if character == quote {
                return match self.peek() {
                    None | Some(' ' | '\t' | '\r' | '\n' | ';' | '{') => Ok(word),
                    Some(')') => {
                        self.bump();
                        word.push(')');
                        Ok(word)
                    }
                    Some(other) => {
                        let span = Span { start: self.at, end: self.at + other.len_utf8() };
                        let problem =
                            Problem::new(span, format!("unexpected `{}` after a closing quote", other.escape_debug()));
                        Err(problem.expected("expected a space or `;`"))
                    }
                };
            }
            self.push(character, &mut word);
        }
        let problem = Problem::new(Span { start, end: start + 1 }, "unclosed quote");
        Err(problem.expected(format!("expected `{quote}` at its end")))
    }

    /// Adds one character of a word. A backslash before a quote or a backslash is removed, `\n` and similar are
    /// unescaped, and any other stays, since regular expressions need it.
    fn push(&mut self, character: char, word: &mut String) {
        if character != '\\' {
            word.push(character);
            return;
        }
        match self.bump() {
            Some(escaped @ ('"' | '\'' | '\\')) => word.push(escaped),
            Some('t') => word.push('\t'),
            Some('r') => word.push('\r'),
            Some('n') => word.push('\n'),
            Some(other) => word.extend(['\\', other]),
            None => word.push('\\'),
        }
    }

    /// Skips Lua up to the `}` that closes the block, and returns it.
    fn lua_block(&mut self, opened: Span) -> Result<String, Problem> {
        let rest = self.text.get(self.at..).unwrap_or_default();
        let Some(block) = block_length(rest).and_then(|length| rest.get(..length)) else {
            return Err(Problem::new(opened, "unclosed Lua block").expected("expected `}` at its end"));
        };
        self.line += block.bytes().filter(|byte| *byte == b'\n').count();
        self.at += block.len();
        Ok(block.strip_suffix('}').unwrap_or(block).to_owned())
    }
}

#[cfg(test)]
mod tests;
