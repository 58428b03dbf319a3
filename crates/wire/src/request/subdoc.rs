//! Sub-document requests: one path, or several.

use std::fmt;

use crate::bytes::{Field, Reader, debug_without_value, layout, wrappers};
use crate::message::OTHER_COMMAND;
use crate::{Frame, Malformed, Message, Opcode};

const NO_SUCH_PATH: Malformed = Malformed::new("path is longer than the value");
const SPECS: Malformed = Malformed::new("specs do not fill the value");

/// Flags of a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathFlags(pub u8);

impl PathFlags {
    /// Creates missing objects on the path.
    pub const MKDIR_P: Self = Self(0x01);
    /// The path is in an extended attribute.
    pub const XATTR: Self = Self(0x04);
    /// Expands macros in the value.
    pub const EXPAND_MACROS: Self = Self(0x10);
    /// The value is binary.
    pub const BINARY: Self = Self(0x20);

    /// Whether all bits of `other` are set.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// Flags for the document.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DocFlags(pub u8);

wrappers! { PathFlags DocFlags }

impl DocFlags {
    /// Creates the document if it does not exist.
    pub const MKDOC: Self = Self(0x01);
    /// Creates the document; it must not exist.
    pub const ADD: Self = Self(0x02);
    /// Tombstones count as documents.
    pub const ACCESS_DELETED: Self = Self(0x04);
    /// Creates a tombstone.
    pub const CREATE_AS_DELETED: Self = Self(0x08);
    /// Turns a tombstone into a document.
    pub const REVIVE: Self = Self(0x10);
    /// Reads from a replica.
    pub const REPLICA_READ: Self = Self(0x20);

    /// Whether all bits of `other` are set.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// Options of a sub-document request for the whole document; `None` if not sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SubdocExtras {
    /// Expiry, as sent.
    pub expiry: Option<u32>,
    /// Flags to store; only with an expiry.
    pub item_flags: Option<u32>,
    /// Flags for the document.
    pub doc_flags: Option<DocFlags>,
}

layout! { SubdocExtras { expiry, item_flags, doc_flags } }

/// One path with its operation.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SubdocSpec<'a> {
    /// Operation of a single path; in a request with several paths also `GET` (0x00), `SET` (0x01)
    /// and `DELETE` (0x04) of the whole document, without a path.
    pub opcode: Opcode,
    /// Flags of the path.
    pub flags: PathFlags,
    /// The path.
    pub path: &'a [u8],
    /// New value; empty for lookups.
    pub value: &'a [u8],
}

debug_without_value! { SubdocSpec { opcode, flags } text path, length value }

/// Request with one path: `SUBDOC_GET`, `SUBDOC_EXISTS`, `SUBDOC_GET_COUNT` or a mutation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subdoc<'a> {
    /// Key of the document.
    pub key: &'a [u8],
    /// The path.
    pub spec: SubdocSpec<'a>,
    /// The rest of the extras.
    pub extras: SubdocExtras,
}

impl<'a> Message<'a> for Subdoc<'a> {
    fn opcode(&self) -> Opcode {
        self.spec.opcode
    }

    fn read(frame: &Frame<'a>) -> Result<Self, Malformed> {
        if !matches!(frame.header.opcode.0, 0xc5..=0xcf | 0xd2 | 0xd3) {
            return Err(OTHER_COMMAND);
        }
        let mut extras = Reader::new(frame.extras);
        let path_bytes: u16 = extras.field()?;
        let flags = extras.field()?;
        let mut value = Reader::new(frame.value);
        let path = value.bytes(path_bytes.into()).map_err(|_| NO_SUCH_PATH)?;
        Ok(Self {
            key: frame.key,
            spec: SubdocSpec {
                opcode: frame.header.opcode,
                flags,
                path,
                value: value.field()?,
            },
            extras: extras.field()?,
        })
    }

    fn write_extras(&self, out: &mut Vec<u8>) {
        let path_bytes = u16::try_from(self.spec.path.len()).unwrap_or(u16::MAX);
        path_bytes.write(out);
        self.spec.flags.write(out);
        self.extras.write(out);
    }

    fn key(&self) -> &[u8] {
        self.key
    }

    fn write_value(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.spec.path);
        out.extend_from_slice(self.spec.value);
    }
}

/// `SUBDOC_MULTI_LOOKUP`, `SUBDOC_MULTI_MUTATION`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SubdocMulti<'a> {
    /// Key of the document.
    pub key: &'a [u8],
    /// The paths.
    pub specs: SubdocSpecs<'a>,
    /// The extras.
    pub extras: SubdocExtras,
}

/// The encoded paths of a request; each is checked when it is read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SubdocSpecs<'a> {
    bytes: &'a [u8],
    /// Whether specs have values.
    mutate: bool,
}

impl fmt::Debug for SubdocSpecs<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(*self).finish()
    }
}

impl<'a> SubdocSpecs<'a> {
    /// Wraps encoded specs: those of mutations if `mutate`, else of lookups.
    pub fn new(bytes: &'a [u8], mutate: bool) -> Self {
        Self { bytes, mutate }
    }

    /// Whether they are mutations.
    pub fn mutate(self) -> bool {
        self.mutate
    }
}

/// Iterator over the specs of a [`SubdocSpecs`], in order. Ends after a malformed one.
#[derive(Clone, Debug)]
pub struct SubdocSpecIter<'a> {
    bytes: &'a [u8],
    mutate: bool,
}

impl<'a> IntoIterator for SubdocSpecs<'a> {
    type Item = Result<SubdocSpec<'a>, Malformed>;
    type IntoIter = SubdocSpecIter<'a>;

    fn into_iter(self) -> SubdocSpecIter<'a> {
        SubdocSpecIter {
            bytes: self.bytes,
            mutate: self.mutate,
        }
    }
}

impl<'a> SubdocSpecIter<'a> {
    fn take(&mut self) -> Result<SubdocSpec<'a>, Malformed> {
        let mut reader = Reader::new(self.bytes);
        let (opcode, flags) = (reader.field()?, reader.field()?);
        let path_bytes: u16 = reader.field()?;
        let value_bytes: u32 = if self.mutate { reader.field()? } else { 0 };
        let spec = SubdocSpec {
            opcode,
            flags,
            path: reader.bytes(path_bytes.into())?,
            value: reader.bytes(usize::try_from(value_bytes).map_err(|_| SPECS)?)?,
        };
        self.bytes = reader.field()?;
        Ok(spec)
    }
}

impl<'a> Iterator for SubdocSpecIter<'a> {
    type Item = Result<SubdocSpec<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.bytes.is_empty() {
            return None;
        }
        let spec = self.take().map_err(|_| SPECS);
        if spec.is_err() {
            self.bytes = &[];
        }
        Some(spec)
    }
}
impl<'a> Message<'a> for SubdocMulti<'a> {
    fn opcode(&self) -> Opcode {
        if self.specs.mutate {
            Opcode::SUBDOC_MULTI_MUTATION
        } else {
            Opcode::SUBDOC_MULTI_LOOKUP
        }
    }

    fn read(frame: &Frame<'a>) -> Result<Self, Malformed> {
        let mutate = match frame.header.opcode {
            Opcode::SUBDOC_MULTI_LOOKUP => false,
            Opcode::SUBDOC_MULTI_MUTATION => true,
            _ => return Err(OTHER_COMMAND),
        };
        Ok(Self {
            key: frame.key,
            specs: SubdocSpecs::new(frame.value, mutate),
            extras: Reader::new(frame.extras).field()?,
        })
    }

    fn write_extras(&self, out: &mut Vec<u8>) {
        self.extras.write(out);
    }

    fn key(&self) -> &[u8] {
        self.key
    }

    fn write_value(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.specs.bytes);
    }
}

/// Appends a spec in the form that [`SubdocSpecs`] reads. Truncates a path that is too long for its
/// length field.
pub fn encode_spec(spec: &SubdocSpec<'_>, mutate: bool, out: &mut Vec<u8>) {
    let path_bytes = u16::try_from(spec.path.len()).unwrap_or(u16::MAX);
    let value_bytes = u32::try_from(spec.value.len()).unwrap_or(u32::MAX);
    spec.opcode.write(out);
    spec.flags.write(out);
    path_bytes.write(out);
    if mutate {
        value_bytes.write(out);
    }
    let path = spec.path.get(..usize::from(path_bytes));
    out.extend_from_slice(path.unwrap_or_default());
    if mutate {
        out.extend_from_slice(spec.value);
    }
}
