//! The mailbox of a connection: flags and a bell, through which other threads reach it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use parking_lot::Mutex;

const WAKE: u8 = 1;
const MAP_CHANGED: u8 = 2;
const SHUTDOWN: u8 = 4;

/// Flags that were posted since the last look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MailboxFlags {
    /// True if the parked request can be tried again.
    pub wake: bool,
    /// True if the cluster map of a bucket changed.
    pub map_changed: bool,
    /// True if the node stops.
    pub shutdown: bool,
}

/// The thread that serves some connections, as a target of bells.
pub trait Ring: Send + Sync {
    /// Notifies that the connection in this slot has mail. Blocks only for a short time.
    fn ring(&self, slot: usize);
}

/// A bell: it notifies the thread that serves a connection.
#[derive(Clone)]
pub struct Bell {
    /// Inbox of that thread.
    pub inbox: Arc<dyn Ring>,
    /// Seat of the connection in that thread.
    pub slot: usize,
}

impl Bell {
    fn ring(&self) {
        self.inbox.ring(self.slot);
    }
}

/// The mailbox of one connection. Posting takes a leaf lock for a few instructions.
#[derive(Default)]
pub struct Mailbox {
    flags: AtomicU8,
    bell: Mutex<Option<Bell>>,
}

impl Mailbox {
    /// Sets the bell that is rung from this call on. Mail of earlier posts rang no bell here: look for it.
    pub fn hang(&self, bell: Bell) {
        *self.bell.lock() = Some(bell);
    }

    fn post(&self, flag: u8) {
        // An earlier post of the same flag rang the bell, and the flag was not taken yet.
        if self.flags.fetch_or(flag, Ordering::SeqCst) & flag != 0 {
            return;
        }
        let bell = self.bell.lock().clone();
        if let Some(bell) = bell {
            bell.ring();
        }
    }

    /// Posts that the cluster map changed.
    pub fn map_changed(&self) {
        self.post(MAP_CHANGED);
    }

    /// Posts that the node stops.
    pub fn shut_down(&self) {
        self.post(SHUTDOWN);
    }

    /// Takes all flags.
    pub fn take(&self) -> MailboxFlags {
        let flags = self.flags.swap(0, Ordering::SeqCst);
        MailboxFlags {
            wake: flags & WAKE != 0,
            map_changed: flags & MAP_CHANGED != 0,
            shutdown: flags & SHUTDOWN != 0,
        }
    }

    /// Checks whether any flag is set.
    pub fn has_mail(&self) -> bool {
        self.flags.load(Ordering::SeqCst) != 0
    }

    /// Checks whether the node stops. Other flags stay set.
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
        fn ring(&self, slot: usize) {
            self.0.lock().push(slot);
        }
    }

    #[test]
    fn the_bell_rings_once_per_flag() {
        let inbox = Arc::new(Rung::default());
        let rung = || std::mem::take(&mut *inbox.0.lock());
        let mailbox = Mailbox::default();
        mailbox.hang(Bell {
            inbox: Arc::clone(&inbox) as Arc<dyn Ring>,
            slot: 7,
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
