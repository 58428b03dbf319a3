//! Rows of the opcode table.

use model::Datatype;

/// Number of a client operation; any byte, known or not.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Opcode(pub u8);

/// Whether an opcode is part of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpcodeSupport {
    /// Part of the protocol; a node may serve it or not.
    Known,
    /// A removed number, or one for tests only: answered with `NotSupported`, whatever the frame
    /// contains.
    Removed,
}

/// Whether a part of a frame must be present.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// At least one byte.
    Required,
    /// Any length.
    Optional,
    /// No byte.
    Forbidden,
}

impl Presence {
    pub(super) fn admits(self, part: &[u8]) -> bool {
        match self {
            Self::Required => !part.is_empty(),
            Self::Optional => true,
            Self::Forbidden => part.is_empty(),
        }
    }
}

/// Rule for the CAS of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CasRule {
    /// Must be zero.
    Zero,
    /// Anything.
    Any,
    /// Must not be zero.
    NonZero,
}

/// Effect of an opcode on a document; statistics and durability group opcodes by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// Reads it.
    Get,
    /// Writes it whole, or appends or prepends.
    Set,
    /// Deletes it.
    Delete,
    /// Adds to a counter.
    Increment,
    /// Subtracts from a counter.
    Decrement,
    /// Reads and locks it.
    Lock,
    /// Reads its metadata.
    Meta,
    /// Changes its expiry.
    Touch,
    /// Reads parts of it.
    SubdocLookup,
    /// Changes parts of it.
    SubdocMutation,
    /// Another effect.
    Other,
}

/// One row of the opcode table.
///
/// Source: protocol section 3, as far as the wire needs it; privileges and effects are not known
/// here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a column of the protocol's table"
)]
pub struct OpcodeInfo {
    /// The number.
    pub opcode: Opcode,
    /// The name in capitals.
    pub name: &'static str,
    /// Whether it is part of the protocol.
    pub standing: OpcodeSupport,
    /// Allowed lengths of the extras.
    pub extras: &'static [u8],
    /// Rule for the key.
    pub key: Presence,
    /// Rule for the value.
    pub value: Presence,
    /// Rule for the CAS.
    pub cas: CasRule,
    /// Datatype bits that the request may have, negotiated or not.
    pub datatypes: Datatype,
    /// Whether the durability frame info is accepted.
    pub durability: bool,
    /// Whether the preserve-TTL frame info is accepted.
    pub preserve_ttl: bool,
    /// Whether the key is a document's key, with a collection prefix if negotiated.
    pub keyed: bool,
    /// The normal opcode, if this is its quiet form.
    pub quiet: Option<Opcode>,
    /// Whether it may be reordered under unordered execution.
    pub reorder: bool,
    /// Whether it counts as a write of data.
    pub write: bool,
    /// Whether the vBucket must be 0.
    pub vbucket_zero: bool,
    /// Effect on a document.
    pub family: Family,
    /// One bit for each length in `extras`; all are below 64.
    pub(super) extras_mask: u64,
}
