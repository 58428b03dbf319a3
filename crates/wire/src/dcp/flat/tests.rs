//! The vectors were written by the Python package `flatbuffers`, version 25.12.19, from the tables
//! of the specification; it also reads our encoding.

use super::*;

fn bytes(hex: &str) -> Vec<u8> {
    let hex: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
    let digits = |two: &[u8]| u8::from_str_radix(str::from_utf8(two).unwrap(), 16).unwrap();
    hex.chunks(2).map(digits).collect()
}

fn begun() -> FlatEvent<'static> {
    FlatEvent {
        manifest: ManifestUid(0x1f),
        scope: 8,
        collection: Some(CollectionId(9)),
        expiry_max_s: Some(77),
        name: "fruit",
        history: true,
    }
}

fn plain(manifest: u64, collection: Option<u32>, name: &'static str) -> FlatEvent<'static> {
    FlatEvent {
        manifest: ManifestUid(manifest),
        collection: collection.map(CollectionId),
        expiry_max_s: None,
        name,
        history: false,
        ..begun()
    }
}

type Vector = (EventId, FlatEvent<'static>, &'static str, &'static str);

/// Events, their encoding by that package, and our encoding.
fn vectors() -> [Vector; 5] {
    [
        (
            EventId::BEGIN_COLLECTION,
            begun(),
            "1c000000000000000000120028001c001800140013000c0008000700120000000000000120000000 \
             4d0000000000000109000000080000001f0000000000000000000000050000006672756974000000",
            "1c00000012001e0004000c0010001c00140018001d00000000000000180000001f00000000000000 \
             08000000090000004d000000080000000101000005000000667275697400",
        ),
        (
            EventId::MODIFY_COLLECTION,
            FlatEvent {
                scope: 0,
                ..plain(1, Some(9), "dairy")
            },
            "14000000100018000c00000008000000000004001000000014000000090000000100000000000000 \
             00000000050000006461697279000000",
            "1c00000012001e0004000c0010001c00140018001d00000000000000180000000100000000000000 \
             000000000900000000000000080000000000000005000000646169727900",
        ),
        (
            EventId::END_COLLECTION,
            plain(5, Some(9), ""),
            "140000000000000000000a0014000c00080004000a00000009000000080000000500000000000000",
            "140000000a00140004000c0010000000000000001000000005000000000000000800000009000000",
        ),
        (
            EventId::CREATE_SCOPE,
            plain(4, None, "shop"),
            "140000000000000000000a0018000c00080004000a00000014000000080000000400000000000000 \
             000000000400000073686f7000000000",
            "140000000a00140004000c0010000000000000001000000004000000000000000800000004000000 \
             0400000073686f7000",
        ),
        (
            EventId::DROP_SCOPE,
            plain(6, None, ""),
            "1000000000000000080010000800040008000000080000000600000000000000",
            "0c0000000800100004000c0008000000060000000000000008000000",
        ),
    ]
}

#[test]
fn events_are_written_as_always_and_read_in_any_layout() {
    for (event, told, theirs, ours) in vectors() {
        let mut written = vec![7; 3];
        told.encode(event, &mut written);
        assert_eq!(written[3..], bytes(ours), "{event:?}");
        for value in [theirs, ours] {
            let value = bytes(value);
            assert_eq!(FlatEvent::parse(event, &value), Ok(told), "{event:?}");
        }
    }
}

#[test]
fn parse_refuses_offsets_out_of_bounds_without_panic() {
    for (event, told, theirs, ours) in vectors() {
        for value in [bytes(theirs), bytes(ours)] {
            for end in 0..value.len() {
                let part = FlatEvent::parse(event, &value[..end]);
                assert!(
                    part.is_err() || part == Ok(told),
                    "{event:?} of {end} bytes"
                );
            }
            for at in 0..value.len() {
                for byte in [0, 1, 4, 0x7f, 0x80, 0xff] {
                    let mut other = value.clone();
                    other[at] = byte;
                    if let Ok(read) = FlatEvent::parse(event, &other) {
                        assert!(read.name.len() <= other.len());
                    }
                }
            }
        }
    }
    let ours = bytes(vectors()[0].3);
    assert!(FlatEvent::parse(EventId(2), &ours).is_err());
    for text in ["", "ffffffff", "04000000000000", "04000000fcffffff"] {
        let value = bytes(text);
        let read = FlatEvent::parse(EventId::DROP_SCOPE, &value);
        assert!(read.is_err(), "{text}");
    }
}
