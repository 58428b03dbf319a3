//! Groups about scopes and collections.

use bucket::Hold;
use engine::collections::{Collection, CollectionCounts, Manifest, Scope};
use model::{CollectionId, ManifestUid, ScopeId, VbId};

use super::StatError;
use super::rows::Rows;
use super::vbuckets::number;
use crate::served::ServedBucket;

/// Rows about collections of vBuckets that one answer may have; beyond it a vBucket must be
/// named. A thousand collections in every vBucket would make a gigabyte.
const DETAILS_MAX: usize = 64 << 10;

/// The manifest with what was counted of each collection.
struct View {
    manifest: std::sync::Arc<Manifest>,
    counts: Vec<CollectionCounts>,
}

impl View {
    fn of(served: &ServedBucket) -> Self {
        Self {
            manifest: served.bucket.manifest(),
            counts: served.bucket.collection_counts(),
        }
    }

    fn counts(&self, id: CollectionId) -> CollectionCounts {
        let found = self.counts.binary_search_by_key(&id, |counts| counts.id);
        found.map_or(CollectionCounts::default(), |at| self.counts[at])
    }

    fn collection(&self, (scope, collection): (&Scope, &Collection), rows: &mut Rows<'_, '_>) {
        let (id, counts) = (collection.id, self.counts(collection.id));
        rows.prefix(format_args!("0x{:x}:0x{:x}:", scope.id.0, id.0));
        rows.row("name", &collection.name);
        rows.row("scope_name", &scope.name);
        totals(&counts, rows);
        if let Some(ttl) = collection.settings.max_ttl_s {
            rows.row("maxTTL", ttl);
        }
    }

    fn scope(&self, scope: &Scope, full: bool, rows: &mut Rows<'_, '_>) {
        let mut sum = CollectionCounts::default();
        for collection in &scope.collections {
            let counts = self.counts(collection.id);
            sum.items += counts.items;
            sum.memory_bytes += counts.memory_bytes;
            sum.ops_get += counts.ops_get;
            sum.ops_store += counts.ops_store;
            sum.ops_delete += counts.ops_delete;
        }
        rows.prefix(format_args!("0x{:x}:", scope.id.0));
        rows.row("name", &scope.name);
        rows.row("collections", scope.collections.len());
        totals(&sum, rows);
        for collection in &scope.collections {
            if full {
                self.collection((scope, collection), rows);
            } else {
                rows.row(
                    format_args!("0x{:x}:name", collection.id.0),
                    &collection.name,
                );
            }
        }
    }
}

fn totals(counts: &CollectionCounts, rows: &mut Rows<'_, '_>) {
    rows.row("items", counts.items);
    rows.row("collections_mem_used", counts.memory_bytes);
    rows.row("ops_get", counts.ops_get);
    rows.row("ops_store", counts.ops_store);
    rows.row("ops_delete", counts.ops_delete);
}

fn uid_row(uid: ManifestUid, rows: &mut Rows<'_, '_>) {
    rows.prefix("");
    rows.row("manifest_uid", uid.0);
}

/// A group about collections or scopes.
pub(super) fn collect(
    group: &str,
    arguments: &[&str],
    served: &ServedBucket,
    rows: &mut Rows<'_, '_>,
) -> Result<(), StatError> {
    match (group, arguments) {
        ("collections-details" | "scopes-details", _) => details(group, arguments, served, rows),
        ("collections", []) => {
            let view = View::of(served);
            uid_row(view.manifest.uid(), rows);
            for found in view.manifest.collections() {
                view.collection(found, rows);
            }
            Ok(())
        }
        ("collections", [path]) => {
            let view = View::of(served);
            let (scope, name) = path.split_once('.').unwrap_or((*path, ""));
            let name = if name.is_empty() { "_default" } else { name };
            let scope = view.manifest.scope_named(scope);
            let scope = scope.ok_or(StatError::UnknownScope)?;
            let found = scope.collections.iter().find(|one| &*one.name == name);
            let found = found.ok_or(StatError::UnknownCollection)?;
            view.collection((scope, found), rows);
            Ok(())
        }
        ("collections-byid", [id]) => {
            let view = View::of(served);
            let found = view.manifest.collection(CollectionId(hex(id)?));
            view.collection(found.ok_or(StatError::UnknownCollection)?, rows);
            Ok(())
        }
        ("scopes", []) => {
            let view = View::of(served);
            uid_row(view.manifest.uid(), rows);
            for scope in view.manifest.scopes() {
                view.scope(scope, false, rows);
            }
            Ok(())
        }
        ("scopes", [name]) => {
            let view = View::of(served);
            let scope = view.manifest.scope_named(name);
            view.scope(scope.ok_or(StatError::UnknownScope)?, true, rows);
            Ok(())
        }
        ("scopes-byid", [id]) => {
            let view = View::of(served);
            let scope = view.manifest.scope(ScopeId(hex(id)?));
            view.scope(scope.ok_or(StatError::UnknownScope)?, true, rows);
            Ok(())
        }
        ("manifest", []) => {
            manifest(&served.bucket.manifest(), rows);
            Ok(())
        }
        _ => Err(StatError::Argument(
            "one collection or scope is to be named",
        )),
    }
}

/// A number as `0x8` or `8`, hexadecimal.
fn hex(word: &str) -> Result<u32, StatError> {
    let digits = word.strip_prefix("0x").unwrap_or(word);
    u32::from_str_radix(digits, 16).map_err(|_| StatError::Argument("the id is not hexadecimal"))
}

fn manifest(manifest: &Manifest, rows: &mut Rows<'_, '_>) {
    uid_row(manifest.uid(), rows);
    for scope in manifest.scopes() {
        rows.prefix(format_args!("0x{:x}:", scope.id.0));
        rows.row("name", &scope.name);
        for collection in &scope.collections {
            rows.row(
                format_args!("0x{:x}:name", collection.id.0),
                &collection.name,
            );
        }
    }
}

/// What each vBucket has of each collection.
fn details(
    group: &str,
    arguments: &[&str],
    served: &ServedBucket,
    rows: &mut Rows<'_, '_>,
) -> Result<(), StatError> {
    let bucket = &served.bucket;
    let manifest = bucket.manifest();
    let (wanted, all) = match arguments {
        [] => (0..bucket.vbuckets(), true),
        [vb] => {
            let id = number(vb)?.0;
            (id..id.saturating_add(1), false)
        }
        _ => return Err(StatError::Argument("one vBucket at most")),
    };
    let many = manifest.collections().count() + manifest.scopes().len();
    if many * wanted.len() > DETAILS_MAX {
        return Err(StatError::Argument(
            "there are too many rows: name a vBucket",
        ));
    }
    for id in wanted.map(VbId) {
        let found = bucket.with_vbucket_for(Hold::Stat, id, |vbucket| {
            let lengths = vbucket.collection_lengths();
            let seqnos = (vbucket.manifest_uid(), vbucket.persisted_seqno());
            (vbucket.collections(), lengths, seqnos)
        });
        let Some((collections, (open, scopes), (uid, persisted))) = found else {
            if all {
                continue;
            }
            return Err(StatError::NoVbucket);
        };
        rows.prefix(format_args!("vb_{}:", id.0));
        rows.row("manifest:uid", uid.0);
        if group == "scopes-details" {
            rows.row("scopes", scopes);
            for one in &collections {
                let name = format_args!("0x{:x}:0x{:x}:items", one.scope.0, one.counts.id.0);
                rows.row(name, one.counts.items);
            }
            continue;
        }
        rows.row("collections", open);
        for one in &collections {
            let counts = &one.counts;
            rows.prefix(format_args!("vb_{}:0x{:x}:", id.0, counts.id.0));
            if let Some((_, collection)) = manifest.collection(counts.id) {
                rows.row("name", &collection.name);
            }
            rows.row("scope", format_args!("0x{:x}", one.scope.0));
            rows.row("start_seqno", one.start_seqno);
            rows.row("high_seqno", counts.high_seqno);
            rows.row("persisted_high_seqno", counts.high_seqno.min(persisted));
            totals(counts, rows);
            if let Some(ttl) = one.max_ttl_s {
                rows.row("maxTTL", ttl);
            }
        }
    }
    Ok(())
}
