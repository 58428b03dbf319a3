//! The next event of a stream, and the refill from the log.

use model::{Seqno, SnapshotRange, VbState};

use super::backfill::awaits;
use super::state::{OpenedStream, OutOfOrder, Phase, SnapshotOrigin, Stream};
use crate::VBucket;
use crate::checkpoint::{
    BatchPlace, CheckpointKind, CursorBatch, CursorId, CursorRead, FlushBudget, Garbage,
};
use crate::dcp::filter::StreamFilter;
use crate::dcp::message::{
    Event, FillResult, Snapshot, StreamAsk, StreamEnd, StreamFigures, StreamRefusal, Versions,
};
use crate::dcp::pending_changes::PendingChanges;
use crate::dcp::rollback::{History, rollback};

/// Maximum part of the log that a stream pins at once.
const BUDGET: FlushBudget = FlushBudget {
    items: 4096,
    bytes: 128 << 10,
};

impl Stream {
    /// Checks a request and registers a cursor. Call under the vBucket's lock.
    ///
    /// `name` names the cursor: only one stream of a vBucket at a time may use a name.
    ///
    /// # Errors
    /// See [`StreamRefusal`]; nothing was changed then.
    pub fn open(
        vbucket: &mut VBucket,
        name: &str,
        mut ask: StreamAsk,
    ) -> Result<OpenedStream, StreamRefusal> {
        let options = ask.options;
        match vbucket.state() {
            VbState::Active => {}
            VbState::Dead => return Err(StreamRefusal::NotMyVbucket),
            _ if options.active_only => return Err(StreamRefusal::NotMyVbucket),
            _ => {}
        }
        let high = vbucket.high_seqno();
        let position = &mut ask.position;
        if options.from_latest {
            position.seqno = high;
            position.snapshot = SnapshotRange {
                start: high,
                end: high,
            };
            if position.uuid.0 == 0 {
                position.uuid = vbucket.failover_log().newest().uuid;
            }
        }
        let SnapshotRange { start, end } = position.snapshot;
        if position.seqno > ask.end || start > position.seqno || end < position.seqno {
            return Err(StreamRefusal::OutOfRange);
        }
        let history = History {
            log: vbucket.failover_log(),
            high,
            purge_seqno: vbucket.purge_seqno(),
        };
        let of_this_history = position.uuid == history.log.newest().uuid;
        if options.to_latest && of_this_history && position.seqno > high {
            // The peer has all that is here, and more.
            return Err(StreamRefusal::OutOfRange);
        }
        if let Some(back_to) = rollback(position, &history, options.rules) {
            return Err(StreamRefusal::Rollback(back_to));
        }
        if position.seqno > high {
            return Err(StreamRefusal::OutOfRange);
        }
        if options.to_latest {
            ask.end = high;
        }
        if options.disk_only {
            ask.end = ask.end.min(vbucket.persisted_seqno());
        }
        let mut stream = Self::new(&ask);
        if stream.end <= stream.read {
            stream.phase = Phase::Ending(StreamEnd::Finished);
            let garbage = Garbage::default();
            return Ok(OpenedStream { stream, garbage });
        }
        let garbage = if options.disk_only {
            stream.phase = Phase::NeedsStore;
            Garbage::default()
        } else {
            stream.seat(vbucket, name)
        };
        Ok(OpenedStream { stream, garbage })
    }

    /// Limits the stream to some collections. Call under the same lock as [`Stream::open`].
    pub fn limit_to(&mut self, filter: StreamFilter) {
        self.filter = filter;
    }

    /// Registers the cursor after the last read change.
    fn seat(&mut self, vbucket: &mut VBucket, name: &str) -> Garbage {
        let registered = vbucket.register_cursor(name, self.read);
        self.cursor = Some(registered.cursor);
        self.checkpoint_next = true;
        self.phase = if registered.gap.is_some() {
            Phase::NeedsStore
        } else {
            Phase::Memory
        };
        registered.garbage
    }

    /// Returns the next event; `None` until [`Stream::fill`] or an answer of the peer brings more.
    pub fn next_event(&mut self) -> Option<Event<'_>> {
        if let Some(snapshot) = self.snapshot.take() {
            self.unacknowledged_snapshots += u32::from(snapshot.acknowledge);
            return Some(Event::Snapshot(*snapshot));
        }
        if let Some(end) = self.ends.take_if(|_| !awaits(self.history.as_deref())) {
            self.finish(end);
        }
        if self.out_of_order == OutOfOrder::Begins {
            self.out_of_order = OutOfOrder::Open;
            return Some(Event::OutOfOrder { begins: true });
        }
        if self.held.is_some() {
            if let Some(seqno) = self.awaiting().or_else(|| self.advance()) {
                if let Some(snapshot) = self.history_begins(seqno) {
                    return Some(Event::Snapshot(snapshot));
                }
                if self.out_of_order == OutOfOrder::No {
                    self.read = seqno;
                }
                self.sent = self.sent.max(seqno);
                return self
                    .held
                    .as_ref()
                    .and_then(|held| held.current())
                    .map(Event::Change);
            }
            self.let_go();
        }
        if self.advanced != Seqno::ZERO {
            return Some(Event::Advanced(std::mem::take(&mut self.advanced)));
        }
        if self.out_of_order == OutOfOrder::Ends {
            self.out_of_order = OutOfOrder::No;
            return Some(Event::OutOfOrder { begins: false });
        }
        match self.phase {
            Phase::Ending(end) => {
                self.phase = Phase::Over;
                Some(Event::End(end))
            }
            Phase::Asking(state) => {
                self.phase = Phase::Asked(state);
                Some(Event::State(state))
            }
            _ => None,
        }
    }

    /// Frees the held changes if all of them were sent. For a caller that keeps the last change for
    /// long.
    pub fn shed(&mut self) {
        if self.held.as_ref().is_some_and(|held| held.is_over()) {
            self.let_go();
        }
    }

    fn let_go(&mut self) {
        self.held = None;
        self.read = self.read.max(self.held_end);
        self.finish_snapshot();
    }

    /// Moves to the next held change that the peer wants.
    fn advance(&mut self) -> Option<Seqno> {
        let (read, sync_writes) = (self.read, self.options.sync_writes);
        let living = self.living.as_deref();
        let skips = self.options.skip_deletes;
        let held = self.held.as_mut()?;
        let from_store = held.is_from_store();
        let seqno = loop {
            let document = held.step()?;
            let seqno = document.seqno();
            let dead = living.is_some_and(|living| living.is_dead_row(document))
                || from_store && skips && document.kind().is_tombstone();
            if seqno > read
                && (sync_writes || !document.kind().is_prepared())
                && self.filter.wants(document)
                && !dead
            {
                let over = self.filter.follow(document);
                self.ends = over.then_some(StreamEnd::FilterEmpty);
                break seqno;
            }
        };
        if from_store {
            self.totals.from_store += 1;
        } else {
            self.totals.from_memory += 1;
        }
        Some(seqno)
    }

    /// Checks, after the held changes were sent, whether the snapshot or the stream ends.
    pub(super) fn finish_snapshot(&mut self) {
        if self.phase == Phase::Memory && self.read >= self.end.max(self.announced()) {
            self.phase = Phase::Ending(StreamEnd::Finished);
        }
        self.end_out_of_order();
        let silent = self.sent < self.announced() && self.announced() <= self.read;
        if silent && self.options.wants_advances {
            self.sent = self.announced();
            self.advanced = self.announced();
        }
    }

    /// Takes more changes from the log. Call under the vBucket's lock when [`Stream::next_event`]
    /// has no event; drop the garbage after the lock.
    ///
    /// Cost: O(segments taken).
    pub fn fill(&mut self, vbucket: &mut VBucket, name: &str) -> (FillResult, Garbage) {
        match self.phase {
            Phase::NeedsStore => {
                self.phase = Phase::Store;
                self.store_again = false;
                let start = self.read.next();
                let range = SnapshotRange {
                    start,
                    end: Seqno(u64::MAX),
                };
                (FillResult::Backfill(range), Garbage::default())
            }
            Phase::Memory => self.fill_from_memory(vbucket, name),
            Phase::HandOver => (FillResult::HandOver, Garbage::default()),
            Phase::Ending(_) | Phase::Asking(_) => (FillResult::Ready, Garbage::default()),
            Phase::Store | Phase::Asked(_) | Phase::Over => (FillResult::Idle, Garbage::default()),
        }
    }

    fn fill_from_memory(&mut self, vbucket: &mut VBucket, name: &str) -> (FillResult, Garbage) {
        let Some(cursor) = self.cursor else {
            return (FillResult::Ready, self.reseat(vbucket, name));
        };
        // A part of a run has no end that is consistent and that such a peer can see.
        let budget = if self.needs_visible_end(vbucket) {
            FlushBudget::ALL
        } else {
            BUDGET
        };
        match vbucket.take_from(cursor, budget) {
            CursorRead::Nothing => (self.caught_up(), Garbage::default()),
            CursorRead::Dropped => (FillResult::Ready, self.reseat(vbucket, name)),
            CursorRead::Changes(mut batch) => {
                self.find_living(vbucket);
                self.look_for_end(&mut batch, vbucket);
                let filled = FillResult::taken(batch.more || self.options.takeover);
                self.hold_batch(batch, vbucket.purge_seqno());
                (filled, Garbage::default())
            }
        }
    }

    /// Notes which collections live, if there are changes of dropped ones. A replica gets all changes, and finds out
    /// itself which belong to dropped collections.
    pub(super) fn find_living(&mut self, vbucket: &VBucket) {
        let replica = self.options.sync_writes && self.filter == StreamFilter::All;
        let living = vbucket.living_rows(self.read);
        self.living = living.filter(|_| !replica).map(Box::new);
    }

    /// Registers a new cursor after the last read change, as the old one was dropped. Ends the
    /// stream if that change no longer exists.
    fn reseat(&mut self, vbucket: &mut VBucket, name: &str) -> Garbage {
        if self.read > vbucket.high_seqno() {
            self.finish(StreamEnd::Rollback);
            return Garbage::default();
        }
        self.seat(vbucket, name)
    }

    fn hold_batch(&mut self, batch: CursorBatch, purge_seqno: Seqno) {
        let range = batch.snapshot;
        let checkpoint = self.checkpoint_next || batch.new_checkpoint;
        self.held_end = batch.last;
        let nothing_visible = !self.options.sync_writes
            && !self.options.wants_advances
            && batch.visible_end <= self.read;
        if nothing_visible {
            // The peer would wait for the end of a snapshot that has no change for it.
            self.read = self.read.max(batch.last);
            return;
        }
        let end = self.end_for_peer(range.end, batch.visible_end);
        if end > self.announced() && range.end > self.read {
            let disk = batch.checkpoint_kind != CheckpointKind::Memory;
            let start = range.start.max(self.read.next());
            self.announce(Snapshot {
                range: SnapshotRange { start, end },
                disk,
                checkpoint,
                acknowledge: self.options.takeover,
                visible_end: batch.visible_end.min(end),
                high_completed: batch.high_completed.filter(|_| disk),
                high_prepared: batch.high_prepared.filter(|_| disk),
                purge_seqno,
                versions: match (self.options.change_streams && batch.historical, disk) {
                    (false, _) => Versions::Newest,
                    (true, false) => Versions::Single,
                    (true, true) => Versions::Repeated,
                },
            });
        }
        self.held = Some(PendingChanges::from_memory(batch));
    }

    /// Whether snapshots must end with a change that the peer gets, among others that it does not get.
    pub(super) fn needs_visible_end(&self, vbucket: &VBucket) -> bool {
        !self.options.wants_advances && vbucket.has_collections()
    }

    /// Finds the last change of the batch that the peer gets. A peer without `SeqnoAdvanced` waits
    /// for the change at a snapshot's end, so the snapshot must end with a change that it gets.
    pub(super) fn look_for_end(&self, batch: &mut CursorBatch, vbucket: &VBucket) {
        if !self.needs_visible_end(vbucket) {
            return;
        }
        let (mut place, mut last) = (BatchPlace::default(), Seqno::ZERO);
        while let Some(document) = batch.next(&mut place) {
            // A filter of such a peer wants all events of a group or none.
            if self.filter.wants(document) && !document.kind().is_prepared() {
                last = document.seqno();
            }
        }
        batch.visible_end = batch.visible_end.min(last);
    }

    /// Returns the end of a snapshot for the peer: without `SeqnoAdvanced`, the last visible seqno.
    pub(super) fn end_for_peer(&self, end: Seqno, visible_end: Seqno) -> Seqno {
        if self.options.sync_writes || self.options.wants_advances {
            end
        } else {
            end.min(visible_end)
        }
    }

    pub(super) fn announce(&mut self, mut snapshot: Snapshot) {
        if self.origin == SnapshotOrigin::Claimed || self.read < self.open.end {
            snapshot.range.start = snapshot.range.start.min(self.open.start);
            snapshot.range.end = snapshot.range.end.max(self.open.end);
        }
        (self.open, self.origin) = (snapshot.range, SnapshotOrigin::Announced);
        self.checkpoint_next = false;
        self.history = None;
        self.snapshot = Some(Box::new(snapshot));
    }

    /// Begins the handover if the stream is a takeover: the log has no more changes.
    fn caught_up(&mut self) -> FillResult {
        if !self.options.takeover || self.unacknowledged_snapshots > 0 {
            return FillResult::Idle;
        }
        let state = if self.handed_over {
            VbState::Active
        } else {
            VbState::Pending
        };
        self.phase = Phase::Asking(state);
        FillResult::Ready
    }

    /// Records that the peer has the requested state. Returns `false` if no state was requested.
    pub fn state_acknowledged(&mut self) -> bool {
        self.phase = match self.phase {
            Phase::Asked(VbState::Active) => Phase::Ending(StreamEnd::Finished),
            Phase::Asked(_) => Phase::HandOver,
            _ => return false,
        };
        true
    }

    /// Continues the takeover once the vBucket is dead here: sends the rest of its changes, then
    /// asks the peer to become active.
    pub fn handed_over(&mut self) {
        if self.phase == Phase::HandOver {
            self.handed_over = true;
            self.phase = Phase::Memory;
        }
    }

    /// Ends the stream; [`Stream::next_event`] returns the end.
    pub fn finish(&mut self, end: StreamEnd) {
        if self.phase != Phase::Over {
            self.phase = Phase::Ending(end);
        }
        self.held = None;
        self.joined = None;
        self.snapshot = None;
        self.advanced = Seqno::ZERO;
        self.out_of_order = OutOfOrder::No;
    }

    /// Records that the peer acknowledged a snapshot. Returns `false` if no acknowledgement is
    /// outstanding.
    pub fn snapshot_acknowledged(&mut self) -> bool {
        let outstanding = self.unacknowledged_snapshots > 0;
        self.unacknowledged_snapshots = self.unacknowledged_snapshots.saturating_sub(1);
        outstanding
    }

    /// Takes the cursor out, to be removed from the vBucket.
    pub fn take_cursor(&mut self) -> Option<CursorId> {
        self.cursor.take()
    }

    /// State of the stream, for statistics.
    pub fn figures(&self) -> StreamFigures {
        StreamFigures {
            state: match self.phase {
                Phase::NeedsStore | Phase::Store => "backfilling",
                Phase::Memory if self.handed_over => "takeover-send",
                Phase::Memory => "in-memory",
                Phase::Asking(_) | Phase::HandOver => "takeover-send",
                Phase::Asked(_) => "takeover-wait",
                Phase::Ending(_) | Phase::Over => "dead",
            },
            read: self.read,
            sent: self.sent,
            snapshot_end: self.announced(),
            end: self.end,
            cursor: self.cursor,
            totals: self.totals,
        }
    }

    /// Whether all events were sent, including the end.
    pub fn is_over(&self) -> bool {
        self.phase == Phase::Over
    }
}
