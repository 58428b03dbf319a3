//! State of a vBucket beside its rows: its record, its restore points, and its valid rows.

use model::{
    Cas, CollectionCount, CollectionId, FailoverEntry, FailoverLog, Seqno, SnapshotRange, VbCounts,
    VbId, VbRecord, VbState, VbUuid,
};

use super::bytes::Reader;
use crate::points::RestorePoints;

/// Validity of a vBucket's rows: all of the current epoch, and those of earlier epochs up to a seqno.
///
/// A new epoch begins when a vBucket is created, and when it is rolled back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lineage {
    /// Epoch of new rows; no two vBuckets of a store ever have the same one.
    pub(crate) epoch: u64,
    /// Earlier epochs, ascending, each with its highest valid seqno.
    before: Vec<(u64, Seqno)>,
}

impl Lineage {
    /// Maximum number of earlier epochs; a rollback beyond that goes to zero.
    pub(crate) const BEFORE_MAX: usize = 16;

    /// Creates the lineage of a new vBucket.
    pub(crate) fn new(epoch: u64) -> Self {
        Self {
            epoch,
            before: Vec::new(),
        }
    }

    /// Returns the highest valid seqno of an epoch's rows; `None` if no row is valid.
    #[inline]
    pub(crate) fn limit(&self, epoch: u64) -> Option<Seqno> {
        if epoch == self.epoch {
            return Some(Seqno(u64::MAX));
        }
        let found = self.before.iter().find(|(known, _)| *known == epoch);
        found.map(|(_, limit)| *limit)
    }

    /// Begins a new epoch, in which rows above `point` are invalid.
    pub(crate) fn roll_back(&mut self, point: Seqno, epoch: u64) {
        self.before.push((self.epoch, point));
        for (_, limit) in &mut self.before {
            *limit = (*limit).min(point);
        }
        self.before.retain(|(_, limit)| *limit > Seqno::ZERO);
        self.epoch = epoch;
    }

    /// Whether there is no space for another epoch, so that a rollback goes to zero.
    pub(crate) fn is_full(&self) -> bool {
        self.before.len() >= Self::BEFORE_MAX
    }

    /// Removes earlier epochs without rows.
    pub(crate) fn retain(&mut self, has_rows: impl Fn(u64) -> bool) {
        self.before.retain(|(epoch, _)| has_rows(*epoch));
    }
}

/// The state of a vBucket without its record.
#[derive(Clone, Debug, Default)]
pub(crate) struct State {
    pub(crate) purge_seqno: Seqno,
    pub(crate) points: RestorePoints,
    pub(crate) lineage: Lineage,
}

/// A state with its record.
#[derive(Clone, Debug)]
pub(crate) struct StoredState {
    /// Record with the high and purge seqno of the state.
    pub(crate) record: VbRecord,
    pub(crate) state: State,
}

/// Appends a state to `out`.
pub(crate) fn encode(record: &VbRecord, state: &State, out: &mut Vec<u8>) {
    out.push(record.state as u8);
    let numbers = [
        state.lineage.epoch,
        record.high_seqno.0,
        state.purge_seqno.0,
        record.snapshot.start.0,
        record.snapshot.end.0,
        record.high_prepared.0,
        record.high_completed.0,
        record.max_cas.0,
        record.max_deleted_rev,
        record.term,
    ];
    for number in numbers {
        out.extend_from_slice(&number.to_be_bytes());
    }
    out.push(state.lineage.before.len() as u8);
    for (epoch, limit) in &state.lineage.before {
        out.extend_from_slice(&epoch.to_be_bytes());
        out.extend_from_slice(&limit.0.to_be_bytes());
    }
    out.push(state.points.seqnos().len() as u8);
    for point in state.points.seqnos() {
        out.extend_from_slice(&point.0.to_be_bytes());
    }
    let entries = record.failover_log.entries();
    out.push(entries.len() as u8);
    for entry in entries {
        out.extend_from_slice(&entry.uuid.0.to_be_bytes());
        out.extend_from_slice(&entry.seqno.0.to_be_bytes());
    }
    out.extend_from_slice(&(record.topology.len() as u32).to_be_bytes());
    out.extend_from_slice(record.topology.as_bytes());
    if let Some(counts) = &record.counts {
        encode_counts(counts, out);
    }
}

fn encode_counts(counts: &VbCounts, out: &mut Vec<u8>) {
    let VbCounts {
        items,
        tombstones,
        default_high,
        dead_end,
        collections,
    } = counts;
    for number in [*items, *tombstones, default_high.0, dead_end.0] {
        out.extend_from_slice(&number.to_be_bytes());
    }
    for one in collections {
        out.extend_from_slice(&one.id.0.to_be_bytes());
        out.extend_from_slice(&one.items.to_be_bytes());
        out.extend_from_slice(&one.high_seqno.0.to_be_bytes());
    }
}

/// Decodes the rest as counts.
fn decode_counts(reader: &mut Reader<'_>) -> Option<VbCounts> {
    let mut counts = VbCounts {
        items: reader.u64()?,
        tombstones: reader.u64()?,
        default_high: Seqno(reader.u64()?),
        dead_end: Seqno(reader.u64()?),
        collections: Vec::new(),
    };
    while !reader.rest.is_empty() {
        counts.collections.push(CollectionCount {
            id: CollectionId(reader.u32()?),
            items: reader.u64()?,
            high_seqno: Seqno(reader.u64()?),
        });
    }
    Some(counts)
}

/// Decodes a state; `None` if it is invalid.
pub(crate) fn decode(bytes: &[u8]) -> Option<StoredState> {
    let reader = &mut Reader::new(bytes);
    let state = VbState::from_wire(reader.u8()?)?;
    let epoch = reader.u64()?;
    let high_seqno = Seqno(reader.u64()?);
    let purge_seqno = Seqno(reader.u64()?);
    let snapshot = SnapshotRange {
        start: Seqno(reader.u64()?),
        end: Seqno(reader.u64()?),
    };
    let (high_prepared, high_completed) = (Seqno(reader.u64()?), Seqno(reader.u64()?));
    let (max_cas, max_deleted_rev, term) = (Cas(reader.u64()?), reader.u64()?, reader.u64()?);
    let before = (0..reader.u8()?).map(|_| Some((reader.u64()?, Seqno(reader.u64()?))));
    let before = before.collect::<Option<Vec<_>>>()?;
    let points = (0..reader.u8()?).map(|_| reader.u64().map(Seqno));
    let points = points.collect::<Option<Vec<_>>>()?;
    let entries = (0..reader.u8()?).map(|_| {
        Some(FailoverEntry {
            uuid: VbUuid(reader.u64()?),
            seqno: Seqno(reader.u64()?),
        })
    });
    let entries = entries.collect::<Option<Vec<_>>>()?;
    let length = reader.u32()? as usize;
    let topology = str::from_utf8(reader.bytes(length)?).ok()?.to_owned();
    let counts = if reader.rest.is_empty() {
        None
    } else {
        Some(Box::new(decode_counts(reader)?))
    };
    let record = VbRecord {
        state,
        high_seqno,
        purge_seqno,
        snapshot,
        high_prepared,
        high_completed,
        max_cas,
        max_deleted_rev,
        failover_log: FailoverLog::from_entries(entries)?,
        topology,
        term,
        counts,
    };
    let state = State {
        purge_seqno,
        points: RestorePoints::from_seqnos(&points)?,
        lineage: Lineage { epoch, before },
    };
    Some(StoredState { record, state })
}

/// Returns the error of a record that cannot be read.
pub(crate) fn no_record(vb: VbId) -> std::io::Error {
    super::bytes::damaged(format!("the record of {vb}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_after_a_rollback_point_are_invalid_in_all_epochs() {
        let mut lineage = Lineage::new(5);
        assert_eq!(lineage.limit(5), Some(Seqno(u64::MAX)));
        assert_eq!(lineage.limit(4), None);
        lineage.roll_back(Seqno(10), 6);
        assert_eq!(lineage.limit(5), Some(Seqno(10)));
        lineage.roll_back(Seqno(20), 7);
        assert_eq!(lineage.limit(5), Some(Seqno(10)));
        assert_eq!(lineage.limit(6), Some(Seqno(20)));
        lineage.roll_back(Seqno(7), 9);
        assert_eq!(lineage.limit(5), Some(Seqno(7)));
        assert_eq!(lineage.limit(7), Some(Seqno(7)));
        lineage.roll_back(Seqno::ZERO, 11);
        assert_eq!(lineage, Lineage::new(11));
    }

    #[test]
    fn states_round_trip() {
        let record = crate::suite::record(9);
        let mut lineage = Lineage::new(3);
        lineage.roll_back(Seqno(2), 4);
        let state = State {
            purge_seqno: record.purge_seqno,
            points: RestorePoints::from_seqnos(&[Seqno(2), Seqno(9)]).expect("ascending"),
            lineage,
        };
        let mut bytes = Vec::new();
        encode(&record, &state, &mut bytes);
        let read = decode(&bytes).expect("a state");
        assert_eq!(read.record, record);
        let read = (read.state.points, read.state.lineage);
        assert_eq!(read, (state.points, state.lineage));
        assert!((0..70).all(|cut| decode(&bytes[..cut]).is_none()));
    }
}
