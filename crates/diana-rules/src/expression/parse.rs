//! Parses text into the parser's tree, on a separate thread.
//!
//! The parser (ANTLR's, from the crate `cel`) recurses a dozen frames for each bracket, which in an unoptimised build
//! is 170 KiB a bracket. So it runs on a thread with a big stack, and so does all code that touches its tree: lowering
//! it into ours, and dropping it. The thread also contains a panic of the parser.

use super::error::InvalidExpression;
use super::nesting::scan;
use cel::IdedExpr;
use cel::common::ast::SourceInfo;
use cel::parser::{ParseError, Parser};

/// Ten times the stack that the deepest and longest text needs that [`scan`] accepts. Only used pages are mapped.
const STACK: usize = 64 << 20;

/// Parses `text`, and passes the tree to `then`, all on a big stack.
pub(super) fn parsed<T: Send>(
    text: &str,
    then: impl FnOnce(&IdedExpr, &SourceInfo) -> Result<T, InvalidExpression> + Send,
) -> Result<T, InvalidExpression> {
    scan(text)?;
    if text.trim().is_empty() {
        return Err(InvalidExpression::new(Some(0), "the expression is empty")
            .expected("expected an expression such as request.method == 'GET'"));
    }
    let work = || {
        let parser = Parser::new().enable_ident_escape_syntax(true);
        let (tree, source) =
            parser.parse_with_source_info(text).map_err(|errors| syntax_error(text, &errors.errors))?;
        then(&tree, &source)
    };
    let builder = std::thread::Builder::new().name("diana-expression".to_owned()).stack_size(STACK);
    std::thread::scope(|scope| match builder.spawn_scoped(scope, work) {
        Ok(thread) => thread.join().unwrap_or_else(|_| Err(InvalidExpression::new(None, "invalid expression"))),
        Err(error) => {
            Err(InvalidExpression::new(None, format!("cannot start a thread to parse the expression: {error}")))
        }
    })
}

/// Converts the first error.
fn syntax_error(text: &str, errors: &[ParseError]) -> InvalidExpression {
    let Some(error) = errors.first() else { return InvalidExpression::new(None, "invalid expression") };
    let at = offset(text, error.pos);
    let message = error.msg.strip_prefix("Syntax error: ").unwrap_or(&error.msg);
    if message.contains("input '<EOF>'") {
        return InvalidExpression::new(at, "unexpected end of the expression");
    }
    if let Some(unread) = message.strip_prefix("token recognition error at: ") {
        let what = format!("unexpected {unread}");
        return InvalidExpression::new(at, what).expected("texts need quotes at both ends, as in 'GET'");
    }
    // The parser lists every token that it accepts at this position, which does not help users.
    let what = message.split_once(" expecting ").map_or(message, |(what, _)| what);
    InvalidExpression::new(at, what)
}

/// Returns the byte offset of a line and column, both 1-based and in characters.
fn offset(text: &str, (line, column): (isize, isize)) -> Option<usize> {
    let line = usize::try_from(line).ok()?.checked_sub(1)?;
    let column = usize::try_from(column).ok()?.checked_sub(1)?;
    let lines = text.split_inclusive('\n');
    let before = lines.clone().take(line).map(str::len).sum::<usize>();
    let within = lines.clone().nth(line).unwrap_or_default().chars().take(column).map(char::len_utf8).sum::<usize>();
    Some((before + within).min(text.len()))
}
