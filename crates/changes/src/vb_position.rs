//! The position of a stream of one vBucket.

use model::{FailoverEntry, Seqno, SnapshotRange, VbUuid};

/// Position of a stream of one vBucket; it has the fields of a stream request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VbPosition {
    /// UUID of the history (failover log entry); 0 at the beginning.
    pub uuid: VbUuid,
    /// Seqno of the last change received.
    pub seqno: Seqno,
    /// The snapshot of that change: `start <= seqno <= end`. The received changes are a consistent state only if
    /// `seqno` equals `end`.
    pub snapshot: SnapshotRange,
}

impl VbPosition {
    /// Creates a position between two snapshots.
    pub fn at(uuid: VbUuid, seqno: Seqno) -> Self {
        let snapshot = SnapshotRange {
            start: seqno,
            end: seqno,
        };
        Self {
            uuid,
            seqno,
            snapshot,
        }
    }

    /// Whether the last snapshot is complete.
    pub fn is_whole(&self) -> bool {
        self.seqno == self.snapshot.end
    }

    /// Processes a snapshot marker; returns `false` if it violates the protocol.
    ///
    /// If the stream broke off inside a snapshot, the new snapshot is merged with it: no state in between is
    /// consistent.
    pub fn announce(&mut self, range: SnapshotRange) -> bool {
        if range.start > range.end || range.end <= self.seqno {
            return false;
        }
        if self.is_whole() {
            self.snapshot.start = self.seqno;
        }
        self.snapshot.end = range.end;
        true
    }

    /// Processes a change, or a message that there is none up to `seqno`. Returns `false` if it is repeated or
    /// outside of the snapshot.
    pub fn reach(&mut self, seqno: Seqno) -> bool {
        let sound = seqno > self.seqno && seqno <= self.snapshot.end;
        if sound {
            self.seqno = seqno;
        }
        sound
    }

    /// Rolls back to the seqno at which the histories diverge, as sent by the producer.
    pub fn roll_back(&mut self, to: Seqno) {
        let uuid = if to == Seqno(0) { VbUuid(0) } else { self.uuid };
        *self = Self::at(uuid, to.min(self.seqno));
    }

    /// Selects the history from the failover log of a granted stream, newest first: the newest one that starts at
    /// or before the end of the snapshot. The producer would refuse an older one because of the rest of the
    /// snapshot.
    pub fn belong(&mut self, log: impl IntoIterator<Item = FailoverEntry>) {
        let known = log
            .into_iter()
            .find(|entry| entry.seqno <= self.snapshot.end);
        if let Some(entry) = known {
            self.uuid = entry.uuid;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: u64, end: u64) -> SnapshotRange {
        SnapshotRange {
            start: Seqno(start),
            end: Seqno(end),
        }
    }

    #[test]
    fn position_in_snapshot_stays_valid_request() {
        let mut place = VbPosition::at(VbUuid(7), Seqno(450));
        assert!(place.announce(range(451, 500)));
        assert_eq!(place.snapshot, range(450, 500));
        assert!(place.reach(Seqno(460)) && !place.is_whole());
        // The stream breaks off here; the rest follows as another snapshot.
        assert!(place.announce(range(461, 600)));
        assert_eq!(place.snapshot, range(450, 600));
        assert!(place.reach(Seqno(600)) && place.is_whole());
        assert!(place.announce(range(601, 601)));
        assert_eq!(place.snapshot, range(600, 601));
    }

    #[test]
    fn position_refuses_invalid_markers_and_seqnos() {
        let mut place = VbPosition::at(VbUuid(7), Seqno(10));
        assert!(!place.announce(range(5, 10)), "ends where it is");
        assert!(!place.announce(range(20, 15)), "descends");
        assert!(!place.reach(Seqno(11)), "no snapshot");
        assert!(place.announce(range(11, 12)));
        assert!(!place.reach(Seqno(10)), "repeated");
        assert!(!place.reach(Seqno(13)), "outside");
        assert_eq!(place.seqno, Seqno(10));
    }

    #[test]
    fn a_rollback_keeps_the_history_unless_nothing_is_left() {
        let mut place = VbPosition::at(VbUuid(7), Seqno(600));
        place.roll_back(Seqno(500));
        assert_eq!(place, VbPosition::at(VbUuid(7), Seqno(500)));
        place.roll_back(Seqno(0));
        assert_eq!(place, VbPosition::default());
    }

    #[test]
    fn position_selects_newest_started_history() {
        let log = [(9, 900), (5, 500), (1, 0)].map(|(uuid, seqno)| FailoverEntry {
            uuid: VbUuid(uuid),
            seqno: Seqno(seqno),
        });
        let uuid = |seqno| {
            let mut place = VbPosition::at(VbUuid(0), Seqno(seqno));
            place.belong(log);
            place.uuid.0
        };
        assert_eq!([uuid(0), uuid(499), uuid(500), uuid(1000)], [1, 1, 5, 9]);
        let mut partial = VbPosition::at(VbUuid(1), Seqno(450));
        assert!(partial.announce(range(451, 950)));
        partial.belong(log);
        assert_eq!(
            partial.uuid,
            VbUuid(9),
            "its snapshot reaches into the newest"
        );
    }
}
