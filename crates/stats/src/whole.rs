//! Groups that are told at once.

use registry::{Registry, ServedBucket};

use crate::catalogue::GROUPS;
use crate::figures::{BucketFigures, NodeFigures};
use crate::listed::{bucket_rows, node_rows, state_rows};
use crate::rows::Rows;
use crate::scope::{StatError, StatScope};
use crate::{collections, dcp, document, node, scans};

/// All rows of a short group.
pub(crate) fn whole(
    (name, arguments): (&str, &[&str]),
    scope: &StatScope<'_>,
    rows: &mut Rows<'_, '_>,
) -> Result<(), StatError> {
    let of_bucket = GROUPS
        .iter()
        .any(|group| group.name == name && group.of_bucket);
    match scope.bucket {
        Some(served) if of_bucket => bucket_group(name, arguments, (scope.node, served), rows),
        _ => node::collect(name, arguments, scope, rows),
    }
}

fn bucket_group(
    name: &str,
    arguments: &[&str],
    (node, served): (&Registry, &ServedBucket),
    rows: &mut Rows<'_, '_>,
) -> Result<(), StatError> {
    let figures = BucketFigures::of(node, served);
    match name {
        "" => {
            bucket_rows(name, &figures, rows);
            state_rows(&figures, rows);
            node_rows(name, &NodeFigures::of(node), rows);
            Ok(())
        }
        "timings" => {
            node::timings(node, rows);
            node::commit_timings(served, rows);
            Ok(())
        }
        "manifest" => collections::manifest(arguments, served, rows),
        "range-scans" => scans::collect(arguments, served, rows),
        "key" | "vkey" => document::key(name == "vkey", arguments, &figures, rows),
        "diskinfo" => match arguments {
            [] => {
                bucket_rows(name, &figures, rows);
                Ok(())
            }
            _ => Err(StatError::UnknownGroup),
        },
        "memory" | "locks" | "warmup" | "config" | "workload" | "uuid" => {
            bucket_rows(name, &figures, rows);
            Ok(())
        }
        "dcpagg" | "dcp-vbtakeover" => dcp::collect(name, arguments, served, rows),
        _ => Err(StatError::UnknownGroup),
    }
}
