//! The sections of a file, by their types.

use super::RuleFile;
use crate::http_settings::HttpSettings;
use crate::section::{Section, SectionNotRegistered};
use std::sync::Arc;

impl RuleFile {
    /// Returns a section, or `None` if the file does not have it.
    ///
    /// # Errors
    /// The file has the section, but it was read with a registry that does not have it under this type. A section is
    /// never ignored by the code that it configures.
    pub fn section<S: Section>(&self) -> Result<Option<&S>, SectionNotRegistered> {
        let Some(section) = self.sections.0.get(S::NAME) else { return Ok(None) };
        let section = section.as_ref().and_then(|section| section.as_any().downcast_ref());
        section.map(Some).ok_or(SectionNotRegistered { name: S::NAME })
    }

    /// Returns a copy of a section; the default if the file does not have it.
    ///
    /// # Errors
    /// As for [`section`](Self::section).
    pub fn section_or_default<S: Section + Clone + Default>(&self) -> Result<S, SectionNotRegistered> {
        Ok(self.section::<S>()?.cloned().unwrap_or_default())
    }

    /// Sets a section, also if the file does not have it: for the options of a command line.
    pub fn set_section<S: Section>(&mut self, section: S) {
        self.sections.0.insert(S::NAME, Some(Arc::new(section)));
    }

    /// Returns the settings for HTTP front ends in the file's `gateway`; the defaults if it has none.
    pub fn http_settings(&self) -> HttpSettings {
        let sections = self.sections.0.values().flatten();
        sections.filter_map(|section| section.http_settings()).next().cloned().unwrap_or_default()
    }
}
