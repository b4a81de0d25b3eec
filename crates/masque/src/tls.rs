//! TLS 1.3 for QUIC. Between gateways the certificate is meaningless, and is generated if the
//! operator has none: peers are identified by the proofs of [`crate::auth`], which are bound to the
//! session. Standard clients verify the certificate like any HTTPS client.

use std::sync::Arc;

use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use rustls::{
    DigitallySignedStruct, DistinguishedName, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::CryptoProvider,
    pki_types::{
        CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, UnixTime, pem::PemObject,
    },
};

use crate::trust::{Proxy, Trust};

/// Name in the certificate and in requests to the gateway itself. It does not resolve (RFC 6761).
pub(crate) const SERVER_NAME: &str = "bentpipe.invalid";

const ALPN_H3: &[u8] = b"h3";

/// TLS could not be set up.
#[derive(Debug, thiserror::Error)]
#[error("preparing TLS: {0}")]
pub struct TlsError(String);

pub(crate) fn client(trust: &Trust) -> Result<quinn::ClientConfig, TlsError> {
    let provider = provider();
    let builder = rustls::ClientConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(failed)?;
    let verified = match trust {
        Trust::Keys { .. } => {
            builder.dangerous().with_custom_certificate_verifier(Arc::new(AnyCertificate(provider)))
        }
        Trust::Certificate(proxy) => builder.with_root_certificates(roots(proxy)?),
    };
    let mut config = verified.with_no_client_auth();
    config.alpn_protocols = vec![ALPN_H3.to_vec()];
    config.enable_sni = matches!(trust, Trust::Certificate(_));
    // Every connection has its own proofs, so resuming a session would save nothing.
    config.resumption = rustls::client::Resumption::disabled();
    let quic = QuicClientConfig::try_from(config).map_err(failed)?;
    Ok(quinn::ClientConfig::new(Arc::new(quic)))
}

fn roots(proxy: &Proxy) -> Result<rustls::RootCertStore, TlsError> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add_parsable_certificates(proxy.authorities().iter().cloned());
    if roots.is_empty() {
        return Err(TlsError("there is no certificate of an authority".into()));
    }
    Ok(roots)
}

/// Configures a server with `certificate`, or with a generated one.
pub(crate) fn server(certificate: Option<&Certificate>) -> Result<quinn::ServerConfig, TlsError> {
    let made;
    let Certificate { chain, key } = match certificate {
        Some(certificate) => certificate,
        None => {
            made = throw_away()?;
            &made
        }
    };
    let mut config = rustls::ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(failed)?
        .with_no_client_auth()
        .with_single_cert(chain.clone(), key.clone_key())
        .map_err(failed)?;
    config.alpn_protocols = vec![ALPN_H3.to_vec()];
    config.send_tls13_tickets = 0;
    let quic = QuicServerConfig::try_from(config).map_err(failed)?;
    Ok(quinn::ServerConfig::with_crypto(Arc::new(quic)))
}

/// A certificate that standard clients can verify, with its key.
#[derive(Debug)]
pub struct Certificate {
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

impl Certificate {
    /// Parses PEM: the certificate with its intermediates, and its private key (PKCS #8, PKCS #1 or
    /// SEC 1).
    pub fn from_pem(chain: &[u8], key: &[u8]) -> Result<Certificate, TlsError> {
        let no_chain = |error| TlsError(format!("reading the certificate: {error}"));
        let chain: Vec<_> =
            CertificateDer::pem_slice_iter(chain).collect::<Result<_, _>>().map_err(no_chain)?;
        if chain.is_empty() {
            return Err(TlsError("there is no CERTIFICATE in the certificate's file".into()));
        }
        let no_key = |error| TlsError(format!("reading the certificate's key: {error}"));
        let certificate =
            Certificate { chain, key: PrivateKeyDer::from_pem_slice(key).map_err(no_key)? };
        // Fails now if the key does not belong to the certificate.
        server(Some(&certificate)).map(|_| certificate)
    }
}

fn throw_away() -> Result<Certificate, TlsError> {
    // Ed25519 signatures have a constant length, so seeded runs repeat packet sizes.
    let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).map_err(failed)?;
    let mut params =
        rcgen::CertificateParams::new(vec![SERVER_NAME.to_string()]).map_err(failed)?;
    params.serial_number = Some(1u64.into());
    let certificate = params.self_signed(&key).map_err(failed)?;
    Ok(Certificate {
        chain: vec![certificate.der().clone()],
        key: PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der())),
    })
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn failed(error: impl std::fmt::Display) -> TlsError {
    TlsError(error.to_string())
}

/// Accepts every certificate whose key signed this handshake.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::PeerIncompatible::ServerDoesNotSupportTls12Or13.into())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, cert, dss, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }

    fn root_hint_subjects(&self) -> Option<&[DistinguishedName]> {
        None
    }
}
