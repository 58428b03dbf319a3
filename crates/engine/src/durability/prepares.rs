//! The prepares that wait, in the order of their seqnos and by key.

use std::collections::{VecDeque, vec_deque};

use hashbrown::HashTable;
use model::{Document, Seqno};

/// A deadline that never comes.
pub(crate) const NEVER: u64 = u64::MAX;

/// A prepare that is not decided.
#[derive(Clone, Debug)]
pub(crate) struct Tracked {
    pub(crate) document: Document,
    pub(crate) hash: u64,
    pub(crate) deadline_ns: u64,
    /// Whether a client of an earlier active may have been told that it is committed.
    pub(crate) maybe_visible: bool,
}

#[derive(Debug)]
struct KeyOf {
    hash: u64,
    seqno: Seqno,
}

/// What there is to hold while at least one prepare waits.
#[derive(Debug, Default)]
struct Waiting {
    /// Ascending by seqno.
    tracked: VecDeque<Tracked>,
    keys: HashTable<KeyOf>,
    document_bytes: usize,
    maybe_visible: usize,
}

/// The prepares of one vBucket that wait. Eight bytes while there are none; an idle one keeps room for a few.
#[derive(Debug, Default)]
pub(super) struct Prepares(Option<Box<Waiting>>);

impl Prepares {
    /// How many wait.
    pub(super) fn len(&self) -> usize {
        self.0.as_ref().map_or(0, |waiting| waiting.tracked.len())
    }

    /// The prepare of a key. Cost: one look-up, none while nothing waits.
    #[inline]
    pub(super) fn find(&self, hash: u64, key: &[u8]) -> Option<&Tracked> {
        let waiting = self.0.as_ref().filter(|one| !one.tracked.is_empty())?;
        let same = |one: &KeyOf| {
            let tracked = waiting.get(one.seqno);
            tracked.is_some_and(|tracked| tracked.document.key() == key)
        };
        waiting.get(waiting.keys.find(hash, same)?.seqno)
    }

    /// The same, if readers must not be told of its key.
    #[inline]
    pub(super) fn find_hidden(&self, hash: u64, key: &[u8]) -> Option<&Tracked> {
        self.0.as_ref().filter(|one| one.maybe_visible > 0)?;
        self.find(hash, key).filter(|tracked| tracked.maybe_visible)
    }

    pub(super) fn get(&self, seqno: Seqno) -> Option<&Tracked> {
        self.0.as_ref()?.get(seqno)
    }

    /// The oldest one.
    pub(super) fn first(&self) -> Option<&Tracked> {
        self.0.as_ref()?.tracked.front()
    }

    /// Those above a seqno, ascending.
    pub(super) fn above(&self, seqno: Seqno) -> vec_deque::Iter<'_, Tracked> {
        let Some(waiting) = &self.0 else {
            return vec_deque::Iter::default();
        };
        let tracked = &waiting.tracked;
        let from = tracked.partition_point(|tracked| tracked.document.seqno() <= seqno);
        tracked.range(from..)
    }

    /// Adds one whose seqno is above all others.
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

    /// Takes out the one of this seqno.
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
        // An idle vBucket keeps no capacity of a busy time.
        if waiting.tracked.is_empty() && waiting.tracked.capacity() > KEPT {
            self.0 = None;
        }
        Some(tracked)
    }

    /// None has a deadline from now on.
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

    /// Bytes of the prepares and of what holds them.
    pub(super) fn memory_bytes(&self) -> usize {
        self.0.as_ref().map_or(0, |waiting| {
            size_of::<Waiting>()
                + waiting.document_bytes
                + waiting.tracked.capacity() * size_of::<Tracked>()
                + waiting.keys.allocation_size()
        })
    }
}

impl Waiting {
    fn index_of(&self, seqno: Seqno) -> Option<usize> {
        self.tracked
            .binary_search_by_key(&seqno, |tracked| tracked.document.seqno())
            .ok()
    }

    fn get(&self, seqno: Seqno) -> Option<&Tracked> {
        self.tracked.get(self.index_of(seqno)?)
    }
}
