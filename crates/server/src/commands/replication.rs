//! Groups of nodes: a replica makes itself known, a replica is made active.

use std::time::Duration;

use wire::{Frame, Status};

use crate::replication::{PROMOTE, REGISTER, Stage, forget_replicas, register};
use crate::session::{Context, Done, Refusal, Reply};

/// How long a promotion may take before whoever asked for it is told to look again.
const PROMOTION_LIMIT: Duration = Duration::from_secs(30);

/// IOCTL_SET: the two settings that groups of nodes know.
pub(super) fn ioctl_set(context: &mut Context<'_>, frame: &Frame<'_>) -> Result<Done, Refusal> {
    match frame.key {
        REGISTER => {
            let bucket = context.bucket()?;
            let (node, host) = (&context.session.node, context.session.info.peer().ip());
            let answer = register(node, &bucket, host, frame.value).ok_or_else(|| {
                Refusal::because(Status::EINVAL, "this node takes no such replica")
            })?;
            Ok(context.reply(frame, &Reply::value(answer.as_bytes())))
        }
        PROMOTE => promote(context, frame),
        _ => Err(Refusal::because(Status::EINVAL, "there is no such setting")),
    }
}

/// Parks until the replica's own thread has done it. On an active node it means to go on without
/// its replicas.
fn promote(context: &mut Context<'_>, frame: &Frame<'_>) -> Result<Done, Refusal> {
    let bucket = context.bucket()?;
    let follows = bucket.group().active().is_some();
    if !follows && forget_replicas(&context.session.node, &bucket) {
        return Ok(context.reply(frame, &Reply::EMPTY));
    }
    let force = match frame.value {
        b"" => false,
        b"force" => true,
        _ => {
            let reason = "a promotion is forced or not";
            return Err(Refusal::because(Status::EINVAL, reason));
        }
    };
    let Some(follower) = bucket.follower() else {
        let reason = "the bucket follows no other node";
        return Err(Refusal::because(Status::EINVAL, reason));
    };
    match follower.progress.stage() {
        Stage::Promoted => return Ok(context.reply(frame, &Reply::EMPTY)),
        Stage::Stopped => return Err(Refusal::because(Status::ETMPFAIL, "the node stops")),
        Stage::Waiting | Stage::Connecting | Stage::Introducing | Stage::Streaming => {}
    }
    let park = context.park();
    if park.runs == 1 {
        follower.promote(force);
    } else if let Some(reason) = follower.progress.declined() {
        return Err(Refusal::because(Status::ETMPFAIL, reason));
    }
    let now_ns = context.now.mono_ns;
    let waited = Duration::from_nanos(now_ns.saturating_sub(park.since_ns));
    if waited >= PROMOTION_LIMIT {
        let reason = "the promotion is still under way";
        return Err(Refusal::because(Status::ETMPFAIL, reason));
    }
    Ok(Done::Parked(PROMOTION_LIMIT.saturating_sub(waited)))
}
