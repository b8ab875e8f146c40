//! The key that verifies tokens: one algorithm and one key, bound together at load time. A token can choose neither,
//! which rules out algorithm confusion.
//!
//! The cryptography is ring's, which is already a dependency for TLS.

use ring::{hmac, signature};
use rustls_pki_types::alg_id::{ECDSA_P256, ECDSA_P384, ED25519, RSA_ENCRYPTION};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{AlgorithmIdentifier, SubjectPublicKeyInfoDer};
use std::fmt;

/// The names of the algorithms, as in tokens.
pub(super) const ALGORITHMS: [&str; 12] =
    ["HS256", "HS384", "HS512", "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "EdDSA"];

/// How tokens are verified.
#[derive(Clone)]
pub(super) enum VerificationKey {
    /// No verification: a proxy in front of Diana verifies tokens.
    Trusting,
    Secret {
        name: &'static str,
        key: hmac::Key,
    },
    Public {
        name: &'static str,
        algorithm: &'static dyn signature::VerificationAlgorithm,
        key: Box<[u8]>,
    },
}

impl fmt::Debug for VerificationKey {
    /// Omits the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Trusting => "unverified",
            Self::Secret { name, .. } | Self::Public { name, .. } => name,
        })
    }
}

/// The problem with a key, and a suggested fix.
pub(super) type InvalidKey = (String, &'static str);

impl VerificationKey {
    /// Creates a key from a secret that is shared with the signer.
    pub(super) fn of_secret(name: &'static str, secret: &str) -> Result<Self, InvalidKey> {
        let algorithm = match name {
            "HS256" => hmac::HMAC_SHA256,
            "HS384" => hmac::HMAC_SHA384,
            "HS512" => hmac::HMAC_SHA512,
            _ => {
                let what = format!("tokens of {name} are signed with a private key, not with a secret");
                return Err((what, "expected HS256, HS384 or HS512; or use `public_key` instead of `secret`"));
            }
        };
        if secret.is_empty() {
            return Err(("the secret is empty".to_owned(), "expected at least 32 random bytes"));
        }
        Ok(Self::Secret { name, key: hmac::Key::new(algorithm, secret.as_bytes()) })
    }

    /// Creates a key from the signer's public key, as PEM.
    pub(super) fn of_public(name: &'static str, pem: &str) -> Result<Self, InvalidKey> {
        let (algorithm, kind): (&'static dyn signature::VerificationAlgorithm, AlgorithmIdentifier) = match name {
            "RS256" => (&signature::RSA_PKCS1_2048_8192_SHA256, RSA_ENCRYPTION),
            "RS384" => (&signature::RSA_PKCS1_2048_8192_SHA384, RSA_ENCRYPTION),
            "RS512" => (&signature::RSA_PKCS1_2048_8192_SHA512, RSA_ENCRYPTION),
            "PS256" => (&signature::RSA_PSS_2048_8192_SHA256, RSA_ENCRYPTION),
            "PS384" => (&signature::RSA_PSS_2048_8192_SHA384, RSA_ENCRYPTION),
            "PS512" => (&signature::RSA_PSS_2048_8192_SHA512, RSA_ENCRYPTION),
            "ES256" => (&signature::ECDSA_P256_SHA256_FIXED, ECDSA_P256),
            "ES384" => (&signature::ECDSA_P384_SHA384_FIXED, ECDSA_P384),
            "EdDSA" => (&signature::ED25519, ED25519),
            _ => {
                let what = format!("tokens of {name} are signed with a secret, not with a private key");
                return Err((what, "expected RS256, PS256, ES256, EdDSA …; or use `secret` instead of `public_key`"));
            }
        };
        // Environment variables often have their lines joined by a literal \n.
        let pem = pem.replace("\\n", "\n");
        if pem.contains("PRIVATE KEY") {
            return Err(("found a private key, which only the signer may have".to_owned(), EXPORT));
        }
        let der = SubjectPublicKeyInfoDer::from_pem_slice(pem.as_bytes())
            .map_err(|_| ("invalid public key: expected PEM".to_owned(), EXPORT))?;
        let (key_type, key) = parts(&der).ok_or_else(|| ("invalid public key".to_owned(), EXPORT))?;
        if key_type != kind.as_ref() {
            return Err((
                format!("the key does not fit the algorithm {name}"),
                "use a key and an algorithm that belong together",
            ));
        }
        if name.starts_with(['R', 'P']) && !(2048 / 8..=8192 / 8).contains(&modulus(key).unwrap_or(0)) {
            return Err(("unsupported RSA key size".to_owned(), "expected 2048 to 8192 bits"));
        }
        Ok(Self::Public { name, algorithm, key: key.into() })
    }

    /// The algorithm that a token must name.
    pub(super) fn name(&self) -> Option<&'static str> {
        match self {
            Self::Trusting => None,
            Self::Secret { name, .. } | Self::Public { name, .. } => Some(name),
        }
    }

    /// Returns `true` if `signature` is valid for `message`.
    pub(super) fn signed(&self, message: &[u8], signature: &[u8]) -> bool {
        match self {
            Self::Trusting => true,
            Self::Secret { key, .. } => hmac::verify(key, message, signature).is_ok(),
            Self::Public { algorithm, key, .. } => {
                signature::UnparsedPublicKey::new(*algorithm, key).verify(message, signature).is_ok()
            }
        }
    }
}

const EXPORT: &str = "expected the output of `openssl pkey -in private.pem -pubout`: -----BEGIN PUBLIC KEY----- …";

/// Parses the algorithm and the key of a public key: SEQUENCE { SEQUENCE { algorithm }, BIT STRING { 0, key } }.
fn parts(der: &[u8]) -> Option<(&[u8], &[u8])> {
    let (whole, rest) = element(der, 0x30)?;
    let (algorithm, bits) = element(whole, 0x30)?;
    let (key, after) = element(bits, 0x03)?;
    (rest.is_empty() && after.is_empty()).then_some((algorithm, key.strip_prefix(&[0])?))
}

/// Returns the length of an RSA key's modulus in bytes: SEQUENCE { INTEGER modulus, INTEGER exponent }.
fn modulus(key: &[u8]) -> Option<usize> {
    let (whole, _) = element(key, 0x30)?;
    let (modulus, _) = element(whole, 0x02)?;
    Some(modulus.strip_prefix(&[0]).unwrap_or(modulus).len())
}

/// Returns the content of the element with this tag at the start of `der`, and the bytes after it.
fn element(der: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (first, rest) = der.strip_prefix(&[tag])?.split_first()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(*first), rest),
        0x81 => (usize::from(*rest.first()?), rest.get(1..)?),
        0x82 => (usize::from(u16::from_be_bytes([*rest.first()?, *rest.get(1)?])), rest.get(2..)?),
        _ => return None,
    };
    rest.split_at_checked(length)
}
