//! Certificates of clients: the accepted authorities, and whether a client needs a certificate.
//!
//! Both may change while the node runs. A handshake under way keeps the settings at its start.

use std::path::Path;
use std::sync::Arc;

use parking_lot::RwLock;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, RootCertStore,
    SignatureScheme,
};

use crate::pem;
use crate::validity;

/// Whether clients are asked for a certificate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ask {
    /// Clients are not asked for a certificate.
    #[default]
    Nothing,
    /// Clients may send a certificate.
    Optional,
    /// A handshake without a certificate fails.
    Mandatory,
}

/// Verifies certificates against the accepted authorities; `None` without authorities.
pub(crate) type Verifier = Option<Arc<dyn ClientCertVerifier>>;

/// Current settings for client certificates.
#[derive(Debug)]
pub(crate) struct Clients {
    ask: RwLock<Ask>,
    verifier: RwLock<Verifier>,
    /// Verifies signatures, independent of the authorities.
    provider: Arc<CryptoProvider>,
}

impl Clients {
    /// Creates the settings: clients are not asked for a certificate.
    pub(crate) fn new(verifier: Verifier, provider: Arc<CryptoProvider>) -> Self {
        Self {
            ask: RwLock::default(),
            verifier: RwLock::new(verifier),
            provider,
        }
    }

    /// Whether there are authorities to verify certificates.
    pub(crate) fn can_ask(&self) -> bool {
        self.verifier.read().is_some()
    }

    pub(crate) fn set_ask(&self, ask: Ask) {
        *self.ask.write() = ask;
    }

    pub(crate) fn set_verifier(&self, verifier: Verifier) {
        *self.verifier.write() = verifier;
    }

    fn current(&self) -> Result<Arc<dyn ClientCertVerifier>, Error> {
        let unknown = Error::InvalidCertificate(CertificateError::UnknownIssuer);
        self.verifier.read().clone().ok_or(unknown)
    }
}

/// Creates a verifier from the authorities and the revocation lists in a file (PEM). Expired authorities are left
/// out; revocation lists apply even if they are outdated.
///
/// # Errors
/// The file cannot be read, holds no valid authority, or holds a damaged list; one line.
pub(crate) fn of_file(path: &Path, provider: &Arc<CryptoProvider>) -> Result<Verifier, String> {
    let fail = |why: String| format!("{}: {why}", path.display());
    let mut valid = Vec::new();
    let mut reason = "holds no certificate".to_owned();
    for certificate in pem::read_certificates(path)? {
        match validity::check(&certificate) {
            Ok(()) => valid.push(certificate),
            Err(why) => {
                tracing::warn!(file = %path.display(), reason = why, "an authority of clients is left out");
                reason = format!("no certificate in it is valid: {why}");
            }
        }
    }
    if valid.is_empty() {
        return Err(fail(reason));
    }
    let lists = pem::read_revocation_lists(path)?;
    of_authorities(valid, lists, provider).map_err(fail)
}

/// Creates a verifier from authorities and revocation lists. A certificate of an authority without a list counts
/// as not revoked.
pub(crate) fn of_authorities(
    authorities: Vec<CertificateDer<'static>>,
    lists: Vec<CertificateRevocationListDer<'static>>,
    provider: &Arc<CryptoProvider>,
) -> Result<Verifier, String> {
    let mut roots = RootCertStore::empty();
    for authority in authorities {
        roots.add(authority).map_err(|error| error.to_string())?;
    }
    let verifier =
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider))
            .with_crls(lists)
            .allow_unknown_revocation_status()
            .build();
    verifier.map(Some).map_err(|error| error.to_string())
}

impl ClientCertVerifier for Clients {
    fn offer_client_auth(&self) -> bool {
        *self.ask.read() != Ask::Nothing
    }

    fn client_auth_mandatory(&self) -> bool {
        *self.ask.read() == Ask::Mandatory
    }

    /// Returns no subjects: clients send the certificate that they have.
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verifier = self.current()?;
        verifier.verify_client_cert(certificate, intermediates, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let verifier = self.current()?;
        verifier.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let verifier = self.current()?;
        verifier.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let algorithms = &self.provider.signature_verification_algorithms;
        algorithms.supported_schemes()
    }
}
