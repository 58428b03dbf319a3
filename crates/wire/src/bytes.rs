//! Big-endian fields on the wire, and messages composed of them.

use model::{
    Cas, CollectionId, Datatype, DurabilityLevel, FailoverEntry, ManifestUid, Seqno, SnapshotRange,
    VbId, VbState, VbUuid,
};

use crate::{Malformed, Opcode};

/// Cannot occur in a frame that obeys the rules of its row.
pub(crate) const EXTRAS: Malformed = Malformed::new("extras have a wrong length");

/// The rest of a slice; each read takes all requested bytes or none.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(crate) fn is_empty(self) -> bool {
        self.rest.is_empty()
    }

    #[inline]
    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (head, rest) = self.rest.split_first_chunk::<N>().ok_or(EXTRAS)?;
        self.rest = rest;
        Ok(*head)
    }

    /// Reads the next field.
    #[inline]
    pub(crate) fn field<T: Field<'a>>(&mut self) -> Result<T, Malformed> {
        T::read(self)
    }

    #[inline]
    pub(crate) fn bytes(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let (head, rest) = self.rest.split_at_checked(count).ok_or(EXTRAS)?;
        self.rest = rest;
        Ok(head)
    }
}

/// A value with one form on the wire.
pub(crate) trait Field<'a>: Sized {
    /// Reads the value from the front.
    ///
    /// # Errors
    /// The bytes end within it, or are not such a value.
    fn read(reader: &mut Reader<'a>) -> Result<Self, Malformed>;

    /// Appends the bytes that [`Field::read`] takes.
    fn write(&self, out: &mut Vec<u8>);

    /// Reads the value from exactly `bytes`; `error` if they are not such a value.
    fn whole(bytes: &'a [u8], error: Malformed) -> Result<Self, Malformed> {
        let mut reader = Reader::new(bytes);
        Self::read(&mut reader)
            .ok()
            .filter(|_| reader.is_empty())
            .ok_or(error)
    }

    /// Reads consecutive values from `bytes`; ends at the first malformed one.
    fn each(bytes: &'a [u8]) -> impl Iterator<Item = Self> {
        let mut reader = Reader::new(bytes);
        std::iter::from_fn(move || Self::read(&mut reader).ok())
    }
}

macro_rules! numbers {
    ($($number:ident)*) => {
        $(impl Field<'_> for $number {
            #[inline]
            fn read(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
                reader.array().map(Self::from_be_bytes)
            }

            #[inline]
            fn write(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_be_bytes());
            }
        })*
    };
}

/// Implements [`Field`] for structs around one field.
macro_rules! wrappers {
    ($($name:ident)*) => {
        $(impl $crate::bytes::Field<'_> for $name {
            #[inline]
            fn read(reader: &mut $crate::bytes::Reader<'_>) -> Result<Self, $crate::Malformed> {
                reader.field().map(Self)
            }

            #[inline]
            fn write(&self, out: &mut Vec<u8>) {
                self.0.write(out);
            }
        })*
    };
}
pub(crate) use wrappers;

/// Implements [`Field`] for a struct: its fields in the order given here.
macro_rules! layout {
    ($name:ident $(<$life:lifetime>)? { $($field:ident),+ }) => {
        impl<'a> $crate::bytes::Field<'a> for $name $(<$life>)? {
            #[inline]
            fn read(reader: &mut $crate::bytes::Reader<'a>) -> Result<Self, $crate::Malformed> {
                Ok(Self { $($field: reader.field()?),+ })
            }

            #[inline]
            fn write(&self, out: &mut Vec<u8>) {
                $(self.$field.write(out);)+
            }
        }
    };
}
pub(crate) use layout;

numbers! { u8 u16 u32 u64 i64 }
wrappers! { Seqno VbUuid VbId Cas Datatype CollectionId ManifestUid Opcode }
layout! { SnapshotRange { start, end } }
layout! { FailoverEntry { uuid, seqno } }

/// One byte; any value but 0 is true.
impl Field<'_> for bool {
    fn read(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(reader.field::<u8>()? != 0)
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }
}

/// Returns the vBucket state with this number. Some messages send it as one byte, others as four.
pub(crate) fn vb_state(number: u32) -> Result<VbState, Malformed> {
    let state = u8::try_from(number).ok().and_then(VbState::from_wire);
    state.ok_or(Malformed::new("vBucket state is not valid"))
}

impl Field<'_> for VbState {
    fn read(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        vb_state(reader.field::<u8>()?.into())
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.push(*self as u8);
    }
}

impl Field<'_> for DurabilityLevel {
    fn read(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let level = reader.field().ok().and_then(Self::from_number);
        level.ok_or(Malformed::new("durability level is not valid"))
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.push(*self as u8);
    }
}

impl<const N: usize> Field<'_> for [u8; N] {
    fn read(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        reader.array()
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self);
    }
}

/// All remaining bytes.
impl<'a> Field<'a> for &'a [u8] {
    #[inline]
    fn read(reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        reader.bytes(reader.rest.len())
    }

    #[inline]
    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self);
    }
}

/// `None` if the next bytes are not such a value.
impl<'a, T: Field<'a>> Field<'a> for Option<T> {
    fn read(reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        let before = *reader;
        let value = reader.field().ok();
        if value.is_none() {
            *reader = before;
        }
        Ok(value)
    }

    fn write(&self, out: &mut Vec<u8>) {
        if let Some(value) = self {
            value.write(out);
        }
    }
}

/// Implements `Debug` for a message that may hold a document or a secret: shows some fields, the
/// key as text, and only the length of the value.
macro_rules! debug_without_value {
    ($name:ident { $($field:ident),+ } text $key:ident, length $value:ident) => {
        impl std::fmt::Debug for $name<'_> {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_struct(stringify!($name))
                    $(.field(stringify!($field), &self.$field))+
                    .field(stringify!($key), &String::from_utf8_lossy(self.$key))
                    .field(concat!(stringify!($value), "_bytes"), &self.$value.len())
                    .finish_non_exhaustive()
            }
        }
    };
}
pub(crate) use debug_without_value;
