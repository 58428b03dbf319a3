//! The filter of a stream: which changes it sends.

use model::{CollectionId, Document, ScopeId, split_key};

use crate::VBucket;
use collections::{CollectionChange, SystemEvent};

/// Collections that a stream sends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum StreamFilter {
    /// All documents and all system events.
    #[default]
    All,
    /// Documents of the default collection, for a peer without collections.
    DefaultOnly,
    /// Some collections, and the system events about them.
    Collections(Box<[CollectionId]>),
    /// A scope: its collections, also those created later, and the system events about it.
    Scope {
        /// The scope.
        scope: ScopeId,
        /// Collections of the scope at the stream's position.
        collections: Box<[CollectionId]>,
    },
}

fn event_of(document: &Document) -> Option<SystemEvent<'_>> {
    SystemEvent::parse(document.key(), document.kind(), document.value())
}

impl StreamFilter {
    /// Returns a filter for a scope with the current collections of this vBucket.
    pub fn scope(scope: ScopeId, vbucket: &VBucket) -> Self {
        Self::Scope {
            scope,
            collections: vbucket.collections_of(scope).into(),
        }
    }

    /// Whether the stream sends this change.
    #[inline]
    pub(super) fn wants(&self, document: &Document) -> bool {
        match self {
            Self::All => true,
            Self::DefaultOnly => document.key().first() == Some(&0),
            Self::Collections(ids) if SystemEvent::is_key(document.key()) => event_of(document)
                .and_then(|event| collection_of(event.change))
                .is_some_and(|id| ids.contains(&id)),
            Self::Scope { scope, .. } if SystemEvent::is_key(document.key()) => {
                event_of(document).is_some_and(|event| scope_of(event.change) == *scope)
            }
            Self::Collections(ids)
            | Self::Scope {
                collections: ids, ..
            } => split_key(document.key()).is_some_and(|(id, _)| ids.contains(&id)),
        }
    }

    /// Applies a sent change to the filter. Returns `true` once the filter can match nothing any
    /// more.
    pub(super) fn follow(&mut self, document: &Document) -> bool {
        if !SystemEvent::is_key(document.key()) {
            return false;
        }
        let Some(event) = event_of(document) else {
            return false;
        };
        match (self, event.change) {
            (Self::Collections(ids), CollectionChange::Ended { id, .. }) => {
                without(ids, id);
                ids.is_empty()
            }
            (Self::Scope { collections, .. }, CollectionChange::Ended { id, .. }) => {
                without(collections, id);
                false
            }
            (Self::Scope { collections, .. }, CollectionChange::Begun(info)) => {
                without(collections, info.id);
                let mut more = std::mem::take(collections).into_vec();
                more.push(info.id);
                *collections = more.into();
                false
            }
            (Self::Scope { .. }, CollectionChange::ScopeEnded { .. }) => true,
            _ => false,
        }
    }
}

fn without(ids: &mut Box<[CollectionId]>, id: CollectionId) {
    let mut rest = std::mem::take(ids).into_vec();
    rest.retain(|one| *one != id);
    *ids = rest.into();
}

fn collection_of(change: CollectionChange<'_>) -> Option<CollectionId> {
    match change {
        CollectionChange::Begun(info) | CollectionChange::Modified(info) => Some(info.id),
        CollectionChange::Ended { id, .. } => Some(id),
        CollectionChange::ScopeBegun { .. } | CollectionChange::ScopeEnded { .. } => None,
    }
}

fn scope_of(change: CollectionChange<'_>) -> ScopeId {
    match change {
        CollectionChange::Begun(info) | CollectionChange::Modified(info) => info.scope,
        CollectionChange::Ended { scope, .. }
        | CollectionChange::ScopeBegun { scope, .. }
        | CollectionChange::ScopeEnded { scope } => scope,
    }
}
