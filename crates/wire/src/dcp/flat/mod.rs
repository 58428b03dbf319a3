//! System events of version 2: small tables in `FlatBuffers` format.
//!
//! ```text
//! root:   u32 -> table
//! vtable: u16 bytes, u16 bytes of the table, u16 per field
//! table:  i32 -> vtable, fields
//! text:   u32 bytes, bytes, 0
//! ```
//!
//! Little-endian. A field that is missing in the vtable, or has offset 0 there, has its default
//! value. The encoder writes one of the many allowed layouts. The parser accepts any of them, and
//! checks every offset.

use model::{CollectionId, ManifestUid};

use super::EventId;
use crate::Malformed;

const MALFORMED: Malformed = Malformed::new("system event is no table that can be read");

/// Offsets of the fields in the vtable. Fields of a collection:
const UID: usize = 4;
const SCOPE: usize = 6;
const COLLECTION: usize = 8;
const HAS_EXPIRY: usize = 10;
const EXPIRY: usize = 12;
const COLLECTION_NAME: usize = 14;
const HISTORY: usize = 16;
/// Fields of a scope: the first two of a collection, then the name.
const SCOPE_NAME: usize = 8;

/// Bytes before the fields in the encoder's layout: root, vtable, and the offset back to it. The
/// widest field comes first, at an offset divisible by 8.
const WHOLE_COLLECTION: [u8; 32] = [
    28, 0, 0, 0, 18, 0, 30, 0, 4, 0, 12, 0, 16, 0, 28, 0, 20, 0, 24, 0, 29, 0, 0, 0, 0, 0, 0, 0,
    24, 0, 0, 0,
];
const THREE_FIELDS: [u8; 24] = [
    20, 0, 0, 0, 10, 0, 20, 0, 4, 0, 12, 0, 16, 0, 0, 0, 0, 0, 0, 0, 16, 0, 0, 0,
];
const TWO_FIELDS: [u8; 16] = [12, 0, 0, 0, 8, 0, 16, 0, 4, 0, 12, 0, 8, 0, 0, 0];

/// Value of a system event of version 2.
///
/// Shape: one table. For a collection that began or was modified, all fields; else manifest, scope,
/// and collection (if the event is about one); for a scope that began, also its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlatEvent<'a> {
    /// UID of the manifest with this change.
    pub manifest: ManifestUid,
    /// Id of the scope.
    pub scope: u32,
    /// Id of the collection; `None` for an event about a scope.
    pub collection: Option<CollectionId>,
    /// Maximum expiry of the collection's documents in seconds.
    pub expiry_max_s: Option<u32>,
    /// Name of the scope or collection; empty if it was dropped.
    pub name: &'a str,
    /// Whether the collection keeps every version of its documents.
    pub history: bool,
}

impl<'a> FlatEvent<'a> {
    /// Parses the value of an event.
    ///
    /// # Errors
    /// It is not a table, an offset is out of bounds, or the event is unknown.
    pub fn parse(event: EventId, value: &'a [u8]) -> Result<Self, Malformed> {
        let table = Table::root(value).ok_or(MALFORMED)?;
        let read = || {
            let mut parsed = Self {
                manifest: ManifestUid(table.u64(UID)?),
                scope: table.u32(SCOPE)?,
                collection: None,
                expiry_max_s: None,
                name: "",
                history: false,
            };
            match event {
                EventId::BEGIN_COLLECTION | EventId::MODIFY_COLLECTION => {
                    let expiry = table.u32(EXPIRY)?;
                    parsed.expiry_max_s = table.bool(HAS_EXPIRY)?.then_some(expiry);
                    parsed.name = table.text(COLLECTION_NAME)?;
                    parsed.history = table.bool(HISTORY)?;
                }
                EventId::CREATE_SCOPE => parsed.name = table.text(SCOPE_NAME)?,
                EventId::END_COLLECTION | EventId::DROP_SCOPE => {}
                _ => return None,
            }
            if !matches!(event, EventId::CREATE_SCOPE | EventId::DROP_SCOPE) {
                parsed.collection = Some(CollectionId(table.u32(COLLECTION)?));
            }
            Some(parsed)
        };
        read().ok_or(MALFORMED)
    }

    /// Appends the value of an event; an event about a collection needs `collection`.
    pub fn encode(&self, event: EventId, out: &mut Vec<u8>) {
        let whole = matches!(
            event,
            EventId::BEGIN_COLLECTION | EventId::MODIFY_COLLECTION
        );
        out.extend_from_slice(match event {
            _ if whole => &WHOLE_COLLECTION,
            EventId::DROP_SCOPE => &TWO_FIELDS,
            _ => &THREE_FIELDS,
        });
        out.extend_from_slice(&self.manifest.0.to_le_bytes());
        out.extend_from_slice(&self.scope.to_le_bytes());
        let collection = self.collection.map_or(0, |id| id.0).to_le_bytes();
        if whole {
            out.extend_from_slice(&collection);
            out.extend_from_slice(&self.expiry_max_s.unwrap_or(0).to_le_bytes());
            // The name is eight bytes further, after two flags and padding.
            out.extend_from_slice(&[8, 0, 0, 0]);
            let has_expiry = u8::from(self.expiry_max_s.is_some());
            out.extend_from_slice(&[has_expiry, u8::from(self.history), 0, 0]);
            self.encode_name(out);
        } else if event == EventId::CREATE_SCOPE {
            out.extend_from_slice(&[4, 0, 0, 0]);
            self.encode_name(out);
        } else if event != EventId::DROP_SCOPE {
            out.extend_from_slice(&collection);
        }
    }

    fn encode_name(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&(self.name.len() as u32).to_le_bytes());
        out.extend_from_slice(self.name.as_bytes());
        out.push(0);
    }
}

/// A table in unchecked bytes.
struct Table<'a> {
    bytes: &'a [u8],
    /// Start of the table, and of its vtable.
    begin: usize,
    vtable: usize,
    /// Size of the vtable in bytes.
    vtable_bytes: usize,
}

fn read<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}

fn place(bytes: &[u8], at: usize) -> Option<usize> {
    usize::try_from(u32::from_le_bytes(read(bytes, at)?)).ok()
}

impl<'a> Table<'a> {
    fn root(bytes: &'a [u8]) -> Option<Self> {
        let table = place(bytes, 0)?;
        let back = i32::from_le_bytes(read(bytes, table)?);
        let vtable = i64::try_from(table).ok()?.checked_sub(back.into())?;
        let vtable = usize::try_from(vtable).ok()?;
        let vtable_bytes = usize::from(u16::from_le_bytes(read(bytes, vtable)?));
        Some(Self {
            bytes,
            begin: table,
            vtable,
            vtable_bytes,
        })
    }

    /// Returns the bytes and the place of a field; `Some(None)` if it is missing, `None` if it is
    /// out of bounds.
    #[expect(clippy::option_option, reason = "left out is no error")]
    fn field<const N: usize>(&self, entry: usize) -> Option<Option<([u8; N], usize)>> {
        if entry >= self.vtable_bytes {
            return Some(None);
        }
        let at = u16::from_le_bytes(read(self.bytes, self.vtable.checked_add(entry)?)?);
        if at == 0 {
            return Some(None);
        }
        let at = self.begin.checked_add(at.into())?;
        Some(Some((read(self.bytes, at)?, at)))
    }

    fn u64(&self, entry: usize) -> Option<u64> {
        let field = self.field(entry)?;
        Some(field.map_or(0, |(bytes, _)| u64::from_le_bytes(bytes)))
    }

    fn u32(&self, entry: usize) -> Option<u32> {
        let field = self.field(entry)?;
        Some(field.map_or(0, |(bytes, _)| u32::from_le_bytes(bytes)))
    }

    fn bool(&self, entry: usize) -> Option<bool> {
        let field = self.field::<1>(entry)?;
        Some(field.is_some_and(|(bytes, _)| bytes != [0]))
    }

    fn text(&self, entry: usize) -> Option<&'a str> {
        let Some((offset, at)) = self.field(entry)? else {
            return Some("");
        };
        let offset = usize::try_from(u32::from_le_bytes(offset)).ok()?;
        let text = at.checked_add(offset)?;
        let length = place(self.bytes, text)?;
        let begin = text.checked_add(4)?;
        let bytes = self.bytes.get(begin..begin.checked_add(length)?)?;
        str::from_utf8(bytes).ok()
    }
}

#[cfg(test)]
mod tests;
