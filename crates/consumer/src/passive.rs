//! The order of messages in one stream, checked by its consumer. Pure.

use std::fmt;

use model::{Seqno, SnapshotRange};
use wire::dcp::{MarkerFlags, SnapshotMarker};

/// Largest seqno of a document: 48 bits are stored.
const SEQNO_MAX: u64 = (1 << 48) - 1;

/// A rule of the protocol that the producer broke. The connection must be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Violation {
    /// A marker whose end is before its start, or beyond what can be stored.
    Range,
    /// A marker whose whole range was already received.
    OldMarker,
    /// A marker inside a snapshot that is not complete.
    MarkerInSnapshot,
    /// A change outside of the announced snapshot.
    OutsideSnapshot,
    /// A change at or before the last one.
    OutOfOrder,
    /// A message that a replica never receives, or that was not agreed on.
    Unexpected,
    /// A key or a message that is not valid.
    Malformed,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Range => "a snapshot marker whose range is not valid",
            Self::OldMarker => "a snapshot marker of what was sent before",
            Self::MarkerInSnapshot => "a snapshot marker within a snapshot",
            Self::OutsideSnapshot => "a change outside of its snapshot",
            Self::OutOfOrder => "changes out of order",
            Self::Unexpected => "a message that was not agreed on",
            Self::Malformed => "a message that is not valid",
        })
    }
}

/// Position of a change in its snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SnapshotProgress {
    /// The snapshot is not complete.
    Within,
    /// The change completes the snapshot. `ack`: the producer wants an acknowledgement.
    End { ack: bool },
}

/// The order of one stream.
///
/// Invariant: within a snapshot, `last` is below its end; without one, the vBucket is at a
/// consistent point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Passive {
    last: Seqno,
    snapshot: Option<AnnouncedSnapshot>,
}

/// A snapshot that is not complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct AnnouncedSnapshot {
    range: SnapshotRange,
    /// Whether the producer wants an acknowledgement of the end.
    ack: bool,
    /// Whether the snapshot has every version, from its start or from this marker on.
    historical: bool,
}

impl AnnouncedSnapshot {
    /// Whether a marker announces the rest of the same snapshot with every version. Changes older than the kept
    /// history come first, without old versions and under a marker of the same range.
    fn goes_on_with(&self, marker: &SnapshotMarker) -> bool {
        let historical = marker.flags.contains(MarkerFlags::HISTORY);
        historical && !self.historical && self.range == marker.range
    }
}

impl Passive {
    /// A stream that was granted from `start`.
    pub(crate) fn new(start: Seqno) -> Self {
        Self {
            last: start,
            snapshot: None,
        }
    }

    /// Whether the last announced snapshot is complete.
    pub(crate) fn is_between_snapshots(&self) -> bool {
        self.snapshot.is_none()
    }

    /// Processes a marker.
    ///
    /// # Errors
    /// The marker does not follow the last message; nothing changed.
    pub(crate) fn marker(&mut self, marker: &SnapshotMarker) -> Result<(), Violation> {
        let range = marker.range;
        if range.start > range.end || range.end.0 > SEQNO_MAX {
            return Err(Violation::Range);
        }
        let mut ack = marker.flags.contains(MarkerFlags::ACK);
        if let Some(announced) = self.snapshot {
            if !announced.goes_on_with(marker) {
                return Err(Violation::MarkerInSnapshot);
            }
            ack |= announced.ack;
        }
        if range.end <= self.last {
            return Err(Violation::OldMarker);
        }
        self.snapshot = Some(AnnouncedSnapshot {
            range,
            ack,
            historical: marker.flags.contains(MarkerFlags::HISTORY),
        });
        Ok(())
    }

    /// Processes the seqno of a change.
    ///
    /// # Errors
    /// The seqno is out of order or outside of the snapshot; nothing changed.
    pub(crate) fn change(&mut self, seqno: Seqno) -> Result<SnapshotProgress, Violation> {
        let Some(AnnouncedSnapshot { range, ack, .. }) = self.snapshot else {
            return Err(Violation::OutsideSnapshot);
        };
        if seqno <= self.last {
            return Err(Violation::OutOfOrder);
        }
        if seqno < range.start || seqno > range.end {
            return Err(Violation::OutsideSnapshot);
        }
        self.last = seqno;
        if seqno < range.end {
            return Ok(SnapshotProgress::Within);
        }
        self.snapshot = None;
        Ok(SnapshotProgress::End { ack })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::dcp::MarkerVersion;

    fn marker(start: u64, end: u64, flags: MarkerFlags) -> SnapshotMarker {
        SnapshotMarker {
            range: SnapshotRange {
                start: Seqno(start),
                end: Seqno(end),
            },
            flags,
            version: MarkerVersion::V1,
        }
    }

    #[test]
    fn snapshots_follow_each_other() {
        let mut stream = Passive::new(Seqno(4));
        let memory = MarkerFlags::MEMORY;
        assert_eq!(stream.marker(&marker(4, 7, memory)), Ok(()));
        assert_eq!(stream.change(Seqno(5)), Ok(SnapshotProgress::Within));
        assert_eq!(
            stream.change(Seqno(7)),
            Ok(SnapshotProgress::End { ack: false })
        );
        let acked = memory.with(MarkerFlags::ACK);
        assert_eq!(stream.marker(&marker(8, 8, acked)), Ok(()));
        assert_eq!(
            stream.change(Seqno(8)),
            Ok(SnapshotProgress::End { ack: true })
        );
        assert_eq!(stream, Passive::new(Seqno(8)));
    }

    /// Changes older than the history come first, under a marker with the same range.
    #[test]
    fn a_history_goes_on_with_the_snapshot_before_it() {
        let disk = MarkerFlags::DISK.with(MarkerFlags::ACK);
        let past = MarkerFlags::DISK.with(MarkerFlags::HISTORY);
        let mut stream = Passive::new(Seqno(0));
        assert_eq!(stream.marker(&marker(0, 9, disk)), Ok(()));
        assert_eq!(stream.change(Seqno(2)), Ok(SnapshotProgress::Within));
        for (start, end, flags) in [(0, 9, disk), (0, 8, past), (0, 10, past), (3, 9, past)] {
            let refused = stream.marker(&marker(start, end, flags));
            assert_eq!(refused, Err(Violation::MarkerInSnapshot));
        }
        assert_eq!(stream.marker(&marker(0, 9, past)), Ok(()));
        assert!(!stream.is_between_snapshots());
        let again = stream.marker(&marker(0, 9, past));
        assert_eq!(again, Err(Violation::MarkerInSnapshot), "once");
        assert_eq!(stream.change(Seqno(2)), Err(Violation::OutOfOrder));
        assert_eq!(stream.change(Seqno(5)), Ok(SnapshotProgress::Within));
        assert_eq!(
            stream.change(Seqno(9)),
            Ok(SnapshotProgress::End { ack: true })
        );
        assert!(stream.is_between_snapshots());
    }

    #[test]
    fn a_refused_message_changes_nothing() {
        let memory = MarkerFlags::MEMORY;
        let fresh = Passive::new(Seqno(10));
        let refused = |stream: &Passive, result: Result<(), Violation>, after: &Passive| {
            assert_eq!(stream, after);
            result.expect_err("a violation")
        };
        let mut stream = fresh;
        let result = stream.change(Seqno(11)).map(drop);
        assert_eq!(
            refused(&fresh, result, &stream),
            Violation::OutsideSnapshot,
            "no marker"
        );
        for (range, violation) in [
            ((5, 10), Violation::OldMarker),
            ((12, 11), Violation::Range),
            ((11, 1 << 48), Violation::Range),
        ] {
            let result = stream.marker(&marker(range.0, range.1, memory));
            assert_eq!(refused(&fresh, result, &stream), violation);
        }
        assert_eq!(stream.marker(&marker(12, 20, memory)), Ok(()));
        let open = stream;
        for (seqno, violation) in [
            (10, Violation::OutOfOrder),
            (11, Violation::OutsideSnapshot),
            (21, Violation::OutsideSnapshot),
        ] {
            let result = stream.change(Seqno(seqno)).map(drop);
            assert_eq!(refused(&open, result, &stream), violation, "{seqno}");
        }
        let result = stream.marker(&marker(21, 30, memory));
        assert_eq!(refused(&open, result, &stream), Violation::MarkerInSnapshot);
    }
}
