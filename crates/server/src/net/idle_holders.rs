//! Closes idle connections that hold memory while all connections hold too much.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bucket::Memory;
use registry::{ConnectionInfo, Registry};

/// Interval at which connections are checked.
const PERIOD: Duration = Duration::from_millis(250);
/// Bytes that a connection has to move in a period, on average: 32 KiB a second.
const MOVED_BYTES: u64 = 8 << 10;

/// History of a connection under congestion.
#[derive(Clone, Copy, Debug)]
struct HolderHistory {
    moved: u64,
    /// Bytes that it may move less than the average: what it moved lately beyond it, and idle time that is granted.
    credit: u64,
}

/// Closes idle connections under congestion, for as long as the node serves.
pub(crate) async fn watch(node: Arc<Registry>) {
    let mut ticks = tokio::time::interval(PERIOD);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut seen = HashMap::new();
    let granted = node.waits.stillness.as_nanos().div_ceil(PERIOD.as_nanos());
    let granted = MOVED_BYTES.saturating_mul(u64::try_from(granted).unwrap_or(u64::MAX));
    loop {
        ticks.tick().await;
        let buffers = &node.buffers;
        let buckets = node.all_buckets();
        let memories = || buckets.iter().map(|served| served.bucket.memory());
        buffers.follow_quota(memories().map(Memory::quota).sum());
        let limit = if buffers.is_congested(None) {
            buffers.limit()
        } else if memories().any(Memory::is_transit_congested) {
            // Close one at a time: the documents make room, too.
            buffers.held()
        } else {
            seen.clear();
            continue;
        };
        let holders: Vec<_> = node.connections.all();
        let figures = holders.iter().map(|info| Holder::of(info));
        let figures = figures.collect();
        let closing = to_close(buffers.held(), limit, granted, figures, &mut seen);
        for info in holders.iter().filter(|info| closing.contains(&info.id)) {
            tracing::warn!(
                connection = info.id,
                peer = %info.peer(),
                held_bytes = info.held(),
                "closed: it moves nothing of what it holds, and connections hold too much"
            );
            buffers.count_closed();
            info.mailbox.shut_down();
        }
    }
}

/// The memory and progress of a connection.
#[derive(Clone, Copy, Debug)]
struct Holder {
    id: u64,
    held: usize,
    /// Total of bytes that the peer sent or took late.
    moved: u64,
    /// True if the connection waits for memory itself.
    waits: bool,
}

impl Holder {
    fn of(info: &ConnectionInfo) -> Self {
        Self {
            id: info.id,
            held: info.held(),
            moved: info.moved(),
            waits: info.waits_for_room(),
        }
    }
}

/// Returns the connections to close, largest first, so that the rest holds less than the limit. `granted` is the
/// largest credit of a connection, which it has at first.
fn to_close(
    mut held: usize,
    limit: usize,
    granted: u64,
    mut holders: Vec<Holder>,
    seen: &mut HashMap<u64, HolderHistory>,
) -> Vec<u64> {
    let full = held >= limit.saturating_mul(2);
    holders.retain(|holder| holder.held > 0);
    let before = std::mem::take(seen);
    for &Holder { id, moved, .. } in &holders {
        let credit = before.get(&id).map_or(granted, |old| {
            let credit = old.credit.saturating_add(moved - old.moved);
            credit.saturating_sub(MOVED_BYTES).min(granted)
        });
        seen.insert(id, HolderHistory { moved, credit });
    }
    holders.retain(|holder| seen[&holder.id].credit == 0 && (full || !holder.waits));
    holders.sort_unstable_by_key(|holder| std::cmp::Reverse(holder.held));
    let mut closing = Vec::new();
    for holder in holders {
        if held < limit {
            break;
        }
        held = held.saturating_sub(holder.held);
        closing.push(holder.id);
    }
    closing
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holder(id: u64, held: usize, moved: u64) -> Holder {
        Holder {
            id,
            held,
            moved,
            waits: false,
        }
    }

    #[test]
    fn the_largest_idle_connections_are_closed() {
        let mut seen = HashMap::new();
        let mut look = |held, round: u64| {
            let holders = vec![
                holder(1, 30, 7),
                holder(2, 50, 7),
                holder(3, 60, round * MOVED_BYTES),
                holder(4, 40, 7),
                Holder {
                    waits: true,
                    ..holder(5, 90, 7)
                },
                holder(6, 0, 7),
            ];
            to_close(held, 100, 8 * MOVED_BYTES, holders, &mut seen)
        };
        for round in 0..8 {
            assert!(look(180, round).is_empty(), "they are granted some time");
        }
        let round = 8;
        assert_eq!(look(120, round), [2], "one is enough");
        assert_eq!(
            look(180, round + 1),
            [2, 4],
            "not one that moves, not one that waits"
        );
        assert_eq!(look(99, round + 2), [0; 0]);
        let closed = look(270, round + 3);
        assert_eq!(
            closed,
            [5, 2, 4],
            "above twice the limit waiting does not protect"
        );
    }

    #[test]
    fn a_peer_that_reads_slowly_is_not_closed_between_two_parts() {
        let mut seen = HashMap::new();
        // A part at a time, as the system reports them; the second one is slower than the average.
        let mut look = |round: u64| {
            let parts = |every| round / every * (16 * MOVED_BYTES);
            let all = vec![holder(1, 150, parts(16)), holder(2, 60, parts(18))];
            to_close(210, 100, 32 * MOVED_BYTES, all, &mut seen)
        };
        let first = (0..).find_map(|round| look(round).first().map(|id| (*id, round)));
        assert!(matches!(first, Some((2, 100..))), "{first:?}");
    }
}
