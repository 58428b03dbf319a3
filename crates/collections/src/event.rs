//! System events of a vBucket: a collection or a scope is created, changed or dropped.

use model::{CollectionId, Kind, ManifestUid, Meta, ScopeId, push_leb128, split_key};

use crate::CollectionSettings;

/// Part of the system namespace to which an event belongs: the byte after the namespace.
const COLLECTION: u8 = 0;
const SCOPE: u8 = 1;
const MODIFIED: u8 = 2;
/// Part of begin events with a common row.
pub(crate) const GROUP: u8 = 3;
/// Flag of an end event whose begin event is in a group.
const ENDS_GROUPED: u32 = 1;

/// Version of the stored value.
const VERSION: u8 = 1;
/// Largest length of a key: two tags, an id in LEB128, a suffix.
const KEY_BYTES_MAX: usize = 18;
/// Length of the value of a collection's begin without its name.
const BEGIN_BYTES: usize = 22;
/// Flags of the settings.
const HAS_TTL: u8 = 1;
const KEEPS_HISTORY: u8 = 2;

/// A change of scopes or collections, as one of the changes of a vBucket.
///
/// Shape: a document in the namespace [`CollectionId::SYSTEM`]. Its key names the changed
/// collection or scope, so the end of a collection replaces its begin in the store. Begin events
/// are mutations, end events deletions; both have a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SystemEvent<'a> {
    /// UID of the manifest with this change.
    pub manifest: ManifestUid,
    /// The change.
    pub change: CollectionChange<'a>,
}

/// A change of scopes or collections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CollectionChange<'a> {
    /// A collection was created.
    Begun(CollectionInfo<'a>),
    /// Settings of a collection changed; the value has the new ones.
    Modified(CollectionInfo<'a>),
    /// A collection was dropped, with all its documents.
    Ended {
        /// Its scope.
        scope: ScopeId,
        /// Its id.
        id: CollectionId,
    },
    /// A scope was created.
    ScopeBegun {
        /// Its id.
        scope: ScopeId,
        /// Its name.
        name: &'a str,
    },
    /// A scope was dropped.
    ScopeEnded {
        /// Its id.
        scope: ScopeId,
    },
}

/// A collection in an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CollectionInfo<'a> {
    /// Its scope.
    pub scope: ScopeId,
    /// Its id.
    pub id: CollectionId,
    /// Its name.
    pub name: &'a str,
    /// Its settings.
    pub settings: CollectionSettings,
}

impl<'a> SystemEvent<'a> {
    /// Whether a stored key belongs to an event rather than to a document.
    #[inline]
    pub fn is_key(key: &[u8]) -> bool {
        key.first() == Some(&(CollectionId::SYSTEM.0 as u8))
    }

    /// Whether a stored key is that of the default collection's events.
    pub fn ends_default(key: &[u8]) -> bool {
        key.starts_with(&[CollectionId::SYSTEM.0 as u8, COLLECTION, 0])
    }

    /// Whether a stored key is that of a group.
    #[inline]
    pub fn is_group(key: &[u8]) -> bool {
        key.starts_with(&[CollectionId::SYSTEM.0 as u8, GROUP])
    }

    /// Returns the flags of its row: see [`SystemEvent::is_kept`].
    pub fn flags(ends_grouped: bool) -> u32 {
        if ends_grouped { ENDS_GROUPED } else { 0 }
    }

    /// Whether the row is never purged. Without this end event the default collection, or a
    /// collection whose begin event is in a group, would exist again.
    pub fn is_kept(key: &[u8], meta: &Meta) -> bool {
        Self::ends_default(key) || Self::is_key(key) && meta.flags & ENDS_GROUPED != 0
    }

    /// Returns the collection of a stored key of a `Modified` event; `None` for any other key.
    pub(crate) fn modified_key(key: &[u8]) -> Option<CollectionId> {
        let rest = key.strip_prefix(&[CollectionId::SYSTEM.0 as u8, MODIFIED])?;
        split_key(rest).map(|(id, _)| id)
    }

    /// Returns the stored key.
    pub fn key(&self) -> Vec<u8> {
        let (part, id, suffix) = match self.change {
            CollectionChange::Begun(CollectionInfo { id, .. })
            | CollectionChange::Ended { id, .. } => (COLLECTION, id.0, "_collection"),
            CollectionChange::Modified(info) => (MODIFIED, info.id.0, "_collection"),
            CollectionChange::ScopeBegun { scope, .. }
            | CollectionChange::ScopeEnded { scope, .. } => (SCOPE, scope.0, "_scope"),
        };
        let mut key = Vec::with_capacity(KEY_BYTES_MAX);
        key.extend([CollectionId::SYSTEM.0 as u8, part]);
        push_leb128(id, &mut key);
        key.extend_from_slice(suffix.as_bytes());
        key
    }

    /// Returns `Mutation` or `Deletion`.
    pub fn kind(&self) -> Kind {
        match self.change {
            CollectionChange::Ended { .. } | CollectionChange::ScopeEnded { .. } => Kind::Deletion,
            _ => Kind::Mutation,
        }
    }

    /// Returns the stored value.
    pub fn value(&self) -> Vec<u8> {
        let (scope, collection, name) = match self.change {
            CollectionChange::Begun(info) | CollectionChange::Modified(info) => {
                (info.scope, Some((info.id, info.settings)), info.name)
            }
            CollectionChange::Ended { scope, id } => {
                (scope, Some((id, CollectionSettings::default())), "")
            }
            CollectionChange::ScopeBegun { scope, name } => (scope, None, name),
            CollectionChange::ScopeEnded { scope } => (scope, None, ""),
        };
        let mut value = Vec::with_capacity(BEGIN_BYTES + name.len());
        value.push(VERSION);
        value.extend_from_slice(&self.manifest.0.to_be_bytes());
        value.extend_from_slice(&scope.0.to_be_bytes());
        if let Some((id, settings)) = collection {
            value.extend_from_slice(&id.0.to_be_bytes());
            let ttl = if settings.max_ttl_s.is_some() {
                HAS_TTL
            } else {
                0
            };
            let history = if settings.history { KEEPS_HISTORY } else { 0 };
            value.push(ttl | history);
            value.extend_from_slice(&settings.max_ttl_s.unwrap_or(0).to_be_bytes());
        }
        value.extend_from_slice(name.as_bytes());
        value
    }

    /// Parses a document of the system namespace; `None` if it is not an event, or is damaged.
    pub fn parse(key: &[u8], kind: Kind, value: &'a [u8]) -> Option<Self> {
        let (CollectionId::SYSTEM, rest) = split_key(key)? else {
            return None;
        };
        let (&part, rest) = rest.split_first()?;
        let (CollectionId(id), _) = split_key(rest)?;
        let (&version, value) = value.split_first()?;
        let (manifest, value) = value.split_first_chunk()?;
        let (scope, value) = value.split_first_chunk()?;
        if version != VERSION {
            return None;
        }
        let manifest = ManifestUid(u64::from_be_bytes(*manifest));
        let scope = ScopeId(u32::from_be_bytes(*scope));
        let ended = kind.is_tombstone();
        let change = match part {
            SCOPE if scope.0 != id => return None,
            SCOPE if ended => CollectionChange::ScopeEnded { scope },
            SCOPE => CollectionChange::ScopeBegun {
                scope,
                name: str::from_utf8(value).ok()?,
            },
            COLLECTION | MODIFIED => collection_change(part, ended, scope, id, value)?,
            _ => return None,
        };
        Some(Self { manifest, change })
    }
}

fn collection_change(
    part: u8,
    ended: bool,
    scope: ScopeId,
    named: u32,
    value: &[u8],
) -> Option<CollectionChange<'_>> {
    let (id, value) = value.split_first_chunk()?;
    let (&flags, value) = value.split_first()?;
    let (ttl, name) = value.split_first_chunk()?;
    let info = CollectionInfo {
        scope,
        id: CollectionId(u32::from_be_bytes(*id)),
        name: str::from_utf8(name).ok()?,
        settings: CollectionSettings {
            max_ttl_s: (flags & HAS_TTL != 0).then_some(u32::from_be_bytes(*ttl)),
            history: flags & KEEPS_HISTORY != 0,
        },
    };
    (info.id.0 == named).then_some(match part {
        COLLECTION if ended => CollectionChange::Ended { scope, id: info.id },
        COLLECTION => CollectionChange::Begun(info),
        _ => CollectionChange::Modified(info),
    })
}
