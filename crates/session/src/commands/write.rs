//! Commands that write documents.

use bucket::Purpose;
use engine::{OpError, Outcome, StoreMode, Write};
use model::{Datatype, Document, Draft, Meta, Now, VbId};
use registry::ServedBucket;
use value::{Stored, VALUE_BYTES_MAX, Values, inflate, inflated_bytes, to_store};
use wire::request::{Arithmetic, Concat, ConcatMode, Delete, Direction, Store, StoreMode as Mode};
use wire::{Frame, Message};

use super::documents::absolute_expiry;
use crate::context::{Context, Location};
use crate::incoming_value::IncomingValue;
use crate::key::StoredKey;
use crate::outcome::{CommandResult, Refusal, value_refusal};

/// Bytes that a small write needs beyond its key and value.
pub(super) const ROOM_BYTES: usize = 128;

/// Makes the document of a store: the only copy out of the read buffer.
pub(super) fn draft(
    bucket: &ServedBucket,
    key: &StoredKey<'_>,
    frame: &Frame<'_>,
    mut meta: Meta,
) -> Result<Draft, Refusal> {
    let keeps_compressed = bucket.bucket.keeps_compressed();
    match to_store(frame.value, frame.header.datatype, keeps_compressed) {
        Stored::AsSent(datatype) => {
            meta.datatype = datatype;
            Ok(match key {
                StoredKey::Sent(key) => Draft::from_joined(frame.key_and_value(), key.len(), &meta),
                StoredKey::Prefixed(..) => Draft::new(key.bytes(), frame.value, &meta),
            })
        }
        Stored::Inflated(plain, datatype) => {
            meta.datatype = datatype;
            Ok(Draft::new(key.bytes(), &plain, &meta))
        }
        Stored::Refused(error) => Err(value_refusal(error)),
    }
}

/// SET, ADD, REPLACE and their quiet forms.
pub(super) fn store(context: &mut Context<'_>, frame: &Frame<'_>) -> CommandResult {
    let request = Store::read(frame)?;
    let Location { bucket, key, vb } = context.locate(frame, request.key)?;
    if request.value.len() > VALUE_BYTES_MAX {
        return Err(OpError::TooBig.into());
    }
    let now = context.now;
    let expiry = absolute_expiry(request.expiry, now)?;
    let meta = Meta {
        flags: request.flags,
        expiry,
        ..Meta::default()
    };
    let incoming = context.session.incoming.take();
    let is_in_place = incoming.is_some();
    let (draft, _transient) = if let Some(value) = incoming {
        // Its memory was reserved before it was received, and has counted as used since.
        context.session.note_granted_write();
        (value.into_draft(meta), None)
    } else {
        let plain = plain_bytes(request.value, frame.header.datatype);
        let stored = request.value.len() + ROOM_BYTES;
        let transient = context.admit_with_transient(&bucket, stored, plain)?;
        (draft(&bucket, &key, frame, meta)?, transient)
    };
    let mut write = Write {
        mode: match request.mode {
            Mode::Set => StoreMode::Set,
            Mode::Add => StoreMode::Add,
            Mode::Replace => StoreMode::Replace,
        },
        draft: Some(draft),
        cas: frame.header.cas,
        preserve_expiry: context.infos.preserve_ttl,
        durability: context.requirement(&bucket),
    };
    let done = context.write(frame, &bucket, vb, |vbucket| {
        vbucket.store_with(&mut write, &Values, now)
    });
    if is_in_place {
        // A request that waits runs again.
        context.session.incoming = write.draft.map(IncomingValue::complete);
    }
    done
}

/// DELETE, DELETEQ.
pub(super) fn delete(context: &mut Context<'_>, frame: &Frame<'_>) -> CommandResult {
    let request = Delete::read(frame)?;
    let Location { bucket, key, vb } = context.locate(frame, request.key)?;
    let (cas, now) = (frame.header.cas, context.now);
    context.admit(Purpose::Removal, 0)?;
    let durability = context.requirement(&bucket);
    context.write(frame, &bucket, vb, |vbucket| {
        vbucket.delete(key.bytes(), cas, durability, now)
    })
}

/// INCREMENT, DECREMENT and their quiet forms.
pub(super) fn arithmetic(context: &mut Context<'_>, frame: &Frame<'_>) -> CommandResult {
    let request = Arithmetic::read(frame)?;
    let Location { bucket, key, vb } = context.locate(frame, request.key)?;
    let now = context.now;
    let create = request.expiry != Arithmetic::DO_NOT_CREATE;
    let counting = context.session.text.as_ref().map(|text| text.counting);
    let counting = counting.unwrap_or_default();
    let touch = counting.expiry.map(|expiry| absolute_expiry(expiry, now));
    let change = engine::Arithmetic {
        delta: request.delta,
        decrement: request.direction == Direction::Decrement,
        initial: create.then_some(request.initial),
        expiry: if create {
            absolute_expiry(request.expiry, now)?
        } else {
            0
        },
        cas: counting.cas,
        touch: touch.transpose()?,
        durability: context.requirement(&bucket),
    };
    context.admit(Purpose::Write, ROOM_BYTES)?;
    context.write(frame, &bucket, vb, |vbucket| {
        vbucket.arithmetic(key.bytes(), change, &Values, now)
    })
}

/// Bytes of the present value that the change writes anew; 0 if the value is not in memory, or if there is
/// memory for several of the largest values.
fn stored_bytes(bucket: &ServedBucket, vb: VbId, key: &StoredKey<'_>, now: Now) -> usize {
    let bucket = &bucket.bucket;
    let several = 4 * VALUE_BYTES_MAX as u64;
    if bucket.memory().used() + several <= bucket.memory().mutation_limit() {
        return 0;
    }
    let found = bucket.read(vb, now.mono_ns, |vbucket| {
        vbucket.get_or_tombstone(key.bytes(), now)
    });
    match found {
        Ok(Outcome::Done(got)) => held_bytes(&got.document),
        _ => 0,
    }
}

/// Bytes of a document's value, and of its plain form if it is compressed.
pub(super) fn held_bytes(document: &Document) -> usize {
    let value = document.value();
    value.len() + plain_bytes(value, document.datatype())
}

/// Bytes of the plain form of a compressed value, which is in memory next to it while the value is checked or
/// changed.
fn plain_bytes(value: &[u8], datatype: Datatype) -> usize {
    if datatype.contains(Datatype::SNAPPY) {
        inflated_bytes(value).min(VALUE_BYTES_MAX)
    } else {
        0
    }
}

/// APPEND, PREPEND and their quiet forms.
pub(super) fn concat(context: &mut Context<'_>, frame: &Frame<'_>) -> CommandResult {
    let request = Concat::read(frame)?;
    let Location { bucket, key, vb } = context.locate(frame, request.key)?;
    if request.value.len() > VALUE_BYTES_MAX {
        return Err(OpError::TooBig.into());
    }
    let now = context.now;
    let datatype = frame.header.datatype;
    let sent = request.value.len() + plain_bytes(request.value, datatype);
    let there = stored_bytes(&bucket, vb, &key, now);
    let _transient = context.admit_with_transient(&bucket, ROOM_BYTES, there + sent)?;
    let inflated;
    let bytes = if datatype.contains(Datatype::SNAPPY) {
        inflated = inflate(request.value).map_err(value_refusal)?;
        inflated.as_slice()
    } else {
        request.value
    };
    let change = engine::Concat {
        key: key.bytes(),
        bytes,
        place: match request.mode {
            ConcatMode::Append => engine::ConcatPlace::Append,
            ConcatMode::Prepend => engine::ConcatPlace::Prepend,
        },
        cas: frame.header.cas,
        durability: context.requirement(&bucket),
    };
    context.write(frame, &bucket, vb, |vbucket| {
        vbucket.concat(change, &Values, now)
    })
}
