//! Reservation of memory for large requests, and the back-off after writes.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mio::net::TcpStream;
use registry::LARGE_BYTES;
use session::Refusal;
use wire::Status;

use super::{Connection, NextAction, READ_BYTES, Scratch};

/// Interval at which a reservation is tried again. The reliever takes a few milliseconds to free memory.
pub(super) const RETRY_INTERVAL: Duration = Duration::from_millis(5);

impl<S> Connection<S> {
    /// Notes how much is set aside for the peer.
    pub(super) fn note_held(&mut self) {
        let sealed = self.tls.as_ref().map_or(0, |tls| tls.held());
        let bytes = self.backlog.capacity() + self.unsent.capacity() + sealed;
        self.held.note(bytes, self.session.bucket());
    }

    /// Whether large reservations have to wait: connections hold too much, altogether or in this
    /// bucket.
    pub(super) fn is_crowded(&self) -> bool {
        let bucket = self.session.bucket();
        self.held.all().is_crowded()
            || bucket.is_some_and(|served| served.bucket.memory().is_transit_crowded())
    }
}

impl Connection<TcpStream> {
    /// Whether a large request goes on waiting for room: longer for others to hold less, which depends
    /// on their peers, than for room in its bucket.
    fn is_patient(&mut self) -> bool {
        let (now, waits) = (Instant::now(), self.session.waits());
        let until = *self.until.get_or_insert(now + waits.large_room);
        if self.is_crowded() {
            now + waits.large_room < until + waits.answer_room
        } else {
            now < until
        }
    }

    /// Refuses the request of which the beginning came, and `more` bytes are to come; `false` if it has to
    /// wait all the same. The rest of it is to be dropped.
    fn refuse_unread(&mut self, more: usize, scratch: &mut Scratch) -> io::Result<bool> {
        let why = if self.is_crowded() {
            let context = "connections hold too much for a request of this size";
            Refusal::because(Status::ETMPFAIL, context)
        } else {
            self.session.no_room_for(more)
        };
        let refused = self
            .session
            .refuse_unread(&self.backlog, why, &mut scratch.output);
        if refused {
            self.held.leave_queue();
            self.backlog = Vec::new();
            self.send(&mut scratch.output)?;
            self.note_held();
        }
        Ok(refused)
    }

    /// Drops what comes of a refused request, and goes on with what is behind it; `None` if nothing
    /// came.
    pub(super) fn skip(
        &mut self,
        left: usize,
        scratch: &mut Scratch,
    ) -> io::Result<Option<NextAction>> {
        if self.mailbox.has_mail() {
            return self.on_mail(NextAction::Skip(left), scratch).map(Some);
        }
        if !self.socket.readable {
            return Ok(None);
        }
        Ok(match self.read(&mut scratch.input, &mut scratch.sealed)? {
            Some(0) => Some(NextAction::Close),
            Some(count) if count < left => Some(NextAction::Skip(left - count)),
            Some(count) if count == left => Some(NextAction::Read),
            Some(count) => {
                scratch.input.copy_within(left..count, 0);
                Some(self.take_input(count - left, scratch)?)
            }
            None => self.socket.readable.then_some(NextAction::Skip(left)),
        })
    }

    /// Takes memory for `more` bytes of a frame, if there is room; one that is `patient` waits also
    /// for what its bucket would have no room to keep.
    pub(super) fn makes_room(&mut self, more: usize, patient: bool) -> bool {
        if self.backlog.capacity() - self.backlog.len() < more {
            if self.is_crowded() || patient && !self.may_take(more) {
                return false;
            }
            self.held.leave_queue();
            // With what may come behind the frame, so that it does not grow for that.
            self.backlog.reserve_exact(more + READ_BYTES);
            self.note_held();
        }
        true
    }

    /// Goes on once there is room for `more` bytes of a large request; `None` as long as there is none.
    pub(super) fn await_room(
        &mut self,
        more: usize,
        scratch: &mut Scratch,
    ) -> io::Result<Option<NextAction>> {
        let patient = self.is_patient();
        let room = self.makes_room(more, true);
        let refused = !room && !patient && self.refuse_unread(more, scratch)?;
        // A request that cannot be refused unread is read all the same, without quota in the bucket.
        let goes_on = room || refused || !patient && self.makes_room(more, false);
        self.info.note_waiting(!goes_on);
        let next = if refused {
            NextAction::Skip(more)
        } else if goes_on {
            NextAction::Read
        } else if self.mailbox.has_mail() {
            self.on_mail(NextAction::AwaitRoom(more), scratch)?
        } else {
            return Ok(None);
        };
        if next != NextAction::AwaitRoom(more) {
            self.until = None;
        }
        Ok(Some(next))
    }

    /// Backs off after a write under memory pressure; `None` until the back-off is over.
    pub(super) fn back_off_after_write(
        &mut self,
        rest: Duration,
        scratch: &mut Scratch,
    ) -> io::Result<Option<NextAction>> {
        let now = Instant::now();
        let until = *self.until.get_or_insert(now + rest);
        let next = if now >= until {
            NextAction::Read
        } else if self.mailbox.has_mail() {
            self.on_mail(NextAction::Backoff(rest), scratch)?
        } else {
            return Ok(None);
        };
        if next != NextAction::Backoff(rest) {
            self.until = None;
        }
        Ok(Some(next))
    }

    /// Whether it backs off, and waits for the end of that only.
    pub(in crate::net) fn is_backing_off(&self) -> bool {
        matches!(self.next, NextAction::Backoff(_))
            && self.until.is_some()
            && self.unsent.is_empty()
    }

    /// Ends its back-off if that is over: it just reads then, and may do so in a group.
    pub(in crate::net) fn end_backoff(&mut self, now: Instant) {
        if self.is_backing_off() && self.until.is_some_and(|until| now >= until) {
            self.next = NextAction::Read;
            self.until = None;
        }
    }

    /// Whether it is its turn, and its bucket has room for `more` bytes. Large requests take turns.
    fn may_take(&mut self, more: usize) -> bool {
        let bucket = self.session.bucket().map(Arc::as_ref);
        let turn = match bucket {
            Some(bucket) if more >= LARGE_BYTES => self.held.is_first_in_queue(bucket),
            _ => true,
        };
        turn && self.session.bucket_has_room(more)
    }
}
