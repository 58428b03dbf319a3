//! Encodings of a value: JSON, Snappy, or neither.

use std::borrow::Cow;

use engine::Codec;
use model::Datatype;
use serde::de::IgnoredAny;

/// Maximum length of a value: body and attributes of users together.
pub const VALUE_BYTES_MAX: usize = 20 << 20;
/// Maximum bytes of system attributes, in addition to the value.
pub const SYSTEM_BYTES_MAX: usize = 1 << 20;
/// Minimum ratio, times ten, by which compression must shrink a value to be kept.
const COMPRESSION_RATIO_MIN_TENTHS: usize = 12;

/// Whether `value` is one JSON text in UTF-8.
///
/// Cost: one pass; nothing if the first byte cannot begin a JSON text.
pub fn is_json(value: &[u8]) -> bool {
    let first = value.iter().find(|byte| !byte.is_ascii_whitespace());
    match first {
        Some(b'{' | b'[' | b'"' | b't' | b'f' | b'n' | b'-' | b'0'..=b'9') => {}
        _ => return false,
    }
    simdutf8::basic::from_utf8(value)
        .is_ok_and(|text| serde_json::from_str::<IgnoredAny>(text).is_ok())
}

/// Reason why a compressed value is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InflateError {
    /// The value is not in Snappy's block format.
    Damaged,
    /// The uncompressed value is longer than the maximum.
    TooBig,
}

/// Returns the uncompressed value. The claimed length is checked before it is allocated.
pub fn inflate(value: &[u8]) -> Result<Vec<u8>, InflateError> {
    inflate_up_to(value, VALUE_BYTES_MAX)
}

/// Returns the uncompressed form of a value that may include system attributes.
pub fn inflate_stored(value: &[u8]) -> Result<Vec<u8>, InflateError> {
    inflate_up_to(value, VALUE_BYTES_MAX + SYSTEM_BYTES_MAX)
}

/// Compresses a value; `None` if that does not shrink it enough.
///
/// Cost: one pass.
pub fn compress(value: &[u8]) -> Option<Vec<u8>> {
    let packed = snap::raw::Encoder::new().compress_vec(value).ok()?;
    pays(value.len(), packed.len()).then_some(packed)
}

/// Whether `packed` bytes are small enough for a value of `plain` bytes.
fn pays(plain: usize, packed: usize) -> bool {
    plain * 10 >= packed * COMPRESSION_RATIO_MIN_TENTHS
}

/// Returns the claimed uncompressed length of a compressed value; 0 if it cannot be read.
pub fn inflated_bytes(value: &[u8]) -> usize {
    snap::raw::decompress_len(value).unwrap_or(0)
}

/// Returns the uncompressed form and the datatype of a document's value, or of a part of it. A
/// damaged value stays as it is.
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
    // Snappy's densest element copies 64 bytes with 3: a larger claim is false, and is refused
    // before memory is allocated for it.
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

/// A value in the form in which it is stored.
pub enum Stored {
    /// The value as it was sent.
    AsSent(Datatype),
    /// The value uncompressed.
    Inflated(Vec<u8>, Datatype),
    /// The value is refused.
    Refused(InflateError),
}

/// Decides how a value with `datatype` is stored. The JSON bit is only a hint; the Snappy bit must
/// be true. A value is uncompressed if compression gains little, or if `keeps_compressed` is false.
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

/// The engine's access to these functions.
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
    fn decompression_bomb_is_refused_before_it_is_inflated() {
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
    fn compression_is_kept_if_it_shrinks_the_value() {
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
