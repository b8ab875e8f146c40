//! TLS for clients: certificates, selected by SNI and reloaded when their files change.

mod certificate_status;
mod file;
mod settings;

use arc_swap::ArcSwap;
pub use certificate_status::CertificateStatus;
pub use file::{TlsFileError, check_authorities, check_pair};
use rustls::client::verify_server_name;
use rustls::crypto::CryptoProvider;
use rustls::server::{ClientHello, ParsedCertificate, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
pub use settings::{Certificate, Tls, pem_path};
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;
use tokio_rustls::TlsAcceptor;

/// The certificates of listeners.
#[derive(Debug)]
pub struct Certificates {
    section: Tls,
    config: Arc<rustls::ServerConfig>,
    resolver: Arc<CertResolver>,
    /// The modification times of the files when they were last read.
    modified: parking_lot::Mutex<Vec<Option<SystemTime>>>,
}

/// The active certificates.
#[derive(Debug)]
struct CertResolver(ArcSwap<Vec<Arc<CertifiedKey>>>);

/// The reason why certificates can't be used.
#[derive(Debug, thiserror::Error)]
#[error("{file}: {reason}")]
pub struct CertificateError {
    file: String,
    reason: String,
}

impl Certificates {
    /// Reads the certificate files.
    pub fn read(section: &Tls) -> Result<Arc<Self>, CertificateError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let modified = modification_times(section);
        let resolver = Arc::new(CertResolver(ArcSwap::from_pointee(keys(section, &provider)?)));
        let config = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let config = config.map_err(|error| CertificateError { file: "TLS".to_owned(), reason: error.to_string() })?;
        let mut config = config.with_no_client_auth().with_cert_resolver(Arc::clone(&resolver) as _);
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let modified = parking_lot::Mutex::new(modified);
        Ok(Arc::new(Self { section: section.clone(), config: Arc::new(config), resolver, modified }))
    }

    /// Returns the acceptor of connections with these certificates.
    pub fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(Arc::clone(&self.config))
    }

    /// Returns the active certificates, in the order of the file.
    pub fn status(&self) -> Vec<CertificateStatus> {
        let keys = self.resolver.0.load();
        keys.iter().filter_map(|key| CertificateStatus::of(key.end_entity_cert().ok()?)).collect()
    }

    /// Reloads the files if they have changed. If the new ones are invalid, the old ones stay active.
    pub fn refresh(&self) {
        let modified = modification_times(&self.section);
        if *self.modified.lock() == modified {
            return;
        }
        match keys(&self.section, self.config.crypto_provider()) {
            Ok(keys) => {
                self.resolver.0.store(Arc::new(keys));
                tracing::info!("certificates reloaded");
            }
            Err(error) => {
                tracing::error!("cannot reload the certificates, the previous ones stay active: {error}");
            }
        }
        *self.modified.lock() = modified;
    }
}

fn modification_times(section: &Tls) -> Vec<Option<SystemTime>> {
    let files = section.certificates.iter().flat_map(|pair| [&pair.certificate, &pair.key]);
    files.map(|file| std::fs::metadata(file).and_then(|metadata| metadata.modified()).ok()).collect()
}

fn keys(section: &Tls, provider: &CryptoProvider) -> Result<Vec<Arc<CertifiedKey>>, CertificateError> {
    section.certificates.iter().map(|pair| key(&pair.certificate, &pair.key, provider).map(Arc::new)).collect()
}

fn key(certificate: &Path, key: &Path, provider: &CryptoProvider) -> Result<CertifiedKey, CertificateError> {
    let invalid = |file: &Path, reason: &dyn fmt::Display| CertificateError {
        file: file.display().to_string(),
        reason: reason.to_string(),
    };
    let chain = CertificateDer::pem_file_iter(certificate).map_err(|error| invalid(certificate, &error))?;
    let chain = chain.collect::<Result<Vec<_>, _>>().map_err(|error| invalid(certificate, &error))?;
    if chain.is_empty() {
        return Err(invalid(certificate, &"no certificate found"));
    }
    let private = PrivateKeyDer::from_pem_file(key).map_err(|error| invalid(key, &error))?;
    CertifiedKey::from_der(chain, private, provider).map_err(|error| invalid(key, &error))
}

impl ResolvesServerCert for CertResolver {
    /// Returns the first certificate that is valid for the SNI name, or else the first one.
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let keys = self.0.load();
        let name = hello.server_name().and_then(|name| ServerName::try_from(name).ok());
        let is_for = |key: &&Arc<CertifiedKey>| {
            let certificate = key.end_entity_cert().and_then(ParsedCertificate::try_from);
            name.as_ref()
                .is_some_and(|name| certificate.is_ok_and(|certificate| verify_server_name(&certificate, name).is_ok()))
        };
        // A single certificate needs no selection.
        let named = if keys.len() > 1 { keys.iter().find(is_for) } else { None };
        named.or_else(|| keys.first()).cloned()
    }
}
