//! The fetcher: reads values back that left memory, a vBucket's worth at a time.

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

    fn fetch_group(&self, vb: VbId, group: &[FetchRequest]) {
        let wants: Vec<Want<'_>> = group
            .iter()
            .map(|request| Want {
                key: &request.key.key,
                seqno: Some(request.key.seqno),
            })
            .collect();
        let documents = match self.store.fetch(vb, &wants) {
            Ok(documents) => documents,
            Err(error) => {
                Counters::add(&self.counters().fetch_failed, group.len() as u64);
                tracing::error!(bucket = self.name(), %error, "a document could not be read");
                return;
            }
        };
        for (document, request) in documents.into_iter().zip(group) {
            if let Some(document) = document {
                Counters::add(&self.counters().fetched, 1);
                self.with_vbucket_for(Hold::Restore, vb, |vbucket| vbucket.restore(document));
            } else if self.with_vbucket(vb, |vbucket| vbucket.still_wants(&request.key))
                == Some(true)
            {
                Counters::add(&self.counters().fetch_failed, 1);
                let (vb, seqno) = (vb.0, request.key.seqno.0);
                tracing::error!(bucket = self.name(), vb, seqno, "the store lost a document");
            }
        }
    }
}
