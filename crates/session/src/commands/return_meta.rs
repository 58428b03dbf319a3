//! RETURN_META: changes that answer with the new metadata.

use bucket::Purpose;
use engine::{GotMeta, OpError, Outcome, StoreMode, VBucket, Write};
use model::{Cas, Meta};
use value::{VALUE_BYTES_MAX, Values};
use wire::request::{MetaAction, ReturnMeta};
use wire::{Frame, Message, Status};

use super::documents::absolute_expiry;
use super::write::{ROOM_BYTES, draft};
use crate::context::{Context, Location};
use crate::outcome::{CommandResult, Refusal};
use crate::reply::Reply;

/// Sets, adds or deletes a document, never durably.
pub(super) fn change(context: &mut Context<'_>, frame: &Frame<'_>) -> CommandResult {
    let request = ReturnMeta::read(frame)?;
    let Location { bucket, key, vb } = context.locate(frame, request.key)?;
    if bucket.bucket.vb_config().durability_min.is_some() {
        let context = "every write to this bucket is durable, which this command cannot wait for";
        return Err(Refusal::because(Status::NOT_SUPPORTED, context));
    }
    let (cas, now) = (frame.header.cas, context.now);
    let mut write = if request.action == MetaAction::Delete {
        context.admit(Purpose::Removal, 0)?;
        None
    } else {
        if request.value.len() > VALUE_BYTES_MAX {
            return Err(OpError::TooBig.into());
        }
        context.admit(Purpose::Write, request.value.len() + ROOM_BYTES)?;
        let adds = request.action == MetaAction::Add;
        if adds && cas != Cas::ANY {
            return Err(Refusal::invalid("an addition takes no CAS"));
        }
        let meta = Meta {
            flags: request.flags,
            expiry: absolute_expiry(request.expiry, now)?,
            ..Meta::default()
        };
        Some(Write {
            mode: if adds { StoreMode::Add } else { StoreMode::Set },
            draft: Some(draft(&bucket, &key, frame, meta)?),
            cas,
            preserve_expiry: false,
            durability: None,
        })
    };
    let made = |vbucket: &mut VBucket| -> Result<Outcome<GotMeta>, OpError> {
        let outcome = match &mut write {
            Some(write) => vbucket.store_with(write, &Values, now)?,
            None => vbucket.delete(key.bytes(), cas, None, now)?,
        };
        match outcome {
            Outcome::NeedsFetch(fetch) => Ok(Outcome::NeedsFetch(fetch)),
            Outcome::Done(_) | Outcome::Prepared(_) => vbucket.get_meta(key.bytes(), now),
        }
    };
    let outcome = context.run(&bucket, vb, made)?;
    let meta = context.settle_write(&bucket, vb, outcome)?.meta;
    let words = [meta.flags.to_be_bytes(), meta.expiry.to_be_bytes()].concat();
    let extras = [words, meta.rev.to_be_bytes().to_vec()].concat();
    let reply = Reply {
        cas: meta.cas,
        ..Reply::extras(&extras)
    };
    Ok(context.reply(frame, &reply))
}
