//! Changes of collections, as messages of a stream.

use engine::collections::{CollectionChange, CollectionSettings, SystemEvent};
use model::{CollectionId, Document, ScopeId};
use wire::dcp::{CollectionEvent, CollectionModified, EventId, SystemEvent as Message};

/// The parts of a message that are put together for it.
pub(crate) struct EventParts {
    event: EventId,
    version: u8,
    value: Vec<u8>,
}

impl EventParts {
    /// What a system event of a vBucket says to a peer; the name is still in the document.
    /// `None` when it cannot be read.
    pub(crate) fn of(document: &Document) -> Option<(Self, &str)> {
        let event = SystemEvent::parse(document.key(), document.kind(), document.value())?;
        let (id, name, scope, collection, settings) = match event.change {
            CollectionChange::Begun {
                scope,
                id,
                name,
                settings,
            } => (EventId::BEGIN_COLLECTION, name, scope, Some(id), settings),
            CollectionChange::Modified {
                scope,
                id,
                name,
                settings,
            } => (EventId::MODIFY_COLLECTION, name, scope, Some(id), settings),
            CollectionChange::Ended { scope, id } => {
                plain(EventId::END_COLLECTION, "", scope, Some(id))
            }
            CollectionChange::ScopeBegun { scope, name } => {
                plain(EventId::CREATE_SCOPE, name, scope, None)
            }
            CollectionChange::ScopeEnded { scope } => plain(EventId::DROP_SCOPE, "", scope, None),
        };
        let expiry_max_s = settings.max_ttl_s;
        let mut value = Vec::with_capacity(20);
        match collection.filter(|_| id == EventId::MODIFY_COLLECTION) {
            Some(collection) => CollectionModified {
                manifest: event.manifest,
                collection,
                expiry_max_s: expiry_max_s.unwrap_or(0),
                scope: scope.0,
            }
            .encode(&mut value),
            None => CollectionEvent {
                manifest: event.manifest,
                scope: scope.0,
                collection,
                expiry_max_s,
            }
            .encode(&mut value),
        }
        let parts = Self {
            event: id,
            version: u8::from(expiry_max_s.is_some()),
            value,
        };
        Some((parts, name))
    }

    /// The message.
    pub(crate) fn message<'a>(&'a self, document: &Document, name: &'a str) -> Message<'a> {
        Message {
            seqno: document.seqno(),
            event: self.event,
            version: self.version,
            name: name.as_bytes(),
            value: &self.value,
        }
    }
}

type Told<'a> = (
    EventId,
    &'a str,
    ScopeId,
    Option<CollectionId>,
    CollectionSettings,
);

fn plain(id: EventId, name: &str, scope: ScopeId, collection: Option<CollectionId>) -> Told<'_> {
    (id, name, scope, collection, CollectionSettings::default())
}

/// What a vBucket notes of a message that another node sent; `None` when it makes no sense.
pub(crate) fn event_of<'a>(message: &Message<'a>) -> Option<SystemEvent<'a>> {
    let told = if message.event == EventId::MODIFY_COLLECTION {
        let told = CollectionModified::parse(message.value).ok()?;
        CollectionEvent {
            manifest: told.manifest,
            scope: told.scope,
            collection: Some(told.collection),
            expiry_max_s: (message.version > 0).then_some(told.expiry_max_s),
        }
    } else {
        CollectionEvent::parse(message.value).ok()?
    };
    let name = str::from_utf8(message.name).ok()?;
    let scope = ScopeId(told.scope);
    let settings = CollectionSettings {
        max_ttl_s: told.expiry_max_s,
        history: false,
    };
    if message.version > 1 {
        return None;
    }
    let change = match (message.event, told.collection) {
        (EventId::BEGIN_COLLECTION, Some(id)) => CollectionChange::Begun {
            scope,
            id,
            name,
            settings,
        },
        (EventId::MODIFY_COLLECTION, Some(id)) => CollectionChange::Modified {
            scope,
            id,
            name,
            settings,
        },
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
