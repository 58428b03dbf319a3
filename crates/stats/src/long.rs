//! Long groups, written in parts. Other connections are served between two parts.

use super::figures::BucketFigures;
use super::rows::Rows;
use super::scope::{GroupRequest, StatError, StatScope};
use super::vbuckets::{self, Shares};
use super::whole::whole;
use super::{collections, dcp, node, replication};

/// Position in an answer of several parts.
pub enum Walk {
    /// The beginning. Other connections are served first.
    Begin,
    /// In a group about collections.
    Collections(collections::CollectionsWalk),
    /// The next vBucket.
    VBuckets(u16),
    /// In the disk usage of vBuckets.
    Disk(Shares),
    /// The connection that was written last.
    Connections(u64),
    /// In the group of change streams.
    Dcp(Box<dcp::DcpWalk>),
}

/// Writes the next part of a group; returns the next position, `None` at the end. Short and unknown groups have
/// one part.
///
/// Cost: [`super::rows::PART_BYTES`] of rows, or figures of some vBuckets.
pub(super) fn part(
    request: GroupRequest<'_>,
    scope: &StatScope<'_>,
    walk: Option<Walk>,
    rows: &mut Rows<'_, '_>,
) -> Result<Option<Walk>, StatError> {
    let (name, arguments) = (request.group.name, request.arguments);
    let next = match (name, arguments, scope.bucket) {
        ("connections", [], _) => {
            let after = match walk {
                Some(Walk::Connections(id)) => id,
                _ => 0,
            };
            node::some_connections(after, scope, rows).map(Walk::Connections)
        }
        (
            "collections"
            | "collections-byid"
            | "collections-details"
            | "scopes"
            | "scopes-byid"
            | "scopes-details",
            _,
            Some(_),
        ) => {
            let walk = match walk {
                Some(Walk::Collections(walk)) => Some(walk),
                _ => None,
            };
            collections::part(request, scope, walk, rows)?.map(Walk::Collections)
        }
        ("diskinfo", ["detail"], Some(served)) => {
            let shares = match walk {
                Some(Walk::Disk(shares)) => shares,
                _ => Shares::new(BucketFigures::of(scope.node, served).disk()),
            };
            vbuckets::disk(shares, served, rows).map(Walk::Disk)
        }
        ("replication", _, Some(served)) => {
            let next = if let Some(Walk::VBuckets(next)) = walk {
                replication::part(served, next, rows)
            } else {
                replication::totals(served, rows);
                Some(0)
            };
            next.map(Walk::VBuckets)
        }
        ("dcp", _, Some(served)) => {
            let walk = match walk {
                Some(Walk::Dcp(walk)) => *walk,
                _ => dcp::DcpWalk::new(served),
            };
            let next = walk.part(served, rows);
            next.map(|walk| Walk::Dcp(Box::new(walk)))
        }
        (name, _, Some(served)) if vbuckets::is_group(name) => {
            let first = match walk {
                Some(Walk::VBuckets(next)) => next,
                _ => 0,
            };
            let arguments = match (name, arguments) {
                ("hash", ["detail"]) => &[],
                ("hash", [_, ..]) => return Err(StatError::UnknownGroup),
                (_, arguments) => arguments,
            };
            vbuckets::part(name, arguments, served, first, rows)?.map(Walk::VBuckets)
        }
        _ => {
            whole(request, scope, rows)?;
            None
        }
    };
    Ok(next)
}
