//! Splitting frames off a buffer.

use wire::{Decoded, FrameError, HEADER_BYTES, Limits, Magic, decode};

use crate::support::hex;

const GET: &str = "80 00 0004 00 00 0073 00000004 deadbeef 0000000000000000 | 00 666f6f";

fn header(magic: u8, lens: [u8; 3], body_len: u32) -> Vec<u8> {
    let [first, key, extras] = lens;
    let mut bytes = vec![magic, 0, first, key, extras, 0, 0, 0];
    bytes.extend_from_slice(&body_len.to_be_bytes());
    bytes.resize(HEADER_BYTES, 0);
    bytes
}

#[test]
fn truncated_one_byte_at_a_time() {
    let frame = hex(
        "08 01 04 04 08 00 0073 00000011 deadbeef 0000000000000000 | 13 01 0bb8 \
                     | 02000006 00000000 | 00 666f6f | 31",
    );
    for len in 0..frame.len() {
        let more = if len < HEADER_BYTES {
            HEADER_BYTES - len
        } else {
            frame.len() - len
        };
        let expected = Ok(Decoded::Incomplete { more });
        assert_eq!(
            decode(&frame[..len], Limits::AUTHENTICATED),
            expected,
            "{len} bytes"
        );
    }
}

#[test]
fn a_frame_is_split_off_a_pipeline() {
    let two = hex(&format!("{GET} {GET}"));
    let Ok(Decoded::Frame { frame, consumed }) = decode(&two, Limits::UNAUTHENTICATED) else {
        panic!("no frame");
    };
    assert_eq!(consumed, 28);
    assert_eq!(frame.wire_bytes(), 28);
    assert_eq!(frame.key, b"\0foo");
    assert_eq!(frame.key_and_value(), b"\0foo");
    assert_eq!(frame.header.opaque.0, [0xde, 0xad, 0xbe, 0xef]);
}

#[test]
fn every_byte_that_is_no_magic_is_refused_at_once() {
    let mut magics = 0;
    for byte in 0..=u8::MAX {
        if let Some(magic) = Magic::from_byte(byte) {
            magics += 1;
            assert_eq!(magic as u8, byte);
            let expected = Ok(Decoded::Incomplete { more: 23 });
            assert_eq!(decode(&[byte], Limits::AUTHENTICATED), expected);
        } else {
            let expected = Err(FrameError::Magic(byte));
            assert_eq!(decode(&[byte], Limits::AUTHENTICATED), expected);
            let header = header(byte, [0; 3], 0);
            assert_eq!(decode(&header, Limits::AUTHENTICATED), expected);
        }
    }
    assert_eq!(magics, 6);
}

#[test]
fn inconsistent_lengths_are_refused_with_the_header() {
    for (magic, lens, fits) in [
        (0x80, [0, 2, 3], 5),
        (0x08, [1, 2, 3], 6),
        (0x18, [255; 3], 765),
    ] {
        let enough = header(magic, lens, fits);
        let expected = Ok(Decoded::Incomplete {
            more: fits as usize,
        });
        assert_eq!(decode(&enough, Limits::AUTHENTICATED), expected);
        let short = header(magic, lens, fits - 1);
        assert_eq!(
            decode(&short, Limits::AUTHENTICATED),
            Err(FrameError::Lengths)
        );
    }
    let key_of_64_kib = header(0x81, [0xff, 0xff, 0xff], 0xffff);
    assert_eq!(
        decode(&key_of_64_kib, Limits::AUTHENTICATED),
        Err(FrameError::Lengths)
    );
}

#[test]
fn bodies_over_the_limit_are_refused_with_the_header() {
    let frames = [
        (Limits::UNAUTHENTICATED, 16 << 10),
        (Limits::AUTHENTICATED, 30 << 20),
    ];
    for (limits, frame_bytes_max) in frames {
        let body_max = frame_bytes_max - 24;
        let expected = Ok(Decoded::Incomplete {
            more: body_max as usize,
        });
        assert_eq!(decode(&header(0x80, [0; 3], body_max), limits), expected);
        for body_bytes in [body_max + 1, u32::MAX] {
            let error = FrameError::TooLarge {
                body_bytes,
                body_bytes_max: body_max,
            };
            assert_eq!(
                decode(&header(0x80, [0; 3], body_bytes), limits),
                Err(error)
            );
        }
    }
}
