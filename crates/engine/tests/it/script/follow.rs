//! Script verbs of a replica vBucket: `marker START END [disk] [checkpoint] [completed=N]
//! [prepared=N]`, `apply KEY VALUE SEQNO [KIND]`, `progress`, `rollback SEQNO`.

use engine::{CheckpointKind, SnapshotMarker};
use model::{Cas, Document, Kind, Meta, Seqno, SnapshotRange, VbRecord};

use super::{Line, World, collections, durable};
use crate::store::reread;

impl World {
    pub(super) fn follow(&mut self, line: &Line<'_>) -> String {
        match line.word(0) {
            "marker" => self.marker(line),
            "apply" => self.apply(line),
            "progress" => {
                let SnapshotRange { start, end } = self.vbucket.snapshot_progress();
                format!("{start}..{end}")
            }
            _ => self.rollback(Seqno(line.number(1))),
        }
    }

    fn marker(&mut self, line: &Line<'_>) -> String {
        let disk = line.words.contains(&"disk");
        let marker = SnapshotMarker {
            start: Seqno(line.number(1)),
            end: Seqno(line.number(2)),
            kind: if disk {
                CheckpointKind::Disk
            } else {
                CheckpointKind::Memory
            },
            checkpoint: line.words.contains(&"checkpoint"),
            high_completed: line.option("completed").map(Seqno),
            high_prepared: line.option("prepared").map(Seqno),
            visible_end: None,
            purge_seqno: line.option("purged").map(Seqno),
            historical: line.words.contains(&"history"),
        };
        match self.vbucket.begin_snapshot(&marker) {
            Ok(()) => match self.vbucket.checkpoint_stats().open_kind {
                CheckpointKind::InitialDisk => "initial disk".into(),
                _ => "begun".into(),
            },
            Err(error) => error.to_string(),
        }
    }

    fn apply(&mut self, line: &Line<'_>) -> String {
        let seqno = line.number(3);
        let kind = match line.word(4) {
            "" => Kind::Mutation,
            "prepare" => Kind::Prepare,
            "commit" => Kind::Commit,
            "abort" => Kind::Abort,
            "deletion" => Kind::Deletion,
            other => panic!("no such kind: {other}"),
        };
        let meta = Meta {
            cas: Cas(seqno << 16),
            seqno: Seqno(seqno),
            rev: seqno,
            kind,
            level: kind.is_prepare().then(|| {
                let level = durable::level(&line.options, "level");
                level.unwrap_or(model::DurabilityLevel::Majority)
            }),
            prepare_seqno: Seqno(line.option("prepare").unwrap_or(0)),
            ..Meta::default()
        };
        if let Some(event) = collections::event(&line.words, seqno) {
            return self.applied(&event);
        }
        let (key, value) = (&line.key(1), line.word(2).as_bytes());
        self.applied(&Document::from_parts(key, value, &meta))
    }

    fn applied(&mut self, document: &Document) -> String {
        match self.vbucket.apply(document) {
            Ok(applied) if applied.snapshot_ended => "taken; snapshot ended".into(),
            Ok(_) => "taken".into(),
            Err(error) => error.to_string(),
        }
    }

    /// Rolls back as the store and the bucket do: removes rows above `seqno`, and loads the rest.
    fn rollback(&mut self, seqno: Seqno) -> String {
        self.store.rows.retain(|row, _| *row <= seqno);
        self.store.history.retain(|row, _| *row <= seqno);
        let record = VbRecord {
            high_seqno: seqno,
            snapshot: SnapshotRange {
                start: seqno,
                end: seqno,
            },
            ..self.store.record.clone().expect("a record")
        };
        self.store.record = Some(record.clone());
        drop(self.vbucket.rollback_to(record));
        for row in self.store.rows.values() {
            assert_eq!(self.vbucket.load(reread(row)), None);
        }
        self.vbucket.finish_warmup(None);
        format!("items {}", self.vbucket.items())
    }
}
