//! The one door for a change: whatever goes on in the order of a vBucket comes through here.

use std::sync::Arc;

use model::{Document, Draft, Now, VbState};

use super::VBucket;
use super::partition::HEAT_WRITTEN;
use crate::checkpoint::LogEntry;
use crate::durability::{Requirement, Tracked};
use crate::mutated::Mutated;
use crate::table::Place;
use crate::types::Outcome;
use collections::{EventGroup, Superseded};

/// What kind of change it is, and where it belongs.
#[derive(Clone, Copy, Debug)]
pub(super) enum Change<'a> {
    /// The newest document or tombstone of its key, for readers too.
    Commit(Place),
    /// A durable write that waits to be decided.
    Prepare {
        hash: u64,
        /// One of the same key that it replaces.
        older: Option<&'a Document>,
        deadline_ns: u64,
    },
    /// The end of a durable write that is given up, which is this one if it is here.
    Abort(Option<&'a Document>),
    /// An event of a collection or a scope, after one of the same key.
    Event(Superseded),
    /// What stands for a group of events.
    Group(&'a Arc<EventGroup>),
}

impl VBucket {
    /// Makes a change that was checked: at once, or as a durable write.
    pub(super) fn write(
        &mut self,
        place: Place,
        draft: Draft,
        durable: Option<Requirement>,
        now: Now,
    ) -> Outcome<Mutated> {
        if let Some(requirement) = durable {
            return self.prepare(place, draft, requirement, now);
        }
        Outcome::Done(self.commit(place, draft, now))
    }

    /// Gives the draft its seqno, CAS and rev, and makes it the newest of its key. Cannot fail: the
    /// caller has checked everything.
    pub(super) fn commit(&mut self, place: Place, draft: Draft, now: Now) -> Mutated {
        let old = self.table.at(place);
        let rev = old.map_or(self.max_deleted_rev, Document::rev) + 1;
        let heat = old.map_or(0, Document::heat).max(HEAT_WRITTEN);
        let document = draft.stamp(self.hlc.next(now), self.high_seqno.next(), rev);
        document.set_heat(heat);
        let mutated = self.mutated(&document);
        self.change(document, Change::Commit(place));
        mutated
    }

    /// Makes a change that has its seqno, which is above all others: it is logged, and what follows from
    /// it in the table, in the counters and for those that wait is done.
    ///
    /// Cost: O(1).
    #[inline]
    pub(super) fn change(&mut self, document: Document, change: Change<'_>) {
        self.high_seqno = document.seqno();
        if !document.kind().is_prepared() {
            self.visible_seqno = document.seqno();
        }
        self.outbox.needs_flush = true;
        self.outbox.changed = true;
        match change {
            Change::Commit(place) => self.put_newest(place, document),
            Change::Prepare {
                hash,
                older,
                deadline_ns,
            } => {
                self.checkpoints.append(&document, LogEntry::over(older));
                self.durability.counts.accepted += 1;
                self.durability.track(Tracked {
                    document,
                    hash,
                    deadline_ns,
                    maybe_visible: false,
                });
            }
            Change::Abort(prepare) => {
                self.checkpoints.append(&document, LogEntry::over(prepare));
                self.checkpoints.note_evicted(&document);
                let counts = &mut self.durability.counts;
                counts.aborted += 1;
                counts.last_aborted = document.prepare_seqno();
                self.note_completed(document.prepare_seqno().min(document.seqno()));
            }
            Change::Event(before) => {
                let active = self.state == VbState::Active;
                self.checkpoints
                    .append(&document, LogEntry::Event { before, active });
            }
            Change::Group(group) => self.checkpoints.append(&document, LogEntry::Group(group)),
        }
    }

    #[inline]
    fn put_newest(&mut self, place: Place, document: Document) {
        if document.kind().is_tombstone() {
            self.max_deleted_rev = self.max_deleted_rev.max(document.rev());
        }
        self.locks.remove(place.hash, document.key());
        let old = self.table.at(place);
        self.collections.replaced(&document, old);
        let kept = self.keeps(&document);
        self.checkpoints
            .append(&document, LogEntry::Document { old, kept });
        self.table.put(place, document);
    }

    /// Whether a change stays after it was replaced: its collection, and the bucket, keep history.
    #[inline]
    pub(super) fn keeps(&self, document: &Document) -> bool {
        self.checkpoints.open().historical && self.collections.keeps_history(document.key())
    }

    /// What a client is told of its change.
    pub(super) fn mutated(&self, document: &Document) -> Mutated {
        Mutated {
            cas: document.cas(),
            seqno: document.seqno(),
            vb_uuid: self.failover_log.newest().uuid,
        }
    }
}
