//! The change protocol: a connection becomes a producer, streams are asked for and closed.

use std::sync::Arc;

use parking_lot::Mutex;
use wire::dcp::{BufferAck, DcpControl, DcpOpen, OpenFlags, SeqnoAcknowledged, StreamRequest};
use wire::request::Message;
use wire::response::encode_failover_entries;
use wire::{Frame, Status};

use crate::session::dcp::{OpenedStream, Producer, SharedProducer};
use crate::session::{Context, Done, Refusal, Reply};

/// Longest name of a connection.
const NAME_BYTES_MAX: usize = 200;
/// Flags that a producer may be opened with.
const PRODUCER_FLAGS: OpenFlags = OpenFlags::ALL;

fn invalid(reason: &'static str) -> Refusal {
    Refusal::because(Status::EINVAL, reason)
}

/// DCP_OPEN.
pub(super) fn open(context: &mut Context<'_>, frame: &Frame<'_>) -> Result<Done, Refusal> {
    let request = DcpOpen::read(frame)?;
    if request.name.len() > NAME_BYTES_MAX {
        return Err(invalid("the name is too long"));
    }
    let name = std::str::from_utf8(request.name).map_err(|_| invalid("the name is no text"))?;
    if request.flags.without(PRODUCER_FLAGS).0 != 0 {
        return Err(invalid("unknown flags"));
    }
    if !request.value.is_empty() {
        let value: Option<serde_json::Value> = serde_json::from_slice(request.value).ok();
        if !value.is_some_and(|value| value.is_object()) {
            return Err(invalid("the value is no JSON object"));
        }
    }
    if !request.flags.contains(OpenFlags::PRODUCER) {
        return Err(Refusal::because(
            Status::NOT_SUPPORTED,
            "this node opens streams as a consumer by itself only",
        ));
    }
    if context.session.dcp.is_some() {
        return Err(invalid("the connection was opened already"));
    }
    let bucket = context.bucket()?;
    let waker = context.session.waker();
    let producer = Producer::new(name, Arc::clone(&bucket), request.flags, waker, context.now);
    let producer: SharedProducer = Arc::new(Mutex::new(producer));
    bucket.dcp.enter(name, &producer, &context.session.info);
    context.session.dcp = Some(producer);
    context
        .session
        .info
        .note(|about| about.kind = Some("producer"));
    Ok(context.reply(frame, &Reply::EMPTY))
}

/// The producer that this connection is.
fn producer(context: &Context<'_>) -> Result<SharedProducer, Refusal> {
    context
        .session
        .dcp
        .clone()
        .ok_or_else(|| invalid("the connection was not opened for the change protocol"))
}

/// DCP_CONTROL.
pub(super) fn control(context: &mut Context<'_>, frame: &Frame<'_>) -> Result<Done, Refusal> {
    let request = DcpControl::read(frame)?;
    let features = context.session.features;
    producer(context)?.lock().control(&request, features)?;
    Ok(context.reply(frame, &Reply::EMPTY))
}

/// DCP_STREAM_REQ.
pub(super) fn stream(context: &mut Context<'_>, frame: &Frame<'_>) -> Result<Done, Refusal> {
    let request = StreamRequest::read(frame)?;
    let features = context.session.features;
    let (vb, opaque) = (frame.vbucket(), frame.header.opaque);
    let producer = producer(context)?;
    let opened = producer
        .lock()
        .open_stream(vb, opaque, &request, features)?;
    let mut value = Vec::new();
    let status = match opened {
        OpenedStream::Accepted(log) => {
            encode_failover_entries(log.entries(), &mut value);
            Status::SUCCESS
        }
        OpenedStream::Rollback(seqno) => {
            value.extend_from_slice(&seqno.0.to_be_bytes());
            Status::ROLLBACK
        }
    };
    let reply = Reply {
        status,
        ..Reply::value(&value)
    };
    Ok(context.reply(frame, &reply))
}

/// DCP_CLOSE_STREAM.
pub(super) fn close(context: &mut Context<'_>, frame: &Frame<'_>) -> Result<Done, Refusal> {
    let id = context.infos.stream_id;
    producer(context)?
        .lock()
        .close_stream(frame.vbucket(), id)?;
    Ok(context.reply(frame, &Reply::EMPTY))
}

/// DCP_BUFFER_ACK: nothing answers it when it is right.
pub(super) fn buffer_ack(context: &mut Context<'_>, frame: &Frame<'_>) -> Result<Done, Refusal> {
    let request = BufferAck::read(frame)?;
    producer(context)?.lock().acknowledge(request.bytes);
    Ok(Done::Next)
}

/// DCP_NOOP of a consumer.
pub(super) fn noop(context: &mut Context<'_>, frame: &Frame<'_>) -> Result<Done, Refusal> {
    drop(producer(context)?);
    Ok(context.reply(frame, &Reply::EMPTY))
}

/// DCP_SEQNO_ACKNOWLEDGED: a replica has every prepare up to a seqno. Nothing answers it when it
/// is right.
pub(super) fn seqno_ack(context: &mut Context<'_>, frame: &Frame<'_>) -> Result<Done, Refusal> {
    let request = SeqnoAcknowledged::read(frame)?;
    let vb = frame.vbucket();
    let replica = producer(context)?.lock().replica_of(vb)?;
    let bucket = context.bucket()?;
    bucket.bucket.run(vb, |vbucket| {
        vbucket.seqno_acknowledged(&replica, request.prepared)
    })?;
    Ok(Done::Next)
}
