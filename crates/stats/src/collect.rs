//! Answers to requests for statistics.

use identity::PrivilegeSet;

use crate::catalogue::{GROUPS, GROUPS_LEFT_OUT, rows_of};
use crate::long::{Walk, part};
use crate::rows::Rows;
use crate::scope::{GroupRequest, Sink, StatError, StatNeeds, StatScope};

/// Returns the names of all groups, in the order of the page.
pub fn groups() -> impl Iterator<Item = &'static str> {
    GROUPS.iter().map(|group| group.name)
}

/// Returns the keys of a group, as on the page.
pub fn keys_of(group: &str) -> Vec<String> {
    let rows = rows_of(group).into_iter();
    rows.map(|row| row.0).collect()
}

/// Whether clients of the memcached port may request a group. True for an unknown group, so that they get an error.
pub fn is_of_memcached(request: &str) -> bool {
    let name = request.split_ascii_whitespace().next().unwrap_or("");
    let group = GROUPS.iter().find(|group| group.name == name);
    group.is_none_or(|group| group.memcached)
}

/// Returns the privileges that a request needs; `None` if the group is unknown.
pub fn needs_of(request: &str) -> Option<StatNeeds> {
    let mut words = request.split_ascii_whitespace();
    let name = words.next().unwrap_or("");
    let group = GROUPS.iter().find(|group| group.name == name)?;
    let own = name == "connections" && words.next() == Some("self");
    let privileges = if own {
        PrivilegeSet::EMPTY
    } else {
        PrivilegeSet::of(&[group.privilege()])
    };
    Some(StatNeeds {
        privileges,
        within: group.place(),
    })
}

/// Writes the next rows of a group that may be long. `walk` is the position after the last part, `None` for the
/// beginning. Returns the next position, `None` at the end. See [`collect`].
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
    let known = GROUPS.iter().find(|group| group.name == name);
    let group = known.ok_or_else(|| unknown(name))?;
    if group.arguments.is_empty() && !arguments.is_empty() {
        return Err(StatError::UnknownGroup);
    }
    if group.of_bucket && scope.bucket.is_none() {
        return Err(StatError::NoBucket);
    }
    let request = GroupRequest {
        group,
        arguments: &arguments,
    };
    part(request, scope, walk, &mut Rows::new(sink))
}

fn unknown(name: &str) -> StatError {
    let mut left_out = GROUPS_LEFT_OUT.iter();
    let row = left_out.find(|reason| reason.keys.contains(&name));
    row.map_or(StatError::UnknownGroup, |reason| {
        StatError::NothingToTell(reason.why)
    })
}

/// Writes the rows of a group; `request` is its name and arguments, separated by spaces.
///
/// Cost: O(rows). It locks at most one vBucket at a time, for O(1). Only the groups `diskinfo` and `vkey` and the
/// general one query the store, which may read files.
pub fn collect(request: &str, scope: &StatScope<'_>, sink: &mut Sink<'_>) -> Result<(), StatError> {
    let mut walk = collect_part(request, scope, None, sink)?;
    while walk.is_some() {
        walk = collect_part(request, scope, walk, sink)?;
    }
    Ok(())
}
