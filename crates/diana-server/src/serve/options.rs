//! The options of `diana serve`: a file, or the embedded default, and overrides from the command line.

use super::{DEFAULT, ServeError};
use crate::program_log::ProgramLog;
use diana_admin::AdminSection;
use diana_gateway::section::{AccessLogFormat, GatewaySection};
use diana_rules::upstream_url::Upstream;
use diana_rules::{Document, RuleFile};
use diana_services::ServicesSection;
use std::io::Read;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// The options of `diana serve`.
#[derive(Clone, Debug, Default)]
pub struct ServeOptions {
    path: Option<PathBuf>,
    listen: Vec<SocketAddr>,
    upstream: Vec<Upstream>,
    access_log: Option<AccessLogFormat>,
    admin: Option<SocketAddr>,
    log: Option<ProgramLog>,
}

impl ServeOptions {
    /// Uses this file; the embedded default if there is none.
    pub fn new(path: Option<PathBuf>) -> Self {
        Self { path, ..Self::default() }
    }

    /// Overrides the listen addresses of the file.
    #[must_use]
    pub fn listen(self, listen: Vec<SocketAddr>) -> Self {
        Self { listen, ..self }
    }

    /// Overrides the upstreams of the file.
    #[must_use]
    pub fn upstream(self, upstream: Vec<Upstream>) -> Self {
        Self { upstream, ..self }
    }

    /// Overrides the access log format of the file.
    #[must_use]
    pub fn access_log(self, access_log: Option<AccessLogFormat>) -> Self {
        Self { access_log, ..self }
    }

    /// Overrides the admin address of the file.
    #[must_use]
    pub fn admin(self, admin: Option<SocketAddr>) -> Self {
        Self { admin, ..self }
    }

    /// Sets the program's own log, whose drops are counted, and which is flushed on an immediate exit.
    #[must_use]
    pub fn program_log(self, log: ProgramLog) -> Self {
        Self { log: Some(log), ..self }
    }

    /// Returns the program's own log, if it has one.
    pub(super) fn log(&self) -> Option<&ProgramLog> {
        self.log.as_ref()
    }

    /// Returns the upstreams of the command line, which override those of the file.
    pub(super) fn upstreams(&self) -> &[Upstream] {
        &self.upstream
    }

    /// Returns whether the embedded default is used.
    pub(crate) fn is_default(&self) -> bool {
        self.path.is_none()
    }

    /// Returns the file, if it can change: neither standard input (`-`) nor the embedded default.
    pub(crate) fn path(&self) -> Option<&Path> {
        self.path.as_deref().filter(|path| !is_stdin(path))
    }

    /// Reads the file, or standard input.
    pub(super) fn document(&self) -> Result<Document, ServeError> {
        Ok(match &self.path {
            None => Document::new("default.yaml", DEFAULT),
            Some(path) if is_stdin(path) => {
                let mut text = String::new();
                let max = u64::try_from(Document::MAX_SIZE).unwrap_or(u64::MAX).saturating_add(1);
                let read = std::io::stdin().lock().take(max).read_to_string(&mut text);
                read.map_err(|error| ServeError::Unreadable { file: "stdin".to_owned(), error })?;
                Document::new("stdin", text)
            }
            Some(path) => {
                let name = path.display().to_string();
                let unreadable = |error| ServeError::Unreadable { file: name.clone(), error };
                Document::new(&*name, std::fs::read_to_string(path).map_err(unreadable)?)
            }
        })
    }

    /// Parses the document, and applies the overrides of the command line.
    pub(super) fn file(&self, document: &Document) -> Result<RuleFile, ServeError> {
        let mut file = RuleFile::read(document, &crate::registry()).map_err(ServeError::Problems)?;
        self.override_sections(&mut file)?;
        Ok(file)
    }

    /// Applies the overrides of the command line to the sections of a file.
    pub(super) fn override_sections(&self, file: &mut RuleFile) -> Result<(), ServeError> {
        if let Some(admin) = self.admin {
            let mut section = file.section_or_default::<AdminSection>()?;
            section.listen = vec![admin];
            if section.all_tokens().is_empty() && !admin.ip().is_loopback() {
                return Err(ServeError::OpenAdmin(admin));
            }
            file.set_section(section);
        }
        let mut gateway = file.section_or_default::<GatewaySection>()?;
        // A file that only has services for other gateways needs no gateway of its own.
        if file.section::<GatewaySection>()?.is_none() && file.section::<ServicesSection>()?.is_some() {
            gateway.listen.clear();
        }
        if !self.listen.is_empty() {
            gateway.listen.clone_from(&self.listen);
        }
        if !self.upstream.is_empty() {
            gateway.upstream = self.upstream.clone().into();
        }
        if let Some(access_log) = self.access_log {
            gateway.access_log = access_log;
        }
        file.set_section(gateway);
        Ok(())
    }
}

fn is_stdin(path: &Path) -> bool {
    path.as_os_str() == "-"
}
