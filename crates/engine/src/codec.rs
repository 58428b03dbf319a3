//! Knowledge about the bytes of values that the engine needs from its caller.

use model::Datatype;

/// Knowledge about value formats. The caller passes it to operations that make new values.
pub trait Codec {
    /// Returns [`Datatype::JSON`] if `value` is JSON, else [`Datatype::RAW`].
    fn classify(&self, value: &[u8]) -> Datatype;

    /// Returns the decompressed bytes of a [`Datatype::SNAPPY`] value; `None` if it is damaged or
    /// exceeds the maximum size of a value.
    fn inflate(&self, value: &[u8]) -> Option<Vec<u8>>;
}

/// Codec without knowledge: for values that are neither compressed nor new.
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
