//! Bodies of the fuzz targets as plain functions, so that ordinary tests run them as well.
//!
//! Each takes any bytes and asserts the properties that must hold.

use crate::message::OTHER_COMMAND;
use crate::push::ClusterMapNotification;
use crate::text::{TextDecoded, TextPlace, decode_text};
use crate::{Decoded, Envelope, Frame, Limits, Malformed, Message, RequestInfos, Response, decode};

fn first_frame(bytes: &[u8]) -> Option<Frame<'_>> {
    match decode(bytes, Limits::AUTHENTICATED) {
        Ok(Decoded::Frame { frame, .. }) => Some(frame),
        _ => None,
    }
}

/// Frames: lengths add up, the header round-trips, a frame without its last byte needs one more
/// byte.
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

/// Text requests: each consumes some input, and a shortened one does not decode as the same.
pub fn text(bytes: &[u8]) {
    const VALUE_BYTES_MAX: usize = 1 << 20;
    let (mut rest, mut at) = (bytes, TextPlace::Line);
    loop {
        match decode_text(rest, at, VALUE_BYTES_MAX) {
            Ok(TextDecoded::Request {
                consumed, place, ..
            }) => {
                let whole = decode_text(rest, at, VALUE_BYTES_MAX);
                let (this, next) = rest.split_at(consumed);
                assert!(!this.is_empty(), "a request takes some of the input");
                let cut = this.split_last().map_or(this, |(_, cut)| cut);
                assert_ne!(decode_text(cut, at, VALUE_BYTES_MAX), whole);
                (rest, at) = (next, place);
            }
            Ok(TextDecoded::Incomplete { more } | TextDecoded::AwaitsValue { more, .. }) => {
                assert!(more > 0, "an incomplete request needs bytes");
                return;
            }
            Err(_) => return,
        }
    }
}

/// Frame infos: parsed infos round-trip.
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

/// Requests: at most one type parses a frame, and the result round-trips.
pub fn request(bytes: &[u8]) {
    if let Some(frame) = first_frame(bytes) {
        assert!(readers(&frame).unwrap_or(0) <= 1, "{frame:?}");
    }
}

/// Returns the number of request types that parse the frame: none if its opcode has no type.
///
/// # Errors
/// The frame breaks a rule of its opcode.
pub fn readers(frame: &Frame<'_>) -> Result<usize, Malformed> {
    let envelope = Envelope::parse(frame);
    let mut readers = 0_usize;
    macro_rules! try_each {
        ($($module:ident { $($message:ident)* })*) => {$($(
            match crate::$module::$message::parse(frame) {
                Ok(message) => {
                    assert_eq!(message.opcode(), frame.header.opcode);
                    readers = readers.saturating_add(1);
                    let mut out = Vec::new();
                    if envelope.is_ok_and(|envelope| message.encode(&envelope, &mut out).is_ok()) {
                        let again = first_frame(&out).expect("an encoded request is a frame");
                        assert_eq!(Envelope::parse(&again), envelope);
                        assert_eq!(Message::parse(&again), Ok(message));
                    }
                }
                Err(OTHER_COMMAND) => {}
                Err(error) => return Err(error),
            }
        )*)*};
    }
    try_each! {
        request {
            Get Store Delete Arithmetic Concat Touch GetAndTouch GetLocked Unlock GetReplica GetMeta
            GetRandomKey Subdoc SubdocMulti RangeScanCreate RangeScanContinue RangeScanCancel Hello
            Sasl SelectBucket DropPrivilege GetErrorMap GetClusterConfig Stat GetCmdTimer Observe ObserveSeqno
            GetAllVbSeqnos SetVbucket CompactDb SeqnoPersistence CollectionsGetId
            CollectionsGetScopeId WithMeta MutateWithMeta ReturnMeta GetEx
        }
        dcp {
            DcpOpen DcpControl AddStream StreamRequest StreamEnd SnapshotMarker Mutation Deletion
            Expiration SetVbucketState BufferAck SystemEvent Prepare SeqnoAcknowledged Commit Abort
            SeqnoAdvanced OsoSnapshot
        }
    }
    Ok(readers)
}

/// Responses: they round-trip, and every typed body parses any bytes without a panic.
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
        CollectionIdReply, FailoverEntries, ObserveSeqnoReply, VbSeqnos, encode_failover_entries,
        encode_vb_seqnos,
    };
    if let Ok(reply) = CollectionIdReply::parse(bytes) {
        assert_eq!(reply.to_bytes(), bytes);
    }
    let rewritten = |write: &dyn Fn(&mut Vec<u8>)| {
        let mut out = Vec::new();
        write(&mut out);
        assert_eq!(out, bytes);
    };
    if let Ok(reply) = ObserveSeqnoReply::parse(bytes) {
        rewritten(&|out| reply.encode(out));
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
        if let Ok(flat) = crate::dcp::FlatEvent::parse(event, bytes) {
            let mut out = Vec::new();
            flat.encode(event, &mut out);
            assert_eq!(crate::dcp::FlatEvent::parse(event, &out), Ok(flat));
        }
    }
    let _seqno = crate::dcp::parse_rollback(bytes);
}

/// Pushes: parsed pushes round-trip.
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
