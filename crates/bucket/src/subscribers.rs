//! Subscriptions to changes: one bitmap of ready vBuckets per connection.
//!
//! ```text
//!   write -> outbox.changed -> (unlocked) subscribers of the vBucket -> ReadySet::mark
//!                                                                          |  first mark: wake
//!   connection <- ReadySet::next <- word of 64 bits <- summary word <------+
//! ```
//!
//! The reader clears the bit *before* it looks for changes, so a change during the look marks the vBucket again.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use model::VbId;
use parking_lot::RwLock;
use storage::KvStore;

use crate::Bucket;
use crate::signals::Wake;

/// Maximum number of vBuckets in a set.
const VBUCKETS: usize = 1024;
const WORDS: usize = VBUCKETS / 64;

/// The vBuckets that a connection should check: 1,024 bits and a summary of its words.
///
/// Each mark is kept until it is taken once. Any number of threads mark, one takes.
///
/// Cost: marking a marked vBucket is one load; marking another one, at most two atomic
/// read-modify-writes. The connection is woken only when the set was empty.
pub struct ReadySet {
    words: [AtomicU64; WORDS],
    /// Bit n is set if word n may have bits.
    summary: AtomicU64,
    wake: Arc<dyn Wake>,
}

impl std::fmt::Debug for ReadySet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReadySet")
            .field("summary", &self.summary)
            .finish_non_exhaustive()
    }
}

impl ReadySet {
    /// Creates an empty set; `wake` wakes its owner.
    pub fn new(wake: Arc<dyn Wake>) -> Self {
        Self {
            words: [const { AtomicU64::new(0) }; WORDS],
            summary: AtomicU64::new(0),
            wake,
        }
    }

    /// Marks a vBucket, and wakes the owner if the set was empty. Invalid numbers are ignored.
    pub fn mark(&self, vb: VbId) {
        if self.mark_quietly(vb) {
            self.wake.wake();
        }
    }

    /// Marks a vBucket. Returns whether the caller must wake the owner.
    pub fn mark_quietly(&self, vb: VbId) -> bool {
        let index = usize::from(vb.0) / 64;
        let Some(word) = self.words.get(index) else {
            return false;
        };
        let bit = 1_u64 << (vb.0 % 64);
        // If the bit is set, the owner has not cleared it yet, and will check the vBucket after
        // that. It will see changes from before this call.
        if word.load(Ordering::SeqCst) & bit != 0 {
            return false;
        }
        word.fetch_or(bit, Ordering::SeqCst) == 0
            && self.summary.fetch_or(1 << index, Ordering::SeqCst) == 0
    }

    /// Wakes the owner.
    pub fn wake(&self) {
        self.wake.wake();
    }

    /// Whether nothing is marked.
    pub fn is_empty(&self) -> bool {
        self.summary.load(Ordering::SeqCst) == 0
    }

    /// Takes the first marked vBucket at or after `from`, wrapping around. Only the owner calls this.
    ///
    /// Cost: O(1); a few loads.
    pub fn next(&self, from: VbId) -> Option<VbId> {
        let start = usize::from(from.0) % VBUCKETS;
        let (first_word, first_bit) = (start / 64, start % 64);
        loop {
            let summary = self.summary.load(Ordering::SeqCst);
            if summary == 0 {
                return None;
            }
            let bits = self.words[first_word].load(Ordering::SeqCst) & (u64::MAX << first_bit);
            if bits != 0 {
                return Some(self.take(first_word, bits));
            }
            // First the words after this one, then those from the beginning up to it.
            let after = summary & (u64::MAX << first_word) & !(1 << first_word);
            let index = if after != 0 { after } else { summary }.trailing_zeros() as usize;
            let bits = self.words[index].load(Ordering::SeqCst);
            if bits != 0 {
                return Some(self.take(index, bits));
            }
            self.settle(index);
        }
    }

    /// Clears the lowest of `bits` in a word.
    fn take(&self, index: usize, bits: u64) -> VbId {
        let position = bits.trailing_zeros();
        let bit = 1 << position;
        if self.words[index].fetch_and(!bit, Ordering::SeqCst) == bit {
            self.settle(index);
        }
        VbId((index * 64) as u16 + position as u16)
    }

    /// Clears a word's bit in the summary if the word is empty. For a concurrent mark, this
    /// function or the marking thread sets the bit again.
    fn settle(&self, index: usize) {
        self.summary.fetch_and(!(1 << index), Ordering::SeqCst);
        if self.words[index].load(Ordering::SeqCst) != 0 {
            self.summary.fetch_or(1 << index, Ordering::SeqCst);
        }
    }
}

/// The subscribers of one vBucket. If there are none, a check costs one load.
#[derive(Debug, Default)]
pub(crate) struct Subscribers {
    count: AtomicU32,
    sets: RwLock<Box<[Arc<ReadySet>]>>,
}

impl Subscribers {
    /// Marks `vb` in all sets, and wakes owners after the list is unlocked.
    pub(crate) fn notify(&self, vb: VbId) {
        if self.count.load(Ordering::SeqCst) == 0 {
            return;
        }
        let mut to_wake = Vec::new();
        for set in self.sets.read().iter() {
            if set.mark_quietly(vb) {
                to_wake.push(Arc::clone(set));
            }
        }
        for set in to_wake {
            set.wake();
        }
    }
}

impl<S: KvStore> Bucket<S> {
    /// Subscribes `set`: it is marked whenever the vBucket's documents or state change, or the
    /// vBucket is created or removed. Subscribing twice has no further effect.
    ///
    /// Returns `false` for an invalid number.
    pub fn subscribe(&self, vb: VbId, set: &Arc<ReadySet>) -> bool {
        let Some(subscribers) = self.subscribers(vb) else {
            return false;
        };
        let mut sets = subscribers.sets.write();
        if !sets.iter().any(|known| Arc::ptr_eq(known, set)) {
            let known = sets.iter().cloned();
            *sets = known.chain([Arc::clone(set)]).collect();
            subscribers.count.store(sets.len() as u32, Ordering::SeqCst);
        }
        true
    }

    /// Ends a subscription; the vBucket makes no marks in `set` afterwards.
    pub fn unsubscribe(&self, vb: VbId, set: &Arc<ReadySet>) {
        let Some(subscribers) = self.subscribers(vb) else {
            return;
        };
        let mut sets = subscribers.sets.write();
        let others = sets.iter().filter(|known| !Arc::ptr_eq(known, set));
        *sets = others.cloned().collect();
        subscribers.count.store(sets.len() as u32, Ordering::SeqCst);
    }

    fn subscribers(&self, vb: VbId) -> Option<&Subscribers> {
        Some(&self.slot(vb)?.subscribers)
    }

    /// Marks the vBucket in the sets of all its subscribers.
    pub fn notify_subscribers(&self, vb: VbId) {
        if let Some(subscribers) = self.subscribers(vb) {
            subscribers.notify(vb);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;

    struct Ring(Sender<()>);

    impl Wake for Ring {
        fn wake(&self) {
            self.0.send(()).expect("the test listens");
        }
    }

    fn set() -> (ReadySet, Receiver<()>) {
        let (sender, receiver) = channel();
        (ReadySet::new(Arc::new(Ring(sender))), receiver)
    }

    fn drain(set: &ReadySet, mut from: VbId) -> Vec<u16> {
        let mut taken = Vec::new();
        while let Some(vb) = set.next(from) {
            taken.push(vb.0);
            from = VbId(vb.0 + 1);
        }
        taken
    }

    #[test]
    fn marks_are_taken_once_going_around() {
        let (set, rung) = set();
        for vb in [1023, 0, 64, 64, 63, 700] {
            set.mark(VbId(vb));
        }
        assert_eq!(rung.try_iter().count(), 1, "only the first mark wakes");
        assert_eq!(drain(&set, VbId(64)), [64, 700, 1023, 0, 63]);
        assert!(set.is_empty());
        assert_eq!(set.next(VbId(0)), None);
        set.mark(VbId(5));
        assert_eq!(rung.try_iter().count(), 1, "empty again, so it wakes again");
    }

    #[test]
    fn first_word_is_searched_to_its_end_and_from_its_start() {
        let (set, _rung) = set();
        set.mark(VbId(3));
        assert_eq!(set.next(VbId(10)), Some(VbId(3)));
        set.mark(VbId(63));
        set.mark(VbId(2));
        assert_eq!(set.next(VbId(3)), Some(VbId(63)));
        assert_eq!(set.next(VbId(1024)), Some(VbId(2)));
    }

    #[test]
    fn invalid_vbucket_number_is_ignored() {
        let (set, rung) = set();
        set.mark(VbId(1024));
        set.mark(VbId(u16::MAX));
        assert!(set.is_empty());
        assert_eq!(rung.try_iter().count(), 0);
    }

    #[test]
    fn no_mark_is_lost_between_threads() {
        const ROUNDS: u16 = 2000;
        let (set, rung) = set();
        let set = Arc::new(set);
        let (done, seen) = channel();
        let threads: Vec<_> = (0..2_u16)
            .map(|thread| {
                let (set, done) = (Arc::clone(&set), done.clone());
                std::thread::Builder::new()
                    .spawn(move || {
                        for round in 0..ROUNDS {
                            let vb = VbId(thread * 512 + round % 70);
                            set.mark(vb);
                            done.send(vb).expect("the test listens");
                        }
                    })
                    .expect("a thread starts")
            })
            .collect();
        drop(done);
        let mut last_seen = 0;
        for vb in seen {
            set.mark(vb);
            last_seen += drain(&set, VbId(0)).len();
        }
        for thread in threads {
            thread.join().expect("no marker panics");
        }
        assert!(last_seen > 0);
        assert!(drain(&set, VbId(0)).is_empty());
        set.mark(VbId(9));
        assert!(rung.try_iter().count() > 0);
        assert_eq!(drain(&set, VbId(0)), [9]);
    }
}
