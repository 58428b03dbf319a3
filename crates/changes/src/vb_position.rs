//! Where a stream of one vBucket is.

use model::{FailoverEntry, Seqno, SnapshotRange, VbUuid};

/// How far a stream of one vBucket came, in the words in which a stream is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VbPosition {
    /// The history that it belongs to; 0 at the beginning.
    pub uuid: VbUuid,
    /// The last seqno that was received.
    pub seqno: Seqno,
    /// The snapshot that it lies in: `start <= seqno <= end`. Only at `end` is what was received
    /// a state that the vBucket once had.
    pub snapshot: SnapshotRange,
}

impl VbPosition {
    /// A place between two snapshots.
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

    /// Whether everything of the last snapshot was received.
    pub fn is_whole(&self) -> bool {
        self.seqno == self.snapshot.end
    }

    /// Takes a snapshot marker; `false` if no producer may send it here.
    ///
    /// What is left of a snapshot in which the stream broke off becomes one with the new one: no
    /// state in between is consistent.
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

    /// Takes a change, or the word that there is none up to this seqno; `false` if it is
    /// repeated or outside of the snapshot.
    pub fn reach(&mut self, seqno: Seqno) -> bool {
        let sound = seqno > self.seqno && seqno <= self.snapshot.end;
        if sound {
            self.seqno = seqno;
        }
        sound
    }

    /// Goes back to where the producer says that the histories part.
    pub fn roll_back(&mut self, to: Seqno) {
        let uuid = if to == Seqno(0) { VbUuid(0) } else { self.uuid };
        *self = Self::at(uuid, to.min(self.seqno));
    }

    /// Takes the failover log of a granted stream, newest first: the place belongs to the newest
    /// history that had begun by the end of its snapshot. An older one would be refused for what
    /// the snapshot holds beyond it.
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
    fn a_place_in_a_snapshot_stays_a_valid_request() {
        let mut place = VbPosition::at(VbUuid(7), Seqno(450));
        assert!(place.announce(range(451, 500)));
        assert_eq!(place.snapshot, range(450, 500));
        assert!(place.reach(Seqno(460)) && !place.is_whole());
        // It breaks off; the rest comes as another snapshot.
        assert!(place.announce(range(461, 600)));
        assert_eq!(place.snapshot, range(450, 600));
        assert!(place.reach(Seqno(600)) && place.is_whole());
        assert!(place.announce(range(601, 601)));
        assert_eq!(place.snapshot, range(600, 601));
    }

    #[test]
    fn what_a_producer_must_not_send() {
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
    fn the_history_is_the_newest_that_had_begun() {
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
