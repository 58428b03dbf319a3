//! Changes of collections, as messages of a stream.

use collections::{CollectionChange, CollectionInfo, CollectionSettings, SystemEvent};
use model::{Document, ScopeId};
use wire::dcp::{
    CollectionEvent, CollectionModified, EventId, FLAT_VERSION, FlatEvent, SystemEvent as Message,
};

/// Parts of a message that must outlive its encoding.
pub(crate) struct EventParts {
    event: EventId,
    version: u8,
    value: Vec<u8>,
}

impl EventParts {
    /// Reads a system event of a vBucket, for a peer that asked for `FlatBuffers` or not. The name is
    /// borrowed from the document. `None` if the event cannot be read.
    pub(crate) fn of(document: &Document, flat: bool) -> Option<(Self, &str)> {
        let event = SystemEvent::parse(document.key(), document.kind(), document.value())?;
        let (id, flat_event) = flatten(&event);
        let mut value = Vec::with_capacity(if flat { 96 } else { 20 });
        let version = if flat {
            flat_event.encode(id, &mut value);
            FLAT_VERSION
        } else {
            encode_plain(id, &flat_event, &mut value);
            u8::from(flat_event.expiry_max_s.is_some())
        };
        let parts = Self {
            event: id,
            version,
            value,
        };
        Some((parts, flat_event.name))
    }

    /// Returns the message.
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

/// Returns all fields of an event.
fn flatten<'a>(event: &SystemEvent<'a>) -> (EventId, FlatEvent<'a>) {
    let about = |scope: ScopeId, collection, name, settings: CollectionSettings| FlatEvent {
        manifest: event.manifest,
        scope: scope.0,
        collection,
        expiry_max_s: settings.max_ttl_s,
        name,
        history: settings.history,
    };
    let nothing = CollectionSettings::default();
    let plain = |scope, collection, name| about(scope, collection, name, nothing);
    let described =
        |info: CollectionInfo<'a>| about(info.scope, Some(info.id), info.name, info.settings);
    match event.change {
        CollectionChange::Begun(info) => (EventId::BEGIN_COLLECTION, described(info)),
        CollectionChange::Modified(info) => (EventId::MODIFY_COLLECTION, described(info)),
        CollectionChange::Ended { scope, id } => {
            (EventId::END_COLLECTION, plain(scope, Some(id), ""))
        }
        CollectionChange::ScopeBegun { scope, name } => {
            (EventId::CREATE_SCOPE, plain(scope, None, name))
        }
        CollectionChange::ScopeEnded { scope } => (EventId::DROP_SCOPE, plain(scope, None, "")),
    }
}

/// Encodes the value of versions 0 and 1.
fn encode_plain(id: EventId, flat_event: &FlatEvent<'_>, out: &mut Vec<u8>) {
    match flat_event
        .collection
        .filter(|_| id == EventId::MODIFY_COLLECTION)
    {
        Some(collection) => CollectionModified {
            manifest: flat_event.manifest,
            collection,
            expiry_max_s: flat_event.expiry_max_s.unwrap_or(0),
            scope: flat_event.scope,
        }
        .encode(out),
        None => CollectionEvent {
            manifest: flat_event.manifest,
            scope: flat_event.scope,
            collection: flat_event.collection,
            expiry_max_s: flat_event.expiry_max_s,
        }
        .encode(out),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use collections::NAME_BYTES_MAX;
    use consumer::event_of;
    use model::{CollectionId, ManifestUid, Meta, Seqno};

    fn changes() -> [CollectionChange<'static>; 5] {
        let (scope, id) = (ScopeId(8), CollectionId(9));
        let settings = CollectionSettings {
            max_ttl_s: Some(77),
            history: true,
        };
        let name = "fruit";
        let info = CollectionInfo {
            scope,
            id,
            name,
            settings,
        };
        [
            CollectionChange::Begun(info),
            CollectionChange::Modified(info),
            CollectionChange::Ended { scope, id },
            CollectionChange::ScopeBegun { scope, name },
            CollectionChange::ScopeEnded { scope },
        ]
    }

    /// Returns the version of the message, and the event that another node reads from it.
    fn sent(event: &SystemEvent<'_>, flat: bool) -> (u8, String) {
        let meta = Meta {
            seqno: Seqno(4),
            kind: event.kind(),
            ..Meta::default()
        };
        let document = Document::from_parts(&event.key(), &event.value(), &meta);
        let (parts, name) = EventParts::of(&document, flat).expect("an event");
        let message = parts.message(&document, name);
        let arrived = event_of(&message).expect("it makes sense");
        (message.version, format!("{arrived:?}"))
    }

    #[test]
    fn another_node_reads_each_event() {
        for change in changes() {
            let event = SystemEvent {
                manifest: ManifestUid(31),
                change,
            };
            assert_eq!(sent(&event, true), (2, format!("{event:?}")));
            let (version, arrived) = sent(&event, false);
            let without = format!("{event:?}").replace("history: true", "history: false");
            assert_eq!(arrived, without, "only a table tells of histories");
            assert!(version < 2);
        }
    }

    #[test]
    fn names_that_are_too_long_are_not_read() {
        let name = "n".repeat(NAME_BYTES_MAX + 1);
        let (event, flat_event) = flatten(&SystemEvent {
            manifest: ManifestUid(1),
            change: CollectionChange::ScopeBegun {
                scope: ScopeId(8),
                name: &name,
            },
        });
        let mut value = Vec::new();
        flat_event.encode(event, &mut value);
        let message = Message {
            seqno: Seqno(1),
            event,
            version: 2,
            name: b"",
            value: &value,
        };
        assert_eq!(event_of(&message), None);
        let newer = Message {
            version: 3,
            ..message
        };
        assert_eq!(event_of(&newer), None);
    }
}
