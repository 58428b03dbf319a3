//! Groups about one document.

use engine::{ObserveState, OpError};
use identity::Privilege;
use model::{CollectionId, Meta, VbId, VbState, collection_key};
use storage::{DocumentRequest, KvStore as _};

use super::collections::{hex, named};
use super::figures::BucketFigures;
use super::rows::Rows;
use super::scope::{GroupRequest, StatError, StatScope};
use super::vbuckets::number;

/// State of a document in its vBucket.
struct DocumentFound {
    meta: Meta,
    dirty: bool,
    resident: bool,
    state: VbState,
}

/// Writes the groups `key` and `vkey`, and those that take the id of the collection. `vkey` also queries the store.
pub(super) fn key(
    request: GroupRequest<'_>,
    scope: &StatScope<'_>,
    figures: &BucketFigures<'_>,
    rows: &mut Rows<'_, '_>,
) -> Result<(), StatError> {
    let by_id = request.group.name.ends_with("-byid");
    let (key, vb, collection) = match request.arguments {
        [key, vb, id] if by_id => (key, vb, collection_by_id(id, figures)?),
        [key, vb] if !by_id => (key, vb, CollectionId::DEFAULT),
        [key, vb, collection] if !by_id => (key, vb, collection_of(collection, scope, figures)?),
        _ => {
            let needed = "a key and its vBucket are needed, and its collection if that is not the default one";
            return Err(StatError::Argument(needed));
        }
    };
    for privilege in [Privilege::Read, Privilege::SimpleStats] {
        scope.check(privilege, collection)?;
    }
    let key = collection_key(collection, key.as_bytes());
    if key.len() > model::KEY_BYTES_MAX {
        return Err(StatError::Argument("the key is too long"));
    }
    let vb = number(vb)?;
    let found = find(&key, vb, figures)?;
    rows.row("key_is_dirty", found.dirty);
    rows.row("key_exptime", found.meta.expiry);
    rows.row("key_flags", found.meta.flags);
    rows.row("key_cas", found.meta.cas.0);
    rows.row("key_seqno", found.meta.seqno);
    rows.row("key_vb_state", found.state.name());
    rows.row("key_is_resident", found.resident);
    if request.group.name.starts_with("vkey") {
        rows.row("key_valid", validity(&key, vb, &found, figures));
    }
    Ok(())
}

/// Parses a collection: `scope.collection`, or an id such as `0x8`.
fn collection_of(
    word: &str,
    scope: &StatScope<'_>,
    figures: &BucketFigures<'_>,
) -> Result<CollectionId, StatError> {
    let manifest = figures.served.bucket.manifest();
    if !word.contains('.') && word.starts_with("0x") {
        return collection_by_id(word, figures);
    }
    let (of, collection) = named(&manifest, word)?;
    let hidden = |id| scope.check(Privilege::Read, id) == Err(StatError::UnknownCollection);
    if of.collections.iter().all(|one| hidden(one.id)) {
        return Err(StatError::UnknownScope);
    }
    Ok(collection.id)
}

fn collection_by_id(word: &str, figures: &BucketFigures<'_>) -> Result<CollectionId, StatError> {
    let manifest = figures.served.bucket.manifest();
    let found = manifest.collection(CollectionId(hex(word)?));
    let (_, collection) = found.ok_or(StatError::UnknownCollection)?;
    Ok(collection.id)
}

fn find(key: &[u8], vb: VbId, figures: &BucketFigures<'_>) -> Result<DocumentFound, StatError> {
    let now = figures.node.clock.now();
    let bucket = &figures.served.bucket;
    while let Some(Some(wanted)) = bucket.with_vbucket(vb, |vb| vb.fetch_before_apply(key)) {
        if !bucket.fetch_now(vb, &wanted) {
            return Err(StatError::Argument("the document cannot be read"));
        }
    }
    let found = figures.served.bucket.run(vb, |vbucket| {
        let (engine::Outcome::Done(got), engine::Outcome::Done(observed)) =
            (vbucket.get_meta(key, now)?, vbucket.observe(key, now)?)
        else {
            return Err(OpError::TemporaryFailure);
        };
        if got.deleted {
            return Err(OpError::KeyNotFound);
        }
        Ok(DocumentFound {
            meta: got.meta,
            dirty: observed.state == ObserveState::FoundNotPersisted,
            resident: !vbucket.is_value_away(key),
            state: vbucket.state(),
        })
    });
    found.map_err(|error| match error {
        OpError::KeyNotFound => StatError::UnknownGroup,
        OpError::NotMyVbucket | OpError::WouldBlockPending => StatError::NoVbucket,
        _ => StatError::Argument("the bucket is not ready"),
    })
}

/// Compares the revision with the one in the store.
fn validity(
    key: &[u8],
    vb: VbId,
    found: &DocumentFound,
    figures: &BucketFigures<'_>,
) -> &'static str {
    if found.dirty {
        return "dirty";
    }
    let want = DocumentRequest {
        key,
        seqno: Some(found.meta.seqno),
    };
    match figures.served.bucket.store().fetch(vb, &[want]) {
        Err(_) => "unreadable",
        Ok(stored) => match stored.first() {
            Some(Some(stored)) if stored.cas() == found.meta.cas => "valid",
            Some(Some(_)) => "other_revision",
            Some(None) | None => "not_stored",
        },
    }
}
