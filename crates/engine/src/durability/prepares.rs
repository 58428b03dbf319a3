//! The undecided prepares, by seqno and by key.

use std::collections::{VecDeque, vec_deque};

use hashbrown::HashTable;
use model::{Document, Seqno};

/// Deadline that is never reached.
pub(crate) const NEVER: u64 = u64::MAX;

/// An undecided prepare.
#[derive(Clone, Debug)]
pub(crate) struct Tracked {
    pub(crate) document: Document,
    pub(crate) hash: u64,
    pub(crate) deadline_ns: u64,
    /// Whether a previous active node may have told a client that it is committed.
    pub(crate) maybe_visible: bool,
}

#[derive(Debug)]
struct KeyOf {
    hash: u64,
    seqno: Seqno,
}

/// State while at least one prepare is undecided.
#[derive(Debug, Default)]
struct OpenPrepares {
    /// In ascending order of seqno.
    tracked: VecDeque<Tracked>,
    keys: HashTable<KeyOf>,
    document_bytes: usize,
    maybe_visible: usize,
}

/// The undecided prepares of one vBucket. Eight bytes if there never was one; when idle, it keeps
/// room for a few.
#[derive(Debug, Default)]
pub(super) struct Prepares(Option<Box<OpenPrepares>>);

impl Prepares {
    /// Number of undecided prepares.
    pub(super) fn len(&self) -> usize {
        self.0.as_ref().map_or(0, |waiting| waiting.tracked.len())
    }

    /// Returns the prepare of a key. Cost: one look-up; none while there are no prepares.
    #[inline]
    pub(super) fn find(&self, hash: u64, key: &[u8]) -> Option<&Tracked> {
        let waiting = self.0.as_ref().filter(|one| !one.tracked.is_empty())?;
        let same = |one: &KeyOf| {
            let tracked = waiting.get(one.seqno);
            tracked.is_some_and(|tracked| tracked.document.key() == key)
        };
        waiting.get(waiting.keys.find(hash, same)?.seqno)
    }

    /// Returns the prepare of a key if the key must be hidden from readers.
    #[inline]
    pub(super) fn find_hidden(&self, hash: u64, key: &[u8]) -> Option<&Tracked> {
        self.0.as_ref().filter(|one| one.maybe_visible > 0)?;
        self.find(hash, key).filter(|tracked| tracked.maybe_visible)
    }

    pub(super) fn get(&self, seqno: Seqno) -> Option<&Tracked> {
        self.0.as_ref()?.get(seqno)
    }

    /// Returns the oldest prepare.
    pub(super) fn first(&self) -> Option<&Tracked> {
        self.0.as_ref()?.tracked.front()
    }

    /// Returns the prepares above a seqno, ascending.
    pub(super) fn above(&self, seqno: Seqno) -> vec_deque::Iter<'_, Tracked> {
        let Some(waiting) = &self.0 else {
            return vec_deque::Iter::default();
        };
        let tracked = &waiting.tracked;
        let from = tracked.partition_point(|tracked| tracked.document.seqno() <= seqno);
        tracked.range(from..)
    }

    /// Adds a prepare. Its seqno must be above all others.
    pub(super) fn push(&mut self, tracked: Tracked) {
        let waiting = self.0.get_or_insert_default();
        let key = KeyOf {
            hash: tracked.hash,
            seqno: tracked.document.seqno(),
        };
        let keys = &mut waiting.keys;
        keys.insert_unique(tracked.hash, key, |key| key.hash);
        waiting.document_bytes += tracked.document.memory_bytes();
        waiting.maybe_visible += usize::from(tracked.maybe_visible);
        waiting.tracked.push_back(tracked);
    }

    /// Removes the prepare with this seqno, and returns it.
    pub(super) fn remove(&mut self, seqno: Seqno) -> Option<Tracked> {
        const KEPT: usize = 16;
        let waiting = self.0.as_mut()?;
        let tracked = waiting.tracked.remove(waiting.index_of(seqno)?)?;
        let entry = waiting
            .keys
            .find_entry(tracked.hash, |key| key.seqno == seqno);
        if let Ok(entry) = entry {
            entry.remove();
        }
        waiting.document_bytes -= tracked.document.memory_bytes();
        waiting.maybe_visible -= usize::from(tracked.maybe_visible);
        // An idle vBucket frees the capacity of a busy period.
        if waiting.tracked.is_empty() && waiting.tracked.capacity() > KEPT {
            self.0 = None;
        }
        Some(tracked)
    }

    /// Removes the deadlines of all prepares.
    pub(super) fn stay(&mut self, maybe_visible: bool) {
        let Some(waiting) = &mut self.0 else {
            return;
        };
        for tracked in &mut waiting.tracked {
            tracked.deadline_ns = NEVER;
            tracked.maybe_visible = maybe_visible;
        }
        waiting.maybe_visible = if maybe_visible {
            waiting.tracked.len()
        } else {
            0
        };
    }

    /// Bytes of the prepares and their containers.
    pub(super) fn memory_bytes(&self) -> usize {
        self.0.as_ref().map_or(0, |waiting| {
            size_of::<OpenPrepares>()
                + waiting.document_bytes
                + waiting.tracked.capacity() * size_of::<Tracked>()
                + waiting.keys.allocation_size()
        })
    }
}

impl OpenPrepares {
    fn index_of(&self, seqno: Seqno) -> Option<usize> {
        self.tracked
            .binary_search_by_key(&seqno, |tracked| tracked.document.seqno())
            .ok()
    }

    fn get(&self, seqno: Seqno) -> Option<&Tracked> {
        self.tracked.get(self.index_of(seqno)?)
    }
}
