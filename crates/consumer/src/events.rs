//! Parses changes of collections that another node sends as system events.

use collections::{
    CollectionChange, CollectionInfo, CollectionSettings, NAME_BYTES_MAX, SystemEvent,
};
use model::ScopeId;
use wire::dcp::{
    CollectionEvent, CollectionModified, EventId, FLAT_VERSION, FlatEvent, SystemEvent as Message,
};

/// Parses the value of an event in any version of the format.
fn flat_event<'a>(message: &Message<'a>) -> Option<FlatEvent<'a>> {
    if message.version == FLAT_VERSION {
        // A flatbuffers table can hold a name that is too long; such an event is refused.
        let parsed = FlatEvent::parse(message.event, message.value).ok();
        return parsed.filter(|parsed| parsed.name.len() <= NAME_BYTES_MAX);
    }
    if message.version > FLAT_VERSION {
        return None;
    }
    let name = str::from_utf8(message.name).ok()?;
    if message.event == EventId::MODIFY_COLLECTION {
        let parsed = CollectionModified::parse(message.value).ok()?;
        return Some(FlatEvent {
            manifest: parsed.manifest,
            scope: parsed.scope,
            collection: Some(parsed.collection),
            expiry_max_s: (message.version > 0).then_some(parsed.expiry_max_s),
            name,
            history: false,
        });
    }
    let parsed = CollectionEvent::parse(message.value).ok()?;
    Some(FlatEvent {
        manifest: parsed.manifest,
        scope: parsed.scope,
        collection: parsed.collection,
        expiry_max_s: parsed.expiry_max_s,
        name,
        history: false,
    })
}

/// Converts a message of another node to the event that a vBucket stores; `None` if the message is not valid.
pub fn event_of<'a>(message: &Message<'a>) -> Option<SystemEvent<'a>> {
    let parsed = flat_event(message)?;
    let name = parsed.name;
    let scope = ScopeId(parsed.scope);
    let settings = CollectionSettings {
        max_ttl_s: parsed.expiry_max_s,
        history: parsed.history,
    };
    let described = |id| CollectionInfo {
        scope,
        id,
        name,
        settings,
    };
    let change = match (message.event, parsed.collection) {
        (EventId::BEGIN_COLLECTION, Some(id)) => CollectionChange::Begun(described(id)),
        (EventId::MODIFY_COLLECTION, Some(id)) => CollectionChange::Modified(described(id)),
        (EventId::END_COLLECTION, Some(id)) => CollectionChange::Ended { scope, id },
        (EventId::CREATE_SCOPE, None) => CollectionChange::ScopeBegun { scope, name },
        (EventId::DROP_SCOPE, None) => CollectionChange::ScopeEnded { scope },
        _ => return None,
    };
    Some(SystemEvent {
        manifest: parsed.manifest,
        change,
    })
}
