//! The lab's certificate authority. There is one for each run, and its key never leaves the
//! process.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, KeyUsagePurpose,
    PublicKeyData,
};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use sha2::{Digest, Sha256};

/// Signs certificates for all names that the lab serves. Clones share one authority.
#[derive(Clone)]
pub struct Authority(Arc<CertifiedIssuer<'static, KeyPair>>);

/// A certificate could not be made or used.
#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    /// The certificate could not be made: a name is invalid, or there is no randomness.
    #[error("cannot make a certificate for {names}: {source}")]
    Make {
        /// Names of the certificate.
        names: String,
        /// Cause.
        source: rcgen::Error,
    },
    /// TLS refused it.
    #[error("TLS does not take the lab's certificate: {0}")]
    Tls(#[from] rustls::Error),
    /// Its key could not be read back.
    #[error("the lab's key cannot be read: {0}")]
    Key(#[from] rustls::pki_types::pem::Error),
    /// The maximum number of names with a certificate is reached.
    #[error("{0} names have a certificate, and no more are given")]
    TooMany(usize),
    /// QUIC refused it.
    #[error("QUIC does not take the lab's TLS: {0}")]
    Quic(#[from] quinn::crypto::rustls::NoInitialCipherSuite),
}

/// Certificate chain of a server, and its key.
pub(super) struct Certified {
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

impl Authority {
    /// A new authority.
    pub fn new() -> Result<Self, AuthorityError> {
        let make = || {
            let mut params = CertificateParams::new(Vec::new())?;
            params.distinguished_name.push(DnType::CommonName, "Bentpipe lab");
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
            CertifiedIssuer::self_signed(params, KeyPair::generate()?)
        };
        let made =
            make().map_err(|source| AuthorityError::Make { names: "the lab".into(), source });
        Ok(Self(Arc::new(made?)))
    }

    /// Certificate of the authority in PEM.
    pub fn pem(&self) -> String {
        self.0.as_ref().pem()
    }

    /// Certificate of the authority in DER.
    pub fn certificate(&self) -> &CertificateDer<'static> {
        self.0.as_ref().der()
    }

    /// Key hash for Chromium (`--ignore-certificate-errors-spki-list`): the SHA-256 of the
    /// authority's SubjectPublicKeyInfo, in base64. Servers send the authority's certificate after
    /// their own.
    pub fn key_hash(&self) -> String {
        STANDARD.encode(Sha256::digest(self.0.key().subject_public_key_info()))
    }

    /// A certificate for `names`, with a new key.
    pub(super) fn certify(&self, names: &[String]) -> Result<Certified, AuthorityError> {
        let make = || {
            let key = KeyPair::generate()?;
            let mut params = CertificateParams::new(names)?;
            // Without this, a browser's error message names rcgen.
            params.distinguished_name.push(DnType::CommonName, "Bentpipe lab's site");
            Ok((params.signed_by(&key, &self.0)?, key))
        };
        let (made, key) =
            make().map_err(|source| AuthorityError::Make { names: names.join(", "), source })?;
        Ok(Certified {
            chain: vec![made.der().clone(), self.certificate().clone()],
            key: PrivateKeyDer::from_pem_slice(key.serialize_pem().as_bytes())?,
        })
    }
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Authority").field(&self.key_hash()).finish()
    }
}

impl Certified {
    /// TLS configuration for these versions with the certificate. Caches up to `sessions` sessions
    /// of 4 KB each.
    pub(super) fn server(
        &self,
        versions: &[&'static rustls::SupportedProtocolVersion],
        sessions: usize,
    ) -> Result<rustls::ServerConfig, AuthorityError> {
        let mut tls = rustls::ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(versions)?
            .with_no_client_auth()
            .with_single_cert(self.chain.clone(), self.key.clone_key())?;
        tls.session_storage = rustls::server::ServerSessionMemoryCache::new(sessions);
        Ok(tls)
    }
}

/// The cryptographic provider of all TLS in the lab.
pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}
