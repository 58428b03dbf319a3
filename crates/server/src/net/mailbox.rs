//! How other threads reach a connection: flags and a bell.

use std::future::poll_fn;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll};

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

impl Mailbox {
    fn post(&self, flag: u8) {
        self.flags.fetch_or(flag, Ordering::SeqCst);
        self.bell.wake();
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
