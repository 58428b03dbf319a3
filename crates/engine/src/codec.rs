//! What the engine must be told about the bytes of values, since it knows no formats itself.

use model::Datatype;

/// Knowledge about value formats, lent by the caller of operations that make new values.
pub trait Codec {
    /// Whether `value` is JSON ([`Datatype::JSON`]) or not ([`Datatype::RAW`]).
    fn classify(&self, value: &[u8]) -> Datatype;

    /// The plain bytes of a value stored with [`Datatype::SNAPPY`]; `None` if it is damaged or
    /// would grow beyond what a value may be.
    fn inflate(&self, value: &[u8]) -> Option<Vec<u8>>;
}

/// Knows nothing: for values that are neither compressed nor new.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NoCodec;

impl Codec for NoCodec {
    fn classify(&self, _value: &[u8]) -> Datatype {
        Datatype::RAW
    }

    fn inflate(&self, _value: &[u8]) -> Option<Vec<u8>> {
        None
    }
}
