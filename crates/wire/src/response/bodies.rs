//! Small fixed bodies of answers.

use model::{CollectionId, Datatype, ManifestUid, Seqno, VbUuid};

use crate::bytes::{EXTRAS, Field, Reader, layout};
use crate::{Malformed, Response, Status};

/// Where a write is in the history of its vBucket; the extras of an answer to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MutationToken {
    /// The vBucket's current history.
    pub uuid: VbUuid,
    /// The change.
    pub seqno: Seqno,
}

layout! { MutationToken { uuid, seqno } }

impl MutationToken {
    /// The 16 bytes: uuid, seqno.
    #[inline]
    pub fn to_bytes(self) -> [u8; 16] {
        (u128::from(self.uuid.0) << 64 | u128::from(self.seqno.0)).to_be_bytes()
    }

    /// The token in the extras of an answer; `None` when they are empty.
    ///
    /// # Errors
    /// The extras have another length than 0 or 16.
    pub fn parse(extras: &[u8]) -> Result<Option<Self>, Malformed> {
        Field::whole(extras, EXTRAS)
    }
}

/// Flags of a document; the extras of an answer that carries one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ItemFlags(pub u32);

impl ItemFlags {
    /// The 4 bytes.
    #[inline]
    pub fn to_bytes(self) -> [u8; 4] {
        self.0.to_be_bytes()
    }

    /// The flags in the extras of an answer.
    ///
    /// # Errors
    /// The extras have another length than 4.
    pub fn parse(extras: &[u8]) -> Result<Self, Malformed> {
        Field::whole(extras, EXTRAS).map(Self)
    }
}

/// The value of an answer to a counter operation: 8 bytes.
pub fn counter_value(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}

/// The number in the value of an answer to a counter operation.
///
/// # Errors
/// The value has another length than 8.
pub fn parse_counter(value: &[u8]) -> Result<u64, Malformed> {
    Field::whole(value, Malformed::new("counter is not 8 bytes"))
}

/// Metadata of a document or a tombstone; the extras of an answer to GET_META.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ItemMeta {
    /// Whether it is a tombstone.
    pub deleted: bool,
    /// Flags of the client.
    pub flags: u32,
    /// Expiry in Unix seconds, 0 for never; of a tombstone: when it was deleted.
    pub expiry: u32,
    /// How often the document was changed.
    pub rev: u64,
    /// How to read the value; in version 2 only.
    pub datatype: Option<Datatype>,
}

impl Field<'_> for ItemMeta {
    fn read(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Self {
            deleted: reader.field::<u32>()? != 0,
            flags: reader.field()?,
            expiry: reader.field()?,
            rev: reader.field()?,
            datatype: reader.field()?,
        })
    }

    fn write(&self, out: &mut Vec<u8>) {
        u32::from(self.deleted).write(out);
        self.flags.write(out);
        self.expiry.write(out);
        self.rev.write(out);
        self.datatype.write(out);
    }
}

impl ItemMeta {
    /// Appends 20 bytes without, 21 with a datatype.
    pub fn encode(&self, out: &mut Vec<u8>) {
        self.write(out);
    }

    /// The metadata in the extras of an answer.
    ///
    /// # Errors
    /// The extras have another length than 20 or 21.
    pub fn parse(extras: &[u8]) -> Result<Self, Malformed> {
        Self::whole(extras, EXTRAS)
    }
}

/// A collection's (or scope's) id and the manifest that says so; the extras of the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CollectionIdReply {
    /// The manifest.
    pub manifest: ManifestUid,
    /// The id; of a scope its number in the same form.
    pub id: CollectionId,
}

layout! { CollectionIdReply { manifest, id } }

impl CollectionIdReply {
    /// The 12 bytes: manifest, id.
    pub fn to_bytes(self) -> [u8; 12] {
        let [m0, m1, m2, m3, m4, m5, m6, m7] = self.manifest.0.to_be_bytes();
        let [i0, i1, i2, i3] = self.id.0.to_be_bytes();
        [m0, m1, m2, m3, m4, m5, m6, m7, i0, i1, i2, i3]
    }

    /// The ids in the extras of an answer.
    ///
    /// # Errors
    /// The extras have another length than 12.
    pub fn parse(extras: &[u8]) -> Result<Self, Malformed> {
        Self::whole(extras, EXTRAS)
    }
}

/// One statistic; a frame of its own with the key as its key.
///
/// The frame that ends the answer has neither key nor value ([`StatRow::END`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatRow<'a> {
    /// Name of the statistic; may be empty where the value says all.
    pub key: &'a [u8],
    /// Its value as text.
    pub value: &'a [u8],
}

impl<'a> StatRow<'a> {
    /// The row after the last one.
    pub const END: StatRow<'static> = StatRow {
        key: &[],
        value: &[],
    };

    /// This row within `answer`, which brings opcode, opaque and duration.
    pub fn in_response(self, answer: Response<'a>) -> Response<'a> {
        Response {
            status: Status::SUCCESS,
            key: self.key,
            value: self.value,
            ..answer
        }
    }

    /// The row in a frame of an answer to STAT.
    ///
    /// # Errors
    /// The frame has extras.
    pub fn parse(answer: &Response<'a>) -> Result<Self, Malformed> {
        if answer.extras.is_empty() {
            Ok(Self {
                key: answer.key,
                value: answer.value,
            })
        } else {
            Err(EXTRAS)
        }
    }
}
