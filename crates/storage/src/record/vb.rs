//! The record of a vBucket, with what the store itself remembers of it.

use model::{
    Cas, FailoverEntry, FailoverLog, Seqno, SnapshotRange, VbId, VbRecord, VbState, VbUuid,
};

use super::key::vb_key;
use super::sealed::{CRC_BYTES, DecodeError, Reader, seal, unseal};
use crate::points::RestorePoints;

const VERSION: u8 = 2;
/// Without the seqnos of prepares; still read.
const VERSION_UNPREPARED: u8 = 1;

/// A vBucket's record as stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoredVb {
    /// What the bucket gave.
    pub(crate) record: VbRecord,
    /// Number of the commit that wrote it; ascends over all commits of the store.
    pub(crate) commit: u64,
    /// Where a rollback may go.
    pub(crate) points: RestorePoints,
}

/// A record as it is to be stored.
#[derive(Clone, Copy, Debug)]
pub(crate) struct VbValue<'a> {
    /// What the bucket gave; the numbers beside it count instead of its own.
    pub(crate) record: &'a VbRecord,
    pub(crate) high_seqno: Seqno,
    pub(crate) purge_seqno: Seqno,
    pub(crate) snapshot: SnapshotRange,
    pub(crate) commit: u64,
    pub(crate) points: &'a RestorePoints,
}

impl<'a> From<&'a StoredVb> for VbValue<'a> {
    fn from(stored: &'a StoredVb) -> Self {
        Self {
            record: &stored.record,
            high_seqno: stored.record.high_seqno,
            purge_seqno: stored.record.purge_seqno,
            snapshot: stored.record.snapshot,
            commit: stored.commit,
            points: &stored.points,
        }
    }
}

/// Adds the value of the record to `out`.
pub(crate) fn encode_vb(vb: VbId, value: VbValue<'_>, out: &mut Vec<u8>) {
    let VbValue { record, points, .. } = value;
    let start = out.len();
    out.extend_from_slice(&[0; CRC_BYTES]);
    out.extend_from_slice(&[VERSION, record.state as u8]);
    let numbers = [
        value.high_seqno.0,
        value.purge_seqno.0,
        value.snapshot.start.0,
        value.snapshot.end.0,
        record.max_cas.0,
        record.max_deleted_rev,
        record.term,
        value.commit,
        record.high_prepared.0,
        record.high_completed.0,
    ];
    for number in numbers {
        out.extend_from_slice(&number.to_be_bytes());
    }
    out.push(points.seqnos().len() as u8);
    for point in points.seqnos() {
        out.extend_from_slice(&point.0.to_be_bytes());
    }
    let entries = record.failover_log.entries();
    out.push(entries.len() as u8);
    for entry in entries {
        out.extend_from_slice(&entry.uuid.0.to_be_bytes());
        out.extend_from_slice(&entry.seqno.0.to_be_bytes());
    }
    out.extend_from_slice(record.topology.as_bytes());
    seal(&vb_key(vb), &mut out[start..], &[]);
}

/// Reads the record of `vb`.
///
/// # Errors
/// Whatever keeps `value` from being a record of that vBucket.
pub(crate) fn decode_vb(vb: VbId, value: &[u8]) -> Result<StoredVb, DecodeError> {
    let mut reader = Reader::new(unseal(&vb_key(vb), value)?);
    let version = reader.u8()?;
    if version != VERSION && version != VERSION_UNPREPARED {
        return Err(DecodeError::Version(version));
    }
    let state = VbState::from_wire(reader.u8()?).ok_or(DecodeError::Content("the state"))?;
    let high_seqno = Seqno(reader.u64()?);
    let purge_seqno = Seqno(reader.u64()?);
    let snapshot = SnapshotRange {
        start: Seqno(reader.u64()?),
        end: Seqno(reader.u64()?),
    };
    let max_cas = Cas(reader.u64()?);
    let max_deleted_rev = reader.u64()?;
    let term = reader.u64()?;
    let commit = reader.u64()?;
    let (high_prepared, high_completed) = if version == VERSION {
        (Seqno(reader.u64()?), Seqno(reader.u64()?))
    } else {
        (Seqno::ZERO, Seqno::ZERO)
    };
    let points = decode_points(&mut reader)?;
    let failover_log = decode_failover_log(&mut reader)?;
    let topology = str::from_utf8(reader.rest)
        .map_err(|_| DecodeError::Content("the topology is not UTF-8"))?
        .to_owned();
    let record = VbRecord {
        state,
        high_seqno,
        purge_seqno,
        snapshot,
        high_prepared,
        high_completed,
        max_cas,
        max_deleted_rev,
        failover_log,
        topology,
        term,
    };
    Ok(StoredVb {
        record,
        commit,
        points,
    })
}

fn decode_points(reader: &mut Reader<'_>) -> Result<RestorePoints, DecodeError> {
    let count = reader.u8()?;
    let seqnos = (0..count)
        .map(|_| reader.u64().map(Seqno))
        .collect::<Result<Vec<_>, DecodeError>>()?;
    RestorePoints::from_seqnos(&seqnos).ok_or(DecodeError::Content("the restore points"))
}

fn decode_failover_log(reader: &mut Reader<'_>) -> Result<FailoverLog, DecodeError> {
    let count = reader.u8()?;
    let mut entries = Vec::with_capacity(usize::from(count));
    for _ in 0..count {
        entries.push(FailoverEntry {
            uuid: VbUuid(reader.u64()?),
            seqno: Seqno(reader.u64()?),
        });
    }
    FailoverLog::from_entries(entries).ok_or(DecodeError::Content("the failover log is empty"))
}
