//! The change protocol (DCP): opens a connection as a producer or a consumer, opens and closes streams.

use std::sync::Arc;

use audit::Event;
use consumer::{Inbound, Opener};
use identity::{Privilege, PrivilegeSet};
use registry::Progress;
use registry::dcp::{RegisteredConsumer, SharedProducer};
use wire::dcp::{
    AddStream, BufferAck, DcpControl, DcpOpen, OpenFlags, SeqnoAcknowledged, StreamRequest,
};
use wire::response::encode_failover_entries;
use wire::{Feature, Frame, Message, Status};

use crate::context::Context;
use crate::dcp::{AskedStream, GuardedProducer, OpenedStream, Opening, Producer};
use crate::outcome::{CommandOutcome, CommandResult, Refusal};
use crate::reply::Reply;

/// Bytes of a connection's name at most.
const NAME_BYTES_MAX: usize = 200;
/// Flags that DCP_OPEN of a producer may have.
const PRODUCER_FLAGS: OpenFlags = OpenFlags::ALL;

/// Reads the value of DCP_OPEN: a JSON object about the consumer, or nothing.
fn about(value: &[u8]) -> Result<serde_json::Value, Refusal> {
    if value.is_empty() {
        return Ok(serde_json::Value::Null);
    }
    let about: Option<serde_json::Value> = serde_json::from_slice(value).ok();
    about
        .filter(serde_json::Value::is_object)
        .ok_or_else(|| Refusal::invalid("the value is no JSON object"))
}

/// DCP_OPEN of a connection that brings changes to this node.
fn open_consumer(
    context: &mut Context<'_>,
    frame: &Frame<'_>,
    name: &str,
    about: &serde_json::Value,
) -> CommandResult {
    if !context.session.has(Feature::COLLECTIONS) {
        let reason = "a consumer needs collections to be negotiated";
        return Err(Refusal::because(Status::NOT_SUPPORTED, reason));
    }
    let consumer = match &about["consumer_name"] {
        serde_json::Value::Null => "",
        serde_json::Value::String(name) if name.len() <= NAME_BYTES_MAX => name,
        _ => return Err(Refusal::invalid("the consumer's name is not valid")),
    };
    let bucket = context.bucket()?;
    let needed = PrivilegeSet::of(&[Privilege::DcpConsumer]);
    context.session.check_bucket(needed)?;
    if !context.session.node.env.has_thread() {
        let reason = "there are too many consumers";
        return Err(Refusal::because(Status::ENOMEM, reason));
    }
    let done = context.reply(frame, &Reply::EMPTY);
    let session = &mut *context.session;
    let progress = Arc::new(Progress::new(bucket.bucket.vbuckets()));
    let registered = RegisteredConsumer {
        connection: Arc::clone(&session.info),
        progress: Arc::clone(&progress),
        created_s: context.now.unix_s(),
    };
    // A new connection can take over the vBuckets of an older one with the same name: a peer that lost its
    // connection often reconnects sooner than this node notices the loss.
    if let Some(older) = bucket.dcp.enter_consumer(name, registered) {
        bucket.claims.release_all(older);
    }
    let opener = Opener {
        name,
        consumer,
        connection: session.info.id,
        node: Arc::clone(&session.node),
        served: bucket,
        progress,
        wake: session.waker(),
    };
    let inbound = Inbound::open(opener, context.now, context.output);
    session.inbound = Some(Box::new(inbound));
    session.info.note(|about| about.kind = Some("consumer"));
    session.record_in_bucket(Event::DcpOpened, context.now);
    Ok(done)
}

/// DCP_OPEN.
pub(super) fn open(context: &mut Context<'_>, frame: &Frame<'_>) -> CommandResult {
    let request = DcpOpen::read(frame)?;
    if request.name.len() > NAME_BYTES_MAX {
        return Err(Refusal::invalid("the name is too long"));
    }
    let name =
        std::str::from_utf8(request.name).map_err(|_| Refusal::invalid("the name is no text"))?;
    if request.flags.without(PRODUCER_FLAGS).0 != 0 {
        return Err(Refusal::invalid("unknown flags"));
    }
    let about = about(request.value)?;
    if context.session.is_dcp() {
        return Err(Refusal::invalid("the connection was opened already"));
    }
    if !request.flags.contains(OpenFlags::PRODUCER) {
        return open_consumer(context, frame, name, &about);
    }
    let bucket = context.bucket()?;
    let needed = PrivilegeSet::of(&[Privilege::DcpProducer]);
    context.session.check_anywhere(needed)?;
    let waker = context.session.waker();
    let silence = bucket.dcp.settings.read().idle_timeout;
    let silence = silence.unwrap_or(context.session.node.waits.silence);
    let opening = Opening {
        flags: request.flags,
        now: context.now,
        silence_max: silence,
        env: Arc::clone(&context.session.node.env),
    };
    let producer = Producer::new(name, Arc::clone(&bucket), waker, opening);
    let producer = Arc::new(GuardedProducer::new(producer));
    let shared = Arc::clone(&producer) as SharedProducer;
    bucket.dcp.enter(name, &shared, &context.session.info);
    context.session.dcp = Some(producer);
    context
        .session
        .info
        .note(|about| about.kind = Some("producer"));
    context
        .session
        .record_in_bucket(Event::DcpOpened, context.now);
    Ok(context.reply(frame, &Reply::EMPTY))
}

/// Returns the producer of this connection.
fn producer(context: &Context<'_>) -> Result<Arc<GuardedProducer>, Refusal> {
    context
        .session
        .dcp
        .clone()
        .ok_or_else(|| Refusal::invalid("the connection was not opened for the change protocol"))
}

/// DCP_CONTROL.
pub(super) fn control(context: &mut Context<'_>, frame: &Frame<'_>) -> CommandResult {
    let request = DcpControl::read(frame)?;
    let features = context.session.features;
    producer(context)?.lock().control(&request, features)?;
    Ok(context.reply(frame, &Reply::EMPTY))
}

/// DCP_STREAM_REQ.
pub(super) fn stream(context: &mut Context<'_>, frame: &Frame<'_>) -> CommandResult {
    let request = StreamRequest::read(frame)?;
    let features = context.session.features;
    let producer = producer(context)?;
    let session = &*context.session;
    let asked = AskedStream {
        opaque: frame.header.opaque,
        request: &request,
        features,
        may: &|limit| session.check_stream(limit),
    };
    let opened = producer.lock().open_stream(frame.vbucket(), &asked)?;
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
pub(super) fn close(context: &mut Context<'_>, frame: &Frame<'_>) -> CommandResult {
    if let Some(inbound) = &mut context.session.inbound {
        inbound.close_stream(frame.vbucket(), context.output)?;
        return Ok(context.reply(frame, &Reply::EMPTY));
    }
    let id = context.infos.stream_id;
    producer(context)?
        .lock()
        .close_stream(frame.vbucket(), id)?;
    Ok(context.reply(frame, &Reply::EMPTY))
}

/// DCP_BUFFER_ACK: has no answer unless it is refused.
pub(super) fn buffer_ack(context: &mut Context<'_>, frame: &Frame<'_>) -> CommandResult {
    let request = BufferAck::read(frame)?;
    producer(context)?.lock().acknowledge(request.bytes);
    Ok(CommandOutcome::Next)
}

/// DCP_NOOP, of a producer or a consumer.
pub(super) fn noop(context: &mut Context<'_>, frame: &Frame<'_>) -> CommandResult {
    if context.session.inbound.is_none() {
        drop(producer(context)?);
    }
    Ok(context.reply(frame, &Reply::EMPTY))
}

/// DCP_SEQNO_ACKNOWLEDGED: a replica has every prepare up to a seqno. It has no answer unless it is refused.
/// A sealed vBucket takes it, too: an acknowledgement can decide prepares from before the seal.
pub(super) fn seqno_ack(context: &mut Context<'_>, frame: &Frame<'_>) -> CommandResult {
    let request = SeqnoAcknowledged::read(frame)?;
    let vb = frame.vbucket();
    let replica = producer(context)?.lock().replica_of(vb)?;
    let bucket = context.bucket()?;
    bucket.bucket.run_for_node(vb, |vbucket| {
        vbucket.seqno_acknowledged(&replica, request.prepared)
    })?;
    Ok(CommandOutcome::Next)
}

/// The refusal for a connection that was not opened as a consumer.
fn no_consumer() -> Refusal {
    Refusal::invalid("the connection was not opened as a consumer")
}

/// DCP_ADD_STREAM: answered when the producer has answered.
pub(super) fn add_stream(context: &mut Context<'_>, frame: &Frame<'_>) -> CommandResult {
    let request = AddStream::read(frame)?;
    let inbound = context.session.inbound.as_mut().ok_or_else(no_consumer)?;
    let opaque = frame.header.opaque;
    inbound.add_stream(frame.vbucket(), opaque, request.flags, context.output)?;
    Ok(CommandOutcome::Next)
}

/// A message of a stream. It is answered if it is refused, or if its producer waits for the answer.
pub(super) fn pushed(context: &mut Context<'_>, frame: &Frame<'_>) -> CommandResult {
    let inbound = context.session.inbound.as_mut().ok_or_else(no_consumer)?;
    inbound.pushed(frame, context.output)?;
    Ok(CommandOutcome::Next)
}
