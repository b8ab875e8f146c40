//! The files of the access log and of the audit log. SIGUSR1 reopens them, after they were renamed.

use super::ServeError;
use diana_admin::AdminSection;
use diana_gateway::section::{AccessLogFormat, GatewaySection};
use diana_net::LogFile;
use diana_net::access_log::{AccessLog, LogFormat};
use diana_rules::RuleFile;

/// The files that the rule file names.
#[derive(Clone, Debug)]
pub(super) struct LogFiles {
    access: Option<LogFile>,
    pub(super) audit: Option<LogFile>,
}

impl LogFiles {
    pub(super) fn open(file: &RuleFile) -> Result<Self, ServeError> {
        let gateway = file.section::<GatewaySection>()?.filter(|gateway| gateway.access_log != AccessLogFormat::Off);
        let access = gateway.and_then(|gateway| gateway.access_log_file.as_ref());
        let access =
            access.map(|path| LogFile::open(path).map_err(|error| ServeError::AccessLog { path: path.clone(), error }));
        let audit = file.section::<AdminSection>()?.and_then(|admin| admin.audit_log.as_ref());
        let audit = audit.map(|path| {
            LogFile::open_private(path).map_err(|error| ServeError::AuditLog { path: path.clone(), error })
        });
        Ok(Self { access: access.transpose()?, audit: audit.transpose()? })
    }

    /// Starts the access log, if there is one: to its file, else to standard output.
    pub(super) fn start_access_log(&self, file: &RuleFile) -> Result<Option<AccessLog>, ServeError> {
        let format = match file.section::<GatewaySection>()?.map(|gateway| gateway.access_log) {
            Some(AccessLogFormat::Text) => LogFormat::Text,
            Some(AccessLogFormat::Json) => LogFormat::Json,
            _ => return Ok(None),
        };
        let log = match self.access.clone() {
            Some(file) => AccessLog::start(format, file),
            None => AccessLog::start(format, std::io::stdout()),
        };
        log.map(Some).map_err(ServeError::Runtime)
    }

    /// Opens the files again.
    pub(super) fn reopen(&self) {
        if self.access.is_none() && self.audit.is_none() {
            tracing::info!("no log is reopened: neither the access log nor the audit log has a file");
        }
        let files = [("access log", &self.access), ("audit log", &self.audit)];
        for (name, file) in files.into_iter().filter_map(|(name, file)| Some((name, file.as_ref()?))) {
            let path = file.path().display();
            match file.reopen() {
                Ok(()) => tracing::info!("{name} reopened: {path}"),
                Err(error) => tracing::warn!(%error, "can't reopen the {name} {path}: its lines go to the old file"),
            }
        }
    }
}
