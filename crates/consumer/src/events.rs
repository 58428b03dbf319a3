//! Parses changes of collections that another node sends as system events.

use collections::{
    CollectionChange, CollectionInfo, CollectionSettings, NAME_BYTES_MAX, SystemEvent,
};
use model::ScopeId;
use wire::dcp::{
    CollectionEvent, CollectionModified, EventId, FLAT_VERSION, FlatEvent, SystemEvent as Message,
};

/// Parses the value of an event in any version of the format.
fn told_in<'a>(message: &Message<'a>) -> Option<FlatEvent<'a>> {
    if message.version == FLAT_VERSION {
        // A flatbuffers table can hold a name that is too long; such an event is refused.
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

/// Converts a message of another node to the event that a vBucket stores; `None` if the message is not valid.
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
