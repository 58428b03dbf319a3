//! Helpers for several tests.

use std::fmt::Debug;

use wire::{
    Decoded, Envelope, Frame, Limits, Message, Opcode, OpcodeInfo, RawParts, TooLong, decode,
    encode_raw,
};

/// Bytes of a hexadecimal text; spaces and bars are separators.
pub(crate) fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<char> = text.chars().filter(|c| !matches!(c, ' ' | '|')).collect();
    let pair = |pair: &[char]| {
        let text: String = pair.iter().collect();
        u8::from_str_radix(&text, 16).expect("hexadecimal digits")
    };
    digits.chunks(2).map(pair).collect()
}

/// Decodes the frame that fills the whole buffer.
pub(crate) fn whole_frame(bytes: &[u8]) -> Frame<'_> {
    match decode(bytes, Limits::AUTHENTICATED) {
        Ok(Decoded::Frame { frame, consumed }) if consumed == bytes.len() => frame,
        other => panic!("not one whole frame: {other:?}"),
    }
}

/// A message of any type.
pub(crate) trait Sample<'a>: Debug {
    fn opcode_of(&self) -> Opcode;
    fn write(&self, envelope: &Envelope<'_>, out: &mut Vec<u8>) -> Result<(), TooLong>;
    /// Whether its type parses exactly this message from the frame.
    fn is_read_in(&self, frame: &Frame<'a>) -> bool;
}

impl<'a, M: Message<'a> + Debug + PartialEq> Sample<'a> for M {
    fn opcode_of(&self) -> Opcode {
        self.opcode()
    }

    fn write(&self, envelope: &Envelope<'_>, out: &mut Vec<u8>) -> Result<(), TooLong> {
        self.encode(envelope, out)
    }

    fn is_read_in(&self, frame: &Frame<'a>) -> bool {
        M::parse(frame).is_ok_and(|read| read == *self)
    }
}

/// Checks that the bytes parse as `message` in `envelope`, and are written back the same.
pub(crate) fn check<'a>(text: &str, envelope: Envelope<'_>, message: &impl Sample<'a>) {
    let bytes = hex(text).leak();
    let frame = whole_frame(bytes);
    assert!(message.is_read_in(&frame), "{message:?}");
    assert_eq!(Envelope::parse(&frame), Ok(envelope));
    let mut out = Vec::new();
    message
        .write(&envelope, &mut out)
        .expect("the parts fit a frame");
    assert_eq!(out, bytes, "{message:?}");
}

/// Checks the same for a request that consists only of its opcode.
pub(crate) fn check_bare(text: &str, envelope: Envelope<'_>, opcode: Opcode) {
    let bytes = hex(text);
    let frame = whole_frame(&bytes);
    let info = opcode.info().expect("a known opcode");
    assert_eq!(info.check(&frame), Ok(()));
    assert_eq!(Envelope::parse(&frame), Ok(envelope));
    assert_eq!(bare(&envelope, opcode), bytes, "{opcode}");
}

/// Encodes a frame that consists only of its opcode.
pub(crate) fn bare(envelope: &Envelope<'_>, opcode: Opcode) -> Vec<u8> {
    let mut out = Vec::new();
    encode_raw(opcode, envelope, RawParts::default(), &mut out).expect("no parts");
    out
}

/// Returns the shortest extras that an opcode accepts, with valid values.
pub(crate) fn valid_extras(info: &OpcodeInfo) -> Vec<u8> {
    let mut extras = vec![0; usize::from(info.extras[0])];
    match info.opcode {
        Opcode::SET_VBUCKET | Opcode::DCP_SET_VBUCKET_STATE => extras = vec![1],
        Opcode::DCP_SNAPSHOT_MARKER => extras = vec![0; 20],
        Opcode::DCP_OSO_SNAPSHOT => extras = vec![0, 0, 0, 1],
        Opcode::DCP_PREPARE => extras[30] = 1,
        Opcode::RETURN_META => extras[3] = 1,
        _ => {}
    }
    extras
}
