//! Logins by client certificate.

use super::certificate::{CertificateSettings, CertificateState};
use super::users::{AuthenticatedUser, Identity};

/// Result of a connection's client certificate, or of a missing one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CertificateVerdict {
    /// The peer may log in.
    NoUser,
    /// The peer is this user.
    User(AuthenticatedUser),
    /// The connection must be closed; with the reason.
    Refused(&'static str),
}

impl Identity {
    /// Returns the settings of client certificates.
    pub fn certificates(&self) -> CertificateSettings {
        self.certificates.read().clone()
    }

    /// Changes the settings, for new connections.
    pub fn set_certificates(&self, settings: CertificateSettings) {
        *self.certificates.write() = settings;
    }

    /// Judges the certificate, DER, of a peer's handshake; `None` if there was none. Cost: reads the certificate once
    /// for each rule.
    pub fn judge_certificate(&self, certificate: Option<&[u8]>) -> CertificateVerdict {
        let settings = self.certificates.read();
        let name = match (settings.state, certificate) {
            (CertificateState::Disable, _) | (CertificateState::Enable, None) => {
                return CertificateVerdict::NoUser;
            }
            (CertificateState::Mandatory, None) => {
                return CertificateVerdict::Refused("there is no certificate");
            }
            (_, Some(certificate)) => settings.user_name(certificate),
        };
        match name.and_then(|name| self.look_up(&name)) {
            Some(user) => CertificateVerdict::User(user),
            None if settings.state == CertificateState::Mandatory => {
                CertificateVerdict::Refused("the certificate is for no user")
            }
            None => CertificateVerdict::NoUser,
        }
    }
}
