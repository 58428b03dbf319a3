//! Positions of stream requests, and the reaction to a rollback.

use model::{Seqno, SnapshotRange};
use wire::dcp::{StreamFlags, StreamRequest};

use crate::target::ReplicaPosition;

/// A stream that was requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StreamAsk {
    /// Position in the request.
    pub(crate) start: Seqno,
    /// Number of the newest failover log entries that the request skips.
    dropped: usize,
    /// Whether the vBucket has more than `start`. The request only asks whether the producer shares its history until
    /// there: then the vBucket goes back to `start`.
    pub(crate) goes_back: bool,
}

/// Reaction to the demand of the producer for a rollback.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AfterRollback {
    /// Another request. The vBucket stays as it is.
    Ask(StreamAsk),
    /// A rollback to this seqno.
    GoBack(Seqno),
}

impl StreamAsk {
    /// Returns the request for all that follows the position.
    pub(crate) fn of(position: &ReplicaPosition) -> Self {
        Self {
            start: position.high,
            dropped: 0,
            goes_back: false,
        }
    }

    /// Returns the message.
    pub(crate) fn request(
        &self,
        position: &ReplicaPosition,
        flags: StreamFlags,
    ) -> StreamRequest<'static> {
        let start = self.start;
        let (flags, end, snapshot) = if self.goes_back {
            let flags = flags
                .without(StreamFlags::TAKEOVER)
                .without(StreamFlags::TO_LATEST);
            (flags, start, SnapshotRange { start, end: start })
        } else {
            (flags, Seqno(u64::MAX), position.asked_snapshot())
        };
        let uuid = match position.log.entries().get(self.dropped) {
            Some(entry) if self.dropped > 0 => entry.uuid,
            _ => position.asked_uuid(),
        };
        StreamRequest {
            flags,
            start,
            end,
            uuid,
            snapshot,
            value: b"",
        }
    }

    /// Decides what follows a demand for a rollback to `to`.
    ///
    /// Zero is the answer to a failover log entry that the producer does not know, although it may know older ones,
    /// and to a peer that lacks purged tombstones. So nothing is given up for it: the next request asks for the
    /// older entries, until the seqno that they cover.
    ///
    /// A newest entry without any change here (it starts where the vBucket ends) is only left out. A snapshot that
    /// goes beyond the start of the unknown entry, and is incomplete, may lack changes of older entries, as newer
    /// ones of the same keys replaced them: only what is before the snapshot counts.
    pub(crate) fn after_rollback(self, position: &ReplicaPosition, to: Seqno) -> AfterRollback {
        let (entries, snapshot) = (position.log.entries(), position.asked_snapshot());
        let dropped = self.dropped + 1;
        let limit = self.start.min(snapshot.start);
        let covered = match entries.get(self.dropped) {
            Some(unknown) if to == Seqno::ZERO && entries.len() > dropped => unknown.seqno,
            _ => return AfterRollback::GoBack(to.min(limit)),
        };
        if !self.goes_back && covered >= snapshot.end {
            return AfterRollback::Ask(Self { dropped, ..self });
        }
        match covered.min(limit) {
            Seqno::ZERO => AfterRollback::GoBack(Seqno::ZERO),
            start => AfterRollback::Ask(Self {
                start,
                dropped,
                goes_back: true,
            }),
        }
    }
}
