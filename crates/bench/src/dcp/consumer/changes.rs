//! Encodes snapshots: markers, and mutations copied from a template. Pure.

use model::{Cas, Seqno, SnapshotRange, VbId};
use wire::dcp::{MarkerFlags, MarkerVersion, Mutation, SnapshotMarker};
use wire::{Envelope, HEADER_BYTES, Message as _, Opaque, TooLong};

use crate::random::Random;
use crate::workload::{key_of, printable};

/// Offsets of the fields that differ between mutations.
const VBUCKET_AT: usize = 6;
const OPAQUE_AT: usize = 12;
const CAS_AT: usize = 16;
const SEQNO_AT: usize = HEADER_BYTES;
/// Size of a mutation's extras in bytes.
const EXTRAS_BYTES: usize = 31;
/// Id of the default collection, the prefix of every key.
const DEFAULT_COLLECTION: u8 = 0;

/// A granted stream, and the last seqno sent on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Granted {
    pub(super) vb: VbId,
    pub(super) opaque: Opaque,
    pub(super) last: Seqno,
}

/// A snapshot to encode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SnapshotPlan {
    /// Number of mutations, at least 1.
    pub(super) changes: u64,
    /// Whether the consumer must acknowledge the end of the snapshot.
    pub(super) ack: bool,
}

/// Encodes mutations of documents with different keys and the same value.
#[derive(Clone, Debug)]
pub(super) struct MutationEncoder {
    template: Vec<u8>,
    next_key: u64,
    cas: u64,
}

impl MutationEncoder {
    /// Creates an encoder. `first_key` is the number of the first key; `cas` is below every CAS sent.
    pub(super) fn new(value_bytes: usize, first_key: u64, cas: Cas) -> Result<Self, TooLong> {
        let key = [&[DEFAULT_COLLECTION][..], &key_of(0)].concat();
        let value = printable(&mut Random::new(1, 0), value_bytes);
        let mutation = Mutation {
            seqno: Seqno::ZERO,
            rev: 1,
            flags: 0,
            expiry: 0,
            lock_time: 0,
            heat: 0,
            key: &key,
            value: &value,
        };
        let mut template = Vec::new();
        let blank = Envelope {
            cas,
            ..Envelope::default()
        };
        mutation.encode(&blank, &mut template)?;
        Ok(Self {
            template,
            next_key: first_key,
            cas: cas.0,
        })
    }

    /// Appends a marker and its mutations.
    pub(super) fn snapshot(
        &mut self,
        stream: &mut Granted,
        snapshot: SnapshotPlan,
        out: &mut Vec<u8>,
    ) -> Result<(), TooLong> {
        let end = Seqno(stream.last.0 + snapshot.changes);
        let mut flags = MarkerFlags::MEMORY;
        if snapshot.ack {
            flags = flags.with(MarkerFlags::ACK);
        }
        let marker = SnapshotMarker {
            range: SnapshotRange {
                start: Seqno(stream.last.0 + 1),
                end,
            },
            flags,
            version: MarkerVersion::V2_0 {
                visible_end: end,
                high_completed: Seqno::ZERO,
            },
        };
        marker.encode(&Envelope::of_stream(stream.vb, stream.opaque, None), out)?;
        for _ in 0..snapshot.changes {
            stream.last.0 += 1;
            self.change(stream, out);
        }
        Ok(())
    }

    fn change(&mut self, stream: &Granted, out: &mut Vec<u8>) {
        self.cas += 1;
        let key = key_of(self.next_key);
        self.next_key += 1;
        let start = out.len();
        out.extend_from_slice(&self.template);
        let frame = &mut out[start..];
        let key_at = HEADER_BYTES + EXTRAS_BYTES + 1;
        frame[VBUCKET_AT..VBUCKET_AT + 2].copy_from_slice(&stream.vb.0.to_be_bytes());
        frame[OPAQUE_AT..OPAQUE_AT + 4].copy_from_slice(&stream.opaque.0);
        frame[CAS_AT..CAS_AT + 8].copy_from_slice(&self.cas.to_be_bytes());
        frame[SEQNO_AT..SEQNO_AT + 8].copy_from_slice(&stream.last.0.to_be_bytes());
        frame[key_at..key_at + key.len()].copy_from_slice(&key);
    }
}

#[cfg(test)]
mod tests {
    use wire::{Decoded, Limits, Opcode, decode};

    use super::*;

    #[test]
    fn a_snapshot_is_a_marker_and_as_many_mutations() {
        let mut stream = Granted {
            vb: VbId(513),
            opaque: Opaque(*b"opaq"),
            last: Seqno(7),
        };
        let mut changes = MutationEncoder::new(66, 41, Cas(100)).unwrap();
        let snapshot = SnapshotPlan {
            changes: 2,
            ack: true,
        };
        let mut out = Vec::new();
        changes.snapshot(&mut stream, snapshot, &mut out).unwrap();
        assert_eq!(stream.last, Seqno(9));
        let (mut at, mut seen) = (0, Vec::new());
        while let Ok(Decoded::Frame { frame, consumed }) = decode(&out[at..], Limits::AUTHENTICATED)
        {
            at += consumed;
            assert_eq!(
                (frame.vbucket(), frame.header.opaque),
                (VbId(513), Opaque(*b"opaq"))
            );
            if frame.header.opcode == Opcode::DCP_SNAPSHOT_MARKER {
                let marker = SnapshotMarker::parse(&frame).unwrap();
                assert_eq!((marker.range.start, marker.range.end), (Seqno(8), Seqno(9)));
                assert!(marker.flags.contains(MarkerFlags::ACK));
                continue;
            }
            assert_eq!(consumed, changes.template.len());
            let mutation = Mutation::parse(&frame).unwrap();
            assert_eq!(mutation.value.len(), 66);
            seen.push((mutation.seqno, frame.header.cas, mutation.key.to_vec()));
        }
        assert_eq!(at, out.len(), "whole frames only");
        let key = |number| [&[0][..], &key_of(number)].concat();
        let expected = [(Seqno(8), Cas(101), key(41)), (Seqno(9), Cas(102), key(42))];
        assert_eq!(seen, expected);
    }
}
