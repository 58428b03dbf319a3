//! Names of the collections of a bucket.

use std::collections::HashMap;

use model::{CollectionId, ScopeId};
use serde_json::Value;
use wire::dcp::{CollectionEvent, EventId, SystemEvent};

use crate::record::Names;

/// Names of the collections of a bucket, by their ids.
#[derive(Debug)]
pub struct Collections {
    scopes: HashMap<u32, String>,
    collections: HashMap<CollectionId, (u32, String)>,
}

const DEFAULT: &str = "_default";

impl Collections {
    /// Creates the names of a bucket that has only its default collection.
    pub fn only_default() -> Self {
        Self {
            scopes: HashMap::from([(0, DEFAULT.to_owned())]),
            collections: HashMap::from([(CollectionId::DEFAULT, (0, DEFAULT.to_owned()))]),
        }
    }

    /// Parses a manifest (JSON); `None` if it is not valid.
    pub fn of_manifest(manifest: &[u8]) -> Option<Self> {
        let mut all = Self::only_default();
        let manifest: Value = serde_json::from_slice(manifest).ok()?;
        for scope in manifest.get("scopes")?.as_array()? {
            let (id, name) = identified(scope)?;
            for collection in scope
                .get("collections")
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
            {
                let (collection, name) = identified(collection)?;
                all.collections.insert(CollectionId(collection), (id, name));
            }
            all.scopes.insert(id, name);
        }
        Some(all)
    }

    /// Adds the names in a system event of a stream.
    pub fn learn(&mut self, event: &SystemEvent<'_>) {
        let Ok(parsed) = CollectionEvent::parse(event.value) else {
            return;
        };
        let (scope, name) = (ScopeId(parsed.scope), String::from_utf8_lossy(event.name));
        match (event.event, parsed.collection) {
            (EventId::CREATE_SCOPE, _) => self.scope_begun(scope, &name),
            (EventId::BEGIN_COLLECTION, Some(id)) => self.collection_begun(id, scope, &name),
            _ => {}
        }
    }

    /// Adds a scope.
    pub fn scope_begun(&mut self, scope: ScopeId, name: &str) {
        self.scopes.insert(scope.0, name.to_owned());
    }

    /// Adds a collection.
    pub fn collection_begun(&mut self, id: CollectionId, scope: ScopeId, name: &str) {
        self.collections.insert(id, (scope.0, name.to_owned()));
    }

    /// Returns the names of a collection; empty if it is unknown.
    pub fn names(&self, id: CollectionId) -> Names<'_> {
        let (scope, collection) = match self.collections.get(&id) {
            Some((scope, name)) => (self.scopes.get(scope), name.as_str()),
            None => (None, ""),
        };
        Names {
            scope: scope.map_or("", String::as_str),
            collection,
        }
    }

    /// Returns the id of the collection with these names.
    pub fn id_of(&self, names: Names<'_>) -> Option<CollectionId> {
        let (&scope, _) = self.scopes.iter().find(|(_, name)| *name == names.scope)?;
        let mut all = self.collections.iter();
        let (id, _) = all.find(|(_, (of, name))| *of == scope && name == names.collection)?;
        Some(*id)
    }

    /// Returns the filter of a stream request for a scope, or for one collection of it; `None` if it does not exist.
    pub fn filter(&self, scope: &str, collection: Option<&str>) -> Option<String> {
        let Some(collection) = collection else {
            let (id, _) = self.scopes.iter().find(|(_, name)| *name == scope)?;
            return Some(format!("{{\"scope\":\"{id:x}\"}}"));
        };
        let id = self.id_of(Names { scope, collection })?;
        Some(format!("{{\"collections\":[\"{:x}\"]}}", id.0))
    }
}

fn identified(value: &Value) -> Option<(u32, String)> {
    let id = u32::from_str_radix(value.get("uid")?.as_str()?, 16).ok()?;
    Some((id, value.get("name")?.as_str()?.to_owned()))
}

#[cfg(test)]
mod tests {
    use model::Seqno;

    use super::*;

    const MANIFEST: &[u8] = br#"{"uid":"2","scopes":[
        {"name":"_default","uid":"0","collections":[{"name":"_default","uid":"0"}]},
        {"name":"inventory","uid":"a","collections":[{"name":"airline","uid":"1f"}]},
        {"name":"empty","uid":"b"}]}"#;

    #[test]
    fn collections_have_names_and_filters() {
        let all = Collections::of_manifest(MANIFEST).unwrap();
        let names = |scope, collection| Names { scope, collection };
        assert_eq!(all.names(CollectionId(0x1f)), names("inventory", "airline"));
        assert_eq!(all.names(CollectionId(0)), names("_default", "_default"));
        assert_eq!(all.names(CollectionId(9)), names("", ""));
        let filter = |scope, collection| all.filter(scope, collection);
        assert_eq!(filter("inventory", None).unwrap(), r#"{"scope":"a"}"#);
        assert_eq!(
            filter("inventory", Some("airline")).unwrap(),
            r#"{"collections":["1f"]}"#
        );
        assert_eq!(filter("inventory", Some("_default")), None);
        assert_eq!(filter("nope", None), None);
        assert!(Collections::of_manifest(b"{}").is_none());
        assert!(Collections::of_manifest(b"<html>").is_none());
    }

    #[test]
    fn stream_adds_new_collections() {
        let mut all = Collections::only_default();
        let mut value = Vec::new();
        let parsed = CollectionEvent {
            manifest: model::ManifestUid(3),
            scope: 0,
            collection: Some(CollectionId(8)),
            expiry_max_s: None,
        };
        parsed.encode(&mut value);
        all.learn(&SystemEvent {
            seqno: Seqno(1),
            event: EventId::BEGIN_COLLECTION,
            version: 0,
            name: b"new",
            value: &value,
        });
        assert_eq!(all.names(CollectionId(8)).collection, "new");
    }
}
