//! The status of an active certificate, for operators: its names, and when it expires.

use diana_core::Timestamp;
use rustls_pki_types::CertificateDer;
use std::net::IpAddr;
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

/// A certificate that is presented to clients.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CertificateStatus {
    /// The names and addresses that it is valid for; the subject's common name if it has none.
    pub names: Vec<String>,
    /// The time at which it expires.
    pub not_after: Timestamp,
}

impl CertificateStatus {
    /// Reads a certificate; `None` if it is malformed.
    pub(super) fn of(certificate: &CertificateDer<'_>) -> Option<Self> {
        let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
        let seconds = certificate.validity().not_after.timestamp();
        let not_after = Timestamp::from_secs(u64::try_from(seconds).unwrap_or(0));
        let alternatives = certificate.subject_alternative_name().ok().flatten();
        let alternatives = alternatives.map(|extension| &*extension.value.general_names).unwrap_or_default();
        let mut names: Vec<_> = alternatives.iter().filter_map(name).collect();
        if names.is_empty() {
            let common = certificate.subject().iter_common_name().filter_map(|name| name.as_str().ok());
            names.extend(common.map(str::to_owned));
        }
        Some(Self { names, not_after })
    }
}

fn name(name: &GeneralName<'_>) -> Option<String> {
    match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        GeneralName::IPAddress(bytes) => match bytes.len() {
            4 => <[u8; 4]>::try_from(*bytes).ok().map(|bytes| IpAddr::from(bytes).to_string()),
            _ => <[u8; 16]>::try_from(*bytes).ok().map(|bytes| IpAddr::from(bytes).to_string()),
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use diana_testing::TlsFiles;
    use rustls_pki_types::pem::PemObject;

    #[test]
    fn has_the_names_and_the_end_of_a_certificate() {
        let folder = tempfile::tempdir().unwrap();
        // 2033-05-18 03:33:20 UTC.
        let files = TlsFiles::create_until(folder.path(), 2_000_000_000).unwrap();
        let certificate = CertificateDer::from_pem_file(&files.certificate).unwrap();
        let status = CertificateStatus::of(&certificate).unwrap();
        assert_eq!(status.names, ["127.0.0.1", "localhost"]);
        assert_eq!(status.not_after, Timestamp::from_secs(2_000_000_000));
    }

    #[test]
    fn a_malformed_certificate_has_no_status() {
        for bytes in [&b""[..], b"\x30\x03\x02\x01\x05", &[0x30; 300]] {
            assert_eq!(CertificateStatus::of(&CertificateDer::from(bytes)), None, "{bytes:?}");
        }
    }
}
