//! Commands that read and change the manifest of collections.

use collections::{Manifest, ManifestError, Scope};
use model::CollectionId;
use registry::collections::{CollectionsError, change, of_json, to_json};
use wire::request::{CollectionsGetId, CollectionsGetScopeId};
use wire::response::CollectionIdReply;
use wire::{Frame, Message, Status};

use crate::context::Context;
use crate::outcome::{CommandResult, Refusal, UNKNOWN_COLLECTION_CONTEXT};
use crate::reply::Reply;
use crate::session::Session;

/// COLLECTIONS_GET_MANIFEST.
pub(super) fn manifest(context: &mut Context<'_>, frame: &Frame<'_>) -> CommandResult {
    let manifest = context.bucket()?.bucket.manifest();
    let session = &context.session;
    let visible =
        to_json(&manifest).with_visible(&|scope, collection| session.sees(scope, collection));
    let json = visible.to_string();
    Ok(context.reply(frame, &Reply::json(&json)))
}

/// COLLECTIONS_SET_MANIFEST: answered when the manifest is durable and applied in every vBucket.
pub(super) fn set_manifest(context: &mut Context<'_>, frame: &Frame<'_>) -> CommandResult {
    let next = of_json(frame.value).map_err(|error| refusal(&CollectionsError::Refused(error)))?;
    let served = context.bucket()?;
    change(&context.session.node, &served, &|_| Ok(next.clone()))
        .map_err(|error| refusal(&error))?;
    Ok(context.reply(frame, &Reply::EMPTY))
}

fn refusal(error: &CollectionsError) -> Refusal {
    let status = match error {
        CollectionsError::Refused(ManifestError::NoSuccessor(_)) => {
            Status::CANNOT_APPLY_COLLECTIONS_MANIFEST
        }
        CollectionsError::Refused(_) => Status::EINVAL,
        CollectionsError::Follows(_) => Status::NOT_SUPPORTED,
        CollectionsError::NotNow(_) => Status::ETMPFAIL,
    };
    Refusal::because(status, error.to_string())
}

fn unknown_scope() -> Refusal {
    Refusal::because(Status::UNKNOWN_SCOPE, UNKNOWN_COLLECTION_CONTEXT)
}

/// Finds a scope by its name; an empty name means `_default`.
fn scope<'m>(manifest: &'m Manifest, name: &[u8]) -> Result<&'m Scope, Refusal> {
    let name = str::from_utf8(name).map_err(|_| unknown_scope())?;
    manifest.scope_named(name).ok_or_else(unknown_scope)
}

/// Whether the peer may know that a scope exists, through the scope or through one of its collections.
fn sees_part_of(session: &Session, scope: &Scope) -> bool {
    let mut names = scope.collections.iter().map(|one| &*one.name);
    session.sees(&scope.name, None) || names.any(|name| session.sees(&scope.name, Some(name)))
}

/// COLLECTIONS_GET_ID: the path is `scope.collection`; an empty part means `_default`.
pub(super) fn collection_id(context: &mut Context<'_>, frame: &Frame<'_>) -> CommandResult {
    let request = CollectionsGetId::read(frame)?;
    let mut parts = request.path.split(|byte| *byte == b'.');
    let (of, name) = match (parts.next(), parts.next(), parts.next()) {
        (Some(scope), Some(collection), None) => (scope, collection),
        (Some([]), None, None) => (&[][..], &[][..]),
        _ => {
            let context = "the path is not scope.collection";
            return Err(Refusal::invalid(context));
        }
    };
    let manifest = context.bucket()?.bucket.manifest();
    let name: &[u8] = if name.is_empty() { b"_default" } else { name };
    let scope = scope(&manifest, of)?;
    let session = &context.session;
    let mut visible = scope.collections.iter();
    let found = visible
        .find(|one| one.name.as_bytes() == name && session.sees(&scope.name, Some(&one.name)));
    if found.is_none() && !sees_part_of(session, scope) {
        return Err(unknown_scope());
    }
    let reply = CollectionIdReply {
        manifest: manifest.uid(),
        id: found.ok_or(Refusal::UnknownCollection)?.id,
    };
    Ok(context.reply(frame, &Reply::extras(&reply.to_bytes())))
}

/// COLLECTIONS_GET_SCOPE_ID.
pub(super) fn scope_id(context: &mut Context<'_>, frame: &Frame<'_>) -> CommandResult {
    let request = CollectionsGetScopeId::read(frame)?;
    let name = request.path.split(|byte| *byte == b'.').next();
    let manifest = context.bucket()?.bucket.manifest();
    let scope = scope(&manifest, name.unwrap_or_default())?;
    if !sees_part_of(context.session, scope) {
        return Err(unknown_scope());
    }
    let reply = CollectionIdReply {
        manifest: manifest.uid(),
        id: CollectionId(scope.id.0),
    };
    Ok(context.reply(frame, &Reply::extras(&reply.to_bytes())))
}
