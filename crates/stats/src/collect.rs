//! Answers to requests for statistics.

use identity::Role;

use crate::catalogue::{GROUPS, rows_of};
use crate::long::{Walk, part};
use crate::rows::Rows;
use crate::scope::{Sink, StatError, StatScope};

/// Names of all groups, in the order of the page.
pub fn groups() -> impl Iterator<Item = &'static str> {
    GROUPS.iter().map(|group| group.name)
}

/// Keys of a group, as the page has them.
pub fn keys_of(group: &str) -> Vec<String> {
    let rows = rows_of(group).into_iter();
    rows.map(|row| row.0).collect()
}

/// Whether a peer in this role may ask for a group; an unknown group is reported to every role.
pub fn allows(role: Role, request: &str) -> bool {
    let name = request.split_ascii_whitespace().next().unwrap_or("");
    let group = GROUPS.iter().find(|group| group.name == name);
    match role {
        Role::Admin => true,
        Role::Memcached => group.is_none_or(|group| group.memcached),
    }
}

/// Writes the next rows of a group that may be long, from where `walk` stands; `None` for the
/// beginning, and at the end. See [`collect`].
///
/// Cost: some 8 KiB of rows, or figures of some vBuckets.
pub fn collect_part(
    request: &str,
    scope: &StatScope<'_>,
    walk: Option<Walk>,
    sink: &mut Sink<'_>,
) -> Result<Option<Walk>, StatError> {
    let mut words = request.split_ascii_whitespace();
    let name = words.next().unwrap_or("");
    let arguments: Vec<&str> = words.collect();
    let group = GROUPS
        .iter()
        .find(|group| group.name == name)
        .ok_or(StatError::UnknownGroup)?;
    if group.arguments.is_empty() && !arguments.is_empty() {
        return Err(StatError::UnknownGroup);
    }
    if group.of_bucket && scope.bucket.is_none() {
        return Err(StatError::NoBucket);
    }
    part((name, &arguments), scope, walk, &mut Rows::new(sink))
}

/// Writes the rows of a group; `request` is its name and arguments, separated by spaces.
///
/// Cost: O(rows). Of vBuckets at most one is locked at a time, for O(1). Only the groups
/// `diskinfo`, `vkey` and the general one ask the store, which may read files.
pub fn collect(request: &str, scope: &StatScope<'_>, sink: &mut Sink<'_>) -> Result<(), StatError> {
    let mut walk = collect_part(request, scope, None, sink)?;
    while walk.is_some() {
        walk = collect_part(request, scope, walk, sink)?;
    }
    Ok(())
}
