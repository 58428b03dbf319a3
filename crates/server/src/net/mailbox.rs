//! How other threads reach a connection: flags and a bell.

use std::cell::RefCell;
use std::future::poll_fn;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll, Waker};

use futures_util::task::AtomicWaker;

const WAKE: u8 = 1;
const MAP_CHANGED: u8 = 2;
const SHUTDOWN: u8 = 4;

/// What was posted since the last look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mail {
    /// The parked request is worth another try.
    pub(crate) wake: bool,
    /// The cluster map of a bucket changed.
    pub(crate) map_changed: bool,
    /// The node stops.
    pub(crate) shutdown: bool,
}

/// The mailbox of one connection. Posting never blocks and never allocates.
#[derive(Debug, Default)]
pub(crate) struct Mailbox {
    flags: AtomicU8,
    bell: AtomicWaker,
}

thread_local! {
    /// Bells that this thread rings later, while it holds them.
    static HELD: RefCell<Option<Vec<Waker>>> = const { RefCell::new(None) };
}

/// While this lives, bells that its thread would ring wait; all are rung when it is dropped.
///
/// Another thread is woken with a call of the system, which takes longer than a write. Whoever
/// is answered first does not wait for that.
#[derive(Debug)]
pub(super) struct HeldBells(());

impl HeldBells {
    /// Holds the bells of this thread. One at a time.
    pub(super) fn hold() -> Self {
        HELD.with_borrow_mut(|held| {
            debug_assert!(held.is_none(), "they are rung before they are held again");
            *held = Some(Vec::new());
        });
        Self(())
    }
}

impl Drop for HeldBells {
    fn drop(&mut self) {
        let bells = HELD.take();
        for bell in bells.into_iter().flatten() {
            bell.wake();
        }
    }
}

impl Mailbox {
    fn post(&self, flag: u8) {
        self.flags.fetch_or(flag, Ordering::SeqCst);
        let Some(bell) = self.bell.take() else {
            return;
        };
        HELD.with_borrow_mut(|held| match held {
            Some(held) => held.push(bell),
            None => bell.wake(),
        });
    }

    /// Tells that the cluster map changed.
    pub(crate) fn map_changed(&self) {
        self.post(MAP_CHANGED);
    }

    /// Tells that the node stops.
    pub(crate) fn shut_down(&self) {
        self.post(SHUTDOWN);
    }

    /// Takes what was posted.
    pub(crate) fn take(&self) -> Mail {
        let flags = self.flags.swap(0, Ordering::SeqCst);
        Mail {
            wake: flags & WAKE != 0,
            map_changed: flags & MAP_CHANGED != 0,
            shutdown: flags & SHUTDOWN != 0,
        }
    }

    /// Ready once there is something to take. Only the connection itself may wait.
    pub(crate) fn poll_posted(&self, task: &Context<'_>) -> Poll<()> {
        self.poll_for(u8::MAX, task)
    }

    /// Waits until there is something to take.
    pub(crate) async fn posted(&self) {
        poll_fn(|task| self.poll_posted(task)).await;
    }

    /// Waits until the node stops; other mail stays to be taken.
    pub(crate) async fn shutting_down(&self) {
        poll_fn(|task| self.poll_for(SHUTDOWN, task)).await;
    }

    fn poll_for(&self, flags: u8, task: &Context<'_>) -> Poll<()> {
        // Registered first: a post between the two is seen by the load or wakes the task.
        self.bell.register(task.waker());
        if self.flags.load(Ordering::SeqCst) & flags == 0 {
            Poll::Pending
        } else {
            Poll::Ready(())
        }
    }
}

impl bucket::Wake for Mailbox {
    fn wake(&self) {
        self.post(WAKE);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct Rung(AtomicUsize);

    impl Wake for Rung {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn held_bells_ring_in_the_end() {
        let rung = Arc::new(Rung::default());
        let count = || rung.0.load(Ordering::SeqCst);
        let waker = Waker::from(Arc::clone(&rung));
        let task = Context::from_waker(&waker);
        let mailbox = Mailbox::default();
        assert!(mailbox.poll_posted(&task).is_pending());
        let held = HeldBells::hold();
        mailbox.map_changed();
        mailbox.shut_down();
        assert_eq!(count(), 0, "held");
        assert!(
            mailbox.take().map_changed,
            "what was posted is there before the bell"
        );
        assert!(mailbox.poll_posted(&task).is_pending());
        mailbox.map_changed();
        drop(held);
        assert_eq!(count(), 2, "once for each time that somebody waited");
        assert!(mailbox.poll_posted(&task).is_ready());
        mailbox.map_changed();
        assert_eq!(count(), 3, "at once again");
    }
}
