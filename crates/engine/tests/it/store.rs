//! A model store: applies each batch as one atomic commit, like the disk store.

use std::collections::BTreeMap;
use std::sync::Arc;

use collections::{EventsSummary, SummaryWriter, SystemEvent};
use engine::{Codec, FlushBatch, FlushItem, VBucket, VbConfig};
use model::{Datatype, Document, FailoverEntry, Kind, Seqno, VbId, VbRecord, VbState, VbUuid};

/// Rows by seqno, rows of the history, the record of the last commit, and a summary of events.
#[derive(Default)]
pub(crate) struct ModelStore {
    pub(crate) rows: BTreeMap<Seqno, Document>,
    pub(crate) history: BTreeMap<Seqno, Document>,
    pub(crate) record: Option<VbRecord>,
    summary: EventsSummary,
}

impl ModelStore {
    /// Applies a whole batch.
    pub(crate) fn commit(&mut self, batch: &FlushBatch) {
        let mut last = Seqno::ZERO;
        let mut puts = 0;
        batch.for_each(&mut |item| match item {
            FlushItem::Put {
                document,
                supersedes,
            } => {
                assert!(document.seqno() > last, "{document:?} after {last}");
                assert!(supersedes < document.seqno());
                last = document.seqno();
                puts += 1;
                self.remove(supersedes, Some(document));
                self.rows.insert(document.seqno(), document.clone());
            }
            FlushItem::Remove { seqno, .. } => self.remove(seqno, None),
            FlushItem::Keep(document) => {
                let again = self.history.insert(document.seqno(), document.clone());
                assert!(again.is_none_or(|before| before.same_as(document)));
            }
        });
        assert!(
            puts <= batch.len(),
            "{puts} rows of at most {}",
            batch.len()
        );
        assert!(last <= batch.record.high_seqno);
        self.record = Some(batch.record.clone());
        self.check();
    }

    fn remove(&mut self, seqno: Seqno, successor: Option<&Document>) {
        if let (Some(row), Some(successor)) = (self.rows.remove(&seqno), successor) {
            assert_eq!(
                row.key(),
                successor.key(),
                "{successor:?} removes another key's row"
            );
        }
    }

    fn check(&self) {
        // Prepares have their own namespace; aborts stay there until they are purged.
        let name = |row: &Document| (row.kind().is_prepared(), row.key().to_vec());
        let lasting = self.rows.values().filter(|row| row.kind() != Kind::Abort);
        let mut keys: Vec<_> = lasting.map(name).collect();
        keys.sort_unstable();
        assert!(
            keys.windows(2).all(|pair| pair[0] != pair[1]),
            "two rows of one key"
        );
    }

    /// The row of a key.
    pub(crate) fn row(&self, key: &[u8]) -> Option<&Document> {
        self.rows
            .values()
            .find(|row| row.key() == key && !row.kind().is_prepared())
    }

    /// Ends a flush; the commit may have been `written` although it returned an error.
    pub(crate) fn end_flush(
        &mut self,
        vbucket: &mut VBucket,
        batch: FlushBatch,
        ok: bool,
        written: bool,
    ) {
        if written {
            self.commit(&batch);
        }
        drop(vbucket.finish_flush(batch.done(ok)));
        if vbucket.high_seqno().0.is_multiple_of(3) {
            self.summarize(vbucket);
        }
    }

    fn summarize(&mut self, vbucket: &VBucket) {
        let mut writer = SummaryWriter::default();
        vbucket.summarize(0, &mut writer);
        if !writer.is_empty() {
            let text = writer.finish([].into_iter(), [].into_iter());
            self.summary = EventsSummary::parse(&text).expect("a summary");
        }
    }

    /// Restarts a vBucket from the store. Returns it with the seqno from which others may continue.
    /// Begins `history` after an unclean stop, or if the record ends within a snapshot.
    pub(crate) fn restart(
        &self,
        config: &Arc<VbConfig>,
        unclean: bool,
        history: VbUuid,
    ) -> (VBucket, Seqno) {
        let record = self.record.as_ref().expect("a record");
        let partial = record.snapshot.end > record.high_seqno;
        let history = (unclean || partial).then_some(history);
        let restarted = self.warm_up(Arc::clone(config), history);
        let (vbucket, stale) = restarted.expect("a record");
        assert_eq!(stale, 0);
        let high = vbucket.high_seqno();
        (vbucket, if partial { record.snapshot.start } else { high })
    }

    /// Returns a vBucket after a restart, and the number of stale rows found.
    pub(crate) fn warm_up(
        &self,
        config: Arc<VbConfig>,
        new_history: Option<VbUuid>,
    ) -> Option<(VBucket, usize)> {
        let record = self.record.clone()?;
        let (high, purged) = (record.high_seqno, record.purge_seqno);
        let mut vbucket = VBucket::from_record(VbId(0), record, config);
        let summary = self.summary.of(VbId(0));
        let summary = summary.filter(|it| (purged..=high).contains(&it.at.seqno));
        if let Some(summary) = summary {
            vbucket.load_summary(summary);
        }
        let summarized = summary.map_or(Seqno::ZERO, |summary| summary.at.seqno);
        // In the order of a bucket: events and prepares by seqno, then documents by key.
        let (beside, mut documents): (Vec<_>, Vec<_>) = self
            .rows
            .values()
            .filter(|row| !SystemEvent::is_key(row.key()) || row.seqno() > summarized)
            .partition(|row| SystemEvent::is_key(row.key()) || row.kind().is_prepared());
        documents.sort_by(|a, b| a.key().cmp(b.key()));
        let stale = beside
            .into_iter()
            .chain(documents)
            .filter_map(|row| vbucket.load(reread(row)))
            .count();
        vbucket.finish_warmup(new_history);
        Some((vbucket, stale))
    }
}

/// Returns a vBucket without documents, and its settings.
pub(crate) fn new_vbucket(state: VbState, config: VbConfig) -> (VBucket, Arc<VbConfig>) {
    let first = FailoverEntry {
        uuid: VbUuid(1),
        seqno: Seqno(0),
    };
    let config = Arc::new(config);
    (
        VBucket::new(VbId(0), state, first, Arc::clone(&config)),
        config,
    )
}

/// Returns the document as read from disk: equal, but another allocation. A commit loses its mark.
pub(crate) fn reread(row: &Document) -> Document {
    let mut meta = row.meta();
    if meta.kind.is_commit() {
        meta.kind = meta.kind.plain();
        meta.prepare_seqno = Seqno::ZERO;
    }
    Document::from_parts(row.key(), row.value(), &meta)
}

/// A codec that accepts as JSON what begins like JSON; "compressed" values have a mark in front.
pub(crate) struct TestCodec;

impl Codec for TestCodec {
    fn classify(&self, value: &[u8]) -> Datatype {
        let json = value
            .first()
            .is_some_and(|byte| b"{[\"0123456789".contains(byte));
        if json { Datatype::JSON } else { Datatype::RAW }
    }

    fn inflate(&self, value: &[u8]) -> Option<Vec<u8>> {
        value.strip_prefix(b"snappy:").map(<[u8]>::to_vec)
    }
}
