//! A store that fails on request.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use model::VbId;
use parking_lot::Mutex;
use storage::{CommitInfo, ErrorKind, KvStore, StoreError, VbBatch};

use crate::hooked::{Answer, Hooked, Hooks};

/// Planned failure of a commit. Only `Unanswered` changes the inner store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The file system is full; later commits may succeed.
    NoSpace,
    /// An I/O error without damage to the store; later commits may succeed.
    Io,
    /// The commit succeeds, but returns the error of `Io`.
    Unanswered,
    /// The sync failed: this commit and all later ones return `Poisoned`.
    Sync,
}

/// A wrapper of any store, with planned failures. Commits count from 0.
pub(crate) type FaultyStore<S> = Hooked<Faults<S>>;

pub(crate) struct Faults<S> {
    inner: S,
    commits: AtomicUsize,
    removals: AtomicUsize,
    poisoned: AtomicBool,
    planned: Mutex<Vec<(Range<usize>, Fault)>>,
    unreadable: AtomicBool,
    damaged: Mutex<Vec<VbId>>,
    /// Runs while damage is located.
    pub(crate) on_locate: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl<S: KvStore> FaultyStore<S> {
    /// Creates a wrapper without faults.
    pub(crate) fn new(inner: S) -> Self {
        Self(Faults {
            inner,
            commits: AtomicUsize::new(0),
            removals: AtomicUsize::new(0),
            poisoned: AtomicBool::new(false),
            planned: Mutex::default(),
            unreadable: AtomicBool::new(false),
            damaged: Mutex::default(),
            on_locate: Mutex::default(),
        })
    }
}

impl<S> Faults<S> {
    /// Returns the number of attempted commits.
    pub(crate) fn commits(&self) -> usize {
        self.commits.load(Ordering::SeqCst)
    }

    /// Returns the number of removals.
    pub(crate) fn removals(&self) -> usize {
        self.removals.load(Ordering::SeqCst)
    }

    /// Makes the commits of `range` fail, counted from the first commit.
    pub(crate) fn fail_commits(&self, range: Range<usize>, fault: Fault) {
        self.planned.lock().push((range, fault));
    }

    /// Makes the next `count` commits fail.
    pub(crate) fn fail_next(&self, count: usize, fault: Fault) {
        let next = self.commits();
        self.fail_commits(next..next.saturating_add(count), fault);
    }

    /// Removes all planned faults. A poisoned store stays poisoned.
    pub(crate) fn heal(&self) {
        self.planned.lock().clear();
    }

    /// Makes reads return `Io`, or work again.
    pub(crate) fn set_unreadable(&self, unreadable: bool) {
        self.unreadable.store(unreadable, Ordering::SeqCst);
    }

    /// Makes reads of a vBucket return `Corrupt`.
    pub(crate) fn damage(&self, vb: VbId) {
        self.damaged.lock().push(vb);
    }

    fn planned(&self, commit: usize) -> Option<Fault> {
        let planned = self.planned.lock();
        let plan = planned.iter().find(|(range, _)| range.contains(&commit));
        plan.map(|(_, fault)| *fault)
    }
}

fn fault(kind: ErrorKind) -> StoreError {
    StoreError::new(kind, "failing as planned")
}

impl<S: KvStore> Hooks for Faults<S> {
    type Inner = S;

    fn inner(&self) -> &S {
        &self.inner
    }

    fn locating(&self) {
        if let Some(run) = self.on_locate.lock().take() {
            run();
        }
    }

    fn before_read(&self, vb: VbId) -> Answer<()> {
        if self.unreadable.load(Ordering::SeqCst) {
            return Err(fault(ErrorKind::Io));
        }
        if self.damaged.lock().contains(&vb) {
            return Err(fault(ErrorKind::Corrupt).of(vb));
        }
        Ok(())
    }

    fn before_write(&self) -> Answer<()> {
        if self.poisoned.load(Ordering::SeqCst) {
            return Err(fault(ErrorKind::Poisoned));
        }
        Ok(())
    }

    fn commit(&self, batches: &[VbBatch<'_>]) -> Answer<CommitInfo> {
        let number = self.commits.fetch_add(1, Ordering::SeqCst);
        self.before_write()?;
        match self.planned(number) {
            None => self.inner.commit(batches),
            Some(Fault::NoSpace) => Err(fault(ErrorKind::NoSpace)),
            Some(Fault::Io) => Err(fault(ErrorKind::Io)),
            Some(Fault::Unanswered) => {
                self.inner.commit(batches)?;
                Err(fault(ErrorKind::Io))
            }
            Some(Fault::Sync) => {
                self.poisoned.store(true, Ordering::SeqCst);
                Err(fault(ErrorKind::Poisoned))
            }
        }
    }

    fn remove(&self, vbs: &[VbId]) -> Answer<()> {
        self.removals.fetch_add(1, Ordering::SeqCst);
        self.inner.remove(vbs)
    }
}
