//! How other threads reach a connection: flags and a bell.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use parking_lot::Mutex;

const WAKE: u8 = 1;
const MAP_CHANGED: u8 = 2;
const SHUTDOWN: u8 = 4;

/// What was posted since the last look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mail {
    /// The parked request is worth another try.
    pub wake: bool,
    /// The cluster map of a bucket changed.
    pub map_changed: bool,
    /// The node stops.
    pub shutdown: bool,
}

/// Where the thread that serves some connections hears of mail for one of them.
pub trait Ring: Send + Sync {
    /// There is mail for the connection in this seat. Blocks for no long time.
    fn ring(&self, seat: usize);
}

/// Rings where a connection is served.
#[derive(Clone)]
pub struct Bell {
    /// The thread that serves it.
    pub inbox: Arc<dyn Ring>,
    /// Its number there.
    pub seat: usize,
}

impl Bell {
    fn ring(&self) {
        self.inbox.ring(self.seat);
    }
}

/// The mailbox of one connection. Posting takes a leaf lock for a few instructions.
#[derive(Default)]
pub struct Mailbox {
    flags: AtomicU8,
    bell: Mutex<Option<Bell>>,
}

impl Mailbox {
    /// From now on this bell is rung. Mail that came before has rung in vain: look for it.
    pub fn hang(&self, bell: Bell) {
        *self.bell.lock() = Some(bell);
    }

    fn post(&self, flag: u8) {
        // The same post rang the bell before, and it was not taken yet.
        if self.flags.fetch_or(flag, Ordering::SeqCst) & flag != 0 {
            return;
        }
        let bell = self.bell.lock().clone();
        if let Some(bell) = bell {
            bell.ring();
        }
    }

    /// Tells that the cluster map changed.
    pub fn map_changed(&self) {
        self.post(MAP_CHANGED);
    }

    /// Tells that the node stops.
    pub fn shut_down(&self) {
        self.post(SHUTDOWN);
    }

    /// Takes what was posted.
    pub fn take(&self) -> Mail {
        let flags = self.flags.swap(0, Ordering::SeqCst);
        Mail {
            wake: flags & WAKE != 0,
            map_changed: flags & MAP_CHANGED != 0,
            shutdown: flags & SHUTDOWN != 0,
        }
    }

    /// Whether there is something to take.
    pub fn has_mail(&self) -> bool {
        self.flags.load(Ordering::SeqCst) != 0
    }

    /// Whether the node stops; other mail stays to be taken.
    pub fn is_shutting_down(&self) -> bool {
        self.flags.load(Ordering::SeqCst) & SHUTDOWN != 0
    }
}

impl bucket::Wake for Mailbox {
    fn wake(&self) {
        self.post(WAKE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Rung(Mutex<Vec<usize>>);

    impl Ring for Rung {
        fn ring(&self, seat: usize) {
            self.0.lock().push(seat);
        }
    }

    #[test]
    fn the_bell_rings_once_for_each_news() {
        let inbox = Arc::new(Rung::default());
        let rung = || std::mem::take(&mut *inbox.0.lock());
        let mailbox = Mailbox::default();
        mailbox.hang(Bell {
            inbox: Arc::clone(&inbox) as Arc<dyn Ring>,
            seat: 7,
        });
        mailbox.map_changed();
        mailbox.shut_down();
        assert_eq!(rung(), [7, 7]);
        assert!(mailbox.is_shutting_down());
        assert!(mailbox.take().map_changed);
        assert!(!mailbox.has_mail());
        mailbox.map_changed();
        assert_eq!(rung(), [7]);
        mailbox.map_changed();
        assert!(rung().is_empty(), "known, and not taken yet");
        assert!(mailbox.take().map_changed);
        mailbox.map_changed();
        assert_eq!(rung(), [7], "again");
    }
}
