//! States, failover log, warmup.

use model::{Document, FailoverEntry, FailoverLog, Seqno, SnapshotRange, VbState, VbUuid};

use super::VBucket;
use collections::{SharedCollections, SystemEvent};

impl VBucket {
    /// Loads a row of the store: first system events, with prepares in ascending seqno order, then
    /// documents in any order.
    ///
    /// Returns the seqno of a row that should not be in the store: the older row of a key, or one
    /// above the record's high seqno.
    pub fn load(&mut self, document: Document) -> Option<Seqno> {
        self.load_shared(document, &mut SharedCollections::default())
    }

    /// Loads a row as [`VBucket::load`] does. The caller passes `shared` from vBucket to vBucket,
    /// as most have the same collections.
    pub fn load_shared(
        &mut self,
        document: Document,
        shared: &mut SharedCollections,
    ) -> Option<Seqno> {
        let seqno = document.seqno();
        if seqno > self.high_seqno {
            return Some(seqno);
        }
        if SystemEvent::is_key(document.key()) {
            return (!self.load_event(&document, shared)).then_some(seqno);
        }
        if !self.collections.has_row(document.key(), seqno) {
            // The collection was dropped before this row was removed from the store.
            self.collections.found_dead(seqno);
            return None;
        }
        if document.kind().is_prepared() {
            // A prepare has its own namespace: the committed document stays unchanged.
            self.load_prepared(document);
            return None;
        }
        let place = self.table.place(document.key());
        if self
            .table
            .at(place)
            .is_some_and(|there| there.seqno() >= seqno)
        {
            return Some(seqno);
        }
        self.hlc.observe(document.cas());
        if document.kind().is_tombstone() {
            self.max_deleted_rev = self.max_deleted_rev.max(document.rev());
        }
        let older = self.table.put(place, document.clone());
        self.collections.replaced(&document, older.as_ref());
        older.map(|older| older.seqno())
    }

    /// Ends loading. After an unclean stop (and if the record's snapshot did not end at its high
    /// seqno), the caller generates `new_history`. An active vBucket begins this history at the
    /// last consistent seqno: changes above it that other nodes may have seen belong to another
    /// history.
    pub fn finish_warmup(&mut self, new_history: Option<VbUuid>) {
        if self.state != VbState::Active {
            self.count_loaded_prepares();
            return;
        }
        if let Some(uuid) = new_history {
            self.begin_history(uuid);
        }
        self.adopt_snapshot();
        // Prepares from before the stop are decided here.
        self.become_decider();
        self.decide_anew();
    }

    /// Changes the state. `topology` is the new JSON text; `None` keeps the old one. Becoming
    /// active begins the history `new_uuid`. Document locks stay: each newer version of a document
    /// ends its lock, also on a replica.
    pub fn set_state(&mut self, state: VbState, topology: Option<String>, new_uuid: VbUuid) {
        let before = std::mem::replace(&mut self.state, state);
        if before == VbState::Active && state != VbState::Active {
            self.cease_to_decide();
        }
        if let Some(topology) = topology {
            self.set_topology(topology);
        }
        if state == VbState::Active && before != VbState::Active {
            self.begin_history(new_uuid);
            self.adopt_snapshot();
            self.become_decider();
        }
        self.decide_anew();
        self.touch_record();
    }

    /// Term of this copy in a cluster; 0 without one.
    pub fn term(&self) -> u64 {
        self.term
    }

    /// Raises the term; it is on disk once [`VBucket::is_record_durable`] is true. A lower term
    /// changes nothing.
    pub fn raise_term(&mut self, term: u64) {
        if term > self.term {
            self.term = term;
            self.touch_record();
        }
    }

    /// Takes part in a takeover: `Pending` first, then `Active`. The history of the old active
    /// vBucket continues, so no new one begins. Returns false and changes nothing if this vBucket
    /// is not a replica, or has only a part of a snapshot.
    pub fn take_over(&mut self, state: VbState) -> bool {
        if self.check_follows().is_err() || !self.checkpoints.open().is_complete() {
            return false;
        }
        self.state = state;
        if state == VbState::Active {
            self.adopt_snapshot();
            self.become_decider();
        }
        self.decide_anew();
        self.touch_record();
        true
    }

    /// Adopts the failover log of the active vBucket; returns false unless this is a replica or
    /// pending.
    pub fn adopt_failover_log(&mut self, log: FailoverLog) -> bool {
        if !matches!(self.state, VbState::Replica | VbState::Pending) {
            return false;
        }
        if self.failover_log != log {
            self.set_failover_log(log);
        }
        true
    }

    fn begin_history(&mut self, uuid: VbUuid) {
        let seqno = self.checkpoints.last_complete();
        // Drops histories without changes here: those that began above this seqno, and all that end at 0.
        let older = self.failover_log.entries().iter().copied();
        let kept = older.filter(|entry| entry.seqno <= seqno && seqno != Seqno::ZERO);
        let mut entries = vec![FailoverEntry { uuid, seqno }];
        entries.extend(kept);
        if let Some(log) = FailoverLog::from_entries(entries) {
            self.set_failover_log(log);
        }
    }

    fn set_failover_log(&mut self, log: FailoverLog) {
        self.failover_log = log;
        self.touch_record();
        self.history_version = self.record_version;
        self.outbox.hurry |= self.has_undecided();
    }

    /// Declares the held changes complete, as this vBucket is active from here on.
    fn adopt_snapshot(&mut self) {
        self.checkpoints.adopt();
        self.checkpoints.set_historical(self.keeps_history);
        if self.high_seqno == self.durable.flushed && self.durable.snapshot.end > self.high_seqno {
            self.durable.snapshot = SnapshotRange {
                start: self.high_seqno,
                end: self.high_seqno,
            };
            self.durable.promised = self.high_seqno;
            self.outbox.persisted = Some(self.high_seqno);
            self.touch_record();
        }
    }

    /// Removes a tombstone whose row the store purged, unless the key changed meanwhile, and raises
    /// the purge seqno. The end event of a collection or scope is no longer counted.
    pub fn forget_tombstone(&mut self, key: &[u8], seqno: Seqno) {
        if SystemEvent::is_key(key) {
            self.purgeable_ends = self.purgeable_ends.saturating_sub(1);
        }
        let same = |there: &Document| there.seqno() == seqno && there.kind().is_tombstone();
        let place = self.table.place(key);
        // The answer to an outstanding request may be this tombstone.
        self.table.forget_asked(place, key);
        if self.table.at(place).is_some_and(same)
            && let Some(gone) = self.table.remove(key)
        {
            self.collections.removed(&gone);
        }
        if seqno > self.purge_seqno {
            self.purge_seqno = seqno;
            self.touch_record();
        }
    }

    /// Limits the number of tombstones that are only in the store to `stored`.
    pub fn bound_tombstones(&mut self, stored: u64) {
        self.table.bound_tombstones(stored);
    }
}
