//! The only entry point for changes: every change of a vBucket passes through it, in seqno order.

use std::sync::Arc;

use model::{Document, Draft, Now, VbState};

use super::VBucket;
use super::partition::HEAT_WRITTEN;
use crate::checkpoint::LogEntry;
use crate::durability::{Requirement, Tracked};
use crate::mutated::Mutated;
use crate::table::TablePlace;
use crate::types::Outcome;
use collections::{EventGroup, Superseded};

/// Kind of a change, with its place.
#[derive(Clone, Copy, Debug)]
pub(super) enum TableChange<'a> {
    /// The newest document or tombstone of its key, visible to readers.
    Commit(TablePlace),
    /// A durable write that waits for its decision.
    Prepare {
        hash: u64,
        /// A prepare of the same key that this one replaces.
        older: Option<&'a Document>,
        deadline_ns: u64,
    },
    /// The abort of a durable write; its prepare, if this vBucket has it.
    Abort(Option<&'a Document>),
    /// A system event about a collection or scope, with the event of the same key that it
    /// supersedes.
    Event(Superseded),
    /// The marker of a group of events.
    Group(&'a Arc<EventGroup>),
}

impl VBucket {
    /// Makes a checked change: at once, or as a durable write.
    pub(super) fn write(
        &mut self,
        place: TablePlace,
        draft: Draft,
        durable: Option<Requirement>,
        now: Now,
    ) -> Outcome<Mutated> {
        if let Some(requirement) = durable {
            return self.prepare(place, draft, requirement, now);
        }
        Outcome::Done(self.commit(place, draft, now))
    }

    /// Assigns seqno, CAS and revision to the draft, and makes it the newest version of its key.
    /// Cannot fail: the caller has checked everything.
    pub(super) fn commit(&mut self, place: TablePlace, draft: Draft, now: Now) -> Mutated {
        let old = self.table.at(place);
        let rev = old.map_or(self.max_deleted_rev, Document::rev) + 1;
        let heat = old.map_or(0, Document::heat).max(HEAT_WRITTEN);
        let document = draft.stamp(self.hlc.next(now), self.high_seqno.next(), rev);
        document.set_heat(heat);
        let mutated = self.mutated(&document);
        self.change(document, TableChange::Commit(place));
        mutated
    }

    /// Makes a change that has its seqno, which is above all others: appends it to the log, and
    /// updates the table, the counters and the outbox.
    ///
    /// Cost: O(1).
    #[inline]
    pub(super) fn change(&mut self, document: Document, change: TableChange<'_>) {
        self.high_seqno = document.seqno();
        if !document.kind().is_prepared() {
            self.visible_seqno = document.seqno();
        }
        self.outbox.needs_flush = true;
        self.outbox.changed = true;
        match change {
            TableChange::Commit(place) => self.put_newest(place, document),
            TableChange::Prepare {
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
            TableChange::Abort(prepare) => {
                self.checkpoints.append(&document, LogEntry::over(prepare));
                self.checkpoints.note_evicted(&document);
                let counts = &mut self.durability.counts;
                counts.aborted += 1;
                counts.last_aborted = document.prepare_seqno();
                self.note_completed(document.prepare_seqno().min(document.seqno()));
            }
            TableChange::Event(before) => {
                let active = self.state == VbState::Active;
                self.checkpoints
                    .append(&document, LogEntry::Event { before, active });
            }
            TableChange::Group(group) => self.checkpoints.append(&document, LogEntry::Group(group)),
        }
    }

    #[inline]
    fn put_newest(&mut self, place: TablePlace, document: Document) {
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

    /// Whether the change is kept as history after it was replaced: its collection and the bucket
    /// must keep history.
    #[inline]
    pub(super) fn keeps(&self, document: &Document) -> bool {
        self.checkpoints.open().historical && self.collections.keeps_history(document.key())
    }

    /// Returns the client's result of a change.
    pub(super) fn mutated(&self, document: &Document) -> Mutated {
        Mutated {
            cas: document.cas(),
            seqno: document.seqno(),
            vb_uuid: self.failover_log.newest().uuid,
        }
    }
}
