//! What is asked of a bucket's memory before a write or a read, and what becomes of those who find none.

use std::sync::atomic::Ordering;
use std::time::Duration;

use engine::OpError;
use storage::KvStore;

use crate::Bucket;
use crate::memory::{Memory, MemoryRefusal};
use crate::stats::{Counters, FlusherState};

/// A commit that takes longer hangs. A disk of a virtual machine stands still for some hundred milliseconds now and then.
const COMMIT_HANGS_NS: u64 = 1_000_000_000;

impl<S: KvStore> Bucket<S> {
    /// Says whether a write of `bytes` may go on, before anything is changed. This, with
    /// [`Bucket::admit_removal`] and [`Bucket::admit_fetch`], is the only place that refuses
    /// for lack of memory.
    ///
    /// # Errors
    /// See [`Memory::admit`]; the reliever is at work then.
    pub fn admit(&self, bytes: usize) -> Result<(), MemoryRefusal> {
        self.noting_refusals(self.memory.admit(bytes))
    }

    /// The same for a deletion.
    ///
    /// # Errors
    /// See [`Memory::admit_removal`].
    pub fn admit_removal(&self) -> Result<(), MemoryRefusal> {
        self.noting_refusals(self.memory.admit_removal())
    }

    /// Says whether something may be read back from the store, for a client or a stream.
    ///
    /// # Errors
    /// See [`Memory::admit_fetch`].
    pub fn admit_fetch(&self) -> Result<(), MemoryRefusal> {
        self.noting_refusals(self.memory.admit_fetch())
    }

    /// Asks without refusing: for a write that can wait. If there is no room, the reliever is
    /// at work; after waiting in vain, [`Bucket::note_refusal`].
    ///
    /// # Errors
    /// That of `ask`.
    pub fn look_for_room(
        &self,
        ask: impl Fn(&Memory) -> Result<(), MemoryRefusal>,
    ) -> Result<(), MemoryRefusal> {
        let answer = ask(&self.memory);
        if answer.is_err() {
            self.relieve();
        }
        answer
    }

    /// Whether `bytes` of a document would be let in. If not, the reliever makes room for them: ask
    /// again soon, for as long as they are wanted.
    pub fn has_room_for(&self, bytes: usize) -> bool {
        let has_room = self.memory.admit(bytes).is_ok();
        if !has_room {
            self.memory.ask(bytes);
            self.relieve();
        }
        has_room
    }

    /// Whether reads bring documents into memory faster than the reliever lets others leave, which
    /// can: who reads should wait for that a little.
    pub fn reads_ahead_of_relief(&self) -> bool {
        self.memory.used() >= self.memory.quota()
            && self.relieving.evictable.load(Ordering::Relaxed)
    }

    /// Whether memory is full of changes that wait for the store, as the reliever saw it last: they
    /// leave memory with their commits.
    pub fn is_flooded(&self) -> bool {
        self.relieving.flooded.load(Ordering::Relaxed)
            && self.flusher_state() == FlusherState::Running
    }

    /// How long who has just written rests before the next write: not at all, but in a flood, where
    /// writes come faster than the store takes them. The less room is left, the longer. Without it all
    /// go on as fast as they can, take the processor from the flusher, and then stand still together.
    pub fn write_rest(&self) -> Option<Duration> {
        if !self.is_flooded() {
            return None;
        }
        let rest = self.memory.write_rest();
        let rests = !rest.is_zero();
        Counters::add(&self.counters().write_rests, u64::from(rests));
        rests.then_some(rest)
    }

    /// Whether the store is being given changes, which can leave memory afterwards: room comes with
    /// each commit, unless that hangs.
    pub fn makes_room(&self) -> bool {
        self.options.eviction.keeps_a_copy()
            && self.flusher_state() == FlusherState::Running
            && !self.commit_hangs()
            && (self.flushes.dirty.any()
                || self.flushes.under_way.load(Ordering::SeqCst)
                || self.flushes.finishing.is_busy())
    }

    /// Whether the disk has kept a commit waiting for so long that nobody should wait for its end.
    fn commit_hangs(&self) -> bool {
        let began_ns = self.flushes.commit_began_ns.load(Ordering::Relaxed);
        began_ns > 0 && self.clock.mono_ns().saturating_sub(began_ns) > COMMIT_HANGS_NS
    }

    /// Counts a refusal, and gives it back.
    ///
    /// # Errors
    /// Always the refusal.
    pub fn note_refusal(&self, refusal: MemoryRefusal) -> Result<(), MemoryRefusal> {
        self.noting_refusals(Err(refusal))
    }

    fn noting_refusals(&self, answer: Result<(), MemoryRefusal>) -> Result<(), MemoryRefusal> {
        if let Err(refusal) = &answer {
            let counters = self.counters();
            Counters::add(
                match refusal.error {
                    OpError::OutOfMemory => &counters.refused_at_quota,
                    _ => &counters.refused_for_memory,
                },
                1,
            );
            self.relieve();
        }
        answer
    }
}
