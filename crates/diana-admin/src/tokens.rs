//! The tokens that are valid now. A changed rule file replaces them while the server runs.

use super::section::{AdminSection, AdminToken, TokenChange};
use parking_lot::RwLock;
use std::sync::Arc;

/// The tokens of the admin API, one of which clients must send.
///
/// # What always holds (tests/it/admin.rs)
/// - A request with a token that was removed is denied from then on.
/// - If other machines can reach the server, a token stays necessary: without any token, no request is allowed.
#[derive(Debug, Default)]
pub struct AdminTokens {
    valid: RwLock<Arc<[AdminToken]>>,
    /// Whether other machines can reach the server.
    is_exposed: bool,
}

/// The tokens at one point in time.
#[derive(Clone, Debug)]
pub(super) struct ValidTokens {
    pub(super) tokens: Arc<[AdminToken]>,
    /// Whether requests need no token.
    pub(super) is_open: bool,
}

impl AdminTokens {
    /// Creates the tokens of a section, for a server that listens on the section's address.
    pub fn of(section: &AdminSection) -> Self {
        let is_exposed = section.listen.iter().any(|address| !address.ip().to_canonical().is_loopback());
        Self { valid: RwLock::new(section.all_tokens().into()), is_exposed }
    }

    /// Replaces the tokens by those of another section; returns what differs. Where the server listens stays as it is.
    pub fn replace(&self, section: &AdminSection) -> Option<TokenChange> {
        let mut valid = self.valid.write();
        let tokens = section.all_tokens();
        let change = TokenChange::between(&valid, &tokens)?;
        *valid = tokens.into();
        Some(change)
    }

    /// Returns the tokens that are valid now.
    pub(super) fn valid(&self) -> ValidTokens {
        let tokens = Arc::clone(&self.valid.read());
        ValidTokens { is_open: tokens.is_empty() && !self.is_exposed, tokens }
    }
}
