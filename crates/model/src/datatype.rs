//! The datatype byte of a document or a frame.

/// Bits that describe the format of a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Datatype(pub u8);

impl Datatype {
    /// Plain bytes.
    pub const RAW: Self = Self(0);
    /// The value is one JSON text.
    pub const JSON: Self = Self(0x01);
    /// The value is compressed in Snappy's block format.
    pub const SNAPPY: Self = Self(0x02);
    /// The value starts with a section of extended attributes.
    pub const XATTR: Self = Self(0x04);
    /// All defined bits.
    pub const ALL: Self = Self(0x07);

    /// Whether every bit of `other` is set.
    pub fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns the bits of both.
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns the bits of `self` that are not in `other`.
    #[must_use]
    pub fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}
