//! What several tests need.

use wire::{Decoded, Frame, Limits, Opcode, OpcodeInfo, decode};

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

/// The shortest extras that an opcode accepts, with values that it accepts.
pub(crate) fn valid_extras(info: &OpcodeInfo) -> Vec<u8> {
    let mut extras = vec![0; usize::from(info.extras[0])];
    match info.opcode {
        Opcode::SET_VBUCKET | Opcode::DCP_SET_VBUCKET_STATE => extras = vec![1],
        Opcode::DCP_SNAPSHOT_MARKER => extras = vec![0; 20],
        Opcode::DCP_OSO_SNAPSHOT => extras = vec![0, 0, 0, 1],
        Opcode::DCP_PREPARE => extras[30] = 1,
        _ => {}
    }
    extras
}
