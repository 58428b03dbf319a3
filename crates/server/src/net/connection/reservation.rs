//! Reservation of memory for large requests, and the back-off after writes.

use std::io;
use std::time::{Duration, Instant};

use bucket::{Purpose, Reservation};
use registry::QUEUED_BYTES_MIN;

use super::arrival::Connection;
use super::scratch::{READ_BYTES, Scratch};
use super::state::NextAction;

impl Connection {
    /// Counts the bytes that are held for the peer.
    pub(super) fn note_held(&mut self) {
        let sealed = self.tls.as_ref().map_or(0, |tls| tls.held());
        let buffers = self.backlog.capacity() + self.unsent.capacity() + sealed;
        let bytes = buffers + self.session.pending_bytes();
        self.held.note(bytes, self.session.bucket());
    }

    /// Reserves memory for the `more` missing bytes of the frame in the backlog, after a wait of `waited`.
    pub(super) fn reserve_input(&mut self, more: usize, waited: Duration) -> Reservation {
        let is_reserved = self.backlog.capacity() - self.backlog.len() >= more;
        if is_reserved || self.session.value_bytes_missing().is_some() {
            return Reservation::Granted;
        }
        let first = match self.session.bucket() {
            Some(bucket) if more >= QUEUED_BYTES_MIN => self.held.is_first_in_queue(bucket),
            _ => true,
        };
        let purpose = if self.session.can_refuse_unread(&self.backlog) {
            Purpose::Request { first }
        } else {
            Purpose::Frame { first }
        };
        // A document that is a copy of the input needs the bytes again.
        let copies = 2 - usize::from(self.session.receives_in_place(&self.backlog));
        let bytes = more.saturating_mul(copies);
        let reservation = self.session.reserve(purpose, bytes, waited);
        if reservation.is_granted() {
            self.held.leave_queue();
            if !self.session.receive_in_place(&mut self.backlog) {
                // Include room for bytes behind the frame, so that the buffer does not grow for them.
                self.backlog.reserve_exact(more + READ_BYTES);
            }
            self.note_held();
        }
        reservation
    }

    /// Waits for memory for `more` bytes of a large request. Returns `None` while there is none.
    pub(super) fn await_memory(
        &mut self,
        more: usize,
        since: Instant,
        scratch: &mut Scratch,
    ) -> io::Result<Option<NextAction>> {
        let now = Instant::now();
        let waits = NextAction::AwaitMemory { more, since };
        let reservation = self.reserve_input(more, now - since);
        self.info
            .note_waiting(matches!(reservation, Reservation::Wait { .. }));
        self.until = None;
        Ok(Some(match reservation {
            Reservation::Granted => NextAction::Read,
            Reservation::Refused { shortage, .. } => {
                let why = shortage.into();
                self.session
                    .refuse_unread(&self.backlog, why, &mut scratch.output);
                self.held.leave_queue();
                self.backlog = Vec::new();
                self.send(&mut scratch.output)?;
                self.note_held();
                NextAction::Skip(more)
            }
            Reservation::Wait { .. } if self.mailbox.has_mail() => self.on_mail(waits, scratch)?,
            Reservation::Wait { retry, .. } => {
                self.until = Some(now + retry);
                return Ok(None);
            }
        }))
    }

    /// Drops input of a refused request, and continues behind it; `None` if no input came.
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

    /// Checks whether the connection backs off, and waits for nothing else.
    pub(in crate::net) fn is_backing_off(&self) -> bool {
        matches!(self.next, NextAction::Backoff(_))
            && self.until.is_some()
            && self.unsent.is_empty()
    }

    /// Ends the back-off if its time is over. Then the connection only reads, and may do so in a group.
    pub(in crate::net) fn end_backoff(&mut self, now: Instant) {
        if self.is_backing_off() && self.until.is_some_and(|until| now >= until) {
            self.next = NextAction::Read;
            self.until = None;
        }
    }
}
