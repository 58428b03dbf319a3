//! One body for each fuzz target, as plain functions so that ordinary tests run them as well.
//!
//! Each takes any bytes and asserts what must hold of them.

use crate::push::ClusterMapNotification;
use crate::{Decoded, Envelope, Frame, Limits, Request, RequestInfos, Response, decode};

fn first_frame(bytes: &[u8]) -> Option<Frame<'_>> {
    match decode(bytes, Limits::AUTHENTICATED) {
        Ok(Decoded::Frame { frame, .. }) => Some(frame),
        _ => None,
    }
}

/// Frames: lengths add up, the header survives, a cut frame waits for exactly the rest.
pub fn frame(bytes: &[u8]) {
    let mut rest = bytes;
    loop {
        match decode(rest, Limits::UNAUTHENTICATED) {
            Ok(Decoded::Frame { frame, consumed }) => {
                assert_eq!(frame.wire_bytes(), consumed);
                assert!(rest.starts_with(&frame.header.to_bytes()));
                let parts = [frame.frame_infos, frame.extras, frame.key_and_value()];
                let (this, next) = rest.split_at(consumed);
                assert!(this.ends_with(&parts.concat()));
                assert_eq!(frame.key_and_value(), [frame.key, frame.value].concat());
                let cut = this.get(..consumed.saturating_sub(1)).unwrap_or_default();
                let expected = Ok(Decoded::Incomplete { more: 1 });
                assert_eq!(decode(cut, Limits::UNAUTHENTICATED), expected);
                rest = next;
            }
            Ok(Decoded::Incomplete { more }) => {
                assert!(more > 0, "an incomplete frame needs bytes");
                return;
            }
            Err(_) => return,
        }
    }
}

/// Frame infos: what was understood is understood again after it was written anew.
pub fn request_infos(bytes: &[u8]) {
    if let Ok(infos) = RequestInfos::parse(bytes) {
        let mut section = Vec::new();
        infos
            .encode(&mut section)
            .expect("names that were read can be written");
        assert!(
            section.len() <= bytes.len(),
            "the shortest form is not longer"
        );
        assert_eq!(RequestInfos::parse(&section), Ok(infos));
    }
}

/// Requests: what was understood is understood again after it was written anew.
pub fn request(bytes: &[u8]) {
    let Some(frame) = first_frame(bytes) else {
        return;
    };
    let (Ok(request), Ok(envelope)) = (Request::parse(&frame), Envelope::parse(&frame)) else {
        return;
    };
    assert_eq!(request.opcode(), frame.header.opcode);
    let mut out = Vec::new();
    if request.encode(&envelope, &mut out).is_err() {
        return;
    }
    let again = first_frame(&out).expect("an encoded request is a frame");
    assert_eq!(Envelope::parse(&again), Ok(envelope));
    match (Request::parse(&again), request) {
        (Ok(Request::Unknown(again)), Request::Unknown(frame)) => {
            assert_eq!(again.header.opcode, frame.header.opcode);
            assert_eq!(again.extras, frame.extras);
            assert_eq!((again.key, again.value), (frame.key, frame.value));
        }
        (again, request) => assert_eq!(again, Ok(request)),
    }
}

/// Responses: the same, and every typed body reads any bytes without a panic.
pub fn response(bytes: &[u8]) {
    bodies(bytes);
    let Some(frame) = first_frame(bytes) else {
        return;
    };
    let Ok(response) = Response::parse(&frame) else {
        return;
    };
    bodies(response.extras);
    bodies(response.value);
    let mut out = Vec::new();
    response.encode(&mut out);
    let again = first_frame(&out).expect("an encoded response is a frame");
    assert_eq!(Response::parse(&again), Ok(response));
}

fn bodies(bytes: &[u8]) {
    use crate::response::{
        CollectionIdReply, FailoverEntries, ItemFlags, ItemMeta, MutationToken, ObserveEntries,
        ObserveSeqnoReply, VbSeqnos, encode_failover_entries, encode_vb_seqnos, parse_counter,
        parse_vb_state,
    };
    let mut out = Vec::new();
    if let Ok(meta) = ItemMeta::parse(bytes) {
        meta.encode(&mut out);
        assert_eq!(ItemMeta::parse(&out), Ok(meta));
    }
    if let Ok(Some(token)) = MutationToken::parse(bytes) {
        assert_eq!(token.to_bytes(), bytes);
    }
    if let Ok(reply) = CollectionIdReply::parse(bytes) {
        assert_eq!(reply.to_bytes(), bytes);
    }
    if let Ok(flags) = ItemFlags::parse(bytes) {
        assert_eq!(flags.to_bytes(), bytes);
    }
    let rewritten = |write: &dyn Fn(&mut Vec<u8>)| {
        let mut out = Vec::new();
        write(&mut out);
        assert_eq!(out, bytes);
    };
    if let Ok(reply) = ObserveSeqnoReply::parse(bytes) {
        rewritten(&|out| reply.encode(out));
    }
    if let Ok(entries) = ObserveEntries::parse(bytes) {
        rewritten(&|out| entries.iter().for_each(|entry| entry.encode(out)));
    }
    if let Ok(entries) = FailoverEntries::parse(bytes) {
        let entries: Vec<_> = entries.iter().collect();
        rewritten(&|out| encode_failover_entries(&entries, out));
    }
    if let Ok(entries) = VbSeqnos::parse(bytes) {
        rewritten(&|out| encode_vb_seqnos(entries.iter(), out));
    }
    if let Ok(event) = crate::dcp::CollectionEvent::parse(bytes) {
        rewritten(&|out| event.encode(out));
    }
    if let Ok(event) = crate::dcp::CollectionModified::parse(bytes) {
        rewritten(&|out| event.encode(out));
    }
    for event in (0..6).map(crate::dcp::EventId) {
        if let Ok(told) = crate::dcp::FlatEvent::parse(event, bytes) {
            let mut out = Vec::new();
            told.encode(event, &mut out);
            assert_eq!(crate::dcp::FlatEvent::parse(event, &out), Ok(told));
        }
    }
    let _number = parse_counter(bytes);
    let _seqno = crate::dcp::parse_rollback(bytes);
    let _opaque = crate::dcp::parse_stream_opaque(bytes);
    let _state = parse_vb_state(bytes);
}

/// Pushes: what was understood is understood again after it was written anew.
pub fn push(bytes: &[u8]) {
    let Some(frame) = first_frame(bytes) else {
        return;
    };
    let Ok(push) = ClusterMapNotification::parse(&frame) else {
        return;
    };
    let mut out = Vec::new();
    push.encode(frame.header.opaque, &mut out);
    let again = first_frame(&out).expect("an encoded push is a frame");
    assert_eq!(ClusterMapNotification::parse(&again), Ok(push));
}
