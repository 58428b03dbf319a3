//! Commands that read documents, and those that read and touch.

use engine::{Got, OpError};
use model::{CollectionId, VbId};
use wire::request::{
    Get, GetAndTouch, GetLocked, GetMeta, GetRandomKey, GetReplica, Message, MetaVersion, Touch,
    Unlock,
};
use wire::response::ItemMeta;
use wire::{Feature, Frame, Status};

use super::documents::{Settled, absolute_expiry};
use crate::context::Context;
use crate::outcome::{CommandOutcome, Refusal};
use crate::reply::Reply;

/// A miss of a quiet read is not answered.
fn miss_is_silent<T>(result: Result<T, OpError>, quiet: bool) -> Result<Option<T>, Refusal> {
    match result {
        Err(OpError::KeyNotFound) if quiet => Ok(None),
        Err(error) => Err(error.into()),
        Ok(value) => Ok(Some(value)),
    }
}

/// GET, GETQ, GETK, GETKQ.
pub(super) fn get(context: &mut Context<'_>, frame: &Frame<'_>) -> Result<CommandOutcome, Refusal> {
    let request = Get::read(frame)?;
    let bucket = context.bucket()?;
    let key = context.key(request.key)?;
    let vb = context.vbucket(frame, &key);
    let now = context.now;
    let result = bucket
        .bucket
        .read(vb, |vbucket| vbucket.get(key.bytes(), now));
    let Some(outcome) = miss_is_silent(result, request.quiet)? else {
        return Ok(CommandOutcome::Next);
    };
    match context.settle(&bucket, vb, outcome)? {
        Settled::Ready(got) => {
            let key = if request.with_key { request.key } else { &[] };
            Ok(context.reply_document(frame, &got, key))
        }
        Settled::Parked(done) => Ok(done),
    }
}

/// GET_REPLICA.
pub(super) fn get_replica(
    context: &mut Context<'_>,
    frame: &Frame<'_>,
) -> Result<CommandOutcome, Refusal> {
    let request = GetReplica::read(frame)?;
    let bucket = context.bucket()?;
    let key = context.key(request.key)?;
    let vb = context.vbucket(frame, &key);
    let now = context.now;
    let outcome = bucket
        .bucket
        .run(vb, |vbucket| vbucket.get_replica(key.bytes(), now))?;
    match context.settle(&bucket, vb, outcome)? {
        Settled::Ready(got) => Ok(context.reply_document(frame, &got, &[])),
        Settled::Parked(done) => Ok(done),
    }
}

/// TOUCH: answers with the CAS alone, without a token.
pub(super) fn touch(
    context: &mut Context<'_>,
    frame: &Frame<'_>,
) -> Result<CommandOutcome, Refusal> {
    let request = Touch::read(frame)?;
    match touched(context, frame, request.key, request.expiry)? {
        Settled::Ready(Some(got)) => Ok(context.reply_cas(frame, got.cas)),
        Settled::Ready(None) => Ok(CommandOutcome::Next),
        Settled::Parked(done) => Ok(done),
    }
}

/// GAT, GATQ.
pub(super) fn get_and_touch(
    context: &mut Context<'_>,
    frame: &Frame<'_>,
) -> Result<CommandOutcome, Refusal> {
    let request = GetAndTouch::read(frame)?;
    match touched(context, frame, request.key, request.expiry)? {
        Settled::Ready(Some(got)) => Ok(context.reply_document(frame, &got, &[])),
        Settled::Ready(None) => Ok(CommandOutcome::Next),
        Settled::Parked(done) => Ok(done),
    }
}

fn touched(
    context: &mut Context<'_>,
    frame: &Frame<'_>,
    key: &[u8],
    expiry: u32,
) -> Result<Settled<Option<Got>>, Refusal> {
    let bucket = context.bucket()?;
    let key = context.key(key)?;
    let vb = context.vbucket(frame, &key);
    let now = context.now;
    let expiry = absolute_expiry(expiry, now)?;
    let result = bucket
        .bucket
        .run(vb, |vbucket| vbucket.touch(key.bytes(), expiry, now));
    let Some(outcome) = miss_is_silent(result, context.quiet)? else {
        return Ok(Settled::Ready(None));
    };
    Ok(match context.settle(&bucket, vb, outcome)? {
        Settled::Ready(got) => Settled::Ready(Some(got)),
        Settled::Parked(done) => Settled::Parked(done),
    })
}

/// GET_LOCKED.
pub(super) fn get_locked(
    context: &mut Context<'_>,
    frame: &Frame<'_>,
) -> Result<CommandOutcome, Refusal> {
    let request = GetLocked::read(frame)?;
    let bucket = context.bucket()?;
    let key = context.key(request.key)?;
    let vb = context.vbucket(frame, &key);
    let now = context.now;
    let seconds = request.lock_s.unwrap_or(0);
    let result = bucket
        .bucket
        .run(vb, |vbucket| vbucket.get_locked(key.bytes(), seconds, now));
    let outcome = match result {
        Err(OpError::Locked) if !context.session.has(Feature::XERROR) => {
            return Err(Status::ETMPFAIL.into());
        }
        result => result?,
    };
    match context.settle(&bucket, vb, outcome)? {
        Settled::Ready(got) => Ok(context.reply_document(frame, &got, &[])),
        Settled::Parked(done) => Ok(done),
    }
}

/// UNLOCK_KEY.
pub(super) fn unlock(
    context: &mut Context<'_>,
    frame: &Frame<'_>,
) -> Result<CommandOutcome, Refusal> {
    let request = Unlock::read(frame)?;
    let bucket = context.bucket()?;
    let key = context.key(request.key)?;
    let vb = context.vbucket(frame, &key);
    let (cas, now) = (frame.header.cas, context.now);
    let result = bucket
        .bucket
        .run(vb, |vbucket| vbucket.unlock(key.bytes(), cas, now));
    match result {
        Err(OpError::Locked) if !context.session.has(Feature::XERROR) => {
            Err(Status::ETMPFAIL.into())
        }
        result => {
            result?;
            Ok(context.reply(frame, &Reply::EMPTY))
        }
    }
}

/// GET_META, GETQ_META.
pub(super) fn get_meta(
    context: &mut Context<'_>,
    frame: &Frame<'_>,
) -> Result<CommandOutcome, Refusal> {
    let request = GetMeta::read(frame)?;
    let bucket = context.bucket()?;
    let key = context.key(request.key)?;
    let vb = context.vbucket(frame, &key);
    let now = context.now;
    let result = bucket
        .bucket
        .run(vb, |vbucket| vbucket.get_meta(key.bytes(), now));
    let Some(outcome) = miss_is_silent(result, request.quiet)? else {
        return Ok(CommandOutcome::Next);
    };
    let got = match context.settle(&bucket, vb, outcome)? {
        Settled::Ready(got) => got,
        Settled::Parked(done) => return Ok(done),
    };
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

/// GET_RANDOM_KEY: looks from a random vBucket on.
pub(super) fn get_random_key(
    context: &mut Context<'_>,
    frame: &Frame<'_>,
) -> Result<CommandOutcome, Refusal> {
    let request = GetRandomKey::read(frame)?;
    let collection = request.collection.unwrap_or(CollectionId::DEFAULT);
    if request.include_xattrs {
        return Err(Refusal::because(
            Status::EINVAL,
            "extended attributes were not negotiated",
        ));
    }
    let bucket = context.bucket()?;
    if !bucket.bucket.knows_collection(collection) {
        return Err(Refusal::UnknownCollection);
    }
    let (seed, now) = (context.session.node.env.random_u64(), context.now);
    let count = bucket.bucket.vbuckets();
    for step in 0..count {
        let vb = VbId(((seed % u64::from(count)) as u16 + step) % count);
        let found = bucket.bucket.run(vb, |vbucket| {
            vbucket.random_document(collection, seed >> 16, now)
        });
        match found {
            Ok(Some(got)) => {
                let key = got.document.key().to_vec();
                let skip = usize::from(!context.session.has(Feature::COLLECTIONS));
                return Ok(context.reply_document(frame, &got, &key[skip..]));
            }
            Ok(None) | Err(OpError::NotMyVbucket | OpError::WouldBlockPending) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(OpError::KeyNotFound.into())
}
