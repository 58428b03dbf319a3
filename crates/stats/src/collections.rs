//! Groups about scopes and collections.

use std::sync::Arc;

use bucket::Hold;
use collections::{Collection, CollectionCounts, Manifest, OpenCollection, Scope};
use identity::Privilege;
use model::{CollectionId, ManifestUid, ScopeId, Seqno, VbId};
use registry::ServedBucket;

use super::rows::{Hex, PART_BYTES, Rows};
use super::scope::{GroupRequest, StatError, StatScope};
use super::vbuckets::number;

/// Number of collections that are read under one lock of a vBucket.
const COLLECTIONS_A_HOLD: usize = 32;
/// Number of vBuckets whose figures one part adds up.
const PART_VBUCKETS: u16 = 4;

/// Position in an answer of several parts.
#[derive(Debug)]
pub enum CollectionsWalk {
    /// Figures of collections are being added up; no row is written yet.
    Sums {
        next: u16,
        sums: Vec<CollectionCounts>,
    },
    /// Rows of the sums: `items` of them are written.
    Told { view: CollectionSums, items: usize },
    /// Rows of vBuckets: position of the next one.
    Details(DetailsPosition),
}

/// A vBucket, and its collection that was written last.
#[derive(Clone, Copy, Debug)]
pub struct DetailsPosition {
    vb: VbId,
    after: Option<CollectionId>,
}

/// Writes the next part of a group; returns the next position, `None` at the end.
pub(super) fn part(
    request: GroupRequest<'_>,
    scope: &StatScope<'_>,
    walk: Option<CollectionsWalk>,
    rows: &mut Rows<'_, '_>,
) -> Result<Option<CollectionsWalk>, StatError> {
    let served = scope.bucket.ok_or(StatError::NoBucket)?;
    let (group, arguments) = (request.group.name, request.arguments);
    if matches!(group, "collections-details" | "scopes-details") {
        return details(group, arguments, served, walk.as_ref(), rows);
    }
    let (first, mut sums) = match walk {
        Some(CollectionsWalk::Told { view, items }) => {
            return write_items(group, arguments, view, items, rows);
        }
        Some(CollectionsWalk::Sums { next, sums }) => (next, sums),
        _ => {
            let manifest = served.bucket.manifest();
            // Refuses a request that cannot be answered before any figures are added up.
            if let Err(error) = items(group, arguments, &visible(&manifest, scope)) {
                return Err(reason(error, items(group, arguments, &manifest), scope));
            }
            let ids = manifest.collections().map(|(_, collection)| collection.id);
            let none = |id| CollectionCounts {
                id,
                ..CollectionCounts::default()
            };
            (0, ids.map(none).collect())
        }
    };
    let all = served.bucket.vbuckets();
    let next = first.saturating_add(PART_VBUCKETS).min(all);
    served.bucket.add_collection_counts(first..next, &mut sums);
    if next < all {
        return Ok(Some(CollectionsWalk::Sums { next, sums }));
    }
    let view = CollectionSums {
        manifest: visible(&served.bucket.manifest(), scope),
        counts: sums,
    };
    write_items(group, arguments, view, 0, rows)
}

/// Returns the manifest with only the collections whose figures the client may see.
fn visible(manifest: &Arc<Manifest>, scope: &StatScope<'_>) -> Arc<Manifest> {
    if scope.access.is_none() {
        return Arc::clone(manifest);
    }
    let may = |id| scope.check(Privilege::SimpleStats, id).is_ok();
    Arc::new(manifest.only(&may))
}

/// Returns the reason why items are not shown: a missing privilege, if the client may know that they exist.
fn reason(
    error: StatError,
    all: Result<Vec<Item<'_>>, StatError>,
    scope: &StatScope<'_>,
) -> StatError {
    for item in all.unwrap_or_default() {
        if let Item::Collection(_, one) = item
            && let Err(missing @ StatError::MissingPrivileges(_)) =
                scope.check(Privilege::SimpleStats, one.id)
        {
            return missing;
        }
    }
    error
}

/// Writes the rows of further items; returns the next position.
fn write_items(
    group: &str,
    arguments: &[&str],
    view: CollectionSums,
    mut done: usize,
    rows: &mut Rows<'_, '_>,
) -> Result<Option<CollectionsWalk>, StatError> {
    let items = items(group, arguments, &view.manifest)?;
    let full = rows.bytes() + PART_BYTES;
    for item in items.iter().skip(done) {
        view.item(item, rows);
        done += 1;
        if rows.bytes() >= full && done < items.len() {
            drop(items);
            return Ok(Some(CollectionsWalk::Told { view, items: done }));
        }
    }
    Ok(None)
}

/// An item of an answer.
enum Item<'a> {
    ManifestUid,
    /// Sums of a scope.
    Scope(&'a Scope),
    /// Name of a collection in a scope; follows the sums.
    Name(&'a Scope, &'a Collection),
    Collection(&'a Scope, &'a Collection),
}

/// The manifest with the sums of each collection.
#[derive(Debug)]
pub struct CollectionSums {
    manifest: Arc<Manifest>,
    counts: Vec<CollectionCounts>,
}

impl CollectionSums {
    fn counts(&self, id: CollectionId) -> CollectionCounts {
        let found = self.counts.binary_search_by_key(&id, |counts| counts.id);
        found.map_or(CollectionCounts::default(), |at| self.counts[at])
    }

    fn item(&self, item: &Item<'_>, rows: &mut Rows<'_, '_>) {
        match *item {
            Item::ManifestUid => {
                uid_row(self.manifest.uid(), rows);
            }
            Item::Scope(scope) => self.scope(scope, rows),
            Item::Name(scope, collection) => {
                rows.prefix((Hex(scope.id.0), ":", Hex(collection.id.0), ":"));
                rows.row("name", &collection.name);
            }
            Item::Collection(scope, collection) => self.collection(scope, collection, rows),
        }
    }

    fn collection(&self, scope: &Scope, collection: &Collection, rows: &mut Rows<'_, '_>) {
        let (id, counts) = (collection.id, self.counts(collection.id));
        rows.prefix((Hex(scope.id.0), ":", Hex(id.0), ":"));
        rows.row("name", &collection.name);
        rows.row("scope_name", &scope.name);
        totals(&counts, rows);
        if let Some(ttl) = collection.settings.max_ttl_s {
            rows.row("maxTTL", ttl);
        }
    }

    fn scope(&self, scope: &Scope, rows: &mut Rows<'_, '_>) {
        let mut sum = CollectionCounts::default();
        for collection in &scope.collections {
            let counts = self.counts(collection.id);
            sum.items += counts.items;
            sum.memory_bytes += counts.memory_bytes;
            sum.ops_get += counts.ops_get;
            sum.ops_store += counts.ops_store;
            sum.ops_delete += counts.ops_delete;
        }
        rows.prefix((Hex(scope.id.0), ":"));
        rows.row("name", &scope.name);
        rows.row("collections", scope.collections.len());
        totals(&sum, rows);
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

/// Returns the items of an answer about collections or scopes, without their figures.
fn items<'a>(
    group: &str,
    arguments: &[&str],
    manifest: &'a Manifest,
) -> Result<Vec<Item<'a>>, StatError> {
    let full = |scope: &'a Scope| {
        let collections = scope.collections.iter();
        let collections = collections.map(move |one| Item::Collection(scope, one));
        std::iter::once(Item::Scope(scope)).chain(collections)
    };
    let uid = std::iter::once(Item::ManifestUid);
    match (group, arguments) {
        ("collections", []) => {
            let all = manifest.collections();
            Ok(uid
                .chain(all.map(|(scope, one)| Item::Collection(scope, one)))
                .collect())
        }
        ("collections", [path]) => {
            let (scope, found) = named(manifest, path)?;
            Ok(vec![Item::Collection(scope, found)])
        }
        ("collections-byid", [id]) => {
            let found = manifest.collection(CollectionId(hex(id)?));
            let (scope, one) = found.ok_or(StatError::UnknownCollection)?;
            Ok(vec![Item::Collection(scope, one)])
        }
        ("scopes", []) => {
            let names = |scope: &'a Scope| {
                let collections = scope.collections.iter();
                let names = collections.map(move |one| Item::Name(scope, one));
                std::iter::once(Item::Scope(scope)).chain(names)
            };
            Ok(uid
                .chain(manifest.scopes().iter().flat_map(names))
                .collect())
        }
        ("scopes", [name]) => {
            let scope = manifest.scope_named(name);
            Ok(full(scope.ok_or(StatError::UnknownScope)?).collect())
        }
        ("scopes-byid", [id]) => {
            let scope = manifest.scope(ScopeId(hex(id)?));
            Ok(full(scope.ok_or(StatError::UnknownScope)?).collect())
        }
        _ => Err(StatError::Argument(
            "one collection or scope is to be named",
        )),
    }
}

/// Finds the collection of a path `scope.collection`. An empty name means the default one.
pub(super) fn named<'a>(
    manifest: &'a Manifest,
    path: &str,
) -> Result<(&'a Scope, &'a Collection), StatError> {
    fn or_default(name: &str) -> &str {
        if name.is_empty() { "_default" } else { name }
    }
    let (scope, name) = path.split_once('.').unwrap_or((path, ""));
    let scope = manifest.scope_named(or_default(scope));
    let scope = scope.ok_or(StatError::UnknownScope)?;
    let name = or_default(name);
    let found = scope.collections.iter().find(|one| &*one.name == name);
    Ok((scope, found.ok_or(StatError::UnknownCollection)?))
}

/// Parses a hexadecimal number, `0x8` or `8`.
pub(super) fn hex(word: &str) -> Result<u32, StatError> {
    let digits = word.strip_prefix("0x").unwrap_or(word);
    u32::from_str_radix(digits, 16).map_err(|_| StatError::Argument("the id is not hexadecimal"))
}

/// Writes the group `manifest`.
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
        rows.prefix((Hex(scope.id.0), ":"));
        rows.row("name", &scope.name);
        for collection in &scope.collections {
            rows.row((Hex(collection.id.0), ":name"), &collection.name);
        }
    }
    Ok(())
}

/// Writes the figures of each collection in each vBucket.
fn details(
    group: &str,
    arguments: &[&str],
    served: &ServedBucket,
    walk: Option<&CollectionsWalk>,
    rows: &mut Rows<'_, '_>,
) -> Result<Option<CollectionsWalk>, StatError> {
    let bucket = &served.bucket;
    let manifest = bucket.manifest();
    let (first, end) = match arguments {
        [] => (VbId(0), bucket.vbuckets()),
        [vb] => {
            let id = number(vb)?;
            if walk.is_none() {
                let there = bucket.with_vbucket_for(Hold::Stat, id, |_| ());
                there.ok_or(StatError::NoVbucket)?;
            }
            (id, id.0.saturating_add(1))
        }
        _ => return Err(StatError::Argument("one vBucket at most")),
    };
    let mut position = match walk {
        Some(CollectionsWalk::Details(position)) => *position,
        _ => DetailsPosition {
            vb: first,
            after: None,
        },
    };
    let full = rows.bytes() + PART_BYTES;
    while position.vb.0 < end {
        position.after = of_vbucket(group, served, &manifest, position, rows);
        if position.after.is_none() {
            position.vb.0 += 1;
        }
        if rows.bytes() >= full && position.vb.0 < end {
            return Ok(Some(CollectionsWalk::Details(position)));
        }
    }
    Ok(None)
}

/// Writes the figures of some collections in a vBucket, after a given one. Returns the last one written if there
/// are more.
fn of_vbucket(
    group: &str,
    served: &ServedBucket,
    manifest: &Manifest,
    position: DetailsPosition,
    rows: &mut Rows<'_, '_>,
) -> Option<CollectionId> {
    let DetailsPosition { vb: id, after } = position;
    let found = served.bucket.with_vbucket_for(Hold::Stat, id, |vbucket| {
        let counts = || (vbucket.collection_count(), vbucket.scopes().len());
        let lengths = after.is_none().then(counts);
        let seqnos = (vbucket.manifest_uid(), vbucket.persisted_seqno());
        let some = vbucket.collections_after(after, COLLECTIONS_A_HOLD + 1);
        (some, lengths, seqnos)
    });
    let (collections, lengths, (uid, persisted)) = found?;
    rows.prefix(("vb_", id.0, ":"));
    let scopes_only = group == "scopes-details";
    if let Some((open, scopes)) = lengths {
        rows.row("manifest:uid", uid.0);
        if scopes_only {
            rows.row("scopes", scopes);
        } else {
            rows.row("collections", open);
        }
    }
    let mut named = manifest
        .collections_from(after.unwrap_or_default())
        .peekable();
    for one in collections.iter().take(COLLECTIONS_A_HOLD) {
        if scopes_only {
            let (scope, id) = (Hex(one.scope.0), Hex(one.counts.id.0));
            rows.row((scope, ":", id, ":items"), one.counts.items);
        } else {
            // Both lists have the same order, and each may have collections that the other lacks.
            while named
                .next_if(|(_, known)| known.id < one.counts.id)
                .is_some()
            {}
            let known = named.next_if(|(_, known)| known.id == one.counts.id);
            let name = known.map(|(_, collection)| &*collection.name);
            of_collection(one, name, id, persisted, rows);
        }
    }
    let more = collections.len() > COLLECTIONS_A_HOLD;
    more.then(|| collections[COLLECTIONS_A_HOLD - 1].counts.id)
}

fn of_collection(
    one: &OpenCollection,
    name: Option<&str>,
    id: VbId,
    persisted: Seqno,
    rows: &mut Rows<'_, '_>,
) {
    let counts = &one.counts;
    rows.prefix(("vb_", id.0, ":", Hex(counts.id.0), ":"));
    if let Some(name) = name {
        rows.row("name", name);
    }
    rows.row("scope", Hex(one.scope.0));
    rows.row("start_seqno", one.start_seqno);
    rows.row("high_seqno", counts.high_seqno);
    rows.row("persisted_high_seqno", counts.high_seqno.min(persisted));
    totals(counts, rows);
    if let Some(ttl) = one.max_ttl_s {
        rows.row("maxTTL", ttl);
    }
}
