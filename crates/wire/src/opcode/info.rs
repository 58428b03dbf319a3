//! What a row of the opcode table says.

use model::Datatype;

/// Number of an operation of a client; any byte, known or not.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Opcode(pub u8);

/// Whether an opcode is still part of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Part of the protocol; a node may serve it or not.
    Known,
    /// A number that once meant something, or is for tests only: answered with `NotSupported`,
    /// whatever the frame contains.
    Removed,
}

/// Whether a part of a frame must be there.
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

/// What the CAS of a request may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CasRule {
    /// Must be zero.
    Zero,
    /// Anything.
    Any,
    /// Must not be zero.
    NonZero,
}

/// What an opcode does with a document, as statistics and durability tell opcodes apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// Sends it.
    Get,
    /// Writes it whole, or at one of its ends.
    Set,
    /// Deletes it.
    Delete,
    /// Adds to a counter.
    Increment,
    /// Takes from a counter.
    Decrement,
    /// Sends it and locks it.
    Lock,
    /// Sends its metadata.
    Meta,
    /// Changes its expiry.
    Touch,
    /// Looks at parts of it.
    SubdocLookup,
    /// Changes parts of it.
    SubdocMutation,
    /// Something else.
    Other,
}

/// One row of the opcode table.
///
/// Source: protocol section 3, as the wire sees it; privileges and effects are not known here.
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
    /// Whether it is still served anywhere.
    pub standing: Standing,
    /// Lengths that the extras may have.
    pub extras: &'static [u8],
    /// Whether there is a key.
    pub key: Presence,
    /// Whether there is a value.
    pub value: Presence,
    /// What the CAS may be.
    pub cas: CasRule,
    /// Datatype bits that the request may carry, negotiated or not.
    pub datatypes: Datatype,
    /// Whether the durability frame info is accepted.
    pub durability: bool,
    /// Whether the preserve-TTL frame info is accepted.
    pub preserve_ttl: bool,
    /// Whether the key is that of a document, with a collection prefix where negotiated.
    pub keyed: bool,
    /// Of a quiet opcode, the one that it is the quiet form of.
    pub quiet: Option<Opcode>,
    /// Whether it may overtake others, or be overtaken, under unordered execution.
    pub reorder: bool,
    /// Whether it counts as a write of data.
    pub write: bool,
    /// Whether the vBucket must be 0.
    pub vbucket_zero: bool,
    /// What it does with a document.
    pub family: Family,
    /// One bit for each length in `extras`, which are all below 64.
    pub(super) extras_mask: u64,
}
