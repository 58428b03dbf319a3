//! Connections that begin with a user's client certificate.

use std::sync::Arc;

use audit::Event;
use identity::CertificateVerdict;

use crate::session::Session;

impl Session {
    /// Takes the client certificate (DER) of the TLS handshake, or `None` if the peer showed none. If it
    /// names a user, the peer is logged in.
    ///
    /// # Errors
    /// The connection must be closed, since a certificate of a user is mandatory and this is none; the reason.
    pub fn begin_with_certificate(
        &mut self,
        certificate: Option<&[u8]>,
    ) -> Result<(), &'static str> {
        let node = Arc::clone(&self.node);
        match node.identity.judge_certificate(certificate) {
            CertificateVerdict::NoUser => Ok(()),
            CertificateVerdict::Refused(reason) => Err(reason),
            CertificateVerdict::User(user) => {
                self.info.note(|about| about.user = Some(user.name.clone()));
                self.user = Some(user);
                self.login.certified = true;
                self.work_out_access();
                self.record(Event::AuthSucceeded, node.clock.now(), |line| line);
                self.hand_on_trail();
                Ok(())
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
