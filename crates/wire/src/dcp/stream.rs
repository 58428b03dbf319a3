//! A stream: asked for, granted or refused, closed, ended.

use std::fmt;

use model::{Seqno, SnapshotRange, VbUuid};

use super::bits::bits;
use crate::bytes::{EXTRAS, Field, Reader, wrappers};
use crate::message::{OTHER_COMMAND, message};
use crate::{Frame, Malformed, Message, Opaque, Opcode};

bits! {
    /// What is special about a stream.
    StreamFlags {
        /// The vBucket is handed over at its end.
        TAKEOVER 0x1;
        /// Only what is on disk.
        DISK_ONLY 0x2;
        /// Until the seqno that is the highest one now.
        TO_LATEST 0x4;
        /// Only while the vBucket is active.
        ACTIVE_ONLY 0x10;
        /// The history must be known even if the stream starts from nothing.
        STRICT_VBUUID 0x20;
        /// From the seqno that is the highest one now.
        FROM_LATEST 0x40;
        /// Tombstones that were purged are not missed.
        IGNORE_PURGED_TOMBSTONES 0x80;
        /// What is in memory first, as cache transfer messages.
        CACHE_TRANSFER 0x100;
    }
}

/// DCP_STREAM_REQ, for the vBucket of its envelope.
///
/// The answer has the failover log as its value ([`crate::response::FailoverEntries`]), or the
/// status `ROLLBACK` and a seqno ([`parse_rollback`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamRequest<'a> {
    /// What is special about it.
    pub flags: StreamFlags,
    /// The last seqno that the consumer has.
    pub start: Seqno,
    /// The last one that it wants; all bits set for no end.
    pub end: Seqno,
    /// The history that it has `start` of; 0 for none.
    pub uuid: VbUuid,
    /// The snapshot that `start` lies in. Not checked here, not even that it is ascending.
    pub snapshot: SnapshotRange,
    /// Filter and more as JSON; empty for everything.
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

/// The seqno in the value of a stream request's answer with the status `ROLLBACK`.
///
/// # Errors
/// The value has another length than 8.
pub fn parse_rollback(value: &[u8]) -> Result<Seqno, Malformed> {
    Field::whole(value, Malformed::new("rollback seqno has a wrong length"))
}

/// DCP_ADD_STREAM: the manager of a consumer tells it to ask for a stream. The answer has
/// the opaque of that stream as extras ([`parse_stream_opaque`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddStream {
    /// Flags of the stream request to send.
    pub flags: StreamFlags,
}

message! { AddStream = DCP_ADD_STREAM; extras: flags; }

/// The opaque in the extras of the answer to DCP_ADD_STREAM.
///
/// # Errors
/// The extras have another length than 4.
pub fn parse_stream_opaque(extras: &[u8]) -> Result<Opaque, Malformed> {
    extras.try_into().map(Opaque).map_err(|_| EXTRAS)
}

/// Why a stream ended; any number, known or not.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct EndReason(pub u32);

wrappers! { EndReason }

impl EndReason {
    /// Everything that was asked for was sent.
    pub const OK: Self = Self(0);
    /// The consumer closed it.
    pub const CLOSED: Self = Self(1);
    /// The vBucket has another state now.
    pub const STATE_CHANGED: Self = Self(2);
    /// The connection ends.
    pub const DISCONNECTED: Self = Self(3);
    /// The consumer did not take what it was sent.
    pub const TOO_SLOW: Self = Self(4);
    /// What is on disk could not be read.
    pub const BACKFILL_FAILED: Self = Self(5);
    /// The consumer must ask anew and will be told to roll back.
    pub const ROLLBACK: Self = Self(6);
    /// No collection of the filter is left.
    pub const FILTER_EMPTY: Self = Self(7);
    /// The user may no longer read this.
    pub const LOST_PRIVILEGES: Self = Self(8);

    /// The name as statistics show it; `"unknown"` for a number that means nothing.
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

/// DCP_STREAM_END: nothing more comes of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamEnd {
    /// Why.
    pub reason: EndReason,
}

message! { StreamEnd = DCP_STREAM_END; extras: reason; }
