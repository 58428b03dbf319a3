//! A stream: request, answer, close, end.

use std::fmt;

use model::{Seqno, SnapshotRange, VbUuid};

use super::bits::bits;
use crate::bytes::{Field, Reader, wrappers};
use crate::message::{OTHER_COMMAND, message};
use crate::{Frame, Malformed, Message, Opcode};

bits! {
    /// Options of a stream.
    StreamFlags {
        /// The vBucket is handed over at the end.
        TAKEOVER 0x1;
        /// Only changes on disk.
        DISK_ONLY 0x2;
        /// Ends at the highest seqno at the time of the request.
        TO_LATEST 0x4;
        /// Only while the vBucket is active.
        ACTIVE_ONLY 0x10;
        /// The UUID must be known even if the stream starts at seqno 0.
        STRICT_VBUUID 0x20;
        /// Starts at the highest seqno at the time of the request.
        FROM_LATEST 0x40;
        /// Purged tombstones do not cause a rollback.
        IGNORE_PURGED_TOMBSTONES 0x80;
        /// Begins with the contents of memory, as cache transfer messages.
        CACHE_TRANSFER 0x100;
    }
}

/// `DCP_STREAM_REQ`, for the vBucket of its envelope.
///
/// The answer has the failover log as its value ([`crate::response::FailoverEntries`]), or the
/// status `ROLLBACK` and a seqno ([`parse_rollback`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamRequest<'a> {
    /// Options of the stream.
    pub flags: StreamFlags,
    /// Last seqno that the consumer has.
    pub start: Seqno,
    /// Last seqno wanted; all bits set for no end.
    pub end: Seqno,
    /// UUID of the history to which `start` belongs; 0 for none.
    pub uuid: VbUuid,
    /// Snapshot that contains `start`. Not checked here, not even the order.
    pub snapshot: SnapshotRange,
    /// Filter and other options as JSON; empty for all collections.
    pub value: &'a [u8],
}

impl<'a> Message<'a> for StreamRequest<'a> {
    fn opcode(&self) -> Opcode {
        Opcode::DCP_STREAM_REQ
    }

    fn read(frame: &Frame<'a>) -> Result<Self, Malformed> {
        if frame.header.opcode != Opcode::DCP_STREAM_REQ {
            return Err(OTHER_COMMAND);
        }
        let mut extras = Reader::new(frame.extras);
        let flags = extras.field()?;
        extras.field::<u32>()?;
        Ok(Self {
            flags,
            start: extras.field()?,
            end: extras.field()?,
            uuid: extras.field()?,
            snapshot: extras.field()?,
            value: frame.value,
        })
    }

    fn write_extras(&self, out: &mut Vec<u8>) {
        self.flags.write(out);
        [0; 4].write(out);
        self.start.write(out);
        self.end.write(out);
        self.uuid.write(out);
        self.snapshot.write(out);
    }

    fn write_value(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.value);
    }
}

/// Parses the seqno in the value of a stream request's answer with the status `ROLLBACK`.
///
/// # Errors
/// The value does not have 8 bytes.
pub fn parse_rollback(value: &[u8]) -> Result<Seqno, Malformed> {
    Field::whole(value, Malformed::new("rollback seqno has a wrong length"))
}

/// `DCP_ADD_STREAM`: the manager of a consumer tells it to request a stream. The answer has the
/// opaque of that stream as extras.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddStream {
    /// Flags of the stream request to send.
    pub flags: StreamFlags,
}

message! { AddStream = DCP_ADD_STREAM; extras: flags; }

/// Reason for which a stream ended; any number, known or not.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct EndReason(pub u32);

wrappers! { EndReason }

impl EndReason {
    /// All requested changes were sent.
    pub const OK: Self = Self(0);
    /// The consumer closed the stream.
    pub const CLOSED: Self = Self(1);
    /// The vBucket changed its state.
    pub const STATE_CHANGED: Self = Self(2);
    /// The connection ends.
    pub const DISCONNECTED: Self = Self(3);
    /// The consumer was too slow.
    pub const TOO_SLOW: Self = Self(4);
    /// The backfill from disk failed.
    pub const BACKFILL_FAILED: Self = Self(5);
    /// The consumer must request the stream again, and will have to roll back.
    pub const ROLLBACK: Self = Self(6);
    /// All collections of the filter were dropped.
    pub const FILTER_EMPTY: Self = Self(7);
    /// The user lost the privilege to read the data.
    pub const LOST_PRIVILEGES: Self = Self(8);

    /// Name in statistics; `"unknown"` for an undefined number.
    pub fn name(self) -> &'static str {
        match self {
            Self::OK => "ok",
            Self::CLOSED => "closed",
            Self::STATE_CHANGED => "state changed",
            Self::DISCONNECTED => "disconnected",
            Self::TOO_SLOW => "too slow",
            Self::BACKFILL_FAILED => "backfill failed",
            Self::ROLLBACK => "rollback",
            Self::FILTER_EMPTY => "filter empty",
            Self::LOST_PRIVILEGES => "lost privileges",
            _ => "unknown",
        }
    }
}

impl fmt::Debug for EndReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}({})", self.name(), self.0)
    }
}

impl fmt::Display for EndReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// `DCP_STREAM_END`: the stream ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamEnd {
    /// Reason of the end.
    pub reason: EndReason,
}

message! { StreamEnd = DCP_STREAM_END; extras: reason; }
