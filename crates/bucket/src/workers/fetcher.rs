//! The fetcher: reads values back that left memory.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use engine::FetchKey;
use model::{Seqno, VbId};
use storage::{KvStore, Want};

use crate::Bucket;
use crate::bucket::FetchRequest;
use crate::holds::Hold;
use crate::signals::Wake;
use crate::stats::Counters;

/// A read that takes longer waits for the disk; one from the system's page cache takes a tenth.
const SLOW_NS: u64 = 60_000;

/// So many more slow reads than others, and the disk is slow: one may be because its thread was interrupted.
const SLOW_READS: u32 = 2;
const SLOW_READS_MAX: u32 = 4;

impl<S: KvStore> Bucket<S> {
    /// Asks for a value that is only in the store; `wake` rings when it is worth trying again.
    /// Whoever calls this has asked [`Bucket::admit_fetch`] whether there is room for it.
    pub fn fetch(&self, vb: VbId, key: FetchKey, wake: Arc<dyn Wake>) {
        self.fetches.lock().push(FetchRequest { vb, key, wake });
        self.fetch_bell.ring();
        if self.disk_is_slow.load(Ordering::Relaxed) {
            self.fetch_help_bell.ring();
        }
    }

    /// Serves every fetch that waits now: a document that many wait for is read once. Whoever finds no
    /// room any more, because of what was read before, is woken all the same, and waits for room.
    pub fn fetch_step(&self) {
        while self.fetch_waiting(&mut 0, &mut || ()) {}
    }

    /// Takes fetches that wait, and serves them; says whether there were any. While the disk is slow it takes those for one
    /// document only, and calls `help` if there are more. `slow` counts reads.
    pub(super) fn fetch_waiting(&self, slow: &mut u32, help: &mut dyn FnMut()) -> bool {
        let (mut requests, more) = self.take_fetches();
        if more {
            help();
        }
        let mut at = 0;
        while let Some(first) = requests.get(at) {
            let same = |request: &&FetchRequest| request.is_for(first);
            let end = at + requests[at..].iter().take_while(same).count();
            let began_ns = self.clock.mono_ns();
            self.fetch_group(&requests[at..end]);
            let took_ns = self.clock.mono_ns().saturating_sub(began_ns);
            *slow = if took_ns > SLOW_NS {
                SLOW_READS_MAX.min(*slow + 1)
            } else {
                slow.saturating_sub(1)
            };
            let is_slow = *slow >= SLOW_READS;
            self.disk_is_slow.store(is_slow, Ordering::Relaxed);
            if is_slow {
                self.fetches.lock().extend(requests.drain(end..));
            }
            at = end;
        }
        at > 0
    }

    /// Those who wait, in the order of the store; or those for one document while the disk is slow, and whether there are more.
    fn take_fetches(&self) -> (Vec<FetchRequest>, bool) {
        let mut waiting = self.fetches.lock();
        let mut taken = std::mem::take(&mut *waiting);
        if self.disk_is_slow.load(Ordering::Relaxed) && !taken.is_empty() {
            let first = taken.swap_remove(0);
            let (mut same, others): (Vec<_>, _) =
                taken.into_iter().partition(|other| first.is_for(other));
            *waiting = others;
            let more = !waiting.is_empty();
            drop(waiting);
            same.push(first);
            return (same, more);
        }
        drop(waiting);
        taken.sort_by_key(|request| (request.vb, request.key.seqno));
        (taken, false)
    }

    /// Serves those who wait for the same document.
    fn fetch_group(&self, group: &[FetchRequest]) {
        let turn = self.store.may_have_large().then(|| self.fetch_turn.lock());
        if self.memory.admit_fetch().is_ok() {
            self.fetch_key(group[0].vb, &group[0].key);
        } else {
            self.relieve();
        }
        drop(turn);
        for request in group {
            request.wake.wake();
        }
    }

    /// Reads one document at once, without waiting for the fetcher: for those who may block.
    /// `false` when it could not be read.
    pub fn fetch_now(&self, vb: VbId, key: &FetchKey) -> bool {
        self.fetch_key(vb, key)
    }

    /// Reads and restores, one at a time: nobody knows how large they are. Says whether that did not fail.
    fn fetch_key(&self, vb: VbId, wanted: &FetchKey) -> bool {
        let want = Want {
            // Of a document that left memory whole only a part of the hash is known.
            key: if wanted.whole { &[] } else { &wanted.key },
            seqno: Some(wanted.seqno),
        };
        let document = match self.store.fetch(vb, &[want]) {
            Ok(documents) => documents.into_iter().next().flatten(),
            Err(error) => {
                Counters::add(&self.counters().fetch_failed, 1);
                tracing::error!(bucket = self.name(), %error, "a document could not be read");
                let before = Seqno(wanted.seqno.0.saturating_sub(1));
                self.tell_damage(vb, before, &error);
                return false;
            }
        };
        if let Some(document) = document {
            Counters::add(&self.counters().fetched, 1);
            self.with_vbucket_for(Hold::Restore, vb, |vbucket| vbucket.restore(document));
        } else if self.with_vbucket(vb, |vbucket| vbucket.still_wants(wanted)) == Some(true) {
            Counters::add(&self.counters().fetch_failed, 1);
            let (vb, seqno) = (vb.0, wanted.seqno.0);
            tracing::error!(bucket = self.name(), vb, seqno, "the store lost a document");
            return false;
        }
        true
    }
}
