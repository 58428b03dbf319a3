//! Commands about vBuckets as a whole.

use std::time::Duration;

use bucket::{CompactionRules, CompactionTicket};
use engine::{OpError, VBucket};
use model::{CollectionId, VbId, VbState};
use wire::request::{CompactDb, GetAllVbSeqnos, SetVbucket};
use wire::response::{encode_failover_entries, encode_vb_seqnos, encode_vb_state};
use wire::{Feature, Frame, Message};

use crate::context::Context;
use crate::outcome::{CommandOutcome, CommandResult, Refusal};
use crate::reply::Reply;

/// GET_FAILOVER_LOG.
pub(super) fn failover_log(context: &mut Context<'_>, frame: &Frame<'_>) -> CommandResult {
    let bucket = context.bucket()?;
    let log = bucket.bucket.run(frame.vbucket(), |vbucket| {
        Ok(vbucket.failover_log().clone())
    })?;
    let mut value = Vec::new();
    encode_failover_entries(log.entries(), &mut value);
    Ok(context.reply(frame, &Reply::value(&value)))
}

/// GET_ALL_VB_SEQNOS: for vBuckets in one state, or for all that are not dead.
pub(super) fn all_seqnos(context: &mut Context<'_>, frame: &Frame<'_>) -> CommandResult {
    let request = GetAllVbSeqnos::read(frame)?;
    let bucket = context.bucket()?;
    // A client without collections sees only the default one.
    let plain = !context.session.has(Feature::COLLECTIONS);
    let collection = request
        .collection
        .or(plain.then_some(CollectionId::DEFAULT));
    match request.collection {
        Some(id) if !bucket.bucket.knows_collection(id) => return Err(Refusal::UnknownCollection),
        Some(id) => context.session.check_collection(id, context.privileges)?,
        // High seqnos of a whole vBucket reveal nothing about its collections.
        None => {}
    }
    let seqno_of = |vb: &VBucket| match collection {
        Some(id) => vb.collection_high_seqno(id).unwrap_or_default(),
        None => vb.high_seqno(),
    };
    let wanted = |state: VbState| match request.state {
        Some(asked) => state == asked,
        None => state != VbState::Dead,
    };
    let mut seqnos = Vec::new();
    for id in (0..bucket.bucket.vbuckets()).map(VbId) {
        let found = bucket.bucket.run(id, |vb| Ok((vb.state(), seqno_of(vb))));
        match found {
            Ok((state, seqno)) if wanted(state) => seqnos.push((id, seqno)),
            Ok(_) | Err(OpError::NotMyVbucket) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let mut value = Vec::with_capacity(seqnos.len() * 10);
    encode_vb_seqnos(seqnos, &mut value);
    Ok(context.reply(frame, &Reply::value(&value)))
}

/// SET_VBUCKET.
pub(super) fn set(context: &mut Context<'_>, frame: &Frame<'_>) -> CommandResult {
    let request = SetVbucket::read(frame)?;
    let topology = topology(request.meta, request.state)?;
    check_alone(context)?;
    let bucket = context.bucket()?;
    let uuid = context.session.node.env.random_vb_uuid();
    bucket
        .bucket
        .set_vbucket(frame.vbucket(), request.state, topology, uuid)?;
    if matches!(request.state, VbState::Active | VbState::Dead) {
        bucket.claims.revoke(frame.vbucket());
    }
    // A vBucket may have left the pending state: parked requests run again.
    context.session.node.wake_all();
    Ok(context.reply(frame, &Reply::EMPTY))
}

/// Refuses on a node of a cluster: the cluster decides the states of its vBuckets.
fn check_alone(context: &Context<'_>) -> Result<(), Refusal> {
    if context.session.node.cluster.get().is_some() {
        return Err(Refusal::invalid(
            "vBuckets are the cluster's: see settee cluster",
        ));
    }
    Ok(())
}

/// Reads the topology in SET_VBUCKET's JSON value.
fn topology(meta: &[u8], state: VbState) -> Result<Option<String>, Refusal> {
    if meta.is_empty() {
        return Ok(None);
    }
    let refused = |reason: &'static str| Refusal::invalid(reason);
    let json: serde_json::Value =
        serde_json::from_slice(meta).map_err(|_| refused("the value is not JSON"))?;
    let Some(object) = json.as_object() else {
        return Err(refused("the value is no object"));
    };
    let Some(topology) = object.get("topology") else {
        return Ok(None);
    };
    if topology.is_null() {
        return Ok(None);
    }
    if state != VbState::Active {
        return Err(refused("only an active vBucket has a topology"));
    }
    let text = topology.to_string();
    if !VBucket::is_topology(&text) {
        return Err(refused(
            "the topology is no list of one or two chains, each with an active node",
        ));
    }
    Ok(Some(text))
}

/// GET_VBUCKET.
pub(super) fn get(context: &mut Context<'_>, frame: &Frame<'_>) -> CommandResult {
    let bucket = context.bucket()?;
    let state = bucket
        .bucket
        .run(frame.vbucket(), |vbucket| Ok(vbucket.state()))?;
    Ok(context.reply(frame, &Reply::value(&encode_vb_state(state))))
}

/// DEL_VBUCKET: answered when the vBucket is deleted.
pub(super) fn delete(context: &mut Context<'_>, frame: &Frame<'_>) -> CommandResult {
    check_alone(context)?;
    let bucket = context.bucket()?;
    bucket.claims.revoke(frame.vbucket());
    match bucket.bucket.delete_vbucket(frame.vbucket()) {
        Ok(true) => {
            context.session.node.wake_all();
            Ok(context.reply(frame, &Reply::EMPTY))
        }
        Ok(false) => Err(OpError::NotMyVbucket.into()),
        Err(error) => {
            tracing::error!(%error, vb = frame.vbucket().0, "a vBucket could not be deleted");
            Err(Refusal::not_now("the store did not delete the vBucket"))
        }
    }
}

/// Longest wait for a compaction; the compaction itself continues after that.
const COMPACTION_WAIT: Duration = Duration::from_mins(10);

/// COMPACT_DB: answered once the vBucket is compacted.
pub(super) fn compact(context: &mut Context<'_>, frame: &Frame<'_>) -> CommandResult {
    let request = CompactDb::read(frame)?;
    let bucket = context.bucket()?;
    let vb = frame.vbucket();
    bucket.bucket.run(vb, |_| Ok(()))?;
    let refused = |reason: &'static str| Refusal::not_now(reason);
    let park = context.park();
    let ticket = CompactionTicket {
        vb,
        asked_ns: park.since_ns,
        wake: context.session.waker(),
    };
    if park.runs == 1 {
        let rules = CompactionRules {
            before_s: request.before_s,
            up_to: request.up_to,
            drop_deletes: request.drop_deletes,
        };
        return if bucket.bucket.ask_compaction(ticket, rules) {
            Ok(CommandOutcome::Parked(COMPACTION_WAIT))
        } else {
            Err(refused("too many compactions wait for their turn"))
        };
    }
    match bucket.bucket.compaction_result(&ticket) {
        Some(true) => return Ok(context.reply(frame, &Reply::EMPTY)),
        Some(false) => return Err(refused("the store failed during the compaction")),
        None => {}
    }
    let waited = Duration::from_nanos(context.now.mono_ns.saturating_sub(park.since_ns));
    if waited < COMPACTION_WAIT {
        return Ok(CommandOutcome::Parked(
            COMPACTION_WAIT.saturating_sub(waited),
        ));
    }
    bucket.bucket.forget_compaction(&ticket);
    Err(refused("the compaction is not done yet"))
}
