//! A private certificate authority and a server's certificate, as PEM files.

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use std::io;
use std::path::{Path, PathBuf};
use time::OffsetDateTime;

/// The certificate of a server on this machine (`127.0.0.1`, `localhost`), signed by a private authority.
#[derive(Debug)]
pub struct TlsFiles {
    /// The certificate of the authority, which clients may trust.
    pub authority: PathBuf,
    /// The server's certificate.
    pub certificate: PathBuf,
    /// The server's private key.
    pub key: PathBuf,
}

impl TlsFiles {
    /// Creates new keys and certificates in a folder.
    ///
    /// # Errors
    /// The keys can't be created, or the files can't be written.
    pub fn create(folder: &Path) -> io::Result<Self> {
        Self::create_with(folder, |_| {})
    }

    /// The same, with a server's certificate that is valid until this time, in seconds since 1970.
    ///
    /// # Errors
    /// As of [`create`](Self::create), or there is no such time.
    pub fn create_until(folder: &Path, seconds: i64) -> io::Result<Self> {
        let not_after = OffsetDateTime::from_unix_timestamp(seconds).map_err(io::Error::other)?;
        Self::create_with(folder, |server| server.not_after = not_after)
    }

    fn create_with(folder: &Path, adjust: impl FnOnce(&mut CertificateParams)) -> io::Result<Self> {
        let mut authority = CertificateParams::default();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        // Another name than that of the server: OpenSSL takes a certificate that names itself for a self-signed one.
        authority.distinguished_name.push(DnType::CommonName, "Diana's test authority");
        let key = || KeyPair::generate().map_err(io::Error::other);
        let authority = CertifiedIssuer::self_signed(authority, key()?).map_err(io::Error::other)?;
        let server_key = key()?;
        let names = vec!["127.0.0.1".to_owned(), "localhost".to_owned()];
        let mut server = CertificateParams::new(names).map_err(io::Error::other)?;
        adjust(&mut server);
        let server = server.signed_by(&server_key, &authority);
        let file = |name: &str, text: String| {
            let path = folder.join(name);
            std::fs::write(&path, text).map(|()| path)
        };
        Ok(Self {
            authority: file("authority.pem", authority.pem())?,
            certificate: file("certificate.pem", server.map_err(io::Error::other)?.pem())?,
            key: file("key.pem", server_key.serialize_pem())?,
        })
    }
}
