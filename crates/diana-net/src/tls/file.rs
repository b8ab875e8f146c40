//! Checks TLS files before anything listens: for `diana check`.

use super::CertificateStatus;
use crate::log_time::LogTime;
use diana_core::Timestamp;
use rustls::crypto::ring;
use rustls::sign::CertifiedKey;
use rustls_pki_types::pem::{self, PemObject};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use std::io;
use std::path::Path;

/// The reason why a TLS file can't be used. The message does not have its path.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsFileError {
    /// The file is missing, or can't be read.
    #[error("can't be read: {0}")]
    Unreadable(io::Error),
    /// The file is not the expected PEM.
    #[error("is invalid: {0}")]
    Invalid(String),
    /// The private key is that of another certificate.
    #[error("is not the key of the certificate")]
    OtherKey,
    /// The certificate has expired, or all of the certificates of authorities.
    #[error("has expired: {}Z", LogTime::default().iso(*.0))]
    Expired(Timestamp),
}

impl TlsFileError {
    fn of_pem(error: pem::Error) -> Self {
        match error {
            pem::Error::Io(error) => Self::Unreadable(error),
            error => Self::Invalid(error.to_string()),
        }
    }
}

/// Returns what is wrong with the file of a certificate, and with that of its key.
pub fn check_pair(certificate: &Path, key: &Path, now: Timestamp) -> (Option<TlsFileError>, Option<TlsFileError>) {
    let key = match PrivateKeyDer::from_pem_file(key) {
        Ok(key) => key,
        Err(error) => return (chain(certificate, now).err(), Some(TlsFileError::of_pem(error))),
    };
    let chain = match read(certificate) {
        Ok(chain) => chain,
        Err(error) => return (Some(error), None),
    };
    let expired = chain.first().and_then(|first| expired(first, now));
    let with_key = match CertifiedKey::from_der(chain, key, &ring::default_provider()) {
        Ok(_) => None,
        Err(rustls::Error::InconsistentKeys(_)) => Some(TlsFileError::OtherKey),
        Err(error) => Some(TlsFileError::Invalid(error.to_string())),
    };
    (expired, with_key)
}

/// Returns what is wrong with a file of certificates of authorities. One that has expired does no harm beside others.
pub fn check_authorities(file: &Path, now: Timestamp) -> Option<TlsFileError> {
    let authorities = match read(file) {
        Ok(authorities) => authorities,
        Err(error) => return Some(error),
    };
    let mut roots = rustls::RootCertStore::empty();
    for authority in &authorities {
        if let Err(error) = roots.add(authority.clone()) {
            return Some(TlsFileError::Invalid(error.to_string()));
        }
    }
    let expirations = authorities.iter().map(|authority| expired(authority, now));
    expirations.collect::<Option<Vec<_>>>().and_then(|expired| expired.into_iter().next())
}

/// Returns the certificates of a file, of which the first has not expired.
fn chain(file: &Path, now: Timestamp) -> Result<Vec<CertificateDer<'static>>, TlsFileError> {
    let chain = read(file)?;
    chain.first().and_then(|first| expired(first, now)).map_or(Ok(chain), Err)
}

fn read(file: &Path) -> Result<Vec<CertificateDer<'static>>, TlsFileError> {
    let read = CertificateDer::pem_file_iter(file).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    match read.map_err(TlsFileError::of_pem)? {
        none if none.is_empty() => Err(TlsFileError::Invalid("no certificate found".to_owned())),
        certificates => Ok(certificates),
    }
}

fn expired(certificate: &CertificateDer<'_>, now: Timestamp) -> Option<TlsFileError> {
    let not_after = CertificateStatus::of(certificate)?.not_after;
    (not_after < now).then_some(TlsFileError::Expired(not_after))
}

#[cfg(test)]
mod tests {
    use super::*;
    use diana_testing::TlsFiles;

    fn texts((certificate, key): (Option<TlsFileError>, Option<TlsFileError>)) -> [Option<String>; 2] {
        [certificate, key].map(|error| error.map(|error| error.to_string()))
    }

    #[test]
    fn a_pair_is_readable_belongs_together_and_has_not_expired() {
        let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        // 2033-05-18 03:33:20 UTC.
        let files = TlsFiles::create_until(one.path(), 2_000_000_000).unwrap();
        let others = TlsFiles::create(other.path()).unwrap();
        let (before, after) = (Timestamp::from_secs(1_999_999_999), Timestamp::from_secs(2_000_000_001));
        let check = |certificate: &Path, key: &Path| texts(check_pair(certificate, key, before));
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(check(&files.certificate, &files.key), [None, None]);
        assert_eq!(
            texts(check_pair(&files.certificate, &files.key, after)),
            [some("has expired: 2033-05-18T03:33:20Z"), None]
        );
        assert_eq!(check(&files.certificate, &others.key), [None, some("is not the key of the certificate")]);
        let [certificate, key] = check(Path::new("/nowhere.pem"), Path::new("/nowhere.key")).map(Option::unwrap);
        assert!(
            certificate.starts_with("can't be read: ") && key.starts_with("can't be read: "),
            "{certificate} {key}"
        );
        let [certificate, key] = check(&files.key, &files.certificate).map(Option::unwrap);
        assert_eq!(certificate, "is invalid: no certificate found");
        assert!(key.starts_with("is invalid: "), "{key}");
    }

    #[test]
    fn authorities_are_readable_and_one_of_them_has_not_expired() {
        let folder = tempfile::tempdir().unwrap();
        let files = TlsFiles::create_until(folder.path(), 2_000_000_000).unwrap();
        let after = Timestamp::from_secs(2_000_000_001);
        assert!(check_authorities(&files.authority, after).is_none());
        let read = |file: &Path| std::fs::read_to_string(file).unwrap();
        let both = folder.path().join("both.pem");
        std::fs::write(&both, read(&files.certificate) + &read(&files.authority)).unwrap();
        assert!(check_authorities(&both, after).is_none());
        let error = |file: &Path| check_authorities(file, after).unwrap().to_string();
        assert_eq!(error(&files.certificate), "has expired: 2033-05-18T03:33:20Z");
        assert_eq!(error(&files.key), "is invalid: no certificate found");
        assert!(error(Path::new("/nowhere.pem")).starts_with("can't be read: "));
    }
}
