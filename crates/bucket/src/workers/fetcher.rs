//! The fetcher: reads values back that left memory.

use engine::FetchKey;
use model::VbId;
use storage::{KvStore, Want};

use crate::Bucket;
use crate::holds::Hold;
use crate::stats::Counters;

impl<S: KvStore> Bucket<S> {
    /// Serves every fetch that waits now: a document that many wait for is read once. Whoever finds no
    /// room any more, because of what was read before, is woken all the same, and waits for room.
    pub fn fetch_step(&self) {
        let mut requests = std::mem::take(&mut *self.fetches.lock());
        requests.sort_by_key(|request| (request.vb, request.key.seqno));
        for group in requests.chunk_by(|a, b| a.vb == b.vb && a.key.seqno == b.key.seqno) {
            if self.memory.admit_fetch().is_ok() {
                self.fetch_key(group[0].vb, &group[0].key);
            } else {
                self.relieve();
            }
            for request in group {
                request.wake.wake();
            }
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
