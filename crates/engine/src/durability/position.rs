//! The last prepare that a replica may acknowledge.

use std::collections::VecDeque;

use model::{Document, DurabilityLevel, Seqno};

/// A snapshot that was received completely.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SnapshotEnd {
    /// Its last seqno.
    pub(crate) end: Seqno,
    /// Whether the snapshot came from a store. Some of its changes may be missing, so it counts
    /// only as a whole, once it is on disk here.
    pub(crate) disk: bool,
    /// Last prepare in the snapshot as told by the active node, if it was told.
    pub(crate) high_prepared: Option<Seqno>,
}

/// Complete snapshots that are not fully acknowledged yet, oldest first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Snapshots {
    ends: VecDeque<SnapshotEnd>,
}

impl Snapshots {
    /// Adds a complete snapshot.
    pub(crate) fn arrived(&mut self, snapshot: SnapshotEnd) {
        self.ends.push_back(snapshot);
    }

    /// Returns the last of `prepares` (ascending, above `from`) that may be acknowledged with the
    /// given persisted seqno; `from` if there is none.
    pub(crate) fn advance<'d>(
        &mut self,
        from: Seqno,
        prepares: impl Iterator<Item = &'d Document>,
        persisted: Seqno,
    ) -> Seqno {
        let mut reached = from;
        let mut prepares = prepares.peekable();
        while let Some(snapshot) = self.ends.front().copied() {
            let on_disk = persisted >= snapshot.end;
            if snapshot.disk && !on_disk {
                break;
            }
            while let Some(prepare) = prepares.next_if(|next| next.seqno() <= snapshot.end) {
                let to_disk = prepare.level() == Some(DurabilityLevel::PersistToMajority);
                if to_disk && !on_disk {
                    return reached;
                }
                reached = reached.max(prepare.seqno());
            }
            if snapshot.disk {
                // Its decided prepares may have been left out before it was sent.
                let announced = snapshot.high_prepared.unwrap_or(snapshot.end);
                reached = reached.max(announced.min(snapshot.end));
            }
            self.ends.pop_front();
        }
        reached
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{Kind, Meta};

    fn prepare(seqno: u64, level: DurabilityLevel) -> Document {
        let meta = Meta {
            kind: Kind::Prepare,
            seqno: Seqno(seqno),
            level: Some(level),
            ..Meta::default()
        };
        Document::from_parts(b"\0k", b"", &meta)
    }

    fn memory(end: u64) -> SnapshotEnd {
        SnapshotEnd {
            end: Seqno(end),
            disk: false,
            high_prepared: None,
        }
    }

    fn disk(end: u64, high_prepared: Option<u64>) -> SnapshotEnd {
        SnapshotEnd {
            end: Seqno(end),
            disk: true,
            high_prepared: high_prepared.map(Seqno),
        }
    }

    #[test]
    fn memory_snapshot_counts_up_to_first_prepare_for_disk() {
        let prepares = [
            prepare(2, DurabilityLevel::Majority),
            prepare(3, DurabilityLevel::MajorityAndPersistOnActive),
            prepare(5, DurabilityLevel::PersistToMajority),
            prepare(6, DurabilityLevel::Majority),
        ];
        let mut snapshots = Snapshots::default();
        let reach = |snapshots: &mut Snapshots, from, persisted| {
            let rest = prepares.iter().filter(|one| one.seqno() > Seqno(from));
            snapshots.advance(Seqno(from), rest, Seqno(persisted)).0
        };
        assert_eq!(reach(&mut snapshots, 0, 0), 0, "nothing is here as a whole");
        snapshots.arrived(memory(3));
        assert_eq!(reach(&mut snapshots, 0, 0), 3);
        snapshots.arrived(memory(6));
        assert_eq!(reach(&mut snapshots, 3, 0), 3);
        assert_eq!(
            reach(&mut snapshots, 3, 5),
            3,
            "a fence for those behind it"
        );
        assert_eq!(reach(&mut snapshots, 3, 6), 6, "its snapshot is on disk");
    }

    #[test]
    fn a_snapshot_from_disk_counts_once_it_is_on_disk_here() {
        let prepares = [prepare(4, DurabilityLevel::Majority)];
        let mut snapshots = Snapshots::default();
        snapshots.arrived(disk(9, Some(7)));
        let reach = |snapshots: &mut Snapshots, persisted| {
            snapshots
                .advance(Seqno(0), prepares.iter(), Seqno(persisted))
                .0
        };
        assert_eq!(reach(&mut snapshots, 8), 0);
        assert_eq!(reach(&mut snapshots, 9), 7);
        snapshots.arrived(disk(20, None));
        assert_eq!(reach(&mut snapshots, 20), 20, "old peers do not tell");
        snapshots.arrived(disk(30, Some(99)));
        assert_eq!(
            reach(&mut snapshots, 30),
            30,
            "nobody is believed beyond it"
        );
    }
}
