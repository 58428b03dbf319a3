//! Connections that begin with the certificate of a user.

use std::sync::Arc;

use audit::Event;
use identity::CertificateVerdict;

use crate::session::Session;

impl Session {
    /// Takes the certificate, DER, that the peer showed in its handshake, or that it showed none: where it is that of a
    /// user, the peer is logged in.
    ///
    /// # Errors
    /// The connection is to be closed, since there must be a certificate of a user; why.
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

    /// Notes that the peer showed a certificate that is refused, or none where there must be one.
    pub fn note_certificate_problem(&mut self, reason: &str) {
        let now = self.node.clock.now();
        self.record(Event::CertificateProblem, now, |line| {
            line.text("reason", reason.as_bytes())
        });
        self.hand_on_trail();
    }
}
