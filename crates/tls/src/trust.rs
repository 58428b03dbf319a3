//! Trust anchors for outgoing TLS connections.

use std::path::PathBuf;
use std::sync::Arc;
use std::{fmt, io};

use rustls::client::WantsClientCert;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    ClientConfig, ConfigBuilder, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
};

use crate::pem::{CertificateFiles, read_pair, unreadable};

/// File with the trust anchors of the system.
const SYSTEM_FILE: &str = "/etc/ssl/certs/ca-certificates.crt";

/// Trust anchors of a connection, and the certificate that it sends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trust {
    /// File with trust anchors (PEM); `None` for those of the system.
    pub ca: Option<PathBuf>,
    /// Whether any certificate is accepted.
    pub insecure: bool,
    /// Certificate that this side sends if asked; `None` for none.
    pub own: Option<CertificateFiles>,
}

impl Trust {
    /// Returns the settings for connections.
    ///
    /// # Errors
    /// There is no trust anchor, or the own certificate cannot be read.
    pub fn config(&self) -> io::Result<ClientConfig> {
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?;
        if self.insecure {
            let accept_any = Arc::new(AcceptAny(provider));
            let builder = builder
                .dangerous()
                .with_custom_certificate_verifier(accept_any);
            return self.showing(builder);
        }
        self.showing(builder.with_root_certificates(self.roots()?))
    }

    fn showing(
        &self,
        builder: ConfigBuilder<ClientConfig, WantsClientCert>,
    ) -> io::Result<ClientConfig> {
        let Some(files) = &self.own else {
            return Ok(builder.with_no_client_auth());
        };
        let (chain, key) = read_pair(files).map_err(io::Error::other)?;
        let shown = builder.with_client_auth_cert(chain, key);
        shown.map_err(|error| io::Error::other(files.refused(&error)))
    }

    pub(crate) fn roots(&self) -> io::Result<RootCertStore> {
        let path = self.ca.clone().unwrap_or_else(|| SYSTEM_FILE.into());
        let fail = |why: &dyn fmt::Display| {
            let hint = "--ca FILE, between nodes --peer-ca FILE, at etcd --etcd-ca FILE, names what to trust";
            io::Error::other(format!("{} {why}; {hint}", path.display()))
        };
        let text =
            std::fs::read(&path).map_err(|error| fail(&format!("cannot be read: {error}")))?;
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(&text) {
            let certificate = certificate.map_err(|error| fail(&unreadable(&error)))?;
            // Systems trust some certificates that are too old to be parsed.
            let added = roots.add(certificate);
            if self.ca.is_some() {
                added.map_err(|error| fail(&format!("has a damaged certificate: {error}")))?;
            }
        }
        if roots.is_empty() {
            return Err(fail(&"holds no certificate"));
        }
        Ok(roots)
    }
}

/// Accepts any certificate; only an explicit option selects it.
#[derive(Debug)]
struct AcceptAny(Arc<CryptoProvider>);

impl ServerCertVerifier for AcceptAny {
    fn verify_server_cert(
        &self,
        _certificate: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
