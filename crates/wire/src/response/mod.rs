//! Answers: the frame, and the typed bodies of its parts.

mod bodies;
mod error_body;
mod observe;
mod scan;
mod vbuckets;

pub use bodies::{CollectionIdReply, ItemFlags, ItemMeta, MutationToken, StatRow, counter_value};
pub use error_body::ErrorBody;
pub use observe::{Failover, KeyState, ObserveEntry, ObserveSeqnoReply};
pub use scan::{
    ScanContent, ScanDocument, push_scan_document, push_scan_key, scan_documents, scan_keys,
};
pub use vbuckets::{
    FailoverEntries, VbSeqnos, encode_failover_entries, encode_vb_seqnos, encode_vb_state,
};

use model::{Cas, Datatype};

use crate::bytes::{EXTRAS, Field, Reader, debug_without_value};
use crate::frame::{Header, Magic, Opaque};
use crate::request_infos::next_info;
use crate::{Frame, HEADER_BYTES, Malformed, Opcode, Status};

/// Frame info of the server's processing time, with 2 bytes.
const SERVER_DURATION: u16 = 0;
const SERVER_DURATION_HEAD: u8 = 0x02;
const FRAMING_LEN: u8 = 3;
/// Maximum size of a key in a flexible frame.
const FLEXIBLE_KEY_MAX: usize = 255;

/// One answer to a client.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Response<'a> {
    /// Opcode of the request.
    pub opcode: Opcode,
    /// Result of the request.
    pub status: Status,
    /// Opaque of the request.
    pub opaque: Opaque,
    /// CAS of the document, or zero.
    pub cas: Cas,
    /// Datatype of the value.
    pub datatype: Datatype,
    /// Encoded processing time of the server ([`crate::encode_server_duration`]), on connections
    /// with tracing.
    pub server_duration: Option<u16>,
    /// Fixed-size results, at most 255 bytes.
    pub extras: &'a [u8],
    /// Key, at most 65,535 bytes.
    pub key: &'a [u8],
    /// Value.
    pub value: &'a [u8],
}

debug_without_value! {
    Response { opcode, status, opaque, cas, datatype, server_duration, extras }
    text key, length value
}

impl<'a> Response<'a> {
    /// Creates an empty answer with a status; the other fields are zero.
    #[inline]
    pub fn new(opcode: Opcode, opaque: Opaque, status: Status) -> Self {
        Self {
            opcode,
            status,
            opaque,
            cas: Cas::ANY,
            datatype: Datatype::RAW,
            server_duration: None,
            extras: &[],
            key: &[],
            value: &[],
        }
    }

    /// Appends the whole frame.
    ///
    /// Shape: magic 0x18 with a server-duration frame info if there is a duration and the key has
    /// at most 255 bytes, else magic 0x81 without one.
    ///
    /// Panics if a part is too long for its length field, which is a bug of the caller.
    ///
    /// Source: protocol section 1.1, section 1.2. Test: `golden`.
    #[inline]
    pub fn encode(&self, out: &mut Vec<u8>) {
        let small_parts = self.extras.len().saturating_add(self.key.len());
        let head_bytes = small_parts.saturating_add(HEADER_BYTES + usize::from(FRAMING_LEN));
        out.reserve(head_bytes.saturating_add(self.value.len()));
        self.encode_head(self.value.len(), out);
        out.extend_from_slice(self.value);
    }

    /// Appends the frame without its value, of which `value_bytes` must follow; ignores the field
    /// `value`. Panics like [`Response::encode`].
    #[inline]
    pub fn encode_head(&self, value_bytes: usize, out: &mut Vec<u8>) {
        let duration = self
            .server_duration
            .filter(|_| self.key.len() <= FLEXIBLE_KEY_MAX);
        let framing_len = if duration.is_some() { FRAMING_LEN } else { 0 };
        let body_bytes = value_bytes
            .saturating_add(self.key.len())
            .saturating_add(self.extras.len())
            .saturating_add(usize::from(framing_len));
        let header = Header {
            magic: if duration.is_some() {
                Magic::AltClientResponse
            } else {
                Magic::ClientResponse
            },
            opcode: self.opcode,
            framing_len,
            key_len: u16::try_from(self.key.len()).expect("a key has at most 65535 bytes"),
            extras_len: u8::try_from(self.extras.len()).expect("extras have at most 255 bytes"),
            datatype: self.datatype,
            vbucket_or_status: self.status.0,
            body_len: u32::try_from(body_bytes).expect("a body has less than 4 GiB"),
            opaque: self.opaque,
            cas: self.cas,
        };
        out.extend_from_slice(&header.to_bytes());
        if let Some(duration) = duration {
            let [high, low] = duration.to_be_bytes();
            out.extend_from_slice(&[SERVER_DURATION_HEAD, high, low]);
        }
        out.extend_from_slice(self.extras);
        out.extend_from_slice(self.key);
    }

    /// Parses a frame of a server; ignores frame infos other than the server's duration.
    ///
    /// # Errors
    /// The frame is not an answer to a client, or its frame infos are truncated.
    #[inline]
    pub fn parse(frame: &Frame<'a>) -> Result<Self, Malformed> {
        if !frame.header.magic.is_client_response() {
            return Err(Malformed::new("not an answer to a client"));
        }
        Ok(Self {
            opcode: frame.header.opcode,
            status: frame.status(),
            opaque: frame.header.opaque,
            cas: frame.header.cas,
            datatype: frame.header.datatype,
            server_duration: server_duration(frame.frame_infos)?,
            extras: frame.extras,
            key: frame.key,
            value: frame.value,
        })
    }
}

fn server_duration(section: &[u8]) -> Result<Option<u16>, Malformed> {
    let mut reader = Reader::new(section);
    let mut duration = None;
    while !reader.is_empty() {
        let (id, data) =
            next_info(&mut reader).map_err(|_| Malformed::new("frame infos end within an info"))?;
        if let (SERVER_DURATION, Ok(code)) = (id, Field::whole(data, EXTRAS)) {
            duration = Some(code);
        }
    }
    Ok(duration)
}
