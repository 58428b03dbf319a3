//! Groups about scopes and collections.

use std::sync::Arc;

use bucket::Hold;
use engine::collections::{Collection, CollectionCounts, Manifest, OpenCollection, Scope};
use model::{CollectionId, ManifestUid, ScopeId, Seqno, VbId};

use super::StatError;
use super::rows::Rows;
use super::vbuckets::number;
use crate::served::ServedBucket;

/// Bytes of rows after which a part of a long answer ends. Other requests of the thread wait for
/// a part: a thousand collections in every vBucket are a gigabyte.
const PART_BYTES: usize = 128 << 10;
/// vBuckets whose figures one part adds up.
const PART_VBUCKETS: u16 = 16;

/// Where an answer stands that is given in parts.
#[derive(Debug)]
pub(crate) enum Walk {
    /// Figures of collections are added up; nothing was told yet.
    Sums {
        next: u16,
        sums: Vec<CollectionCounts>,
    },
    /// Rows about vBuckets: which one is next, and after which collection.
    Details {
        vb: u16,
        after: Option<CollectionId>,
    },
}

/// Whether a group is given in parts.
pub(super) fn is_long(group: &str) -> bool {
    matches!(
        group,
        "collections"
            | "collections-byid"
            | "collections-details"
            | "scopes"
            | "scopes-byid"
            | "scopes-details"
    )
}

/// The next part of a group; gives where it goes on, `None` at the end.
pub(super) fn part(
    group: &str,
    arguments: &[&str],
    served: &ServedBucket,
    walk: Option<Walk>,
    rows: &mut Rows<'_, '_>,
) -> Result<Option<Walk>, StatError> {
    if matches!(group, "collections-details" | "scopes-details") {
        return details(group, arguments, served, walk.as_ref(), rows);
    }
    let manifest = served.bucket.manifest();
    let (first, mut sums) = if let Some(Walk::Sums { next, sums }) = walk {
        (next, sums)
    } else {
        check(group, arguments, &manifest)?;
        let ids = manifest.collections().map(|(_, collection)| collection.id);
        let none = |id| CollectionCounts {
            id,
            ..CollectionCounts::default()
        };
        (0, ids.map(none).collect())
    };
    let all = served.bucket.vbuckets();
    let next = first.saturating_add(PART_VBUCKETS).min(all);
    served.bucket.add_collection_counts(first..next, &mut sums);
    if next < all {
        return Ok(Some(Walk::Sums { next, sums }));
    }
    let view = View {
        manifest,
        counts: sums,
    };
    collect(group, arguments, &view, rows).map(|()| None)
}

/// Refuses what cannot be told before anything is counted.
fn check(group: &str, arguments: &[&str], manifest: &Arc<Manifest>) -> Result<(), StatError> {
    let view = View {
        manifest: Arc::clone(manifest),
        counts: Vec::new(),
    };
    collect(group, arguments, &view, &mut Rows::new(&mut |_, _| {}))
}

/// The manifest with what was counted of each collection.
struct View {
    manifest: Arc<Manifest>,
    counts: Vec<CollectionCounts>,
}

impl View {
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

/// A group about collections or scopes, of the figures of all vBuckets.
fn collect(
    group: &str,
    arguments: &[&str],
    view: &View,
    rows: &mut Rows<'_, '_>,
) -> Result<(), StatError> {
    match (group, arguments) {
        ("collections", []) => {
            uid_row(view.manifest.uid(), rows);
            for found in view.manifest.collections() {
                view.collection(found, rows);
            }
            Ok(())
        }
        ("collections", [path]) => {
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
            let found = view.manifest.collection(CollectionId(hex(id)?));
            view.collection(found.ok_or(StatError::UnknownCollection)?, rows);
            Ok(())
        }
        ("scopes", []) => {
            uid_row(view.manifest.uid(), rows);
            for scope in view.manifest.scopes() {
                view.scope(scope, false, rows);
            }
            Ok(())
        }
        ("scopes", [name]) => {
            let scope = view.manifest.scope_named(name);
            view.scope(scope.ok_or(StatError::UnknownScope)?, true, rows);
            Ok(())
        }
        ("scopes-byid", [id]) => {
            let scope = view.manifest.scope(ScopeId(hex(id)?));
            view.scope(scope.ok_or(StatError::UnknownScope)?, true, rows);
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

/// The group `manifest`.
pub(super) fn manifest(
    arguments: &[&str],
    served: &ServedBucket,
    rows: &mut Rows<'_, '_>,
) -> Result<(), StatError> {
    if !arguments.is_empty() {
        return Err(StatError::UnknownGroup);
    }
    let manifest = served.bucket.manifest();
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
    Ok(())
}

/// What each vBucket has of each collection.
fn details(
    group: &str,
    arguments: &[&str],
    served: &ServedBucket,
    walk: Option<&Walk>,
    rows: &mut Rows<'_, '_>,
) -> Result<Option<Walk>, StatError> {
    let bucket = &served.bucket;
    let manifest = bucket.manifest();
    let (first, end) = match arguments {
        [] => (0, bucket.vbuckets()),
        [vb] => {
            let id = number(vb)?.0;
            let there = bucket.with_vbucket_for(Hold::Stat, VbId(id), |_| ());
            there.ok_or(StatError::NoVbucket)?;
            (id, id.saturating_add(1))
        }
        _ => return Err(StatError::Argument("one vBucket at most")),
    };
    let (mut vb, mut after) = match walk {
        Some(&Walk::Details { vb, after }) => (vb, after),
        _ => (first, None),
    };
    while vb < end {
        after = of_vbucket(group, (served, &manifest), (VbId(vb), after), rows);
        if after.is_none() {
            vb += 1;
        }
        if rows.bytes() >= PART_BYTES && vb < end {
            return Ok(Some(Walk::Details { vb, after }));
        }
    }
    Ok(None)
}

/// What a vBucket has of the collections after one of them; gives the last one that was told if
/// there are more.
fn of_vbucket(
    group: &str,
    (served, manifest): (&ServedBucket, &Manifest),
    (id, after): (VbId, Option<CollectionId>),
    rows: &mut Rows<'_, '_>,
) -> Option<CollectionId> {
    let found = served.bucket.with_vbucket_for(Hold::Stat, id, |vbucket| {
        let lengths = vbucket.collection_lengths();
        let seqnos = (vbucket.manifest_uid(), vbucket.persisted_seqno());
        (vbucket.collections(), lengths, seqnos)
    });
    let (collections, (open, scopes), (uid, persisted)) = found?;
    rows.prefix(format_args!("vb_{}:", id.0));
    let scopes_only = group == "scopes-details";
    if after.is_none() {
        rows.row("manifest:uid", uid.0);
        if scopes_only {
            rows.row("scopes", scopes);
        } else {
            rows.row("collections", open);
        }
    }
    let next = after.map_or(0, |after| {
        collections.partition_point(|one| one.counts.id <= after)
    });
    for one in &collections[next..] {
        if scopes_only {
            let name = format_args!("0x{:x}:0x{:x}:items", one.scope.0, one.counts.id.0);
            rows.row(name, one.counts.items);
        } else {
            of_collection(one, (id, persisted), manifest, rows);
        }
        let last = collections.last().map(|last| last.counts.id);
        if rows.bytes() >= PART_BYTES && last != Some(one.counts.id) {
            return Some(one.counts.id);
        }
    }
    None
}

fn of_collection(
    one: &OpenCollection,
    (id, persisted): (VbId, Seqno),
    manifest: &Manifest,
    rows: &mut Rows<'_, '_>,
) {
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
