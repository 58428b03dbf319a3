//! Collections: the default scope and its default collection.

use model::{CollectionId, ManifestUid};
use wire::request::{CollectionsGetId, CollectionsGetScopeId, Message};
use wire::response::CollectionIdReply;
use wire::{Frame, Status};

use crate::session::{Context, Done, Refusal, Reply};

/// The manifest of a bucket in which no collection was ever created.
pub(crate) const DEFAULT_MANIFEST: &str = r#"{"uid":"0","scopes":[{"name":"_default","uid":"0","collections":[{"name":"_default","uid":"0"}]}]}"#;
/// Its revision.
pub(crate) const MANIFEST_UID: ManifestUid = ManifestUid(0);

/// COLLECTIONS_GET_MANIFEST.
pub(super) fn manifest(context: &mut Context<'_>, frame: &Frame<'_>) -> Result<Done, Refusal> {
    Ok(context.reply(frame, &Reply::json(DEFAULT_MANIFEST)))
}

/// What the reference says of a scope or collection that it does not know.
pub(crate) const UNKNOWN_COLLECTION_CONTEXT: &str = "Unknown scope or collection in operation";

fn is_default(name: &[u8]) -> bool {
    name.is_empty() || name == b"_default"
}

fn unknown_scope() -> Refusal {
    Refusal::because(Status::UNKNOWN_SCOPE, UNKNOWN_COLLECTION_CONTEXT)
}

/// COLLECTIONS_GET_ID: the path is `scope.collection`, where nothing means `_default`.
pub(super) fn collection_id(context: &mut Context<'_>, frame: &Frame<'_>) -> Result<Done, Refusal> {
    let request = CollectionsGetId::read(frame)?;
    let mut parts = request.path.split(|byte| *byte == b'.');
    let (scope, collection) = match (parts.next(), parts.next(), parts.next()) {
        (Some(scope), Some(collection), None) => (scope, collection),
        (Some([]), None, None) => (&[][..], &[][..]),
        _ => {
            let context = "the path is not scope.collection";
            return Err(Refusal::because(Status::EINVAL, context));
        }
    };
    if !is_default(scope) {
        return Err(unknown_scope());
    }
    if !is_default(collection) {
        return Err(Refusal::UnknownCollection);
    }
    let reply = CollectionIdReply {
        manifest: MANIFEST_UID,
        id: CollectionId::DEFAULT,
    };
    Ok(context.reply(frame, &Reply::extras(&reply.to_bytes())))
}

/// COLLECTIONS_GET_SCOPE_ID.
pub(super) fn scope_id(context: &mut Context<'_>, frame: &Frame<'_>) -> Result<Done, Refusal> {
    let request = CollectionsGetScopeId::read(frame)?;
    let scope = request
        .path
        .split(|byte| *byte == b'.')
        .next()
        .unwrap_or_default();
    if !is_default(scope) {
        return Err(unknown_scope());
    }
    let reply = CollectionIdReply {
        manifest: MANIFEST_UID,
        id: CollectionId::DEFAULT,
    };
    Ok(context.reply(frame, &Reply::extras(&reply.to_bytes())))
}
