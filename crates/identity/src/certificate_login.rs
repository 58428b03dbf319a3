//! Logins by certificate: what that of a connection leads to.

use super::certificate::{CertificateSettings, CertificateState};
use super::users::{AuthenticatedUser, Identity};

/// What the certificate of a connection, or that there is none, leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CertificateVerdict {
    /// The peer may log in.
    NoUser,
    /// The peer is this user.
    User(AuthenticatedUser),
    /// The connection is to be closed; why.
    Refused(&'static str),
}

impl Identity {
    /// What client certificates are to the node.
    pub fn certificates(&self) -> CertificateSettings {
        self.certificates.read().clone()
    }

    /// Changes that, for connections that come from now on.
    pub fn set_certificates(&self, settings: CertificateSettings) {
        *self.certificates.write() = settings;
    }

    /// What the certificate, DER, that a peer showed in its handshake leads to; `None` if it showed none.
    /// Cost: reads the certificate once for each rule.
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
