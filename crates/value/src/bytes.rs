//! What the bytes of a value are: JSON, Snappy, or neither.

use std::borrow::Cow;

use engine::Codec;
use model::Datatype;
use serde::de::IgnoredAny;

/// Longest value: body and attributes of users together.
pub const VALUE_BYTES_MAX: usize = 20 << 20;
/// Most bytes of attributes of the system, which come on top.
pub const SYSTEM_BYTES_MAX: usize = 1 << 20;
/// A compressed value is kept compressed if it is this much smaller, as a ratio times ten.
const COMPRESSION_RATIO_MIN_TENTHS: usize = 12;

/// Whether `value` is one JSON text in UTF-8.
///
/// Cost: one pass; a value that cannot be JSON by its first byte costs nothing.
pub fn is_json(value: &[u8]) -> bool {
    let first = value.iter().find(|byte| !byte.is_ascii_whitespace());
    match first {
        Some(b'{' | b'[' | b'"' | b't' | b'f' | b'n' | b'-' | b'0'..=b'9') => {}
        _ => return false,
    }
    simdutf8::basic::from_utf8(value)
        .is_ok_and(|text| serde_json::from_str::<IgnoredAny>(text).is_ok())
}

/// Why a compressed value is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InflateError {
    /// Not Snappy's block format.
    Damaged,
    /// Its plain form is longer than a value may be.
    TooBig,
}

/// The plain form of a compressed value. The claimed length is judged before it is allocated.
pub fn inflate(value: &[u8]) -> Result<Vec<u8>, InflateError> {
    inflate_up_to(value, VALUE_BYTES_MAX)
}

/// The same of a value with everything that may be stored with it.
pub fn inflate_stored(value: &[u8]) -> Result<Vec<u8>, InflateError> {
    inflate_up_to(value, VALUE_BYTES_MAX + SYSTEM_BYTES_MAX)
}

/// A value compressed, if that is so much smaller that it is kept so.
///
/// Cost: one pass.
pub fn compress(value: &[u8]) -> Option<Vec<u8>> {
    let packed = snap::raw::Encoder::new().compress_vec(value).ok()?;
    pays(value.len(), packed.len()).then_some(packed)
}

/// Whether a value of `plain` bytes is kept in `packed` bytes.
fn pays(plain: usize, packed: usize) -> bool {
    plain * 10 >= packed * COMPRESSION_RATIO_MIN_TENTHS
}

/// How long the plain form of a compressed value says it is; 0 where that cannot be read.
pub fn inflated_bytes(value: &[u8]) -> usize {
    snap::raw::decompress_len(value).unwrap_or(0)
}

/// The plain form of a document's value, or a part of it, and its datatype. A damaged one stays as it is.
pub fn inflated(value: Cow<'_, [u8]>, datatype: Datatype) -> (Cow<'_, [u8]>, Datatype) {
    if !datatype.contains(Datatype::SNAPPY) {
        return (value, datatype);
    }
    match inflate_stored(&value) {
        Ok(plain) => (Cow::Owned(plain), datatype.without(Datatype::SNAPPY)),
        Err(_) => (value, datatype),
    }
}

fn inflate_up_to(value: &[u8], bytes_max: usize) -> Result<Vec<u8>, InflateError> {
    let claimed = snap::raw::decompress_len(value).map_err(|_| InflateError::Damaged)?;
    // Snappy's densest element copies 64 bytes with 3: a claim beyond that is a lie, and is
    // refused before memory is set aside for it.
    if claimed > value.len().saturating_mul(64) {
        return Err(InflateError::Damaged);
    }
    if claimed > bytes_max {
        return Err(InflateError::TooBig);
    }
    snap::raw::Decoder::new()
        .decompress_vec(value)
        .map_err(|_| InflateError::Damaged)
}

/// A value as it is to be stored.
pub enum Stored {
    /// As it came.
    AsSent(Datatype),
    /// In its plain form.
    Inflated(Vec<u8>, Datatype),
    /// Refused.
    Refused(InflateError),
}

/// Judges a value that came with `datatype`: the JSON bit is only a hint, the Snappy bit must
/// be true, and compression that gains little, or all of it unless `keeps_compressed`, is undone.
pub fn to_store(value: &[u8], datatype: Datatype, keeps_compressed: bool) -> Stored {
    if !datatype.contains(Datatype::SNAPPY) {
        return Stored::AsSent(classify(value));
    }
    match inflate(value) {
        Ok(plain) => {
            let json = classify(&plain);
            if keeps_compressed && pays(plain.len(), value.len()) {
                Stored::AsSent(json.with(Datatype::SNAPPY))
            } else {
                Stored::Inflated(plain, json)
            }
        }
        Err(error) => Stored::Refused(error),
    }
}

fn classify(value: &[u8]) -> Datatype {
    if is_json(value) {
        Datatype::JSON
    } else {
        Datatype::RAW
    }
}

/// Lends this knowledge to the engine.
pub struct Values;

impl Codec for Values {
    fn classify(&self, value: &[u8]) -> Datatype {
        classify(value)
    }

    fn inflate(&self, value: &[u8]) -> Option<Vec<u8>> {
        inflate(value).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_recognised() {
        for text in [
            "{}",
            " [1,2] ",
            "\"x\"",
            "5",
            "-1.5e3",
            "true",
            "null",
            "{\"a\":{\"b\":[]}}",
        ] {
            assert!(is_json(text.as_bytes()), "{text}");
        }
        let raw: [&[u8]; 8] = [
            b"",
            b" ",
            b"{",
            b"hello",
            b"{}x",
            b"\"\xff\"",
            b"01",
            b"\x00{}",
        ];
        for bytes in raw {
            assert!(!is_json(bytes), "{bytes:?}");
        }
    }

    #[test]
    fn a_bomb_is_refused_before_it_is_inflated() {
        // A claim of 4 GiB - 1 in five bytes.
        assert_eq!(
            inflate(&[0xff, 0xff, 0xff, 0xff, 0x0f]),
            Err(InflateError::Damaged)
        );
        let dense = snap::raw::Encoder::new()
            .compress_vec(&vec![0; VALUE_BYTES_MAX + 1])
            .unwrap();
        assert_eq!(inflate(&dense), Err(InflateError::TooBig));
    }

    #[test]
    fn compression_is_kept_where_it_pays() {
        let text = format!("{{\"a\":\"{}\"}}", "x".repeat(1000));
        let packed = snap::raw::Encoder::new()
            .compress_vec(text.as_bytes())
            .unwrap();
        let sent = Datatype::SNAPPY;
        match to_store(&packed, sent, true) {
            Stored::AsSent(datatype) => assert_eq!(datatype, Datatype::JSON.with(Datatype::SNAPPY)),
            _ => panic!("kept compressed"),
        }
        match to_store(&packed, sent, false) {
            Stored::Inflated(plain, Datatype::JSON) => assert_eq!(plain, text.as_bytes()),
            _ => panic!("inflated"),
        }
        assert_eq!(
            compress(text.as_bytes()).as_deref(),
            Some(packed.as_slice())
        );
        assert_eq!(compress(b"{}"), None);
        let packed = snap::raw::Encoder::new().compress_vec(b"{}").unwrap();
        match to_store(&packed, sent, true) {
            Stored::Inflated(plain, datatype) => {
                assert_eq!(
                    (plain.as_slice(), datatype),
                    (b"{}".as_slice(), Datatype::JSON)
                );
            }
            _ => panic!("inflated"),
        }
        assert!(matches!(
            to_store(b"\xff\xff", sent, true),
            Stored::Refused(InflateError::Damaged)
        ));
    }
}
