//! A document as users write it: a named text, in one of several formats, each parsed into the same [tree](Node).

mod item_text;
mod problems;
mod toml;
mod variables;
mod yaml;

use crate::node::{Node, Span};
use crate::problem::Problem;
pub use problems::{LocatedProblem, Problems, shown};
use std::fmt;
pub use variables::Replaced;

/// A text with a name, so that problems can refer to a file and line.
///
/// ```
/// use diana_document::{Document, Value};
///
/// let document = Document::new("diana.yaml", "rules:\n  - name: everyone\n    limit: 10000/s\n");
/// let tree = document.parse()?;
/// assert!(matches!(tree.value, Value::Map(ref entries) if entries[0].key == "rules"));
///
/// let error = Document::new("diana.yaml", "rules: [").parse().unwrap_err();
/// assert!(error.to_string().starts_with("diana.yaml:1:8: "), "{error}");
/// # Ok::<(), diana_document::Problems>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Document {
    name: String,
    text: String,
    format: Format,
}

/// The format of a document.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Format {
    /// YAML, of which JSON is a subset.
    #[default]
    Yaml,
    /// TOML.
    Toml,
}

impl Format {
    /// Returns the format for a file name: TOML for `.toml`, else YAML.
    pub fn of_name(name: &str) -> Self {
        let is_toml = name.rsplit_once('.').is_some_and(|(_, extension)| extension.eq_ignore_ascii_case("toml"));
        if is_toml { Self::Toml } else { Self::Yaml }
    }
}

impl Document {
    /// The maximum size of a document, in bytes: some ten thousand rules.
    pub const MAX_SIZE: usize = 16 << 20;

    /// Creates a document in the format that its name implies.
    pub fn new(name: impl Into<String>, text: impl Into<String>) -> Self {
        let name = name.into();
        let format = Format::of_name(&name);
        Self { name, text: text.into(), format }
    }

    /// Sets the format, for a text that does not come from a file.
    #[must_use]
    pub fn with_format(self, format: Format) -> Self {
        Self { format, ..self }
    }

    /// Returns the name: a path or a URL.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Parses the text into a tree. Does not check the fields.
    pub fn parse(&self) -> Result<Node, Problems> {
        if self.text.len() > Self::MAX_SIZE {
            let problem =
                Problem::new(Span::default(), format!("the document is too large: {} bytes", self.text.len()))
                    .expected(format!("at most {}", Self::MAX_SIZE));
            return Err(self.problems([problem]));
        }
        let parsed = match self.format {
            Format::Yaml => yaml::parse(&self.text),
            Format::Toml => toml::parse(&self.text),
        };
        parsed.map_err(|problem| self.problems([problem]))
    }

    /// Parses the text, and replaces each `${NAME}` in a value with the result of `variable`.
    ///
    /// ```
    /// use diana_document::{Document, Value};
    ///
    /// let document = Document::new("diana.yaml", "store: { redis: '${REDIS_URL}' }");
    /// let tree = document.parse_with(|name| (name == "REDIS_URL").then(|| "redis://10.0.0.7".to_owned()))?;
    /// assert!(format!("{tree:?}").contains("redis://10.0.0.7"));
    ///
    /// let error = document.parse_with(|_| None).unwrap_err();
    /// assert!(error.to_string().contains("`REDIS_URL` is not set"), "{error}");
    /// # Ok::<(), diana_document::Problems>(())
    /// ```
    pub fn parse_with(&self, variable: impl Fn(&str) -> Option<String>) -> Result<Node, Problems> {
        self.parse_replacing(variable).map(|(tree, _)| tree)
    }

    /// Parses the document like `parse_with`; also returns the variables that were replaced.
    pub fn parse_replacing(&self, variable: impl Fn(&str) -> Option<String>) -> Result<(Node, Replaced), Problems> {
        let mut tree = self.parse()?;
        let (mut replaced, mut problems) = (Replaced::default(), Vec::new());
        variables::replace(&mut tree, &variable, &mut replaced, &mut problems);
        if problems.is_empty() { Ok((tree, replaced)) } else { Err(self.problems(problems)) }
    }

    /// Creates [`Problems`] for this document.
    pub fn problems(&self, problems: impl IntoIterator<Item = Problem>) -> Problems {
        Problems::new(self, problems)
    }
}

impl fmt::Debug for Document {
    /// Omits the text, which may contain passwords.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, text, format } = self;
        f.debug_struct("Document").field("name", name).field("format", format).field("length", &text.len()).finish()
    }
}
