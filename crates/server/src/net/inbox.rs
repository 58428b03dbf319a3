//! Inboxes, through which other threads reach a worker: connections that arrive, and bells that ring.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use mio::{Registry, Token, Waker};
use parking_lot::Mutex;
use registry::Ring;

/// Token of the event that wakes a sleeping worker.
pub(super) const ALARM: Token = Token(usize::MAX);

/// Messages for a worker.
pub(super) struct Messages<A> {
    pub(super) arrivals: Vec<A>,
    /// Slots of connections that have mail. A connection may have left its slot meanwhile.
    pub(super) rung: Vec<usize>,
    /// True if no more connections arrive.
    pub(super) closed: bool,
}

impl<A> Default for Messages<A> {
    fn default() -> Self {
        Self {
            arrivals: Vec::new(),
            rung: Vec::new(),
            closed: false,
        }
    }
}

/// The inbox of one worker. Delivery takes a leaf lock for a few instructions, and costs a system call only if the
/// worker sleeps.
pub(crate) struct Inbox<A> {
    messages: Mutex<Messages<A>>,
    asleep: AtomicBool,
    alarm: Waker,
}

impl<A> Inbox<A> {
    /// Creates the inbox of a worker that polls this registry.
    ///
    /// # Errors
    /// The system has no descriptor left.
    pub(super) fn new(registry: &Registry) -> io::Result<Self> {
        Ok(Self {
            messages: Mutex::default(),
            asleep: AtomicBool::new(false),
            alarm: Waker::new(registry, ALARM)?,
        })
    }

    /// Delivers a connection; returns it if the inbox is closed.
    pub(super) fn deliver(&self, arrival: A) -> Result<(), A> {
        let mut messages = self.messages.lock();
        if messages.closed {
            return Err(arrival);
        }
        messages.arrivals.push(arrival);
        drop(messages);
        self.alert();
        Ok(())
    }

    /// Closes the inbox for connections.
    pub(super) fn close(&self) {
        self.messages.lock().closed = true;
        self.alert();
    }

    /// Takes all messages; `into` must be empty.
    pub(super) fn take(&self, into: &mut Messages<A>) {
        let mut messages = self.messages.lock();
        std::mem::swap(&mut messages.arrivals, &mut into.arrivals);
        std::mem::swap(&mut messages.rung, &mut into.rung);
        into.closed = messages.closed;
    }

    /// Announces that the worker sleeps and needs the alarm. Returns false if it must not sleep: there are messages, or
    /// the inbox was closed and `seen` does not contain that yet.
    ///
    /// A sender takes the lock, then reads `asleep`. The worker sets `asleep`, then takes the lock. So one of them sees
    /// the other.
    pub(super) fn falls_asleep(&self, seen: &Messages<A>) -> bool {
        self.asleep.store(true, Ordering::SeqCst);
        let messages = self.messages.lock();
        let sleeps = messages.arrivals.is_empty()
            && messages.rung.is_empty()
            && messages.closed == seen.closed;
        if !sleeps {
            self.wakes_up();
        }
        sleeps
    }

    pub(super) fn wakes_up(&self) {
        self.asleep.store(false, Ordering::SeqCst);
    }

    fn alert(&self) {
        if self.asleep.swap(false, Ordering::SeqCst)
            && let Err(error) = self.alarm.wake()
        {
            tracing::error!(%error, "a worker cannot be woken");
        }
    }
}

impl<A: Send> Ring for Inbox<A> {
    fn ring(&self, slot: usize) {
        self.messages.lock().rung.push(slot);
        self.alert();
    }
}

#[cfg(test)]
mod tests {
    use mio::Poll;

    use super::*;

    #[test]
    fn an_inbox_with_messages_does_not_fall_asleep() {
        let poll = Poll::new().unwrap();
        let inbox: Inbox<()> = Inbox::new(poll.registry()).unwrap();
        let mut seen = Messages::default();
        assert!(inbox.falls_asleep(&seen));
        inbox.wakes_up();
        inbox.ring(1);
        assert!(!inbox.falls_asleep(&seen));
        inbox.take(&mut seen);
        assert_eq!(std::mem::take(&mut seen.rung), [1]);
        assert!(inbox.falls_asleep(&seen));
        inbox.wakes_up();
        inbox.close();
        assert!(
            !inbox.falls_asleep(&seen),
            "it must look whether it is done"
        );
        inbox.take(&mut seen);
        assert!(inbox.falls_asleep(&seen));
    }
}
