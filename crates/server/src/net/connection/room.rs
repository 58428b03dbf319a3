//! Whether there is room for what a peer asks for or sends, and what is held for it.

use std::time::Duration;

use mio::net::TcpStream;

use super::{Connection, READ_BYTES};

/// How long the rest of a large request waits for room in its bucket before it is read all the same, to
/// be refused. Less than the timeout of most clients.
pub(super) const ROOM_WAIT: Duration = Duration::from_secs(1);

impl<S> Connection<S> {
    /// Notes how much is set aside for the peer.
    pub(super) fn note_held(&mut self) {
        let sealed = self.tls.as_ref().map_or(0, |tls| tls.held());
        let bytes = self.backlog.capacity() + self.unsent.capacity() + sealed;
        self.held.note(bytes, self.session.bucket.as_ref());
    }

    /// Whether whoever would take much has to wait: connections hold too much, altogether or in this
    /// bucket.
    pub(super) fn is_crowded(&self) -> bool {
        let bucket = self.session.bucket.as_ref();
        self.held.all().is_crowded()
            || bucket.is_some_and(|served| served.bucket.memory().is_transit_crowded())
    }
}

impl Connection<TcpStream> {
    /// Takes memory for `more` bytes of a frame, if there is room; one that is `patient` waits also
    /// for what its bucket would have no room to keep.
    pub(super) fn makes_room(&mut self, more: usize, patient: bool) -> bool {
        if self.backlog.capacity() - self.backlog.len() < more {
            if self.is_crowded() || patient && !self.session.bucket_has_room(more) {
                return false;
            }
            // With what may come behind the frame, so that it does not grow for that.
            self.backlog.reserve_exact(more + READ_BYTES);
            self.note_held();
        }
        true
    }
}
