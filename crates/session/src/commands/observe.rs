//! Commands that ask for the progress of changes.

use std::sync::Arc;
use std::time::Duration;

use engine::ObserveState;
use model::VbId;
use wire::request::{Observe, ObserveSeqno, SeqnoPersistence};
use wire::response::{Failover, KeyState, ObserveEntry, ObserveSeqnoReply};
use wire::{Frame, Message};

use crate::context::Context;
use crate::outcome::{CommandOutcome, CommandResult, Refusal};
use crate::reply::Reply;

/// OBSERVE: returns the state of each key in the value.
pub(super) fn observe(context: &mut Context<'_>, frame: &Frame<'_>) -> CommandResult {
    let request = Observe::read(frame)?;
    let bucket = context.bucket()?;
    let now = context.now;
    let mut value = Vec::with_capacity(frame.value.len() * 2);
    let (mut waiting, mut parked) = (false, None);
    for asked in request.keys.iter() {
        let key = context.key(asked.key)?;
        let vb = if context.session.classic {
            VbId::of_key(key.user_key(), bucket.bucket.vbuckets())
        } else {
            asked.vbucket
        };
        let observed = context.run(&bucket, vb, |vbucket| vbucket.observe(key.bytes(), now))?;
        let observed = match context.settle(&bucket, vb, observed) {
            Err(Refusal::Parked(limit)) => {
                parked = Some(limit);
                continue;
            }
            observed => observed?,
        };
        let state = match observed.state {
            ObserveState::FoundNotPersisted => KeyState::FoundNotPersisted,
            ObserveState::FoundPersisted => KeyState::Persisted,
            ObserveState::NotFound => KeyState::NotFound,
            ObserveState::Deleted => KeyState::LogicallyDeleted,
        };
        waiting |= matches!(
            observed.state,
            ObserveState::FoundNotPersisted | ObserveState::Deleted
        );
        ObserveEntry {
            vbucket: asked.vbucket,
            key: asked.key,
            state,
            cas: observed.cas,
        }
        .encode(&mut value);
    }
    if let Some(limit) = parked {
        return Ok(CommandOutcome::Parked(limit));
    }
    if waiting {
        bucket.bucket.hurry();
    }
    Ok(context.reply(frame, &Reply::value(&value)))
}

/// OBSERVE_SEQNO.
pub(super) fn observe_seqno(context: &mut Context<'_>, frame: &Frame<'_>) -> CommandResult {
    let request = ObserveSeqno::read(frame)?;
    let bucket = context.bucket()?;
    let vb = frame.vbucket();
    let observed = bucket
        .bucket
        .run(vb, |vbucket| vbucket.observe_seqno(request.uuid))?;
    if observed.persisted < observed.current {
        bucket.bucket.hurry();
    }
    let reply = ObserveSeqnoReply {
        vbucket: observed.vb,
        uuid: observed.vb_uuid,
        persisted: observed.persisted,
        current: observed.current,
        failover: observed.failover.map(|entry| Failover {
            old_uuid: entry.uuid,
            last_seqno: entry.seqno,
        }),
    };
    let mut value = Vec::with_capacity(43);
    reply.encode(&mut value);
    Ok(context.reply(frame, &Reply::value(&value)))
}

/// SEQNO_PERSISTENCE: answered once everything up to the seqno is durable. If the vBucket is emptied or rolled back
/// meanwhile, the request is refused: in the new history, the seqno belongs to another change.
pub(super) fn seqno_persistence(context: &mut Context<'_>, frame: &Frame<'_>) -> CommandResult {
    let request = SeqnoPersistence::read(frame)?;
    let bucket = context.bucket()?;
    let vb = frame.vbucket();
    let (history, persisted) = bucket.bucket.run(vb, |vbucket| {
        let history = vbucket.failover_log().newest().uuid;
        Ok((history, vbucket.persisted_seqno()))
    })?;
    if persisted >= request.seqno {
        return Ok(context.reply(frame, &Reply::EMPTY));
    }
    let park = context.park();
    let waker = context.session.waker();
    let ended = if park.runs == 1 {
        let waker = Arc::clone(&waker);
        let awaited = bucket.bucket.await_persisted(vb, request.seqno, waker);
        awaited.is_some_and(|awaited| awaited != history)
    } else {
        !bucket.bucket.awaits_persistence(&waker)
    };
    if ended {
        bucket.bucket.forget_waiter(&waker);
        return Err(Refusal::not_now("the vBucket has another history"));
    }
    let waited = Duration::from_nanos(context.now.mono_ns.saturating_sub(park.since_ns));
    let of_node = context.session.node.waits.persistence;
    let limit = bucket.persistence_wait.read().unwrap_or(of_node);
    if waited >= limit {
        bucket.bucket.forget_waiter(&waker);
        return Err(Refusal::not_now("the seqno is not durable yet"));
    }
    Ok(CommandOutcome::Parked(limit.saturating_sub(waited)))
}
