//! What several tests need.

use wire::{Decoded, Frame, Limits, decode};

/// Bytes of a hexadecimal text; spaces and bars separate.
pub(crate) fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<char> = text.chars().filter(|c| !matches!(c, ' ' | '|')).collect();
    let pair = |pair: &[char]| {
        let text: String = pair.iter().collect();
        u8::from_str_radix(&text, 16).expect("hexadecimal digits")
    };
    digits.chunks(2).map(pair).collect()
}

/// The frame that takes the whole buffer.
pub(crate) fn whole_frame(bytes: &[u8]) -> Frame<'_> {
    match decode(bytes, Limits::AUTHENTICATED) {
        Ok(Decoded::Frame { frame, consumed }) if consumed == bytes.len() => frame,
        other => panic!("not one whole frame: {other:?}"),
    }
}
