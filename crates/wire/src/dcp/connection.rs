//! Messages about a connection as a whole, and the hand-over of a vBucket.

use model::VbState;

use super::bits::bits;
use crate::bytes::{Field, Reader};
use crate::message::{OTHER_COMMAND, message};
use crate::{Frame, Malformed, Message, Opcode};

bits! {
    /// What a connection is opened for.
    OpenFlags {
        /// The node that is asked shall produce; without it, it shall consume.
        PRODUCER 0x1;
        /// Values with their extended attributes.
        INCLUDE_XATTRS 0x4;
        /// No values, and no extended attributes either unless they are asked for.
        NO_VALUE 0x8;
        /// Deletions with the time at which they happened.
        INCLUDE_DELETE_TIMES 0x20;
        /// No values, but the datatype that the value has.
        NO_VALUE_WITH_UNDERLYING_DATATYPE 0x40;
        /// Deletions with the extended attributes of users.
        INCLUDE_DELETED_USER_XATTRS 0x100;
        /// No deletions while a stream that starts from nothing catches up.
        SKIP_DELETES_IN_INITIAL_BACKFILL 0x200;
    }
}

/// DCP_OPEN: makes a connection one of the change protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DcpOpen<'a> {
    /// What for.
    pub flags: OpenFlags,
    /// Name of the connection; at most 200 bytes are valid, more are read.
    pub name: &'a [u8],
    /// More about it as JSON, such as the name of the consumer; mostly empty.
    pub value: &'a [u8],
}

impl<'a> Message<'a> for DcpOpen<'a> {
    fn opcode(&self) -> Opcode {
        Opcode::DCP_OPEN
    }

    fn read(frame: &Frame<'a>) -> Result<Self, Malformed> {
        if frame.header.opcode != Opcode::DCP_OPEN {
            return Err(OTHER_COMMAND);
        }
        let mut extras = Reader::new(frame.extras);
        extras.field::<u32>()?;
        Ok(Self {
            flags: extras.field()?,
            name: frame.key,
            value: frame.value,
        })
    }

    fn write_extras(&self, out: &mut Vec<u8>) {
        u64::from(self.flags.0).write(out);
    }

    fn key(&self) -> &[u8] {
        self.name
    }

    fn write_value(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.value);
    }
}

/// DCP_CONTROL: one setting of a connection, as text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DcpControl<'a> {
    /// Name of the setting.
    pub name: &'a [u8],
    /// Its value.
    pub value: &'a [u8],
}

impl DcpControl<'_> {
    /// Settee's own: the UUID of the bucket that the consumer has. It is refused where the bucket of that name is another
    /// one: it was dropped, or flushed in a cluster, and one of the two nodes does not know yet.
    pub const BUCKET_UUID: &'static [u8] = b"settee_bucket_uuid";

    /// The value as `true` or `false`; `None` for anything else.
    pub fn flag(&self) -> Option<bool> {
        match self.value {
            b"true" => Some(true),
            b"false" => Some(false),
            _ => None,
        }
    }

    /// The value as a decimal number; `None` for anything else, signs and spaces included.
    pub fn number(&self) -> Option<u32> {
        let digits = self.value.iter().all(u8::is_ascii_digit);
        std::str::from_utf8(self.value)
            .ok()
            .filter(|_| digits)?
            .parse()
            .ok()
    }

    /// The value as a number of seconds, also with a fraction; `None` for anything else, signs
    /// and exponents included.
    pub fn seconds(&self) -> Option<f64> {
        let plain = |byte: &u8| byte.is_ascii_digit() || *byte == b'.';
        let plain = self.value.iter().all(plain);
        std::str::from_utf8(self.value)
            .ok()
            .filter(|_| plain)?
            .parse()
            .ok()
    }
}

message! { DcpControl<'a> = DCP_CONTROL; key: name; value: value; }

/// DCP_BUFFER_ACK: the consumer has dealt with some of what it got. Nothing answers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferAck {
    /// Bytes, counted as [`super::flow_bytes`] does.
    pub bytes: u32,
}

message! { BufferAck = DCP_BUFFER_ACK; extras: bytes; }

/// DCP_SET_VBUCKET_STATE: the producer hands the vBucket of the stream over. It waits for the
/// answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetVbucketState {
    /// State that the consumer's vBucket shall have.
    pub state: VbState,
}

message! { SetVbucketState = DCP_SET_VBUCKET_STATE; extras: state; }
