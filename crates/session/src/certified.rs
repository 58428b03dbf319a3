//! Connections that begin with a user's client certificate.

use std::sync::Arc;

use audit::Event;
use identity::CertificateVerdict;

use crate::login::ShownCertificate;
use crate::session::Session;

impl Session {
    /// Takes the client certificate (DER) of the TLS handshake, or `None` if the peer showed none. It is judged
    /// before the first input.
    pub fn begin_with_certificate(&mut self, certificate: Option<&[u8]>) {
        self.login.shown = Some(ShownCertificate(certificate.map(Box::from)));
    }

    /// Logs the peer in if its certificate names a user. Returns false if the connection must be closed, since a certificate
    /// of a user is mandatory and this is none.
    pub(crate) fn judge_certificate(&mut self, shown: &ShownCertificate) -> bool {
        let node = Arc::clone(&self.node);
        match node.identity.judge_certificate(shown.0.as_deref()) {
            CertificateVerdict::NoUser => true,
            CertificateVerdict::Refused(reason) => {
                tracing::debug!(
                    connection = self.info.id,
                    reason,
                    "no certificate of a user"
                );
                self.note_certificate_problem(reason);
                false
            }
            CertificateVerdict::User(user) => {
                self.info.note(|about| about.user = Some(user.name.clone()));
                self.user = Some(user);
                self.login.certified = true;
                self.work_out_access();
                self.record(Event::AuthSucceeded, node.clock.now(), |line| line);
                true
            }
        }
    }

    /// Records that a client certificate was refused, or that a mandatory one is missing.
    pub fn note_certificate_problem(&mut self, reason: &str) {
        let now = self.node.clock.now();
        self.record(Event::CertificateProblem, now, |line| {
            line.text("reason", reason.as_bytes())
        });
        self.hand_on_trail();
    }
}
