//! Short groups, written at once.

use registry::{Registry, ServedBucket};
use serde_json::{Value, json};

use crate::figures::{BucketFigures, NodeFigures};
use crate::listed::{bucket_rows, node_rows, state_rows};
use crate::rows::Rows;
use crate::scope::{GroupRequest, StatError, StatScope};
use crate::{collections, dcp, document, node, scans};

/// Writes all rows of a short group.
pub(crate) fn whole(
    request: GroupRequest<'_>,
    scope: &StatScope<'_>,
    rows: &mut Rows<'_, '_>,
) -> Result<(), StatError> {
    match scope.bucket {
        Some(served) if request.group.of_bucket => bucket_group(request, scope, served, rows),
        _ => node::collect(request, scope, rows),
    }
}

fn bucket_group(
    request: GroupRequest<'_>,
    scope: &StatScope<'_>,
    served: &ServedBucket,
    rows: &mut Rows<'_, '_>,
) -> Result<(), StatError> {
    let (name, arguments) = (request.group.name, request.arguments);
    let registry = scope.node;
    let figures = BucketFigures::of(registry, served);
    match (name, arguments) {
        ("", _) => {
            bucket_rows(name, &figures, rows);
            state_rows(&figures, rows);
            node_rows(name, &NodeFigures::of(registry), rows);
        }
        ("timings", _) => {
            node::timings(registry, rows);
            node::commit_timings(served, "disk_", rows);
        }
        ("tasks", []) => tasks(registry, served, rows),
        ("kvstore", _) => node::store(&figures, rows),
        ("kvtimings", _) => node::commit_timings(served, "rw_0:", rows),
        ("manifest", _) => return collections::manifest(arguments, served, rows),
        ("range-scans", _) => return scans::collect(arguments, served, rows),
        ("key" | "vkey" | "key-byid" | "vkey-byid", _) => {
            return document::key(request, scope, &figures, rows);
        }
        ("dcpagg" | "dcp-vbtakeover", _) => return dcp::collect(name, arguments, served, rows),
        ("diskinfo", [_, ..]) => return Err(StatError::UnknownGroup),
        _ => bucket_rows(name, &figures, rows),
    }
    Ok(())
}

/// Writes the workers of the bucket, in the form of the reference's tasks.
fn tasks(node: &Registry, served: &ServedBucket, rows: &mut Rows<'_, '_>) {
    let workers = served.workers.figures().into_iter().zip(1_u64..);
    let tasks: Vec<Value> = workers
        .map(|(worker, id)| {
            json!({
                "tid": id,
                "name": worker.name,
                "type": worker.lane,
                "bucket": served.name(),
                "state": if worker.busy { "RUNNING" } else { "SNOOZED" },
                "num_runs": worker.steps,
                "total_runtime": worker.busy_ns / 1000,
            })
        })
        .collect();
    rows.row("ep_tasks:tasks", Value::from(tasks));
    rows.row("ep_tasks:cur_time", node.clock.mono_ns() / 1000);
    rows.row("ep_tasks:uptime_s", node.uptime_s());
    rows.row("ep_tasks:bucket", served.name());
}
