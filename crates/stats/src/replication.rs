//! The group `replication`: the node that a bucket follows, or its followers.

use std::sync::atomic::{AtomicU64, Ordering};

use model::VbId;
use registry::{Progress, ServedBucket};

use super::rows::{PART_BYTES, Rows};

/// Selects one counter of the replica.
type Counter = fn(&Progress) -> &AtomicU64;

/// Writes the rows of the bucket. Rows that only a replica has are 0 elsewhere.
pub(super) fn totals(served: &ServedBucket, rows: &mut Rows<'_, '_>) {
    let group = served.group();
    rows.row("role", group.role());
    let peers = group.peers.iter();
    let addresses: Vec<_> = peers
        .map(|peer| format!("{}:{}", peer.host, peer.kv_port))
        .collect();
    rows.row("peer", addresses.join(", "));
    let progress = served.follower().map(|follower| follower.progress());
    rows.row("stage", progress.map_or("none", |one| one.stage().name()));
    let last_error = progress.map(Progress::last_error);
    rows.row("last_error", last_error.unwrap_or_default());
    let counters: [(&str, Counter); 7] = [
        ("connects", |one| &one.connects),
        ("streams", |one| &one.streams),
        ("changes", |one| &one.changes),
        ("bytes", |one| &one.bytes),
        ("acked_bytes", |one| &one.acked_bytes),
        ("rollbacks", |one| &one.rollbacks),
        ("pauses", |one| &one.pauses),
    ];
    for (name, of) in counters {
        rows.row(
            name,
            progress.map_or(0, |one| of(one).load(Ordering::Relaxed)),
        );
    }
}

/// Writes the next part of the vBuckets' rows, from `next` on; returns the next position. Locks one vBucket at a time.
pub(super) fn part(served: &ServedBucket, mut next: u16, rows: &mut Rows<'_, '_>) -> Option<u16> {
    let progress = served.follower().map(|follower| follower.progress());
    let full = rows.bytes() + PART_BYTES;
    let end = served.bucket.vbuckets();
    while next < end && rows.bytes() < full {
        let id = VbId(next);
        next += 1;
        let found = served
            .bucket
            .with_vbucket(id, |vb| (vb.state(), vb.high_seqno()));
        let Some((state, high)) = found else { continue };
        let active = progress.map_or(high, |one| one.peer_seqno(id));
        rows.prefix(format_args!("{id}:"));
        rows.row("state", state.name());
        rows.row("high_seqno", high);
        rows.row("active_seqno", active);
        rows.row("lag", active.0.saturating_sub(high.0));
    }
    (next < end).then_some(next)
}
