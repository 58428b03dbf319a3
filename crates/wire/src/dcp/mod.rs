//! Messages of the change protocol (DCP): a producer streams what changes in vBuckets.
//!
//! Every one has the frame of a client's request, from either side, so all of them are
//! [`Message`](crate::Message)s and have a variant in [`Request`](crate::Request). CAS and
//! datatype of a document stay in the envelope ([`envelope`]), as with any other request.
//!
//! One file for each family. The drawing: `docs/protocol/dcp.md`.

mod connection;
mod document;
mod durable;
mod event;
mod flat;
mod snapshot;
mod stream;

pub use connection::{BufferAck, DcpControl, DcpOpen, OpenFlags, SetVbucketState};
pub use document::{Deletion, Expiration, Mutation};
pub use durable::{Abort, Commit, Prepare, SeqnoAcknowledged};
pub use event::{CollectionEvent, CollectionModified, EventId, SystemEvent};
pub use flat::FlatEvent;
pub use snapshot::{MarkerFlags, MarkerVersion, OsoSnapshot, SeqnoAdvanced, SnapshotMarker};
pub use stream::{
    AddStream, EndReason, StreamEnd, StreamFlags, StreamRequest, parse_rollback,
    parse_stream_opaque,
};

use model::{Cas, Datatype, VbId};

use crate::{Envelope, Frame, Opaque, Opcode, RequestInfos};

/// The envelope of a message of one stream.
///
/// `stream_id` is there on connections that agreed on stream ids, and makes the frame a flexible
/// one. `cas` and `datatype` are those of the document, else zero.
#[must_use]
#[inline]
pub fn envelope(
    vbucket: VbId,
    opaque: Opaque,
    stream_id: Option<u16>,
    (cas, datatype): (Cas, Datatype),
) -> Envelope<'static> {
    Envelope {
        vbucket,
        opaque,
        cas,
        datatype,
        infos: RequestInfos {
            stream_id,
            ..RequestInfos::default()
        },
    }
}

/// Bytes that a message takes of a connection's flow-control window, 0 for one that is not
/// counted.
///
/// Shape: the whole frame as sent. A prepare counts two bytes more, on both sides: so the first
/// implementations did, and all have to agree.
///
/// Source: engine section 6, section 20.9. Test: `dcp::flow_control_arithmetic`.
#[must_use]
#[inline]
pub fn flow_bytes(opcode: Opcode, frame_bytes: usize) -> usize {
    match opcode {
        Opcode::DCP_STREAM_END
        | Opcode::DCP_SNAPSHOT_MARKER
        | Opcode::DCP_MUTATION
        | Opcode::DCP_DELETION
        | Opcode::DCP_EXPIRATION
        | Opcode::DCP_SET_VBUCKET_STATE
        | Opcode::DCP_SYSTEM_EVENT
        | Opcode::DCP_COMMIT
        | Opcode::DCP_ABORT
        | Opcode::DCP_SEQNO_ADVANCED
        | Opcode::DCP_OSO_SNAPSHOT => frame_bytes,
        Opcode::DCP_PREPARE => frame_bytes.saturating_add(2),
        _ => 0,
    }
}

/// The same of a frame that was received; 0 of one that is no request.
#[must_use]
#[inline]
pub fn flow_bytes_of(frame: &Frame<'_>) -> usize {
    if frame.header.magic.is_client_request() {
        flow_bytes(frame.header.opcode, frame.wire_bytes())
    } else {
        0
    }
}

/// Declares a set of bits that travels as 32 bits; bits without a name are kept.
macro_rules! bits {
    ($(#[$doc:meta])* $name:ident { $($(#[$bit_doc:meta])* $bit:ident $value:literal;)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        pub struct $name(pub u32);

        impl $name {
            $($(#[$bit_doc])* pub const $bit: Self = Self($value);)*
            /// Every bit that has a name.
            pub const ALL: Self = Self(0 $(| $value)*);

            /// Whether every bit of `other` is set.
            #[must_use]
            pub const fn contains(self, other: Self) -> bool {
                self.0 & other.0 == other.0
            }

            /// The bits of both.
            #[must_use]
            pub const fn with(self, other: Self) -> Self {
                Self(self.0 | other.0)
            }

            /// The bits of `self` that are not in `other`.
            #[must_use]
            pub const fn without(self, other: Self) -> Self {
                Self(self.0 & !other.0)
            }
        }
    };
}

use bits;
