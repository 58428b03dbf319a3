//! Small fixed bodies of answers.

use model::{CollectionId, Datatype, ManifestUid, Seqno, VbUuid};

use crate::bytes::{EXTRAS, Field, layout};
use crate::{Malformed, Response, Status};

/// Position of a write in the history of its vBucket; the extras of the answer to the write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MutationToken {
    /// UUID of the vBucket's current history.
    pub uuid: VbUuid,
    /// Seqno of the change.
    pub seqno: Seqno,
}

impl MutationToken {
    /// Encodes the 16 bytes: UUID, seqno.
    #[inline]
    pub fn to_bytes(self) -> [u8; 16] {
        (u128::from(self.uuid.0) << 64 | u128::from(self.seqno.0)).to_be_bytes()
    }
}

/// Flags of a document; the extras of an answer with a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ItemFlags(pub u32);

impl ItemFlags {
    /// Encodes the 4 bytes.
    #[inline]
    pub fn to_bytes(self) -> [u8; 4] {
        self.0.to_be_bytes()
    }
}

/// Encodes the value of an answer to a counter operation: 8 bytes.
pub fn counter_value(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}

/// Metadata of a document or a tombstone; the extras of an answer to `GET_META`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ItemMeta {
    /// Whether it is a tombstone.
    pub deleted: bool,
    /// Client flags.
    pub flags: u32,
    /// Expiry in Unix seconds, 0 for never; for a tombstone, the time of the deletion.
    pub expiry: u32,
    /// Revision number of the document.
    pub rev: u64,
    /// Datatype of the value; only in version 2.
    pub datatype: Option<Datatype>,
}

impl ItemMeta {
    /// Appends 20 bytes; 21 with a datatype.
    pub fn encode(&self, out: &mut Vec<u8>) {
        u32::from(self.deleted).write(out);
        self.flags.write(out);
        self.expiry.write(out);
        self.rev.write(out);
        self.datatype.write(out);
    }
}

/// Id of a collection or a scope, with the manifest that defines it; the extras of the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CollectionIdReply {
    /// UID of the manifest.
    pub manifest: ManifestUid,
    /// Id of the collection; or of the scope, in the same form.
    pub id: CollectionId,
}

layout! { CollectionIdReply { manifest, id } }

impl CollectionIdReply {
    /// Encodes the 12 bytes: manifest, id.
    pub fn to_bytes(self) -> [u8; 12] {
        let [m0, m1, m2, m3, m4, m5, m6, m7] = self.manifest.0.to_be_bytes();
        let [i0, i1, i2, i3] = self.id.0.to_be_bytes();
        [m0, m1, m2, m3, m4, m5, m6, m7, i0, i1, i2, i3]
    }

    /// Parses the ids in the extras of an answer.
    ///
    /// # Errors
    /// The extras do not have 12 bytes.
    pub fn parse(extras: &[u8]) -> Result<Self, Malformed> {
        Self::whole(extras, EXTRAS)
    }
}

/// One statistic; sent as a separate frame with this key.
///
/// The last frame of the answer has neither key nor value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatRow<'a> {
    /// Name of the statistic; may be empty if the value is sufficient.
    pub key: &'a [u8],
    /// Its value as text.
    pub value: &'a [u8],
}

impl<'a> StatRow<'a> {
    /// Returns the frame of this row; `answer` provides opcode, opaque and duration.
    pub fn in_response(self, answer: Response<'a>) -> Response<'a> {
        Response {
            status: Status::SUCCESS,
            key: self.key,
            value: self.value,
            ..answer
        }
    }
}
