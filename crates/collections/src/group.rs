//! Groups: events that begin many scopes and collections at once, stored once for all vBuckets.
//!
//! Drawn in `docs/format/row.md`. In a vBucket a group takes one seqno per event; its row has the
//! last one. A stream sends each event by itself, with its own seqno.

use std::sync::Arc;

use model::{
    Cas, CollectionId, Document, Kind, ManifestUid, Meta, ScopeId, Seqno, push_leb128, split_key,
};

use crate::event::GROUP;
use crate::{CollectionChange, CollectionInfo, CollectionSettings, SystemEvent};

/// Version of the stored value.
const VERSION: u8 = 1;
/// Size of the header in bytes: version, manifest, number of events.
const HEADER_BYTES: usize = 13;

/// Flags of an event: whether it is a collection, and its settings.
const COLLECTION: u8 = 1;
const HAS_TTL: u8 = 2;
const KEEPS_HISTORY: u8 = 4;

/// The events of a group.
#[derive(Debug, PartialEq, Eq)]
pub struct EventGroup {
    events: u32,
    value: Box<[u8]>,
}

impl EventGroup {
    /// Creates a group of begin events; other events are ignored.
    pub fn new(manifest: ManifestUid, begun: &[CollectionChange<'_>]) -> Self {
        let mut value = vec![VERSION];
        value.extend_from_slice(&manifest.0.to_be_bytes());
        value.extend_from_slice(&[0; 4]);
        let mut events: u32 = 0;
        for change in begun {
            let (flags, scope, collection, name) = match *change {
                CollectionChange::ScopeBegun { scope, name } => (0, scope, None, name),
                CollectionChange::Begun(info) => {
                    let ttl = info.settings.max_ttl_s.map_or(0, |_| HAS_TTL);
                    let history = if info.settings.history {
                        KEEPS_HISTORY
                    } else {
                        0
                    };
                    (
                        COLLECTION | ttl | history,
                        info.scope,
                        Some(info),
                        info.name,
                    )
                }
                _ => continue,
            };
            value.push(flags);
            push_leb128(scope.0, &mut value);
            if let Some(CollectionInfo { id, settings, .. }) = collection {
                push_leb128(id.0, &mut value);
                value.extend(settings.max_ttl_s.into_iter().flat_map(u32::to_be_bytes));
            }
            push_leb128(name.len() as u32, &mut value);
            value.extend_from_slice(name.as_bytes());
            events += 1;
        }
        value[HEADER_BYTES - 4..HEADER_BYTES].copy_from_slice(&events.to_be_bytes());
        Self {
            events,
            value: value.into(),
        }
    }

    /// Number of events, each of which has a seqno.
    pub fn events(&self) -> u32 {
        self.events
    }

    /// Size of the stored value in bytes.
    pub fn bytes(&self) -> usize {
        self.value.len()
    }

    /// Returns the marker of the group in a vBucket's log: its row without the value.
    pub fn marker(last: Seqno, cas: Cas) -> Document {
        Document::from_parts(&key(last), b"", &meta(last, cas))
    }

    /// Returns the row for `marker`.
    pub fn row(&self, marker: &Document) -> Document {
        Document::from_parts(marker.key(), &self.value, &marker.meta())
    }
}

fn key(last: Seqno) -> [u8; 10] {
    let mut key = [0; 10];
    key[0] = CollectionId::SYSTEM.0 as u8;
    key[1] = GROUP;
    key[2..].copy_from_slice(&last.0.to_be_bytes());
    key
}

fn meta(seqno: Seqno, cas: Cas) -> Meta {
    Meta {
        cas,
        seqno,
        rev: 1,
        kind: Kind::Mutation,
        ..Meta::default()
    }
}

/// The events of a stored group, in the order of their seqnos.
#[derive(Clone, Debug)]
pub(crate) struct GroupEvents<'a> {
    manifest: ManifestUid,
    left: u32,
    rest: &'a [u8],
}

impl<'a> GroupEvents<'a> {
    /// Parses a stored value; `None` if it has another version.
    pub(crate) fn parse(value: &'a [u8]) -> Option<Self> {
        let (header, rest) = value.split_first_chunk::<HEADER_BYTES>()?;
        let (&[version], header) = header.split_first_chunk()?;
        let (manifest, events) = header.split_first_chunk()?;
        (version == VERSION).then_some(Self {
            manifest: ManifestUid(u64::from_be_bytes(*manifest)),
            left: u32::from_be_bytes(*events.first_chunk()?),
            rest,
        })
    }

    /// Whether all events can be parsed.
    pub(crate) fn is_whole(&self) -> bool {
        self.clone().count() == self.left as usize
    }

    /// UID of the manifest with these events.
    pub(crate) fn manifest(&self) -> ManifestUid {
        self.manifest
    }

    /// Number of events not returned yet.
    pub(crate) fn left(&self) -> u32 {
        self.left
    }

    fn change(&mut self) -> Option<CollectionChange<'a>> {
        let (&flags, rest) = self.rest.split_first()?;
        let (CollectionId(scope), mut rest) = split_key(rest)?;
        let scope = ScopeId(scope);
        let mut collection = None;
        if flags & COLLECTION != 0 {
            let (id, after) = split_key(rest)?;
            rest = after;
            let mut max_ttl_s = None;
            if flags & HAS_TTL != 0 {
                let (ttl, after) = rest.split_first_chunk()?;
                max_ttl_s = Some(u32::from_be_bytes(*ttl));
                rest = after;
            }
            let history = flags & KEEPS_HISTORY != 0;
            collection = Some((id, CollectionSettings { max_ttl_s, history }));
        }
        let (CollectionId(length), rest) = split_key(rest)?;
        let (name, rest) = rest.split_at_checked(length as usize)?;
        let name = str::from_utf8(name).ok()?;
        self.rest = rest;
        Some(match collection {
            None => CollectionChange::ScopeBegun { scope, name },
            Some((id, settings)) => CollectionChange::Begun(CollectionInfo {
                scope,
                id,
                name,
                settings,
            }),
        })
    }
}

impl<'a> Iterator for GroupEvents<'a> {
    type Item = SystemEvent<'a>;

    fn next(&mut self) -> Option<SystemEvent<'a>> {
        if self.left == 0 {
            return None;
        }
        let change = self.change()?;
        self.left -= 1;
        let manifest = self.manifest;
        Some(SystemEvent { manifest, change })
    }
}

/// Returns the events of a document of the system namespace: one event, those of a group, or none
/// if it cannot be parsed.
pub fn events_of(document: &Document) -> impl Iterator<Item = SystemEvent<'_>> {
    let group = SystemEvent::is_group(document.key())
        .then(|| GroupEvents::parse(document.value()))
        .flatten();
    let single = || SystemEvent::parse(document.key(), document.kind(), document.value());
    let single = group.is_none().then(single).flatten();
    group.into_iter().flatten().chain(single)
}

/// Reader of the documents of a group, one after the other.
#[derive(Debug)]
pub struct GroupReader {
    /// The row, or its marker.
    row: Document,
    group: Option<Arc<EventGroup>>,
    offset: usize,
    left: u32,
    current: Option<Document>,
}

impl GroupReader {
    /// Reads a group in a log.
    pub fn of_log(marker: &Document, group: &Arc<EventGroup>) -> Self {
        Self {
            row: marker.clone(),
            group: Some(Arc::clone(group)),
            offset: HEADER_BYTES,
            left: group.events,
            current: None,
        }
    }

    /// Reads a row of the store; `None` if it is not a group, or is damaged.
    pub fn of_row(row: &Document) -> Option<Self> {
        if !SystemEvent::is_group(row.key()) {
            return None;
        }
        let left = GroupEvents::parse(row.value())?.left;
        Some(Self {
            row: row.clone(),
            group: None,
            offset: HEADER_BYTES,
            left,
            current: None,
        })
    }

    /// Moves to the next event, and returns it.
    pub fn step(&mut self) -> Option<&Document> {
        self.current = None;
        let value = self
            .group
            .as_ref()
            .map_or(self.row.value(), |group| &group.value);
        let mut events = GroupEvents {
            left: self.left,
            ..GroupEvents::parse(value)?
        };
        events.rest = value.get(self.offset..)?;
        let event = events.next()?;
        self.offset = value.len() - events.rest.len();
        self.left = events.left;
        // Seqnos and CAS values of a group are consecutive; its row has the last ones.
        let before = u64::from(self.left);
        let meta = meta(
            Seqno(self.row.seqno().0 - before),
            Cas(self.row.cas().0 - before),
        );
        self.current = Some(Document::from_parts(&event.key(), &event.value(), &meta));
        self.current.as_ref()
    }

    /// Returns the event that [`GroupReader::step`] returned last.
    pub fn current(&self) -> Option<&Document> {
        self.current.as_ref()
    }

    /// Whether [`GroupReader::step`] has no more events.
    pub fn is_over(&self) -> bool {
        self.left == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begun() -> Vec<CollectionChange<'static>> {
        let (scope, name) = (ScopeId(0x1234), "a name");
        let settings = CollectionSettings {
            max_ttl_s: Some(7),
            history: true,
        };
        vec![
            CollectionChange::ScopeBegun { scope, name },
            CollectionChange::Begun(CollectionInfo {
                scope,
                id: CollectionId(u32::MAX),
                name,
                settings,
            }),
            CollectionChange::Begun(CollectionInfo {
                scope: ScopeId::DEFAULT,
                id: CollectionId(8),
                name: "c",
                settings: CollectionSettings::default(),
            }),
        ]
    }

    #[test]
    fn golden_group() {
        let group = EventGroup::new(ManifestUid(5), &begun()[1..]);
        let mut bytes = vec![1, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 2];
        bytes.extend_from_slice(b"\x07\xb4\x24\xff\xff\xff\xff\x0f\0\0\0\x07\x06a name");
        bytes.extend_from_slice(b"\x01\0\x08\x01c");
        assert_eq!(*group.value, *bytes);
        let marker = EventGroup::marker(Seqno(0x102), Cas(9));
        assert_eq!(marker.key(), b"\x01\x03\0\0\0\0\0\0\x01\x02");
    }

    #[test]
    fn group_events_round_trip() {
        let group = Arc::new(EventGroup::new(ManifestUid(5), &begun()));
        let marker = EventGroup::marker(Seqno(12), Cas(1002));
        let row = group.row(&marker);
        let told: Vec<_> = events_of(&row).map(|event| event.change).collect();
        assert_eq!(told, begun());
        let in_log = GroupReader::of_log(&marker, &group);
        let in_store = GroupReader::of_row(&row).expect("it is a group");
        for mut reader in [in_log, in_store] {
            for (change, place) in begun().into_iter().zip(0..) {
                assert!(!reader.is_over());
                let document = reader.step().expect("it is there").clone();
                let event = SystemEvent::parse(document.key(), Kind::Mutation, document.value());
                let expected = SystemEvent {
                    manifest: ManifestUid(5),
                    change,
                };
                assert_eq!(event, Some(expected));
                let position = (document.seqno(), document.cas());
                assert_eq!(position, (Seqno(10 + place), Cas(1000 + place)));
                assert!(reader.current().is_some_and(|one| one.same_as(&document)));
            }
            assert!(reader.is_over() && reader.step().is_none());
        }
    }

    #[test]
    fn a_group_that_is_cut_short_is_not_whole() {
        let group = EventGroup::new(ManifestUid(5), &begun());
        assert!(GroupEvents::parse(&group.value).is_some_and(|all| all.is_whole()));
        for length in 0..group.value.len() {
            let cut = GroupEvents::parse(&group.value[..length]);
            assert!(cut.is_none_or(|some| !some.is_whole()), "{length}");
        }
    }
}
