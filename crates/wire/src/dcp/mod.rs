//! Messages of the change protocol (DCP): a producer streams the changes of vBuckets.
//!
//! Both sides send frames of client requests, so all messages are [`Message`](crate::Message)s. CAS
//! and datatype of a document stay in the envelope, as in other requests.
//!
//! One file for each family. The drawing: `docs/protocol/dcp.md`.

mod bits;
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
pub use event::{CollectionEvent, CollectionModified, EventId, FLAT_VERSION, SystemEvent};
pub use flat::FlatEvent;
pub use snapshot::{MarkerFlags, MarkerVersion, OsoSnapshot, SeqnoAdvanced, SnapshotMarker};
pub use stream::{AddStream, EndReason, StreamEnd, StreamFlags, StreamRequest, parse_rollback};

use crate::{Frame, Opcode};

/// Returns the bytes that a message takes of a connection's flow-control window; 0 if it does not
/// count.
///
/// Shape: the whole frame as sent. A prepare counts two bytes more, on both sides: the first
/// implementations did so, and all must agree.
///
/// Source: engine section 6, section 20.9. Test: `dcp::flow_control_arithmetic`.
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

/// Returns [`flow_bytes`] of a received frame; 0 if it is not a request.
#[inline]
pub fn flow_bytes_of(frame: &Frame<'_>) -> usize {
    if frame.header.magic.is_client_request() {
        flow_bytes(frame.header.opcode, frame.wire_bytes())
    } else {
        0
    }
}
