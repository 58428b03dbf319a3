//! Tests of extended attributes on streams: which consumers get them, and in which form.

use wire::{Feature, Opcode};

use super::consumer::{Ask, Consumer, DELETE_TIMES, NO_VALUE, PRODUCER, XATTRS};
use crate::client::{Answer, Client, Request, sdk_and, sdk_without, set};
use crate::place::own;
use crate::subdoc::{DICT_UPSERT, XATTR as PATH_XATTR, changes};

const DELETED_USER_XATTRS: u32 = 0x100;
const CREATE_AS_DELETED: u8 = 0x08 | 0x02;
const SECTION: &[u8] = b"\0\0\0\x13\0\0\0\x05u\0[]\0\0\0\0\x06_s\0{}\0";
const OF_SYSTEM: &[u8] = b"\0\0\0\x0a\0\0\0\x06_s\0{}\0";

/// Returns the newest message about each document, up to the first one about `last`. Versions that were flushed before
/// they were replaced are streamed, too.
fn documents(consumer: &mut Consumer, last: &[u8]) -> Vec<Answer> {
    let mut found: Vec<Answer> = Vec::new();
    while !found.last().is_some_and(|frame| frame.key.ends_with(last)) {
        let frame = consumer.frame();
        if matches!(frame.opcode, Opcode::DCP_MUTATION | Opcode::DCP_DELETION) {
            found.retain(|older| older.key != frame.key);
            found.push(frame);
        }
    }
    found
}

fn told(frames: &[Answer]) -> Vec<(&[u8], u8)> {
    let frames = frames.iter();
    frames
        .map(|frame| (frame.value.as_slice(), frame.datatype))
        .collect()
}

#[test]
fn only_consumers_that_ask_get_attributes() {
    let node = own();
    let port = node.ports().kv;
    let mut writer = Client::ready(port);
    let vb = 1;
    let long = "a".repeat(500);
    writer
        .call(&set("body", format!("\"{long}\"")).vbucket(vb))
        .ok();
    let both = [
        (DICT_UPSERT, PATH_XATTR, "u", "[]"),
        (DICT_UPSERT, PATH_XATTR, "_s", "{}"),
    ];
    writer.call(&changes("body", &both).vbucket(vb)).ok();
    writer.call(&set("gone", "1").vbucket(vb)).ok();
    writer.call(&changes("gone", &both).vbucket(vb)).ok();
    writer
        .call(&Request::of(Opcode::DELETE, "gone").vbucket(vb))
        .ok();
    let staged = changes("staged", &both)
        .extras(&[CREATE_AS_DELETED])
        .vbucket(vb);
    writer.call(&staged);
    let body = format!("\"{long}\"");
    let whole = [SECTION, body.as_bytes()].concat();
    let nothing: (&[u8], u8) = (b"", 0);
    let mut names = ["a", "b", "c", "d", "e"].into_iter();
    let mut stream = |flags: u32, features: &[Feature]| {
        let name = names.next().unwrap();
        let mut consumer = Consumer::with(port, name, PRODUCER | flags, features);
        consumer.stream(&Ask::all(vb));
        documents(&mut consumer, b"staged")
    };
    let sdk = sdk_and(&[]);
    let all = XATTRS | DELETE_TIMES | DELETED_USER_XATTRS;
    let expected = [(whole.as_slice(), 5), (OF_SYSTEM, 4), (SECTION, 4)];
    assert_eq!(told(&stream(all, &sdk)), expected);
    let expected = [(whole.as_slice(), 5), (OF_SYSTEM, 4), (OF_SYSTEM, 4)];
    assert_eq!(told(&stream(XATTRS, &sdk)), expected);
    let expected = [(body.as_bytes(), 1), nothing, nothing];
    assert_eq!(told(&stream(0, &sdk)), expected);
    assert_eq!(told(&stream(all, &sdk_without(Feature::XATTR))), expected);
    let expected = [(SECTION, 4), (OF_SYSTEM, 4), (OF_SYSTEM, 4)];
    assert_eq!(told(&stream(XATTRS | NO_VALUE, &sdk)), expected);
    let mut packed = Consumer::with(port, "packed", PRODUCER | all, &sdk_and(&[Feature::SNAPPY]));
    packed.control("force_value_compression", "true").ok();
    packed.stream(&Ask::all(vb));
    let frames = documents(&mut packed, b"staged");
    let plain = snap::raw::Decoder::new()
        .decompress_vec(&frames[0].value)
        .unwrap();
    assert_eq!((plain, frames[0].datatype), (whole, 7));
}
