//! Batches: writes that are sent together.

use std::collections::{BTreeMap, BTreeSet};

use model::VbId;
use wire::{Decoded, Frame, Limits, Opaque};

/// Limits for decoding the frames of a batch.
pub(super) const LIMITS: Limits = Limits::AUTHENTICATED;

/// Writes in front of one request for the seqnos of the node's active vBuckets.
#[derive(Debug, Default)]
pub(super) struct Batch {
    /// Lowest mark of its writes.
    pub(super) mark: u64,
    /// Requests for failover logs, sent before the writes.
    pub(super) asks: Vec<u8>,
    /// Frames of the writes, kept until the answer: some may have to be sent again.
    pub(super) frames: Vec<u8>,
    /// The vBuckets of the writes.
    pub(super) vbuckets: BTreeSet<VbId>,
    /// Opaques of refused writes to send again.
    pub(super) refused: BTreeSet<[u8; 4]>,
}

impl Batch {
    /// Returns the write with this opaque.
    pub(super) fn write(&self, opaque: Opaque) -> Option<Frame<'_>> {
        let mut writes = writes(&self.frames);
        let (frame, _) = writes.find(|(frame, _)| frame.header.opaque == opaque)?;
        Some(frame)
    }

    /// Returns the writes to send again: the refused ones, and all of `vbuckets`.
    pub(super) fn again(
        &self,
        vbuckets: &BTreeSet<VbId>,
    ) -> impl Iterator<Item = (VbId, QueuedWrite)> {
        let is_again = |frame: &Frame<'_>| {
            vbuckets.contains(&frame.vbucket()) || self.refused.contains(&frame.header.opaque.0)
        };
        let again = writes(&self.frames).filter(move |(frame, _)| is_again(frame));
        again.map(|(frame, bytes)| {
            let held = QueuedWrite {
                mark: self.mark,
                opaque: frame.header.opaque,
                bytes: bytes.to_vec(),
            };
            (frame.vbucket(), held)
        })
    }
}

/// A write that waits to be sent.
#[derive(Debug)]
pub(super) struct QueuedWrite {
    /// Newest mark when the write was made.
    pub(super) mark: u64,
    /// Opaque of the write; it grows from write to write.
    pub(super) opaque: Opaque,
    pub(super) bytes: Vec<u8>,
}

/// Writes of a vBucket that wait until a node serves it, by opaque and so in their order.
pub(super) type QueuedWrites = BTreeMap<[u8; 4], QueuedWrite>;

/// Iterates over frames, each with its bytes.
fn writes(mut frames: &[u8]) -> impl Iterator<Item = (Frame<'_>, &[u8])> {
    std::iter::from_fn(move || {
        let Ok(Decoded::Frame { frame, consumed }) = wire::decode(frames, LIMITS) else {
            return None;
        };
        let (this, rest) = frames.split_at_checked(consumed)?;
        frames = rest;
        Some((frame, this))
    })
}

#[cfg(test)]
mod tests {
    use wire::{Envelope, Opcode, RawParts, encode_raw};

    use super::*;

    /// Creates a batch with one write for each vBucket; opaques count from 0.
    fn batch(vbuckets: &[u16]) -> Batch {
        let mut batch = Batch {
            mark: 3,
            ..Batch::default()
        };
        for (opaque, vbucket) in (0_u32..).zip(vbuckets) {
            let envelope = Envelope {
                vbucket: VbId(*vbucket),
                opaque: Opaque(opaque.to_be_bytes()),
                ..Envelope::default()
            };
            let parts = RawParts {
                key: b"key",
                ..RawParts::default()
            };
            encode_raw(Opcode::NOOP, &envelope, parts, &mut batch.frames).unwrap();
        }
        batch
    }

    fn opaque(number: u32) -> Opaque {
        Opaque(number.to_be_bytes())
    }

    #[test]
    fn a_write_is_found_by_its_opaque() {
        let batch = batch(&[7, 8, 7]);
        assert_eq!(batch.write(opaque(1)).unwrap().vbucket(), VbId(8));
        assert!(batch.write(opaque(3)).is_none());
    }

    #[test]
    fn refused_and_moved_writes_are_sent_again_unchanged() {
        let mut batch = batch(&[7, 8, 7, 9]);
        batch.refused.insert(opaque(1).0);
        let again: Vec<_> = batch.again(&BTreeSet::from([VbId(7)])).collect();
        let known: Vec<_> = again.iter().map(|(vb, held)| (vb.0, held.opaque)).collect();
        assert_eq!(known, [(7, opaque(0)), (8, opaque(1)), (7, opaque(2))]);
        let bytes: Vec<_> = again.iter().flat_map(|(_, held)| &held.bytes).collect();
        let (first, _) = batch.frames.split_at(batch.frames.len() / 4 * 3);
        assert_eq!(bytes, first.iter().collect::<Vec<_>>());
        assert!(again.iter().all(|(_, held)| held.mark == 3));
    }
}
