//! Commands that read documents, with and without a touch.

use std::borrow::Cow;

use audit::Event;
use engine::{GetResult, OpError};
use identity::Privilege;
use model::{
    Attributes, CollectionId, Datatype, Document, VbId, body_at, encode_attributes, is_system,
};
use wire::request::{
    Get, GetAndTouch, GetEx, GetLocked, GetMeta, GetRandomKey, GetReplica, MetaVersion, Touch,
    Unlock,
};
use wire::response::{ItemFlags, ItemMeta};
use wire::{Feature, Frame, Message, Status};

use super::documents::absolute_expiry;
use crate::context::{Context, Location};
use crate::outcome::{CommandOutcome, CommandResult, Refusal};
use crate::reply::Reply;

/// Returns `None` for a miss of a quiet read: it has no answer.
fn miss_is_silent<T>(result: Result<T, OpError>, quiet: bool) -> Result<Option<T>, Refusal> {
    match result {
        Err(OpError::KeyNotFound) if quiet => Ok(None),
        Err(error) => Err(error.into()),
        Ok(value) => Ok(Some(value)),
    }
}

/// GET, GETQ, GETK, GETKQ.
pub(super) fn get(context: &mut Context<'_>, frame: &Frame<'_>) -> CommandResult {
    let request = Get::read(frame)?;
    let Location { bucket, key, vb } = context.locate(frame, request.key)?;
    let now = context.now;
    let result = context.read(&bucket, vb, |vbucket| vbucket.get(key.bytes(), now));
    let Some(outcome) = miss_is_silent(result, request.quiet)? else {
        return Ok(CommandOutcome::Next);
    };
    let got = context.settle(&bucket, vb, outcome)?;
    let key = if request.with_key { request.key } else { &[] };
    Ok(context.reply_document(frame, &got, key))
}

/// GET_REPLICA.
pub(super) fn get_replica(context: &mut Context<'_>, frame: &Frame<'_>) -> CommandResult {
    let request = GetReplica::read(frame)?;
    let Location { bucket, key, vb } = context.locate(frame, request.key)?;
    let now = context.now;
    let outcome = context.run(&bucket, vb, |vbucket| {
        vbucket.get_replica(key.bytes(), false, now)
    })?;
    let got = context.settle(&bucket, vb, outcome)?;
    Ok(context.reply_document(frame, &got, &[]))
}

/// `GET_EX`, `GET_EX_REPLICA`: documents with their attributes, in their stored form.
pub(super) fn get_ex(context: &mut Context<'_>, frame: &Frame<'_>) -> CommandResult {
    const NEEDED: [Feature; 3] = [Feature::XATTR, Feature::JSON, Feature::SNAPPY_EVERYWHERE];
    let request = GetEx::read(frame)?;
    let Location { bucket, key, vb } = context.locate(frame, request.key)?;
    if !NEEDED.iter().all(|feature| context.session.has(*feature)) {
        let context = "attributes, JSON and Snappy in all answers were not negotiated";
        return Err(Refusal::because(Status::NOT_SUPPORTED, context));
    }
    let now = context.now;
    let outcome = if request.replica {
        context.run(&bucket, vb, |vbucket| {
            vbucket.get_replica(key.bytes(), false, now)
        })?
    } else {
        context.read(&bucket, vb, |vbucket| vbucket.get(key.bytes(), now))?
    };
    let got = context.settle(&bucket, vb, outcome)?;
    let system = context.may(&key, Privilege::SystemXattrRead);
    let (value, datatype) = with_attributes(&got.document, system);
    let apart = !context.quiet && context.session.send_apart(&got.document, &value);
    let extras = ItemFlags(got.document.flags()).to_bytes();
    let reply = Reply {
        cas: got.cas,
        datatype,
        extras: &extras,
        value: &value,
        apart,
        ..Reply::EMPTY
    };
    Ok(context.reply(frame, &reply))
}

/// Returns a value with its attributes; includes system attributes only if `system`.
fn with_attributes(document: &Document, system: bool) -> (Cow<'_, [u8]>, Datatype) {
    let (value, datatype) = (document.value(), document.datatype());
    let attributes = Attributes::of(value, datatype);
    if system || !attributes.iter().any(|(name, _)| is_system(name)) {
        return (Cow::Borrowed(value), datatype);
    }
    let mut shown = Vec::with_capacity(value.len());
    let of_users = attributes.iter().filter(|(name, _)| !is_system(name));
    encode_attributes(of_users, &mut shown);
    let datatype = if shown.is_empty() {
        datatype.without(Datatype::XATTR)
    } else {
        datatype
    };
    shown.extend_from_slice(&value[body_at(value, document.datatype())..]);
    (Cow::Owned(shown), datatype)
}

/// TOUCH: answers with the CAS alone, without a mutation token.
pub(super) fn touch(context: &mut Context<'_>, frame: &Frame<'_>) -> CommandResult {
    let request = Touch::read(frame)?;
    match touched(context, frame, request.key, request.expiry)? {
        Some(got) => Ok(context.reply_cas(frame, got.cas)),
        None => Ok(CommandOutcome::Next),
    }
}

/// GAT, GATQ.
pub(super) fn get_and_touch(context: &mut Context<'_>, frame: &Frame<'_>) -> CommandResult {
    let request = GetAndTouch::read(frame)?;
    match touched(context, frame, request.key, request.expiry)? {
        Some(got) => Ok(context.reply_document(frame, &got, &[])),
        None => Ok(CommandOutcome::Next),
    }
}

fn touched(
    context: &mut Context<'_>,
    frame: &Frame<'_>,
    key: &[u8],
    expiry: u32,
) -> Result<Option<GetResult>, Refusal> {
    let Location { bucket, key, vb } = context.locate(frame, key)?;
    let now = context.now;
    let expiry = absolute_expiry(expiry, now)?;
    let result = context.run(&bucket, vb, |vbucket| {
        vbucket.touch(key.bytes(), expiry, now)
    });
    let Some(outcome) = miss_is_silent(result, context.quiet)? else {
        return Ok(None);
    };
    context.settle(&bucket, vb, outcome).map(Some)
}

/// GET_LOCKED.
pub(super) fn get_locked(context: &mut Context<'_>, frame: &Frame<'_>) -> CommandResult {
    let request = GetLocked::read(frame)?;
    let Location { bucket, key, vb } = context.locate(frame, request.key)?;
    let now = context.now;
    let seconds = request.lock_s.unwrap_or(0);
    let result = context.run(&bucket, vb, |vbucket| {
        vbucket.get_locked(key.bytes(), seconds, now)
    });
    let outcome = match result {
        Err(OpError::Locked) if !context.session.has(Feature::XERROR) => {
            return Err(Status::ETMPFAIL.into());
        }
        result => result?,
    };
    let got = context.settle(&bucket, vb, outcome)?;
    Ok(context.reply_document(frame, &got, &[]))
}

/// UNLOCK_KEY.
pub(super) fn unlock(context: &mut Context<'_>, frame: &Frame<'_>) -> CommandResult {
    let request = Unlock::read(frame)?;
    let Location { bucket, key, vb } = context.locate(frame, request.key)?;
    let (cas, now) = (frame.header.cas, context.now);
    let result = context.run(&bucket, vb, |vbucket| vbucket.unlock(key.bytes(), cas, now));
    let outcome = match result {
        Err(OpError::Locked) if !context.session.has(Feature::XERROR) => {
            return Err(Status::ETMPFAIL.into());
        }
        result => result?,
    };
    context.settle(&bucket, vb, outcome)?;
    Ok(context.reply(frame, &Reply::EMPTY))
}

/// GET_META, GETQ_META.
pub(super) fn get_meta(context: &mut Context<'_>, frame: &Frame<'_>) -> CommandResult {
    let request = GetMeta::read(frame)?;
    let Location { bucket, key, vb } = context.locate(frame, request.key)?;
    let now = context.now;
    let result = context.run(&bucket, vb, |vbucket| vbucket.get_meta(key.bytes(), now));
    let Some(outcome) = miss_is_silent(result, request.quiet)? else {
        return Ok(CommandOutcome::Next);
    };
    let got = context.settle(&bucket, vb, outcome)?;
    let meta = ItemMeta {
        deleted: got.deleted,
        flags: got.meta.flags,
        expiry: got.meta.expiry,
        rev: got.meta.rev,
        datatype: (request.version == MetaVersion::V2).then_some(got.meta.datatype),
    };
    let mut extras = Vec::with_capacity(21);
    meta.encode(&mut extras);
    Ok(context.reply_loudly(
        frame,
        &Reply {
            cas: got.cas,
            ..Reply::extras(&extras)
        },
    ))
}

/// GET_RANDOM_KEY: searches from a random vBucket onwards.
pub(super) fn get_random_key(context: &mut Context<'_>, frame: &Frame<'_>) -> CommandResult {
    let request = GetRandomKey::read(frame)?;
    let collection = request.collection.unwrap_or(CollectionId::DEFAULT);
    if request.include_xattrs {
        return Err(Refusal::invalid("extended attributes were not negotiated"));
    }
    let bucket = context.bucket()?;
    if !bucket.bucket.knows_collection(collection) {
        return Err(Refusal::UnknownCollection);
    }
    context
        .session
        .check_collection(collection, context.privileges)?;
    let (seed, now) = (context.session.node.env.random_u64(), context.now);
    let count = bucket.bucket.vbuckets();
    for step in 0..count {
        let vb = VbId(((seed % u64::from(count)) as u16 + step) % count);
        let found = context.run(&bucket, vb, |vbucket| {
            vbucket.random_document(collection, seed >> 16, now)
        });
        match found {
            Ok(Some(got)) => {
                let key = got.document.key().to_vec();
                let read = Event::DocumentRead;
                context.session.record_document(read, &key, now);
                let skip = usize::from(!context.session.has(Feature::COLLECTIONS));
                return Ok(context.reply_document(frame, &got, &key[skip..]));
            }
            Ok(None) | Err(OpError::NotMyVbucket | OpError::WouldBlockPending) => {}
            Err(error) => return Err(error.into()),
        }
    }
    // No vBucket has such a document in memory. A key of the store is fetched, and found when this runs again.
    for step in 0..count {
        let vb = VbId(((seed % u64::from(count)) as u16 + step) % count);
        let stored = bucket.bucket.stored_key(vb, collection, seed);
        if let Some(key) = stored.map_err(|_| OpError::TemporaryFailure)? {
            let outcome = context.run(&bucket, vb, |vbucket| vbucket.get(&key, now));
            let got = context.settle(&bucket, vb, outcome?)?;
            context
                .session
                .record_document(Event::DocumentRead, &key, now);
            let skip = usize::from(!context.session.has(Feature::COLLECTIONS));
            return Ok(context.reply_document(frame, &got, &key[skip..]));
        }
    }
    Err(OpError::KeyNotFound.into())
}
