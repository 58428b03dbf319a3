//! Settings that a producer and its consumer agreed on.

use engine::dcp::Advances;
use wire::dcp::OpenFlags;

/// Priority of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Priority {
    /// Served before others.
    High,
    /// Served like others.
    #[default]
    Medium,
    /// Served after others.
    Low,
}

impl Priority {
    /// Returns the name of the priority in `DCP_CONTROL`.
    pub fn name(self) -> &'static str {
        match self {
            Self::High => "high",
            Self::Medium => "medium",
            Self::Low => "low",
        }
    }

    /// Returns the bytes that a connection sends in one turn.
    pub fn turn_bytes(self) -> usize {
        match self {
            Self::High => 256 << 10,
            Self::Medium => 128 << 10,
            Self::Low => 32 << 10,
        }
    }
}

/// Form of snapshot markers.
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

/// All settings of a connection.
#[derive(Clone, Debug, Default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a setting of the protocol"
)]
pub struct NegotiatedSettings {
    /// Flags with which the connection was opened.
    pub flags: OpenFlags,
    /// Priority of the connection.
    pub priority: Priority,
    /// True if values are sent compressed.
    pub compress: bool,
    /// True if the consumer knows that cursors may be dropped.
    pub cursor_dropping: bool,
    /// True if the consumer takes frequency counters of 8 bits.
    pub hifi_mfu: bool,
    /// True if a stream that the consumer closes sends its end.
    pub end_on_close: bool,
    /// True if expirations have an opcode of their own, other than deletions.
    pub expiry_opcode: bool,
    /// True if deletions carry their time: on connections that were opened with delete times, and once expirations were
    /// asked for, which always carry it.
    pub delete_times: bool,
    /// True if streams have ids.
    pub stream_ids: bool,
    /// True if prepares are sent.
    pub sync_writes: bool,
    /// Form of snapshot markers.
    pub marker: MarkerVersion,
    /// True if deletions carry extended attributes of users.
    pub deleted_user_xattrs: bool,
    /// True if the consumer knows the newer statuses.
    pub new_statuses: bool,
    /// Name of the consumer if it acknowledges prepares.
    pub consumer_name: String,
    /// True if vBuckets are read from the store one after the other.
    pub sequential_backfill: bool,
    /// Set if the consumer takes snapshots in any order of seqnos.
    pub out_of_order: Option<Advances>,
    /// True if system events are sent in the form of FlatBuffers.
    pub flat_events: bool,
    /// True if the consumer takes every version, where versions are kept.
    pub change_streams: bool,
}

impl NegotiatedSettings {
    /// Returns the settings with which a connection begins.
    pub fn of(flags: OpenFlags) -> Self {
        Self {
            flags,
            delete_times: flags.contains(OpenFlags::INCLUDE_DELETE_TIMES),
            ..Self::default()
        }
    }
}
