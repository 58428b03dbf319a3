//! Changes of collections, as a vBucket notes what a stream says of them.

use collections::{
    CollectionChange, CollectionInfo, CollectionSettings, NAME_BYTES_MAX, SystemEvent,
};
use model::ScopeId;
use wire::dcp::{
    CollectionEvent, CollectionModified, EventId, FLAT_VERSION, FlatEvent, SystemEvent as Message,
};

/// Reads a value of any version.
fn told_in<'a>(message: &Message<'a>) -> Option<FlatEvent<'a>> {
    if message.version == FLAT_VERSION {
        // In a key there is no room for more; in a table there is.
        let told = FlatEvent::parse(message.event, message.value).ok();
        return told.filter(|told| told.name.len() <= NAME_BYTES_MAX);
    }
    if message.version > FLAT_VERSION {
        return None;
    }
    let name = str::from_utf8(message.name).ok()?;
    if message.event == EventId::MODIFY_COLLECTION {
        let told = CollectionModified::parse(message.value).ok()?;
        return Some(FlatEvent {
            manifest: told.manifest,
            scope: told.scope,
            collection: Some(told.collection),
            expiry_max_s: (message.version > 0).then_some(told.expiry_max_s),
            name,
            history: false,
        });
    }
    let told = CollectionEvent::parse(message.value).ok()?;
    Some(FlatEvent {
        manifest: told.manifest,
        scope: told.scope,
        collection: told.collection,
        expiry_max_s: told.expiry_max_s,
        name,
        history: false,
    })
}

/// What a vBucket notes of a message that another node sent; `None` when it makes no sense.
pub fn event_of<'a>(message: &Message<'a>) -> Option<SystemEvent<'a>> {
    let told = told_in(message)?;
    let name = told.name;
    let scope = ScopeId(told.scope);
    let settings = CollectionSettings {
        max_ttl_s: told.expiry_max_s,
        history: told.history,
    };
    let described = |id| CollectionInfo {
        scope,
        id,
        name,
        settings,
    };
    let change = match (message.event, told.collection) {
        (EventId::BEGIN_COLLECTION, Some(id)) => CollectionChange::Begun(described(id)),
        (EventId::MODIFY_COLLECTION, Some(id)) => CollectionChange::Modified(described(id)),
        (EventId::END_COLLECTION, Some(id)) => CollectionChange::Ended { scope, id },
        (EventId::CREATE_SCOPE, None) => CollectionChange::ScopeBegun { scope, name },
        (EventId::DROP_SCOPE, None) => CollectionChange::ScopeEnded { scope },
        _ => return None,
    };
    Some(SystemEvent {
        manifest: told.manifest,
        change,
    })
}
