//! The fetcher: reads values back that left memory, a vBucket's worth at a time.

use engine::FetchKey;
use model::VbId;
use storage::{KvStore, Want};

use crate::Bucket;
use crate::bucket::FetchRequest;
use crate::holds::Hold;
use crate::stats::Counters;

impl<S: KvStore> Bucket<S> {
    /// Serves every fetch that waits now.
    pub fn fetch_step(&self) {
        let mut requests = std::mem::take(&mut *self.fetches.lock());
        requests.sort_by_key(|request| request.vb);
        for group in requests.chunk_by(|a, b| a.vb == b.vb) {
            self.fetch_group(group[0].vb, group);
            for request in group {
                request.wake.wake();
            }
        }
    }

    /// Reads one document at once, without waiting for the fetcher: for those who may block.
    /// `false` when it could not be read.
    pub fn fetch_now(&self, vb: VbId, key: &FetchKey) -> bool {
        self.fetch_keys(vb, &[key])
    }

    fn fetch_group(&self, vb: VbId, group: &[FetchRequest]) {
        let keys: Vec<&FetchKey> = group.iter().map(|request| &request.key).collect();
        self.fetch_keys(vb, &keys);
    }

    /// Reads and restores; says whether none of them failed.
    fn fetch_keys(&self, vb: VbId, keys: &[&FetchKey]) -> bool {
        let wants: Vec<Want<'_>> = keys
            .iter()
            .map(|wanted| Want {
                // Of a document that left memory whole only a part of the hash is known.
                key: if wanted.whole { &[] } else { &wanted.key },
                seqno: Some(wanted.seqno),
            })
            .collect();
        let documents = match self.store.fetch(vb, &wants) {
            Ok(documents) => documents,
            Err(error) => {
                Counters::add(&self.counters().fetch_failed, keys.len() as u64);
                tracing::error!(bucket = self.name(), %error, "a document could not be read");
                return false;
            }
        };
        let mut whole = true;
        for (document, wanted) in documents.into_iter().zip(keys) {
            if let Some(document) = document {
                Counters::add(&self.counters().fetched, 1);
                self.with_vbucket_for(Hold::Restore, vb, |vbucket| vbucket.restore(document));
            } else if self.with_vbucket(vb, |vbucket| vbucket.still_wants(wanted)) == Some(true) {
                whole = false;
                Counters::add(&self.counters().fetch_failed, 1);
                let (vb, seqno) = (vb.0, wanted.seqno.0);
                tracing::error!(bucket = self.name(), vb, seqno, "the store lost a document");
            }
        }
        whole
    }
}
