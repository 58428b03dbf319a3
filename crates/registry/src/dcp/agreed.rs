//! What a producer and its consumer agreed on.

use engine::dcp::Advances;
use wire::dcp::OpenFlags;

/// How eagerly a connection is served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Priority {
    /// Before others.
    High,
    /// As others.
    #[default]
    Medium,
    /// After others.
    Low,
}

impl Priority {
    /// Its name in DCP_CONTROL.
    pub fn name(self) -> &'static str {
        match self {
            Self::High => "high",
            Self::Medium => "medium",
            Self::Low => "low",
        }
    }

    /// Bytes that a connection sends in one turn.
    pub fn turn_bytes(self) -> usize {
        match self {
            Self::High => 256 << 10,
            Self::Medium => 128 << 10,
            Self::Low => 32 << 10,
        }
    }
}

/// In which form documents are sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MarkerVersion {
    /// Start, end and flags.
    #[default]
    V1,
    /// Adds the visible end and the high completed seqno.
    V2_0,
    /// Adds the purge seqno and the high prepared seqno.
    V2_2,
}

/// Everything that is agreed on.
#[derive(Clone, Debug, Default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a setting of the protocol"
)]
pub struct Agreed {
    /// What the connection was opened with.
    pub flags: OpenFlags,
    /// How eagerly it is served.
    pub priority: Priority,
    /// Values are sent compressed.
    pub compress: bool,
    /// It knows that cursors may be dropped.
    pub cursor_dropping: bool,
    /// It takes frequency counters of 8 bits.
    pub hifi_mfu: bool,
    /// A stream that it closes tells its end.
    pub end_on_close: bool,
    /// Expirations are told from deletions.
    pub expiry_opcode: bool,
    /// Deletions carry their time, too: where the connection was opened with delete times, and once expirations were
    /// asked for, which always carry it.
    pub delete_times: bool,
    /// Streams have numbers.
    pub stream_ids: bool,
    /// Prepares are sent.
    pub sync_writes: bool,
    /// The form of snapshot markers.
    pub marker: MarkerVersion,
    /// Deletions carry extended attributes of users.
    pub deleted_user_xattrs: bool,
    /// It knows the newer statuses.
    pub new_statuses: bool,
    /// What the consumer calls itself, if it acknowledges prepares.
    pub consumer_name: String,
    /// vBuckets are read from the store one after the other.
    pub sequential_backfill: bool,
    /// It takes snapshots in any order.
    pub out_of_order: Option<Advances>,
    /// System events are told in the form of FlatBuffers.
    pub flat_events: bool,
    /// It takes every version where they are kept.
    pub change_streams: bool,
}

impl Agreed {
    /// What a connection begins with.
    pub fn of(flags: OpenFlags) -> Self {
        Self {
            flags,
            delete_times: flags.contains(OpenFlags::INCLUDE_DELETE_TIMES),
            ..Self::default()
        }
    }
}
