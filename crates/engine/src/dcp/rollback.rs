//! The rollback decision: whether a peer that reconnects may continue, or must roll back first.

use model::{FailoverEntry, FailoverLog, Seqno, SnapshotRange, VbUuid};

/// Position that a peer claims.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClaimedPosition {
    /// UUID of the history that the peer follows; zero for none.
    pub uuid: VbUuid,
    /// Last seqno that the peer has.
    pub seqno: Seqno,
    /// Snapshot that contains this seqno.
    pub snapshot: SnapshotRange,
    /// Purge seqno that the peer knows to be current; zero for none.
    pub purge_seqno: Seqno,
}

/// State of the vBucket's history.
#[derive(Clone, Copy, Debug)]
pub struct History<'a> {
    /// Its failover log.
    pub log: &'a FailoverLog,
    /// Its high seqno.
    pub high: Seqno,
    /// Its purge seqno: the highest purged tombstone.
    pub purge_seqno: Seqno,
}

/// Rules that a peer chose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RollbackRules {
    /// The UUID must be known even if the peer starts at seqno 0.
    pub strict_uuid: bool,
    /// Purged tombstones do not cause a rollback.
    pub ignore_purged: bool,
}

/// Returns the seqno to which a peer must roll back; `None` if it may continue from its position.
///
/// The peer may continue if two conditions hold. The common history contains everything that the
/// peer has, up to the end of its snapshot. No tombstone that the peer still needs was purged.
///
/// Source: engine specification section 9. Test: `dcp::rollback::tests`.
pub fn rollback(
    position: &ClaimedPosition,
    history: &History<'_>,
    rules: RollbackRules,
) -> Option<Seqno> {
    let start = position.seqno;
    if start == Seqno::ZERO && (position.uuid == VbUuid(0) || !rules.strict_uuid) {
        return None;
    }
    let purged = if rules.ignore_purged {
        Seqno::ZERO
    } else {
        history.purge_seqno
    };
    let misses_tombstones = start < purged && position.purge_seqno != purged;
    if start != Seqno::ZERO && misses_tombstones {
        return Some(Seqno::ZERO);
    }
    let Some(shared) = shared_end(position.uuid, history) else {
        return Some(Seqno::ZERO);
    };
    let SnapshotRange {
        start: mut snapshot_start,
        end: mut snapshot_end,
    } = position.snapshot;
    if start == snapshot_start {
        snapshot_end = start;
    }
    if snapshot_end <= shared {
        return None;
    }
    if start == snapshot_end {
        snapshot_start = start;
    }
    Some(shared.min(snapshot_start))
}

/// Returns the last seqno that this history shares with the newest one.
fn shared_end(uuid: VbUuid, history: &History<'_>) -> Option<Seqno> {
    let entries: &[FailoverEntry] = history.log.entries();
    let found = entries.iter().position(|entry| entry.uuid == uuid)?;
    match found.checked_sub(1) {
        Some(newer) => Some(entries[newer].seqno),
        None => Some(history.high),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: u64 = 0xa;
    const B: u64 = 0xb;
    const C: u64 = 0xc;
    const X: u64 = 0xbad;

    fn log() -> FailoverLog {
        let entry = |uuid, seqno| FailoverEntry {
            uuid: VbUuid(uuid),
            seqno: Seqno(seqno),
        };
        FailoverLog::from_entries(vec![entry(C, 900), entry(B, 500), entry(A, 0)])
            .expect("it has entries")
    }

    fn asks(uuid: u64, start: u64, snapshot: (u64, u64)) -> ClaimedPosition {
        ClaimedPosition {
            uuid: VbUuid(uuid),
            seqno: Seqno(start),
            snapshot: SnapshotRange {
                start: Seqno(snapshot.0),
                end: Seqno(snapshot.1),
            },
            purge_seqno: Seqno::ZERO,
        }
    }

    fn decide(position: ClaimedPosition, purge: u64, rules: RollbackRules) -> Option<u64> {
        let log = log();
        let history = History {
            log: &log,
            high: Seqno(1200),
            purge_seqno: Seqno(purge),
        };
        rollback(&position, &history, rules).map(|seqno| seqno.0)
    }

    const STRICT: RollbackRules = RollbackRules {
        strict_uuid: true,
        ignore_purged: false,
    };

    /// The specification's table, and both sides of every boundary.
    #[test]
    fn rollback_follows_worked_examples() {
        let table = [
            (asks(A, 450, (450, 450)), None, "on the old branch"),
            (asks(A, 500, (500, 500)), None, "at the branch point"),
            (asks(A, 501, (501, 501)), Some(500), "one past it"),
            (asks(A, 600, (600, 600)), Some(500), "leads branch A"),
            (asks(A, 480, (400, 520)), Some(400), "straddles the branch"),
            (asks(A, 480, (400, 500)), None, "its snapshot ends there"),
            (asks(B, 700, (700, 950)), None, "nothing of it received"),
            (asks(B, 700, (650, 950)), Some(650), "beyond the upper end"),
            (asks(B, 950, (650, 950)), Some(900), "all of it received"),
            (asks(C, 1200, (1200, 1200)), None, "all there is"),
            (asks(C, 1300, (1300, 1300)), Some(1200), "it was lost here"),
            (asks(C, 1190, (1100, 1300)), Some(1100), "a lost snapshot"),
            (asks(X, 10, (10, 10)), Some(0), "unknown history"),
            (asks(0, 10, (10, 10)), Some(0), "no history"),
            (asks(X, 0, (0, 0)), None, "from the start"),
            (asks(0, 0, (0, 0)), None, "from the start, no history"),
        ];
        for (position, expected, why) in table {
            let decided = decide(position, 0, RollbackRules::default());
            assert_eq!(decided, expected, "{why}: {position:?}");
        }
    }

    #[test]
    fn purged_tombstones_cause_rollback() {
        let at_50 = asks(A, 50, (50, 50));
        let rules = RollbackRules::default();
        assert_eq!(decide(at_50, 100, rules), Some(0));
        assert_eq!(decide(asks(A, 100, (100, 100)), 100, rules), None);
        assert_eq!(decide(asks(A, 0, (0, 0)), 100, rules), None, "has nothing");
        let knows = ClaimedPosition {
            purge_seqno: Seqno(100),
            ..at_50
        };
        assert_eq!(decide(knows, 100, rules), None, "none purged since");
        assert_eq!(decide(knows, 101, rules), Some(0), "one purged since");
        let ignoring = RollbackRules {
            ignore_purged: true,
            ..rules
        };
        assert_eq!(decide(at_50, 100, ignoring), None);
        assert_eq!(decide(asks(X, 50, (50, 50)), 100, ignoring), Some(0));
    }

    #[test]
    fn strict_uuid_applies_at_seqno_zero() {
        assert_eq!(decide(asks(X, 0, (0, 0)), 0, STRICT), Some(0));
        assert_eq!(decide(asks(A, 0, (0, 0)), 0, STRICT), None);
        assert_eq!(decide(asks(0, 0, (0, 0)), 0, STRICT), None);
    }
}
