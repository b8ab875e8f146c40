//! The output of `nginx -T`: all files of a configuration in one text, each under a line with its name.
//!
//! It allows an import from a machine with read-only access. Lines are counted from the start of each file.

use std::io;
use std::path::Path;

const FILE_HEADER: &str = "# configuration file ";

/// The files of a dump, the main one first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Dump {
    files: Vec<(String, String)>,
}

impl Dump {
    /// Parses a dump; `None` if the text is not one.
    pub(super) fn read(text: &str) -> Option<Self> {
        let name = |line: &str| Some(line.trim_end().strip_prefix(FILE_HEADER)?.strip_suffix(':')?.to_owned());
        name(text.lines().next()?)?;
        let mut files: Vec<(String, String)> = Vec::new();
        for line in text.split_inclusive('\n') {
            match name(line) {
                Some(name) => files.push((name, String::new())),
                None => files.last_mut()?.1.push_str(line),
            }
        }
        Some(Self { files })
    }

    /// Returns the main file's name and text.
    pub(super) fn main(&self) -> (&str, &str) {
        self.files.first().map_or(("", ""), |(name, text)| (name, text))
    }

    /// Returns the files that an `include` names.
    pub(super) fn include(&self, pattern: &str) -> io::Result<Vec<(String, String)>> {
        let folder = Path::new(self.main().0).parent().unwrap_or(Path::new(""));
        let path = folder.join(pattern).display().to_string();
        let has_wildcards = pattern.contains(['*', '?', '[']);
        let invalid = |error| io::Error::new(io::ErrorKind::InvalidInput, error);
        let glob = if has_wildcards { Some(glob::Pattern::new(&path).map_err(invalid)?) } else { None };
        let options = glob::MatchOptions { require_literal_separator: true, ..glob::MatchOptions::default() };
        let matches = |name: &str| glob.as_ref().map_or(name == path, |glob| glob.matches_with(name, options));
        let mut matching = self.files.iter().filter(|(name, _)| matches(name)).cloned().collect::<Vec<_>>();
        matching.sort();
        match matching.is_empty() && !has_wildcards {
            true => Err(io::Error::new(io::ErrorKind::NotFound, "not in the dump")),
            false => Ok(matching),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
# configuration file /etc/nginx/nginx.conf:
include conf.d/*.conf;
include mime.types;

# configuration file /etc/nginx/conf.d/b.conf:
b;

# configuration file /etc/nginx/conf.d/a.conf:
a;
";

    #[test]
    fn splits_a_dump_into_files() {
        let dump = Dump::read(TEXT).unwrap();
        assert_eq!(dump.main(), ("/etc/nginx/nginx.conf", "include conf.d/*.conf;\ninclude mime.types;\n\n"));
        let names =
            |pattern: &str| dump.include(pattern).unwrap().into_iter().map(|(name, _)| name).collect::<Vec<_>>();
        assert_eq!(names("conf.d/*.conf"), ["/etc/nginx/conf.d/a.conf", "/etc/nginx/conf.d/b.conf"]);
        assert_eq!(names("/etc/nginx/conf.d/a.conf"), ["/etc/nginx/conf.d/a.conf"]);
        assert_eq!(names("*.conf"), ["/etc/nginx/nginx.conf"]);
        assert_eq!(names("none/*"), Vec::<String>::new());
        assert!(dump.include("mime.types").is_err());
        assert!(dump.include("[").is_err());
        assert_eq!(Dump::read("events {}\n"), None);
        assert_eq!(Dump::read(""), None);
    }
}
