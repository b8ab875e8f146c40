//! A document as users write it: a text with a name, in one of several formats, which all become the same [tree](Node).

pub(crate) mod node;
mod toml;
mod variables;
mod yaml;

use crate::problem::{Problem, Problems};
use node::Node;
use std::fmt;
pub(crate) use variables::Replaced;

/// The largest document that is read, in bytes: some ten thousand rules.
pub(crate) const LARGEST: usize = 16 << 20;

/// A text that has a name, so that people find the line that is meant.
///
/// ```
/// use diana_rules::{Document, Value};
///
/// let document = Document::new("diana.yaml", "rules:\n  - name: everyone\n    limit: 10000/s\n");
/// let tree = document.parse()?;
/// assert!(matches!(tree.value, Value::Map(ref entries) if entries[0].key == "rules"));
///
/// let error = Document::new("diana.yaml", "rules: [").parse().unwrap_err();
/// assert!(error.to_string().starts_with("diana.yaml:1:8: "), "{error}");
/// # Ok::<(), diana_rules::Problems>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Document {
    name: String,
    text: String,
    format: Format,
}

/// How a document is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// YAML, which JSON is too.
    #[default]
    Yaml,
    /// TOML.
    Toml,
}

impl Format {
    /// The format that a file's name tells: TOML for `.toml`, else YAML.
    pub fn of_name(name: &str) -> Self {
        let is_toml = name.rsplit_once('.').is_some_and(|(_, extension)| extension.eq_ignore_ascii_case("toml"));
        if is_toml { Self::Toml } else { Self::Yaml }
    }
}

impl Document {
    /// A document in the format that its name tells.
    pub fn new(name: impl Into<String>, text: impl Into<String>) -> Self {
        let name = name.into();
        let format = Format::of_name(&name);
        Self { name, text: text.into(), format }
    }

    /// The same text in another format: where it does not come from a file.
    #[must_use]
    pub fn with_format(self, format: Format) -> Self {
        Self { format, ..self }
    }

    /// What people call it: a path or a URL.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Reads the text. What it says is not looked at yet.
    pub fn parse(&self) -> Result<Node, Problems> {
        if self.text.len() > LARGEST {
            let problem = Problem::new(node::Span::default(), format!("it has {} bytes", self.text.len()))
                .expected(format!("at most {LARGEST}"));
            return Err(self.problems([problem]));
        }
        let parsed = match self.format {
            Format::Yaml => yaml::parse(&self.text),
            Format::Toml => toml::parse(&self.text),
        };
        parsed.map_err(|problem| self.problems([problem]))
    }

    /// Reads the text, and puts what `variable` says in the place of each `${NAME}` in a value.
    ///
    /// ```
    /// use diana_rules::{Document, Value};
    ///
    /// let document = Document::new("diana.yaml", "store: { redis: '${REDIS_URL}' }");
    /// let tree = document.parse_with(|name| (name == "REDIS_URL").then(|| "redis://10.0.0.7".to_owned()))?;
    /// assert!(format!("{tree:?}").contains("redis://10.0.0.7"));
    ///
    /// let error = document.parse_with(|_| None).unwrap_err();
    /// assert!(error.to_string().contains("`REDIS_URL` is not set"), "{error}");
    /// # Ok::<(), diana_rules::Problems>(())
    /// ```
    pub fn parse_with(&self, variable: impl Fn(&str) -> Option<String>) -> Result<Node, Problems> {
        self.parse_replacing(variable).map(|(tree, _)| tree)
    }

    /// The same, and which variables were replaced.
    pub(crate) fn parse_replacing(
        &self,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<(Node, Replaced), Problems> {
        let mut tree = self.parse()?;
        let (mut replaced, mut found) = (Replaced::default(), Vec::new());
        variables::replace(&mut tree, &variable, &mut replaced, &mut found);
        if found.is_empty() { Ok((tree, replaced)) } else { Err(self.problems(found)) }
    }

    /// Problems of this document.
    pub fn problems(&self, problems: impl IntoIterator<Item = Problem>) -> Problems {
        Problems::new(self, problems)
    }
}

impl fmt::Debug for Document {
    /// Without the text, which may have passwords in it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, text, format } = self;
        f.debug_struct("Document").field("name", name).field("format", format).field("length", &text.len()).finish()
    }
}
