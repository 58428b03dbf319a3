//! Requests of clients: the typed form of a frame, and the frame of a typed form.
//!
//! One file for each family; every message keeps the rules of its row in the opcode table.

mod collections;
mod node;
mod observe;
mod read;
mod scan;
mod session;
mod subdoc;
mod vbucket;
mod write;

pub use collections::{CollectionsGetId, CollectionsGetScopeId};
pub use node::{GetCmdTimer, Quit, Stat, Verbosity};
pub use observe::{Observe, ObserveKey, ObserveKeys, ObserveSeqno};
pub use read::{
    Get, GetAndTouch, GetLocked, GetMeta, GetRandomKey, GetReplica, MetaVersion, Touch, Unlock,
};
pub use scan::{RangeScanCancel, RangeScanContinue, RangeScanCreate};
pub use session::{GetClusterConfig, GetErrorMap, Hello, Sasl, SelectBucket};
pub use subdoc::{
    DocFlags, PathFlags, Subdoc, SubdocExtras, SubdocMulti, SubdocSpec, SubdocSpecIter,
    SubdocSpecs, encode_spec,
};
pub use vbucket::{
    CompactDb, DelVbucket, GetAllVbSeqnos, GetFailoverLog, SeqnoPersistence, SetVbucket,
};
pub use write::{Arithmetic, Concat, ConcatMode, Delete, Direction, Store, StoreMode};

use model::{Cas, Datatype, VbId};

use crate::dcp::{
    Abort, AddStream, BufferAck, Commit, DcpControl, DcpOpen, Deletion, Expiration, Mutation,
    OsoSnapshot, Prepare, SeqnoAcknowledged, SeqnoAdvanced, SetVbucketState, SnapshotMarker,
    StreamEnd, StreamRequest, SystemEvent,
};
use crate::frame::{Header, Magic};
use crate::{
    Frame, HEADER_BYTES, InfoError, Malformed, Opaque, Opcode, OpcodeInfo, RequestInfos, Standing,
    TooLong,
};

/// The frame is sound, but of a command that the asked-for message is not.
pub(crate) const OTHER_COMMAND: Malformed = Malformed::new("frame is of another command");
/// Cannot happen to a frame that kept the rules of its row.
pub(crate) const EXTRAS: Malformed = Malformed::new("extras have a wrong length");

/// What every request carries beside its own message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Envelope<'a> {
    /// vBucket of the key; 0 where there is none.
    pub vbucket: VbId,
    /// Comes back with the answer.
    pub opaque: Opaque,
    /// Revision that the document must have, or zero.
    pub cas: Cas,
    /// Bits of the value.
    pub datatype: Datatype,
    /// Optional arguments; any of them makes the frame a flexible one.
    pub infos: RequestInfos<'a>,
}

impl<'a> Envelope<'a> {
    /// The envelope of a frame, frame infos checked against the opcode.
    ///
    /// # Errors
    /// The frame infos are not valid, or the opcode does not take them.
    #[inline]
    pub fn parse(frame: &Frame<'a>) -> Result<Self, InfoError> {
        let infos = if frame.frame_infos.is_empty() {
            RequestInfos::default()
        } else {
            let infos = RequestInfos::parse(frame.frame_infos)?;
            if let Some(info) = frame.header.opcode.info() {
                infos.check(info)?;
            }
            infos
        };
        Ok(Self {
            vbucket: frame.vbucket(),
            opaque: frame.header.opaque,
            cas: frame.header.cas,
            datatype: frame.header.datatype,
            infos,
        })
    }
}

/// A message that a client sends.
///
/// The envelope is not part of it: CAS, datatype and vBucket stay in the frame, or come from an
/// [`Envelope`] when the message is sent.
pub trait Message<'a>: Sized {
    /// The opcode that says all of it that is not in the body.
    fn opcode(&self) -> Opcode;

    /// Reads a frame that [`OpcodeInfo::check`] found nothing wrong with.
    ///
    /// # Errors
    /// The frame is of another command, or breaks a rule that lengths alone do not show.
    fn read(frame: &Frame<'a>) -> Result<Self, Malformed>;

    /// Appends the extras.
    fn write_extras(&self, _out: &mut Vec<u8>) {}

    /// The key.
    fn key(&self) -> &[u8] {
        &[]
    }

    /// Appends the value.
    fn write_value(&self, _out: &mut Vec<u8>) {}

    /// Reads a frame. No allocation.
    ///
    /// # Errors
    /// The frame breaks a rule of its opcode, or is no such message.
    fn parse(frame: &Frame<'a>) -> Result<Self, Malformed> {
        match checked(frame)? {
            Some(_) => Self::read(frame),
            None => Err(OTHER_COMMAND),
        }
    }

    /// Appends the frame.
    ///
    /// # Errors
    /// A part is longer than a frame can carry; `out` is as before.
    fn encode(&self, envelope: &Envelope<'_>, out: &mut Vec<u8>) -> Result<(), TooLong> {
        let frame = Outgoing {
            opcode: self.opcode(),
            envelope,
            key: self.key(),
        };
        frame.append(
            out,
            |out| self.write_extras(out),
            |out| self.write_value(out),
        )
    }
}

/// Appends a frame of any parts, also of such as no message allows.
///
/// # Errors
/// A part is longer than a frame can carry; `out` is as before.
pub fn encode_raw(
    opcode: Opcode,
    envelope: &Envelope<'_>,
    [extras, key, value]: [&[u8]; 3],
    out: &mut Vec<u8>,
) -> Result<(), TooLong> {
    let frame = Outgoing {
        opcode,
        envelope,
        key,
    };
    frame.append(
        out,
        |out| out.extend_from_slice(extras),
        |out| out.extend_from_slice(value),
    )
}

struct Outgoing<'e> {
    opcode: Opcode,
    envelope: &'e Envelope<'e>,
    key: &'e [u8],
}

impl Outgoing<'_> {
    fn append(
        &self,
        out: &mut Vec<u8>,
        extras: impl FnOnce(&mut Vec<u8>),
        value: impl FnOnce(&mut Vec<u8>),
    ) -> Result<(), TooLong> {
        let start = out.len();
        let result = self.try_append(out, extras, value);
        if result.is_err() {
            out.truncate(start);
        }
        result
    }

    fn try_append(
        &self,
        out: &mut Vec<u8>,
        extras: impl FnOnce(&mut Vec<u8>),
        value: impl FnOnce(&mut Vec<u8>),
    ) -> Result<(), TooLong> {
        let start = out.len();
        out.extend_from_slice(&[0; HEADER_BYTES]);
        let infos_at = out.len();
        self.envelope.infos.encode(out)?;
        let extras_at = out.len();
        extras(out);
        let key_at = out.len();
        out.extend_from_slice(self.key);
        value(out);
        let framing = extras_at.saturating_sub(infos_at);
        let key_bytes_max = if framing > 0 { 0xff } else { 0xffff };
        let key_len = Some(self.key.len()).filter(|&len| len <= key_bytes_max);
        let header = Header {
            magic: if framing > 0 {
                Magic::AltClientRequest
            } else {
                Magic::ClientRequest
            },
            opcode: self.opcode,
            framing_len: u8::try_from(framing).map_err(|_| TooLong {
                part: "frame infos",
            })?,
            key_len: key_len.ok_or(TooLong { part: "key" })? as u16,
            extras_len: u8::try_from(key_at.saturating_sub(extras_at))
                .map_err(|_| TooLong { part: "extras" })?,
            datatype: self.envelope.datatype,
            vbucket_or_status: self.envelope.vbucket.0,
            body_len: u32::try_from(out.len().saturating_sub(infos_at))
                .map_err(|_| TooLong { part: "body" })?,
            opaque: self.envelope.opaque,
            cas: self.envelope.cas,
        };
        if let Some(place) = out.get_mut(start..infos_at) {
            place.copy_from_slice(&header.to_bytes());
        }
        Ok(())
    }
}

/// The row of the frame's opcode when there is one to read by.
#[inline]
fn checked(frame: &Frame<'_>) -> Result<Option<&'static OpcodeInfo>, Malformed> {
    if !frame.header.magic.is_client_request() {
        return Err(Malformed::new("not a request of a client"));
    }
    match frame.header.opcode.info() {
        Some(info) if info.standing == Standing::Known => {
            info.check(frame)?;
            Ok(Some(info))
        }
        _ => Ok(None),
    }
}

macro_rules! requests {
    (
        messages { $($(#[$doc:meta])* $message:ident $(<$life:lifetime>)?: $($opcode:ident)|+;)* }
        bare { $($(#[$bare_doc:meta])* $bare:ident: $bare_opcode:ident;)* }
    ) => {
        /// A frame of a client with its meaning; what has no type of its own is kept as it came.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Request<'a> {
            $($(#[$doc])* $message($message $(<$life>)?),)*
            $($(#[$bare_doc])* $bare,)*
            /// Any other opcode: unknown, removed, or known but without a type here. Of a known
            /// one the rules of its row were checked.
            Unknown(Frame<'a>),
        }

        impl<'a> Request<'a> {
            /// Gives a frame its meaning. No allocation.
            ///
            /// # Errors
            /// The frame is no request of a client, or breaks a rule of its opcode. What the
            /// connection negotiated is not looked at, nor are frame infos
            /// ([`Envelope::parse`]).
            ///
            /// Source: protocol section 2, section 3. Test: `rules`.
            #[inline]
            pub fn parse(frame: &Frame<'a>) -> Result<Self, Malformed> {
                if checked(frame)?.is_none() {
                    return Ok(Self::Unknown(*frame));
                }
                Ok(match frame.header.opcode {
                    $($(Opcode::$opcode)|+ => Self::$message(Message::read(frame)?),)*
                    $(Opcode::$bare_opcode => Self::$bare,)*
                    _ => Self::Unknown(*frame),
                })
            }

            /// The opcode.
            #[must_use]
            pub fn opcode(&self) -> Opcode {
                match self {
                    $(Self::$message(message) => message.opcode(),)*
                    $(Self::$bare => Opcode::$bare_opcode,)*
                    Self::Unknown(frame) => frame.header.opcode,
                }
            }

            /// Appends the frame.
            ///
            /// # Errors
            /// A part is longer than a frame can carry; `out` is as before.
            pub fn encode(
                &self,
                envelope: &Envelope<'_>,
                out: &mut Vec<u8>,
            ) -> Result<(), TooLong> {
                match self {
                    $(Self::$message(message) => message.encode(envelope, out),)*
                    $(Self::$bare => {
                        encode_raw(Opcode::$bare_opcode, envelope, [&[]; 3], out)
                    })*
                    Self::Unknown(frame) => {
                        let parts = [frame.extras, frame.key, frame.value];
                        encode_raw(frame.header.opcode, envelope, parts, out)
                    }
                }
            }
        }
    };
}

requests! {
    messages {
        /// Reads a document.
        Get<'a>: GET | GETQ | GETK | GETKQ;
        /// Writes a document.
        Store<'a>: SET | ADD | REPLACE | SETQ | ADDQ | REPLACEQ;
        /// Deletes a document.
        Delete<'a>: DELETE | DELETEQ;
        /// Counts in a document.
        Arithmetic<'a>: INCREMENT | DECREMENT | INCREMENTQ | DECREMENTQ;
        /// Adds bytes to a document.
        Concat<'a>: APPEND | PREPEND | APPENDQ | PREPENDQ;
        /// Sets the expiry of a document.
        Touch<'a>: TOUCH;
        /// Sets the expiry of a document and reads it.
        GetAndTouch<'a>: GAT | GATQ;
        /// Locks a document and reads it.
        GetLocked<'a>: GET_LOCKED;
        /// Unlocks a document.
        Unlock<'a>: UNLOCK_KEY;
        /// Reads a document of a replica.
        GetReplica<'a>: GET_REPLICA;
        /// Reads the metadata of a document.
        GetMeta<'a>: GET_META | GETQ_META;
        /// Reads or changes a part of a document.
        Subdoc<'a>: SUBDOC_GET | SUBDOC_EXISTS | SUBDOC_DICT_ADD | SUBDOC_DICT_UPSERT | SUBDOC_DELETE
            | SUBDOC_REPLACE | SUBDOC_ARRAY_PUSH_LAST | SUBDOC_ARRAY_PUSH_FIRST
            | SUBDOC_ARRAY_INSERT | SUBDOC_ARRAY_ADD_UNIQUE | SUBDOC_COUNTER | SUBDOC_GET_COUNT
            | SUBDOC_REPLACE_BODY_WITH_XATTR;
        /// Reads or changes several parts of a document.
        SubdocMulti<'a>: SUBDOC_MULTI_LOOKUP | SUBDOC_MULTI_MUTATION;
        /// Reads some document.
        GetRandomKey: GET_RANDOM_KEY;
        /// Begins a range scan.
        RangeScanCreate<'a>: RANGE_SCAN_CREATE;
        /// Goes on with a range scan.
        RangeScanContinue: RANGE_SCAN_CONTINUE;
        /// Ends a range scan.
        RangeScanCancel: RANGE_SCAN_CANCEL;
        /// Agrees on features.
        Hello<'a>: HELLO;
        /// Authenticates, first or further step.
        Sasl<'a>: SASL_AUTH | SASL_STEP;
        /// Chooses the bucket of the connection.
        SelectBucket<'a>: SELECT_BUCKET;
        /// Asks what statuses mean.
        GetErrorMap: GET_ERROR_MAP;
        /// Asks for the cluster map.
        GetClusterConfig: GET_CLUSTER_CONFIG;
        /// Ends the connection.
        Quit: QUIT | QUITQ;
        /// Sets how much is logged.
        Verbosity: VERBOSITY;
        /// Asks for statistics.
        Stat<'a>: STAT;
        /// Asks how long one opcode takes.
        GetCmdTimer<'a>: GET_CMD_TIMER;
        /// Asks how far documents have come.
        Observe<'a>: OBSERVE;
        /// Asks how far a vBucket has come.
        ObserveSeqno: OBSERVE_SEQNO;
        /// Asks for the histories of a vBucket.
        GetFailoverLog: GET_FAILOVER_LOG | DCP_GET_FAILOVER_LOG;
        /// Asks for the seqnos of all vBuckets.
        GetAllVbSeqnos: GET_ALL_VB_SEQNOS;
        /// Sets the state of a vBucket.
        SetVbucket<'a>: SET_VBUCKET;
        /// Removes a vBucket.
        DelVbucket<'a>: DEL_VBUCKET;
        /// Drops old tombstones of a vBucket.
        CompactDb: COMPACT_DB;
        /// Waits until a seqno is on disk.
        SeqnoPersistence: SEQNO_PERSISTENCE;
        /// Asks for the id of a collection.
        CollectionsGetId<'a>: COLLECTIONS_GET_ID;
        /// Asks for the id of a scope.
        CollectionsGetScopeId<'a>: COLLECTIONS_GET_SCOPE_ID;
        /// Makes the connection one of the change protocol.
        DcpOpen<'a>: DCP_OPEN;
        /// Sets something for a connection of the change protocol.
        DcpControl<'a>: DCP_CONTROL;
        /// Tells a consumer to ask for a stream.
        AddStream: DCP_ADD_STREAM;
        /// Asks for a stream.
        StreamRequest<'a>: DCP_STREAM_REQ;
        /// Ends a stream.
        StreamEnd: DCP_STREAM_END;
        /// Begins a snapshot.
        SnapshotMarker: DCP_SNAPSHOT_MARKER;
        /// Streams a document.
        Mutation<'a>: DCP_MUTATION;
        /// Streams a deletion.
        Deletion<'a>: DCP_DELETION;
        /// Streams a deletion by time.
        Expiration<'a>: DCP_EXPIRATION;
        /// Hands a vBucket over.
        SetVbucketState: DCP_SET_VBUCKET_STATE;
        /// Tells what a consumer has dealt with.
        BufferAck: DCP_BUFFER_ACK;
        /// Streams a change of collections.
        SystemEvent<'a>: DCP_SYSTEM_EVENT;
        /// Streams a sync write before it is decided.
        Prepare<'a>: DCP_PREPARE;
        /// Tells which prepares a replica has.
        SeqnoAcknowledged: DCP_SEQNO_ACKNOWLEDGED;
        /// Streams that a sync write is done.
        Commit<'a>: DCP_COMMIT;
        /// Streams that a sync write is undone.
        Abort<'a>: DCP_ABORT;
        /// Streams a seqno without a document.
        SeqnoAdvanced: DCP_SEQNO_ADVANCED;
        /// Begins or ends a snapshot without order.
        OsoSnapshot: DCP_OSO_SNAPSHOT;
    }
    bare {
        /// Asks for an answer.
        Noop: NOOP;
        /// Asks for the version of the server.
        Version: VERSION;
        /// Asks for the names of the SASL mechanisms.
        SaslListMechs: SASL_LIST_MECHS;
        /// Asks for the names of the buckets.
        ListBuckets: LIST_BUCKETS;
        /// Asks for the state of a vBucket.
        GetVbucket: GET_VBUCKET;
        /// Asks for the collections manifest; the vBucket must be 0.
        CollectionsGetManifest: COLLECTIONS_GET_MANIFEST;
        /// Closes a stream.
        CloseStream: DCP_CLOSE_STREAM;
        /// Asks the peer of the change protocol for an answer.
        DcpNoop: DCP_NOOP;
    }
}
