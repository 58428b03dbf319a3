//! Commands for operators of a bucket: traffic, persistence, eviction of a document.

use engine::{OpError, Outcome};
use registry::Store;
use wire::{Frame, Status};

use crate::context::{Context, Location};
use crate::outcome::{CommandResult, Refusal};
use crate::reply::Reply;

const LOADING: &str = "the bucket is still being loaded";

/// `ENABLE_TRAFFIC`: only checks that warmup has ended. Data operations are admitted from then on, with or
/// without this command.
pub(super) fn enable_traffic(context: &mut Context<'_>, frame: &Frame<'_>) -> CommandResult {
    if !context.bucket()?.bucket.warmup().admits() {
        return Err(Refusal::not_now(LOADING));
    }
    Ok(context.reply(frame, &Reply::EMPTY))
}

/// `START_PERSISTENCE`: changes become durable again.
pub(super) fn start_persistence(context: &mut Context<'_>, frame: &Frame<'_>) -> CommandResult {
    persistence(context, frame, true)
}

/// `STOP_PERSISTENCE`: starts no commit until `START_PERSISTENCE`, or until the node stops.
pub(super) fn stop_persistence(context: &mut Context<'_>, frame: &Frame<'_>) -> CommandResult {
    persistence(context, frame, false)
}

fn persistence(context: &mut Context<'_>, frame: &Frame<'_>, persists: bool) -> CommandResult {
    let bucket = context.bucket()?;
    if !matches!(bucket.bucket.store(), Store::Disk(_)) {
        return Err(in_memory());
    }
    bucket.bucket.set_persists(persists);
    tracing::warn!(bucket = bucket.name(), persists, "persistence");
    Ok(context.reply(frame, &Reply::EMPTY))
}

fn in_memory() -> Refusal {
    Refusal::because(
        Status::NOT_SUPPORTED,
        "the documents of this bucket are only in memory",
    )
}

/// `EVICT_KEY`: removes the value from memory and keeps it on disk. For a key that is not in memory it asks
/// the store.
pub(super) fn evict(context: &mut Context<'_>, frame: &Frame<'_>) -> CommandResult {
    const ALREADY: &str = "Already ejected.";
    let Location { bucket, key, vb } = context.locate(frame, frame.key)?;
    if !matches!(bucket.bucket.store(), Store::Disk(_)) {
        return Err(in_memory());
    }
    let (key, now) = (key.bytes(), context.now);
    let came_back = context.session.park.is_some();
    let outcome = context.run(&bucket, vb, |vbucket| {
        let found = match vbucket.get_meta(key, now)? {
            Outcome::Done(found) | Outcome::Prepared(found) => found,
            Outcome::NeedsFetch(wanted) => return Ok(Outcome::NeedsFetch(wanted)),
        };
        if found.deleted {
            return Err(OpError::KeyNotFound);
        }
        if vbucket.is_value_away(key) {
            return Ok(Outcome::Done(Some(ALREADY)));
        }
        let text = if came_back { ALREADY } else { "Ejected." };
        Ok(Outcome::Done(vbucket.evict(key, now).then_some(text)))
    })?;
    let text = context.settle(&bucket, vb, outcome)?.ok_or_else(|| {
        Refusal::because(
            Status::KEY_EEXISTS,
            "the document is not on disk yet, or it is locked and its key would leave, too",
        )
    })?;
    Ok(context.reply(frame, &Reply::value(text.as_bytes())))
}
