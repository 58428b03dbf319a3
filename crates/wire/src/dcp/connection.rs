//! Messages about a whole connection, and the handover of a vBucket.

use model::VbState;

use super::bits::bits;
use crate::bytes::{Field, Reader};
use crate::message::{OTHER_COMMAND, message};
use crate::{Frame, Malformed, Message, Opcode};

bits! {
    /// Purpose and options of a connection.
    OpenFlags {
        /// The receiver becomes a producer; without this bit, a consumer.
        PRODUCER 0x1;
        /// Values include their extended attributes.
        INCLUDE_XATTRS 0x4;
        /// No values; extended attributes only if requested.
        NO_VALUE 0x8;
        /// Deletions include their time.
        INCLUDE_DELETE_TIMES 0x20;
        /// No values, but their datatype.
        NO_VALUE_WITH_UNDERLYING_DATATYPE 0x40;
        /// Deletions include user attributes.
        INCLUDE_DELETED_USER_XATTRS 0x100;
        /// No deletions during the initial backfill of a stream that starts at seqno 0.
        SKIP_DELETES_IN_INITIAL_BACKFILL 0x200;
    }
}

/// `DCP_OPEN`: turns a connection into one of the change protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DcpOpen<'a> {
    /// Purpose and options.
    pub flags: OpenFlags,
    /// Name of the connection; at most 200 bytes are valid, more are read.
    pub name: &'a [u8],
    /// Further options as JSON, such as the name of the consumer; mostly empty.
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

/// `DCP_CONTROL`: one setting of a connection, as text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DcpControl<'a> {
    /// Name of the setting.
    pub name: &'a [u8],
    /// Its value.
    pub value: &'a [u8],
}

impl DcpControl<'_> {
    /// Settee's own setting: the UUID of the consumer's bucket. The producer refuses it if its
    /// bucket of that name has another UUID: the bucket was dropped, or flushed in a cluster, and
    /// one of the two nodes has not noticed yet.
    pub const BUCKET_UUID: &'static [u8] = b"settee_bucket_uuid";

    /// Parses the value as `true` or `false`; `None` for anything else.
    pub fn flag(&self) -> Option<bool> {
        match self.value {
            b"true" => Some(true),
            b"false" => Some(false),
            _ => None,
        }
    }

    /// Parses the value as a decimal number; `None` for anything else, also with signs or spaces.
    pub fn number(&self) -> Option<u32> {
        let digits = self.value.iter().all(u8::is_ascii_digit);
        std::str::from_utf8(self.value)
            .ok()
            .filter(|_| digits)?
            .parse()
            .ok()
    }

    /// Parses the value as a number of seconds, also with a fraction; `None` for anything else,
    /// also with signs or exponents.
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

/// `DCP_BUFFER_ACK`: the consumer has processed some bytes. There is no response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferAck {
    /// Number of bytes, as [`super::flow_bytes`] counts them.
    pub bytes: u32,
}

message! { BufferAck = DCP_BUFFER_ACK; extras: bytes; }

/// `DCP_SET_VBUCKET_STATE`: the producer hands over the vBucket of the stream, and waits for the
/// answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetVbucketState {
    /// New state of the consumer's vBucket.
    pub state: VbState,
}

message! { SetVbucketState = DCP_SET_VBUCKET_STATE; extras: state; }
