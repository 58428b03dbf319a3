//! Life states, histories, warmup.

use model::{Document, FailoverEntry, FailoverLog, Seqno, SnapshotRange, VbState, VbUuid};

use super::VBucket;
use collections::{SharedCollections, SystemEvent};

impl VBucket {
    /// Takes a row of the store: events of collections first, with prepares in ascending order of seqnos, then documents
    /// in any.
    ///
    /// Returns the seqno of a row that should not be in the store: the older one of two of the
    /// same key, or one above the record's high seqno.
    pub fn load(&mut self, document: Document) -> Option<Seqno> {
        self.load_shared(document, &mut SharedCollections::default())
    }

    /// [`VBucket::load`] of one of many vBuckets that mostly have the same collections: `shared` goes from one to
    /// the next.
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
            // Its collection was dropped before this row was taken out of the store.
            self.collections.found_dead(seqno);
            return None;
        }
        if document.kind().is_prepared() {
            // In a namespace of its own: the committed document stays what it is.
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

    /// Ends loading. After an unclean stop (and when the record's snapshot did not end at its
    /// high seqno) the caller draws `new_history`, which an active vBucket begins at the last
    /// point that is known to be consistent: what others may have seen beyond it is not the
    /// history that goes on here.
    pub fn finish_warmup(&mut self, new_history: Option<VbUuid>) {
        if self.state != VbState::Active {
            self.count_loaded_prepares();
            return;
        }
        if let Some(uuid) = new_history {
            self.begin_history(uuid);
        }
        self.adopt_snapshot();
        // What was prepared before the stop is decided now.
        self.become_decider();
        self.decide_anew();
    }

    /// Changes the life state. `topology` is the JSON text to be kept, `None` to leave it.
    /// Becoming active begins the history `new_uuid`; leaving it ends all locks of documents.
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
        if state != VbState::Active {
            self.locks.clear();
        }
        self.touch_record();
    }

    /// The term at which a cluster has this copy; 0 without one.
    pub fn term(&self) -> u64 {
        self.term
    }

    /// Raises the term; it is on disk once [`VBucket::is_record_durable`] says so. A lower one changes nothing.
    pub fn raise_term(&mut self, term: u64) {
        if term > self.term {
            self.term = term;
            self.touch_record();
        }
    }

    /// The active vBucket that this one follows hands itself over: `Pending` first, then `Active`.
    /// Its history goes on here, so no new one begins. False, and nothing is changed, when this one
    /// follows no other vBucket, or has only a part of a snapshot.
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

    /// Takes over the histories of the active vBucket that this one follows; returns whether it
    /// follows one.
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
        // Histories that began above this point never were.
        let kept = self
            .failover_log
            .entries()
            .iter()
            .copied()
            .filter(|entry| entry.seqno <= seqno);
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

    /// What is here is from now on this vBucket's own truth.
    fn adopt_snapshot(&mut self) {
        self.checkpoints.adopt();
        self.checkpoints.set_historical(self.keeps_history);
        if self.high_seqno == self.durable.flushed && self.durable.snapshot.end > self.high_seqno {
            self.durable.snapshot = SnapshotRange {
                start: self.high_seqno,
                end: self.high_seqno,
            };
            self.touch_record();
        }
    }

    /// The store dropped the row of this tombstone: forgets it too, unless the key changed
    /// meanwhile, and remembers that something was purged up to here.
    pub fn forget_tombstone(&mut self, key: &[u8], seqno: Seqno) {
        let same = |there: &Document| there.seqno() == seqno && there.kind().is_tombstone();
        let place = self.table.place(key);
        // The answer that is on its way may be this tombstone.
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

    /// The store has so many tombstones: there are no more of those that are not in memory.
    pub fn bound_tombstones(&mut self, stored: u64) {
        self.table.bound_tombstones(stored);
    }
}
