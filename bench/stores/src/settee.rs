//! Settee's disk store, used as by a bucket: 1,024 vBuckets; the seqno of each replaced row is known.

use std::collections::{BTreeMap, HashMap};
use std::ops::ControlFlow;
use std::path::Path;

use model::{Cas, Document, FailoverEntry, Meta, Seqno, VbId, VbRecord, VbState, VbUuid};
use storage::{DiskOptions, DiskStore, KvStore, VbBatch, Want};

use crate::peer::{Failure, Key, Peer};

const VBUCKETS: u16 = 1024;

pub struct Settee {
    store: DiskStore,
    /// The seqnos that a bucket keeps in its hash tables.
    seqnos: HashMap<Key, u32>,
    high: Vec<u64>,
}

fn vb_of(key: &Key) -> VbId {
    VbId::of_key(key, VBUCKETS)
}

fn record(high: u64) -> VbRecord {
    let first = FailoverEntry {
        uuid: VbUuid(1),
        seqno: Seqno(0),
    };
    let mut record = VbRecord::new(VbState::Active, first);
    record.high_seqno = Seqno(high);
    record
}

impl Peer for Settee {
    fn open(dir: &Path) -> Result<Self, Failure> {
        let (store, _) = DiskStore::open(&dir.join("settee"), DiskOptions::default())?;
        let mut opened = Self {
            store,
            seqnos: HashMap::new(),
            high: vec![0; VBUCKETS.into()],
        };
        for loaded in opened.store.load()? {
            opened.high[usize::from(loaded.vb.0)] = loaded.record.high_seqno.0;
            let seqnos = &mut opened.seqnos;
            let mut note = |document: Document| {
                if let Ok(key) = Key::try_from(document.key()) {
                    seqnos.insert(key, document.meta().seqno.0 as u32);
                }
                ControlFlow::Continue(())
            };
            opened.store.scan(loaded.vb, Seqno::ZERO, &mut note)?;
        }
        Ok(opened)
    }

    fn commit(&mut self, documents: &[(Key, Vec<u8>)]) -> Result<(), Failure> {
        let mut changes: BTreeMap<VbId, Vec<(Document, Seqno)>> = BTreeMap::new();
        for (key, value) in documents {
            let vb = vb_of(key);
            let high = &mut self.high[usize::from(vb.0)];
            *high += 1;
            let meta = Meta {
                cas: Cas(*high),
                seqno: Seqno(*high),
                rev: 1,
                ..Meta::default()
            };
            let before = self.seqnos.insert(*key, *high as u32).unwrap_or(0);
            let document = Document::from_parts(key, value, &meta);
            let changes = changes.entry(vb).or_default();
            changes.push((document, Seqno(before.into())));
        }
        let parts: Vec<_> = changes
            .iter()
            .map(|(vb, changes)| {
                (
                    *vb,
                    record(self.high[usize::from(vb.0)]),
                    changes.as_slice(),
                )
            })
            .collect();
        let batches: Vec<_> = parts
            .iter()
            .map(|(vb, record, changes)| VbBatch {
                vb: *vb,
                record,
                changes,
            })
            .collect();
        self.store.commit(&batches)?;
        Ok(())
    }

    fn get(&mut self, key: &Key) -> Result<Option<Vec<u8>>, Failure> {
        let want = Want { key, seqno: None };
        let mut found = self.store.fetch(vb_of(key), &[want])?;
        let document = found.pop().flatten();
        Ok(document.map(|document| document.value().to_vec()))
    }

    fn walk(&mut self) -> Result<u64, Failure> {
        let mut count = 0;
        for vb in 0..VBUCKETS {
            let mut one = |_| {
                count += 1;
                ControlFlow::Continue(())
            };
            self.store.scan(VbId(vb), Seqno::ZERO, &mut one)?;
        }
        Ok(count)
    }

    fn range(&mut self, _: &Key, _: usize) -> Result<Option<usize>, Failure> {
        Ok(None)
    }

    fn close(self) -> Result<(), Failure> {
        Ok(self.store.close()?)
    }
}
