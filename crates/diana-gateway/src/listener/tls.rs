//! TLS for clients: certificates, selected by SNI and reloaded when their files change.

use crate::section::Tls;
use arc_swap::ArcSwap;
use rustls::client::verify_server_name;
use rustls::crypto::CryptoProvider;
use rustls::server::{ClientHello, ParsedCertificate, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;
use tokio_rustls::TlsAcceptor;

/// The certificates of a gateway.
#[derive(Debug)]
pub(crate) struct Certificates {
    section: Tls,
    config: Arc<rustls::ServerConfig>,
    shown: Arc<Shown>,
    /// The modification times of the files when they were last read.
    looked: parking_lot::Mutex<Vec<Option<SystemTime>>>,
}

/// The active certificates.
#[derive(Debug)]
struct Shown(ArcSwap<Vec<Arc<CertifiedKey>>>);

/// Why certificates can't be used.
#[derive(Debug)]
pub(crate) struct CertificateError {
    file: String,
    why: String,
}

impl Certificates {
    /// Reads the certificate files.
    pub(crate) fn read(section: &Tls) -> Result<Arc<Self>, CertificateError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let looked = look(section);
        let shown = Arc::new(Shown(ArcSwap::from_pointee(keys(section, &provider)?)));
        let config = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let config = config.map_err(|error| CertificateError { file: "TLS".to_owned(), why: error.to_string() })?;
        let mut config = config.with_no_client_auth().with_cert_resolver(Arc::clone(&shown) as _);
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let looked = parking_lot::Mutex::new(looked);
        Ok(Arc::new(Self { section: section.clone(), config: Arc::new(config), shown, looked }))
    }

    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(Arc::clone(&self.config))
    }

    /// Reloads the files if they have changed. If the new ones are invalid, the old ones stay active.
    pub(crate) fn refresh(&self) {
        let looks = look(&self.section);
        if *self.looked.lock() == looks {
            return;
        }
        match keys(&self.section, self.config.crypto_provider()) {
            Ok(keys) => {
                self.shown.0.store(Arc::new(keys));
                tracing::info!("the certificates have changed, and are in use");
            }
            Err(error) => {
                tracing::error!("the changed certificates are invalid; the previous ones stay active: {error}");
            }
        }
        *self.looked.lock() = looks;
    }
}

fn look(section: &Tls) -> Vec<Option<SystemTime>> {
    let files = section.certificates.iter().flat_map(|pair| [&pair.certificate, &pair.key]);
    files.map(|file| std::fs::metadata(file).and_then(|metadata| metadata.modified()).ok()).collect()
}

fn keys(section: &Tls, provider: &CryptoProvider) -> Result<Vec<Arc<CertifiedKey>>, CertificateError> {
    section.certificates.iter().map(|pair| key(&pair.certificate, &pair.key, provider).map(Arc::new)).collect()
}

fn key(certificate: &Path, key: &Path, provider: &CryptoProvider) -> Result<CertifiedKey, CertificateError> {
    let wrong = |file: &Path, why: &dyn fmt::Display| CertificateError {
        file: file.display().to_string(),
        why: why.to_string(),
    };
    let chain = CertificateDer::pem_file_iter(certificate).map_err(|error| wrong(certificate, &error))?;
    let chain = chain.collect::<Result<Vec<_>, _>>().map_err(|error| wrong(certificate, &error))?;
    if chain.is_empty() {
        return Err(wrong(certificate, &"there is no certificate in it"));
    }
    let private = PrivateKeyDer::from_pem_file(key).map_err(|error| wrong(key, &error))?;
    CertifiedKey::from_der(chain, private, provider).map_err(|error| wrong(key, &error))
}

impl ResolvesServerCert for Shown {
    /// Returns the first certificate that is valid for the SNI name, or else the first one.
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let keys = self.0.load();
        let name = hello.server_name().and_then(|name| ServerName::try_from(name).ok());
        let is_for = |key: &&Arc<CertifiedKey>| {
            let certificate = key.end_entity_cert().and_then(ParsedCertificate::try_from);
            name.as_ref().is_some_and(|name| certificate.is_ok_and(|own| verify_server_name(&own, name).is_ok()))
        };
        // A single certificate needs no selection.
        let named = if keys.len() > 1 { keys.iter().find(is_for) } else { None };
        named.or_else(|| keys.first()).cloned()
    }
}

impl fmt::Display for CertificateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.file, self.why)
    }
}

impl std::error::Error for CertificateError {}
