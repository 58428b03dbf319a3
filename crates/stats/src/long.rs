//! Long groups, told in parts: between two of them others have their turn.

use storage::DiskUsage;

use super::figures::BucketFigures;
use super::rows::Rows;
use super::scope::{StatError, StatScope};
use super::vbuckets::{self, Shares};
use super::whole::whole;
use super::{collections, dcp, node, replication};

/// Where an answer stands that is given in parts.
pub enum Walk {
    /// Nothing was told: others go first.
    Begin,
    /// A group of collections.
    Collections(collections::CollectionsWalk),
    /// The next vBucket.
    VBuckets(u16),
    /// The shares of vBuckets of the disk.
    Disk(Shares),
    /// The connection that was told last.
    Connections(u64),
    /// Change streams.
    Dcp(Box<dcp::DcpWalk>),
}

/// The next part of a group; where it goes on, `None` at the end. Groups that are short, and unknown ones, have
/// one part.
///
/// Cost: [`super::rows::PART_BYTES`] of rows, or figures of some vBuckets.
pub(super) fn part(
    (name, arguments): (&str, &[&str]),
    scope: &StatScope<'_>,
    walk: Option<Walk>,
    rows: &mut Rows<'_, '_>,
) -> Result<Option<Walk>, StatError> {
    if (name, arguments) == ("connections", &[]) {
        let after = match walk {
            Some(Walk::Connections(id)) => id,
            _ => 0,
        };
        return Ok(node::some_connections(after, scope, rows).map(Walk::Connections));
    }
    let Some(served) = scope.bucket else {
        return whole((name, arguments), scope, rows).map(|()| None);
    };
    match (name, arguments) {
        (name, arguments) if collections::is_long(name) => {
            let walk = match walk {
                Some(Walk::Collections(walk)) => Some(walk),
                _ => None,
            };
            let next = collections::part(name, arguments, served, walk, rows)?;
            Ok(next.map(Walk::Collections))
        }
        ("diskinfo", ["detail"]) => {
            let shares = match walk {
                Some(Walk::Disk(shares)) => shares,
                _ => Shares::new(usage(scope)),
            };
            Ok(vbuckets::disk(shares, served, rows).map(Walk::Disk))
        }
        ("replication", _) => {
            let next = if let Some(Walk::VBuckets(next)) = walk {
                replication::part(served, next, rows)
            } else {
                replication::totals(served, rows);
                Some(0)
            };
            Ok(next.map(Walk::VBuckets))
        }
        ("dcp", _) => {
            let walk = match walk {
                Some(Walk::Dcp(walk)) => *walk,
                _ => dcp::DcpWalk::new(served),
            };
            let next = walk.part(served, rows);
            Ok(next.map(|walk| Walk::Dcp(Box::new(walk))))
        }
        (name, arguments) if vbuckets::is_group(name) => {
            let first = match walk {
                Some(Walk::VBuckets(next)) => next,
                _ => 0,
            };
            let arguments = match (name, arguments) {
                ("hash", ["detail"]) => &[],
                ("hash", [_, ..]) => return Err(StatError::UnknownGroup),
                (_, arguments) => arguments,
            };
            let next = vbuckets::part(name, arguments, (served, first), rows)?;
            Ok(next.map(Walk::VBuckets))
        }
        _ => whole((name, arguments), scope, rows).map(|()| None),
    }
}

/// What the bucket takes on disk.
fn usage(scope: &StatScope<'_>) -> DiskUsage {
    let figures = scope
        .bucket
        .map(|served| BucketFigures::of(scope.node, served));
    figures.map_or_else(DiskUsage::default, |figures| figures.disk())
}
