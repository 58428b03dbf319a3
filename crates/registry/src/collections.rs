//! The JSON forms of a collections manifest, and changes of it.
//!
//! A change makes the next manifest out of the current one. `Bucket::change_manifest` stores it, applies it to each
//! active vBucket by one plan for all, then publishes it. A vBucket records each begin and end of a collection as a
//! change among its documents, so streams, replicas and restarts find it there. The compactor erases documents of a
//! dropped collection, first from the table, then from the store.

use std::fmt;
use std::sync::Arc;

use bucket::SetManifestError;
use collections::{
    Collection, CollectionSettings, Manifest, ManifestError, Scope, WantedCollection, WantedScope,
};
use model::{CollectionId, ManifestUid, ScopeId};
use serde::{Serialize, Serializer};
use serde_json::Value;

use crate::cluster::ChangeError;
use crate::publish::manifest_changed;
use crate::registry::Registry;
use crate::served::ServedBucket;

/// Largest manifest that is parsed, bytes.
const MANIFEST_BYTES_MAX: usize = 1 << 20;

/// Reason why the collections of a bucket were not changed.
#[derive(Debug, thiserror::Error)]
pub enum CollectionsError {
    /// The requested manifest is not possible.
    #[error(transparent)]
    Refused(ManifestError),
    /// The bucket follows another node's bucket, where collections are created. With the URL of that node's HTTP
    /// management, like `http://host:8091`.
    #[error("the bucket follows another node's: change its collections at {0}")]
    Follows(String),
    /// The change is not possible at the moment; with the reason.
    #[error("{0}")]
    NotNow(String),
}

impl From<ChangeError> for CollectionsError {
    fn from(error: ChangeError) -> Self {
        Self::NotNow(error.to_string())
    }
}

/// Changes the collections of a bucket durably. Returns when every vBucket has them.
///
/// # Errors
/// See [`CollectionsError`]; nothing was changed then.
///
/// Cost: blocks for a sync of the store.
pub fn change(
    node: &Registry,
    served: &ServedBucket,
    edit: &dyn Fn(&Manifest) -> Result<Manifest, ManifestError>,
) -> Result<Arc<Manifest>, CollectionsError> {
    if let Some(active) = served.group().active() {
        return Err(CollectionsError::Follows(active.management()));
    }
    if node.cluster.get().is_some() {
        let now = served.bucket.manifest();
        if edit(&now).map_err(CollectionsError::Refused)? == *now {
            return Ok(now);
        }
        let name = served.name();
        return Err(CollectionsError::NotNow(format!(
            "collections of a cluster's bucket are changed with `settee collections`, or over HTTP: /pools/default/buckets/{name}/scopes"
        )));
    }
    let changed = served.bucket.change_manifest(edit, to_bytes);
    match changed {
        Ok((manifest, changed)) => {
            if changed {
                manifest_changed(node, served);
            }
            Ok(manifest)
        }
        Err(SetManifestError::Refused(error)) => Err(CollectionsError::Refused(error)),
        Err(error @ (SetManifestError::Store(_) | SetManifestError::NotNow)) => {
            if let SetManifestError::Store(error) = &error {
                tracing::error!(bucket = served.name(), %error, "the manifest could not be kept");
            }
            Err(CollectionsError::NotNow(error.to_string()))
        }
    }
}

/// A manifest as JSON.
#[derive(Serialize)]
pub struct ManifestForm<'a> {
    scopes: Vec<ScopeForm<'a>>,
    uid: Hex,
}

#[derive(Serialize)]
struct ScopeForm<'a> {
    collections: Vec<CollectionForm<'a>>,
    name: &'a str,
    uid: Hex,
}

#[derive(Serialize)]
struct CollectionForm<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    history: Option<bool>,
    #[serde(rename = "maxTTL", skip_serializing_if = "Option::is_none")]
    max_ttl: Option<i64>,
    name: &'a str,
    uid: Hex,
}

struct Hex(u64);

impl Serialize for Hex {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{:x}", self.0))
    }
}

impl fmt::Display for ManifestForm<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&serde_json::to_string(self).map_err(|_| fmt::Error)?)
    }
}

impl ManifestForm<'_> {
    /// Leaves out all that is not visible: collections, and scopes that are not visible and have no visible collection.
    /// `is_visible` takes the name of a scope, and that of a collection in it.
    #[must_use]
    pub fn with_visible(mut self, is_visible: &dyn Fn(&str, Option<&str>) -> bool) -> Self {
        self.scopes.retain_mut(|scope| {
            let name = scope.name;
            scope
                .collections
                .retain(|collection| is_visible(name, Some(collection.name)));
            !scope.collections.is_empty() || is_visible(name, None)
        });
        self
    }
}

/// Returns the manifest in the form of the KV protocol and of the store.
pub fn to_json(manifest: &Manifest) -> ManifestForm<'_> {
    form(manifest, |settings| {
        let history = settings.history.then_some(true);
        (history, settings.max_ttl_s.map(i64::from))
    })
}

/// Returns the manifest as the store keeps it.
pub fn to_bytes(manifest: &Manifest) -> Vec<u8> {
    to_json(manifest).to_string().into_bytes()
}

/// Returns the manifest in the form that etcd has, if it is newer than `agreed`, a readable text of that form.
pub fn if_newer(manifest: &Manifest, agreed: Option<&str>) -> Option<String> {
    let agreed = agreed.map(|text| of_json(text.as_bytes()));
    let agreed = agreed.transpose().ok()?;
    let uid = agreed.map_or(ManifestUid(0), |agreed| agreed.uid());
    (manifest.uid() > uid).then(|| to_json(manifest).to_string())
}

/// Returns the manifest in the form of HTTP management: a limit of 0 means the bucket's limit, -1 means no limit.
pub fn to_management_json(manifest: &Manifest) -> ManifestForm<'_> {
    form(manifest, |settings| {
        let ttl = match settings.max_ttl_s {
            None => 0,
            Some(0) => -1,
            Some(ttl) => i64::from(ttl),
        };
        (Some(settings.history), Some(ttl))
    })
}

fn form(
    manifest: &Manifest,
    settings: impl Fn(&CollectionSettings) -> (Option<bool>, Option<i64>),
) -> ManifestForm<'_> {
    let mut scopes = Vec::with_capacity(manifest.scopes().len());
    for scope in manifest.scopes() {
        let mut collections = Vec::with_capacity(scope.collections.len());
        for collection in &scope.collections {
            let (history, max_ttl) = settings(&collection.settings);
            collections.push(CollectionForm {
                history,
                max_ttl,
                name: &collection.name,
                uid: Hex(collection.id.0.into()),
            });
        }
        scopes.push(ScopeForm {
            collections,
            name: &scope.name,
            uid: Hex(scope.id.0.into()),
        });
    }
    let uid = Hex(manifest.uid().0);
    ManifestForm { scopes, uid }
}

/// Parses a manifest. Unknown members are ignored.
///
/// # Errors
/// The text is no manifest, or the manifest is not valid.
pub fn of_json(text: &[u8]) -> Result<Manifest, ManifestError> {
    let invalid = ManifestError::Invalid;
    if text.len() > MANIFEST_BYTES_MAX {
        return Err(invalid("the manifest is too long"));
    }
    let json: Value =
        serde_json::from_slice(text).map_err(|_| invalid("the manifest is not JSON"))?;
    let uid = hex(&json).ok_or(invalid("the manifest has no uid"))?;
    let scopes = list(&json, "scopes").ok_or(invalid("the manifest has no scopes"))?;
    let scopes: Result<Vec<Scope>, _> = scopes.iter().map(scope_of).collect();
    Manifest::new(ManifestUid(uid), scopes?)
}

/// Parses the manifest that a management client wants: names and settings, without ids.
///
/// # Errors
/// The name of the wrong field, and the reason.
pub fn wanted_of_json(text: &[u8]) -> Result<Vec<WantedScope>, (String, &'static str)> {
    let of_it = |what| Err(("_".to_owned(), what));
    let Ok(json) = serde_json::from_slice::<Value>(text) else {
        return of_it("The body is not JSON");
    };
    let Some(scopes) = list(&json, "scopes") else {
        return Err(("scopes".into(), "The value must be supplied, a list"));
    };
    let scopes = scopes.iter().enumerate().map(|(at, json)| {
        let place = format!("scopes[{at}]");
        let name = wanted_name(json, &place)?;
        let no_list = || (format!("{place}.collections"), "The value must be a list");
        let collections = optional(json, "collections", |value| {
            value.as_array().ok_or_else(no_list)
        })?;
        let collections = collections.into_iter().flatten().enumerate();
        let collections = collections.map(|(at, json)| {
            let place = format!("{place}.collections[{at}]");
            Ok(WantedCollection {
                name: wanted_name(json, &place)?,
                max_ttl_s: optional(json, "maxTTL", |ttl| {
                    let ttl = management_ttl(ttl.as_i64().unwrap_or(i64::MAX));
                    ttl.map_err(|what| (format!("{place}.maxTTL"), what))
                })?,
                history: optional(json, "history", |value| {
                    let bad = || (format!("{place}.history"), "The value must be a boolean");
                    value.as_bool().ok_or_else(bad)
                })?,
            })
        });
        let collections = collections.collect::<Result<_, _>>()?;
        Ok(WantedScope { name, collections })
    });
    scopes.collect()
}

fn wanted_name(json: &Value, place: &str) -> Result<Box<str>, (String, &'static str)> {
    let name = json.get("name").and_then(Value::as_str);
    let bad = "The value must be supplied, a text";
    name.map(Into::into)
        .ok_or_else(|| (format!("{place}.name"), bad))
}

/// Converts the limit of a collection from HTTP management: 0 means the bucket's limit, -1 means no limit.
///
/// # Errors
/// The reason why the limit is not valid.
pub fn management_ttl(ttl: i64) -> Result<Option<u32>, &'static str> {
    const TTL_RANGE: &str = "The value must be in range from -1 to 2147483647";
    match i32::try_from(ttl) {
        Ok(-1) => Ok(Some(0)),
        Ok(0) => Ok(None),
        Ok(ttl @ 1..) => Ok(Some(ttl.unsigned_abs())),
        _ => Err(TTL_RANGE),
    }
}

fn scope_of(json: &Value) -> Result<Scope, ManifestError> {
    let (id, name) = name_of(json)?;
    let no_list = ManifestError::Invalid("collections are no list");
    let collections = optional(json, "collections", |value| value.as_array().ok_or(no_list))?;
    let collections = collections.into_iter().flatten().map(collection_of);
    Ok(Scope {
        id: ScopeId(id),
        name,
        collections: collections.collect::<Result<_, _>>()?,
    })
}

fn collection_of(json: &Value) -> Result<Collection, ManifestError> {
    let (id, name) = name_of(json)?;
    let max_ttl_s = optional(json, "maxTTL", |ttl| {
        // A limit must fit 31 bits: the greatest number of 32 bits has another meaning inside.
        let ttl = ttl.as_u64().and_then(|ttl| i32::try_from(ttl).ok());
        let no_number = ManifestError::Invalid("maxTTL is no number of seconds");
        ttl.map(i32::unsigned_abs).ok_or(no_number)
    })?;
    let history = optional(json, "history", |history| {
        let no_flag = ManifestError::Invalid("history is neither true nor false");
        history.as_bool().ok_or(no_flag)
    })?;
    let history = history.unwrap_or_default();
    Ok(Collection {
        id: CollectionId(id),
        name,
        settings: CollectionSettings { max_ttl_s, history },
    })
}

fn name_of(json: &Value) -> Result<(u32, Box<str>), ManifestError> {
    let id = hex(json).and_then(|id| u32::try_from(id).ok());
    let name = json.get("name").and_then(Value::as_str);
    let both = id.zip(name.map(Into::into));
    both.ok_or(ManifestError::Invalid("a name or a uid is missing"))
}

/// Reads a member of an object with `read`, if it is there.
fn optional<'a, T, E>(
    json: &'a Value,
    name: &str,
    read: impl FnOnce(&'a Value) -> Result<T, E>,
) -> Result<Option<T>, E> {
    json.get(name).map(read).transpose()
}

fn list<'a>(json: &'a Value, name: &str) -> Option<&'a [Value]> {
    json.get(name)?.as_array().map(Vec::as_slice)
}

/// Returns the `uid` of an object, which is hexadecimal text.
fn hex(json: &Value) -> Option<u64> {
    let text = json.get("uid")?.as_str()?;
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    u64::from_str_radix(text, 16).ok().filter(|_| digits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_manifests_are_read_back() {
        let settings = |max_ttl_s, history| CollectionSettings { max_ttl_s, history };
        let manifest = Manifest::default()
            .with_scope("inventory")
            .and_then(|next| next.with_collection("inventory", "hotel", settings(Some(7), true)))
            .and_then(|next| next.with_collection("_default", "never", settings(Some(0), false)))
            .unwrap();
        let json = to_json(&manifest);
        assert_eq!(of_json(json.to_string().as_bytes()).unwrap(), manifest);
        let http = serde_json::to_value(to_management_json(&manifest)).unwrap();
        let of = |scope: usize, at: usize| &http["scopes"][scope]["collections"][at];
        assert_eq!(of(0, 0)["maxTTL"], 0);
        assert_eq!(of(0, 1)["maxTTL"], -1);
        assert_eq!(of(1, 0)["maxTTL"], 7);
        assert_eq!(of(1, 0)["history"], true);
        assert_eq!(http["uid"], "3");
    }

    #[test]
    fn only_a_newer_manifest_is_written_again() {
        let first = Manifest::default();
        let [second, third] = ["a", "b"].map(|name| first.with_scope(name).unwrap());
        let third = third.with_scope("c").unwrap();
        let text = |manifest: &Manifest| to_json(manifest).to_string();
        let [of_first, of_second, of_third] = [&first, &second, &third].map(text);
        assert_eq!(if_newer(&second, Some(&of_first)), Some(of_second.clone()));
        assert_eq!(if_newer(&second, None), Some(of_second.clone()));
        for agreed in [&of_second, &of_third, "unreadable"] {
            assert_eq!(if_newer(&second, Some(agreed)), None, "{agreed}");
        }
        assert_eq!(if_newer(&first, None), None);
    }

    #[test]
    fn invalid_manifests_are_refused() {
        let default = r#"{"name":"_default","uid":"0","collections":[]}"#;
        let table = [
            "",
            "[]",
            "{}",
            r#"{"uid":"1"}"#,
            r#"{"uid":1,"scopes":[]}"#,
            r#"{"uid":"0x1","scopes":[]}"#,
            r#"{"uid":"1","scopes":[]}"#,
            r#"{"uid":"1","scopes":[{"name":"_default"}]}"#,
            r#"{"uid":"1","scopes":[{"name":"_default","uid":"0","collections":1}]}"#,
            r#"{"uid":"1","scopes":[{"name":"_default","uid":"0","collections":[{"name":"a","uid":"7"}]}]}"#,
            r#"{"uid":"1","scopes":[{"name":"_default","uid":"0","collections":[{"name":"a","uid":"8","maxTTL":-1}]}]}"#,
            r#"{"uid":"1","scopes":[{"name":"_default","uid":"0","collections":[{"name":"a","uid":"8","history":1}]}]}"#,
        ];
        for text in table {
            assert!(of_json(text.as_bytes()).is_err(), "{text}");
        }
        let least = format!(r#"{{"uid":"1","scopes":[{default}]}}"#);
        assert!(of_json(least.as_bytes()).is_ok());
    }
}
