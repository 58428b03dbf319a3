//! TLS for connections to other nodes.

use std::io;
use std::sync::Arc;

use parking_lot::RwLock;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier as _;
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{AlertDescription, CertificateError, ClientConfig};

use crate::served::Tls;
use crate::trust::Trust;

/// Settings for connections to other nodes. The files are read at the start and on request.
#[derive(Debug)]
pub struct PeerTls {
    trust: Trust,
    /// Host by which other nodes reach this one.
    host: String,
    current: RwLock<Arc<ClientConfig>>,
}

impl PeerTls {
    /// Reads the files. The other nodes reach this one, with the certificate that it serves, as `host`.
    ///
    /// # Errors
    /// A file is not usable, or nodes with the same trust anchors would refuse the certificate; one line.
    pub fn open(trust: Trust, served: &Tls, host: &str) -> Result<Self, String> {
        let config = trust.config().map_err(|error| error.to_string())?;
        check(&trust, &served.chain(), host)?;
        Ok(Self {
            trust,
            host: host.to_owned(),
            current: RwLock::new(Arc::new(config)),
        })
    }

    /// Settings for the next connection.
    pub fn config(&self) -> Arc<ClientConfig> {
        Arc::clone(&self.current.read())
    }

    /// Reads the files again, and those of the served certificate, for later connections.
    ///
    /// # Errors
    /// As [`PeerTls::open`] and [`Tls::reload`]. All old settings stay.
    pub fn reload(&self, served: &Tls) -> Result<(), String> {
        let read = served.read_again()?;
        let config = self.trust.config().map_err(|error| error.to_string())?;
        check(&self.trust, read.chain(), &self.host)?;
        *self.current.write() = Arc::new(config);
        served.replace(read);
        Ok(())
    }
}

/// Checks whether nodes with the same trust anchors accept a certificate for a host.
///
/// # Errors
/// They refuse it; the reason, in one line.
fn check(trust: &Trust, chain: &[CertificateDer<'_>], host: &str) -> Result<(), String> {
    let refused = |why: &dyn std::fmt::Display| {
        let hint = "--peer-ca names the authorities of all nodes, --tls-cert a certificate of one";
        format!(
            "other nodes would refuse the certificate of this one, which they reach as {host}: {why}; {hint}"
        )
    };
    let name = ServerName::try_from(host.to_owned()).map_err(|error| refused(&error))?;
    let roots = trust.roots().map_err(|error| error.to_string())?;
    let provider = Arc::new(ring::default_provider());
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider);
    let verifier = verifier.build().map_err(|error| refused(&error))?;
    let (first, others) = chain
        .split_first()
        .ok_or_else(|| refused(&"there is none"))?;
    let judged = verifier.verify_server_cert(first, others, &name, &[], UnixTime::now());
    judged.map(drop).map_err(|error| refused(&error))
}

/// Returns the TLS error behind an I/O error, of this side or the other; `None` for any other error. The text is the
/// same at each attempt, so that callers log it once.
pub fn tls_refusal(error: &io::Error) -> Option<String> {
    let refusal = error.get_ref()?.downcast_ref::<rustls::Error>()?;
    let about = match refusal {
        rustls::Error::InvalidCertificate(about) => about,
        rustls::Error::AlertReceived(alert) if is_about_certificates(*alert) => {
            return Some(format!(
                "the other side needs a certificate of this one, or refuses it ({alert:?})"
            ));
        }
        rustls::Error::InvalidMessage(_) => return Some("the other side speaks no TLS".to_owned()),
        _ => return Some(refusal.to_string()),
    };
    let why = match about {
        // Texts of rustls have the time of the attempt.
        CertificateError::ExpiredContext { .. } => "it has expired",
        CertificateError::NotValidYetContext { .. } => "it is not valid yet",
        // A trusted authority with the name of the issuer has another key.
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            "no trusted authority has signed it"
        }
        _ => return Some(refusal.to_string()),
    };
    Some(format!("invalid peer certificate: {why}"))
}

/// Whether an alert is about the certificate of this side. Servers differ in the alert for a missing one.
fn is_about_certificates(alert: AlertDescription) -> bool {
    matches!(
        alert,
        AlertDescription::BadCertificate
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::CertificateRevoked
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateUnknown
            | AlertDescription::CertificateRequired
            | AlertDescription::UnknownCA
    )
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn expired_certificate_is_told_in_the_same_words_at_each_attempt() {
        let at = |seconds| UnixTime::since_unix_epoch(Duration::from_secs(seconds));
        let told = |about| tls_refusal(&io::Error::other(rustls::Error::InvalidCertificate(about)));
        let (expired, early) = ("it has expired", "it is not valid yet");
        for time in [at(50), at(51)] {
            let (not_after, not_before) = (at(40), at(60));
            let late = told(CertificateError::ExpiredContext { time, not_after });
            assert_eq!(late, Some(format!("invalid peer certificate: {expired}")));
            let soon = told(CertificateError::NotValidYetContext { time, not_before });
            assert_eq!(soon, Some(format!("invalid peer certificate: {early}")));
        }
        assert_eq!(tls_refusal(&io::Error::other("reset")), None);
    }

    #[test]
    fn refused_and_missing_certificates_are_told_from_other_alerts() {
        let told = |alert| {
            let error = io::Error::other(rustls::Error::AlertReceived(alert));
            tls_refusal(&error).unwrap()
        };
        for alert in [
            AlertDescription::BadCertificate,
            AlertDescription::CertificateRequired,
            AlertDescription::UnknownCA,
        ] {
            assert!(told(alert).contains("needs a certificate of this one, or refuses it"));
        }
        let other = rustls::Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType);
        let told_other = tls_refusal(&io::Error::other(other)).unwrap();
        assert_eq!(told_other, "the other side speaks no TLS");
        let version = told(AlertDescription::ProtocolVersion);
        assert!(!version.contains("certificate"), "{version}");
    }
}
