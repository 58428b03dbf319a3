//! Commands for groups of nodes: registration of a replica, promotion.

use std::time::Duration;

use registry::cluster::{MESSAGE, NoOrder, ORDER, give_order};
use registry::{
    PROMOTE, PROMOTED, REGISTER, ServedBucket, Stage, USERS, forget_replicas, hear, register,
    tell_users,
};
use wire::Frame;

use crate::context::Context;
use crate::outcome::{CommandOutcome, CommandResult, Refusal};
use crate::park::Park;
use crate::reply::Reply;

/// Longest wait for a promotion; after it the client is told to try again.
const PROMOTION_LIMIT: Duration = Duration::from_secs(30);
/// Interval between two checks whether a promotion is on disk.
const DURABLE_LOOK: Duration = Duration::from_millis(2);

/// IOCTL_SET: the settings of groups of nodes.
pub(super) fn ioctl_set(context: &mut Context<'_>, frame: &Frame<'_>) -> CommandResult {
    let grouped = matches!(frame.key, REGISTER | PROMOTED | PROMOTE);
    if grouped && context.session.node.cluster.get().is_some() {
        let reason = "copies of a bucket are the cluster's: see settee cluster";
        return Err(Refusal::invalid(reason));
    }
    match frame.key {
        REGISTER => {
            let bucket = context.bucket()?;
            let (node, host) = (&context.session.node, context.session.info.peer().ip());
            let answer = register(node, &bucket, host, frame.value)
                .ok_or_else(|| Refusal::invalid("this node takes no such replica"))?;
            Ok(context.reply(frame, &Reply::value(answer.as_bytes())))
        }
        PROMOTED => {
            let bucket = context.bucket()?;
            let (node, host) = (&context.session.node, context.session.info.peer().ip());
            let answer = hear(node, &bucket, host, frame.value)
                .ok_or_else(|| Refusal::invalid("the news of a promotion make no sense"))?;
            Ok(context.reply(frame, &Reply::value(answer.as_bytes())))
        }
        USERS => {
            // The answer holds verifiers of passwords: the row requires a privilege that only full
            // administrators have.
            let roster =
                tell_users(&context.session.node, frame.value).map_err(Refusal::invalid)?;
            Ok(context.reply(frame, &Reply::value(&roster)))
        }
        MESSAGE => message(context, frame),
        ORDER => order(context, frame),
        PROMOTE => promote(context, frame),
        _ => Err(Refusal::invalid("there is no such setting")),
    }
}

/// A message of another node of the cluster.
fn message(context: &mut Context<'_>, frame: &Frame<'_>) -> CommandResult {
    let session = &context.session;
    let member = session.node.cluster.get();
    let Some(member) = member.filter(|_| session.is_of_a_node()) else {
        return Err(Refusal::invalid("there is no such setting"));
    };
    member.message(frame.value);
    Ok(context.reply(frame, &Reply::EMPTY))
}

/// An operator's order to the controller of the cluster, as JSON.
fn order(context: &mut Context<'_>, frame: &Frame<'_>) -> CommandResult {
    let member = context.session.node.cluster.get();
    let member = member.ok_or_else(|| Refusal::invalid("the node is in no cluster"))?;
    give_order(&**member, frame.value).map_err(|refused| match refused {
        NoOrder::Unread => Refusal::invalid("there is no such order, or no such node"),
        NoOrder::NotNow(reason) => Refusal::not_now(reason),
    })?;
    Ok(context.reply(frame, &Reply::EMPTY))
}

/// Promotes the node. Parks until the replica's thread has promoted it and this is on disk. On an active node
/// it means to continue without its replicas.
fn promote(context: &mut Context<'_>, frame: &Frame<'_>) -> CommandResult {
    let bucket = context.bucket()?;
    let park = context.park();
    let follows = bucket.group().active().is_some();
    if !follows && forget_replicas(&context.session.node, &bucket) {
        return promoted(context, frame, &bucket, &park);
    }
    let force = match frame.value {
        b"" => false,
        b"force" => true,
        _ => {
            let reason = "a promotion is forced or not";
            return Err(Refusal::invalid(reason));
        }
    };
    let group = bucket.group();
    let follower = bucket.follower().filter(|_| !group.is_superseded());
    let Some(follower) = follower else {
        if bucket.bucket.has_replicas() {
            if !force && group.is_superseded() {
                let reason = "another node was promoted since this one was active: two active nodes \
                    are two histories";
                return Err(Refusal::not_now(reason));
            }
            if !force {
                let reason = "the bucket was a replica, and this node does not follow another \
                    one now: what others have and this one has not cannot be fetched";
                return Err(Refusal::not_now(reason));
            }
            registry::promote(&context.session.node, &bucket, group.peers);
        } else if park.runs == 1 {
            let reason = "the bucket follows no other node";
            return Err(Refusal::invalid(reason));
        }
        return promoted(context, frame, &bucket, &park);
    };
    match follower.progress().stage() {
        Stage::Promoted => return promoted(context, frame, &bucket, &park),
        Stage::Stopped => return Err(Refusal::not_now("the node stops")),
        Stage::Waiting | Stage::Connecting | Stage::Introducing | Stage::Streaming => {}
    }
    if park.runs == 1 {
        follower.promote(force);
    } else if let Some(reason) = follower.progress().declined() {
        return Err(Refusal::not_now(reason));
    }
    wait(
        context,
        &park,
        PROMOTION_LIMIT,
        "the promotion is still under way",
    )
}

/// Answers once the promotion is on disk: a node that is killed after the answer comes back as the active node.
fn promoted(
    context: &mut Context<'_>,
    frame: &Frame<'_>,
    bucket: &ServedBucket,
    park: &Park,
) -> CommandResult {
    if bucket.bucket.are_states_durable() {
        return Ok(context.reply(frame, &Reply::EMPTY));
    }
    bucket.bucket.hurry();
    let reason = "the bucket is active, but that is not on disk yet";
    wait(context, park, DURABLE_LOOK, reason)
}

/// Parks for `pause`, or refuses if the request has reached the limit.
fn wait(
    context: &Context<'_>,
    park: &Park,
    pause: Duration,
    reason: &'static str,
) -> CommandResult {
    let now_ns = context.now.mono_ns;
    let waited = Duration::from_nanos(now_ns.saturating_sub(park.since_ns));
    if waited >= PROMOTION_LIMIT {
        return Err(Refusal::not_now(reason));
    }
    Ok(CommandOutcome::Parked(
        pause.min(PROMOTION_LIMIT.saturating_sub(waited)),
    ))
}
