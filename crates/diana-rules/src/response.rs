//! Custom bodies of denial responses: `answer: {type: text/plain, text: 'slow down'}`.

use diana_document::Node;
use diana_document::Problem;
use diana_document::map_reader::MapReader;
use diana_document::scalar;
use std::sync::Arc;

/// The custom body of a denial response. (The result of a limit is [`diana_core::Answer`].)
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CustomResponse {
    /// The media type: `text/plain; charset=utf-8`. It is valid as a header value.
    pub content_type: String,
    /// The body, of 64 KiB at most.
    pub text: String,
}

pub(crate) const FIELDS: [&str; 2] = ["type", "text"];
/// The maximum length of the text. It is sent often, and mostly under high load.
pub(crate) const MAX_SIZE: usize = 64 << 10;

impl CustomResponse {
    pub(crate) fn read(node: &Node, problems: &mut Vec<Problem>) -> Option<Arc<Self>> {
        let mut fields = MapReader::of(node, "`answer`", FIELDS, problems)?;
        let content_type = fields.require("type", problems);
        let content_type = content_type.and_then(|node| scalar::parsed(node, "`type`", media_type, problems));
        let text = fields.require("text", problems).and_then(|node| text(node, problems));
        fields.finish(problems);
        Some(Arc::new(Self { content_type: content_type?, text: text? }))
    }
}

fn text(node: &Node, problems: &mut Vec<Problem>) -> Option<String> {
    let text = scalar::text(node, "`text`", problems)?;
    if text.len() > MAX_SIZE {
        let problem = Problem::new(node.span, format!("`text` is too large: {} bytes", text.len()));
        problems.push(problem.expected(format!("expected at most {MAX_SIZE}")));
        return None;
    }
    Some(text.to_owned())
}

/// Parses `type/subtype`, with or without parameters.
fn media_type(text: &str) -> Result<String, String> {
    let is_token = |text: &str| {
        let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
        !text.is_empty() && text.bytes().all(is_valid)
    };
    let (kind, parameters) = text.split_once(';').unwrap_or((text, ""));
    let is_type = kind.trim_end().split_once('/').is_some_and(|(kind, subtype)| is_token(kind) && is_token(subtype));
    let is_valid = is_type && parameters.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic());
    is_valid
        .then(|| text.to_owned())
        .ok_or_else(|| "expected a media type such as text/plain or application/json".to_owned())
}
