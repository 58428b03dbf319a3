//! How other threads reach a worker: connections that arrive, and bells that ring.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use mio::{Registry, Token, Waker};
use parking_lot::Mutex;
use registry::Ring;

/// The event by which a sleeping worker hears that there is something for it.
pub(super) const ALARM: Token = Token(usize::MAX);

/// What came for a worker.
pub(super) struct Letters<A> {
    pub(super) arrivals: Vec<A>,
    /// Seats of connections that have mail. They may have been left meanwhile.
    pub(super) rung: Vec<usize>,
    /// Nothing arrives any more.
    pub(super) closed: bool,
}

impl<A> Default for Letters<A> {
    fn default() -> Self {
        Self {
            arrivals: Vec::new(),
            rung: Vec::new(),
            closed: false,
        }
    }
}

/// Where letters are left for one worker. Leaving one blocks nobody for long; the system is called
/// only if the worker sleeps.
pub(crate) struct Inbox<A> {
    letters: Mutex<Letters<A>>,
    asleep: AtomicBool,
    alarm: Waker,
}

impl<A> Inbox<A> {
    /// The inbox of a worker that waits for events of this registry.
    ///
    /// # Errors
    /// The system gives no descriptor.
    pub(super) fn new(registry: &Registry) -> io::Result<Self> {
        Ok(Self {
            letters: Mutex::default(),
            asleep: AtomicBool::new(false),
            alarm: Waker::new(registry, ALARM)?,
        })
    }

    /// Leaves a connection; gives it back if nothing is taken any more.
    pub(super) fn deliver(&self, arrival: A) -> Result<(), A> {
        let mut letters = self.letters.lock();
        if letters.closed {
            return Err(arrival);
        }
        letters.arrivals.push(arrival);
        drop(letters);
        self.alert();
        Ok(())
    }

    /// Takes no connections any more.
    pub(super) fn close(&self) {
        self.letters.lock().closed = true;
        self.alert();
    }

    /// Takes all letters; `into` must have none left.
    pub(super) fn take(&self, into: &mut Letters<A>) {
        let mut letters = self.letters.lock();
        std::mem::swap(&mut letters.arrivals, &mut into.arrivals);
        std::mem::swap(&mut letters.rung, &mut into.rung);
        into.closed = letters.closed;
    }

    /// From now on the alarm is needed. False if there are letters already, or the inbox was closed
    /// and `seen` does not know of it yet: then it is not.
    ///
    /// Who leaves a letter takes the lock and then looks whether the worker sleeps; the worker says
    /// so and then takes the lock. So one of them sees the other.
    pub(super) fn falls_asleep(&self, seen: &Letters<A>) -> bool {
        self.asleep.store(true, Ordering::SeqCst);
        let letters = self.letters.lock();
        let sleeps =
            letters.arrivals.is_empty() && letters.rung.is_empty() && letters.closed == seen.closed;
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
    fn ring(&self, seat: usize) {
        self.letters.lock().rung.push(seat);
        self.alert();
    }
}

#[cfg(test)]
mod tests {
    use mio::Poll;

    use super::*;

    #[test]
    fn an_inbox_with_letters_does_not_fall_asleep() {
        let poll = Poll::new().unwrap();
        let inbox: Inbox<()> = Inbox::new(poll.registry()).unwrap();
        let mut seen = Letters::default();
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
