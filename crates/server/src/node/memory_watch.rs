//! Keeps what the process really takes near the quotas of its buckets.
//!
//! A bucket books its documents to the byte. What the allocator holds beyond that, and what
//! stores and connections take, shows only in the process's resident memory. When that passes
//! the quotas, buckets are told of an overhead, count it as used, and so keep fewer documents.

use std::sync::Arc;
use std::time::Duration;

use super::NodeState;

const PERIOD: Duration = Duration::from_millis(500);
/// Resident memory above which the overhead grows, and below which it shrinks, percent of the
/// quotas.
const UPPER_PERCENT: u64 = 102;
const LOWER_PERCENT: u64 = 98;
/// What it grows and shrinks by each time, and the most that it becomes. Without the limit,
/// memory that comes back late would empty the buckets.
const STEP_PERCENT: u64 = 2;
const MOST_PERCENT: u64 = 30;

/// Looks at it for as long as the node serves.
pub(super) async fn watch(node: Arc<NodeState>) {
    let mut ticks = tokio::time::interval(PERIOD);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut overhead = 0;
    loop {
        ticks.tick().await;
        let Some(resident) = resident_bytes() else {
            return tracing::debug!("this system does not tell what the process takes");
        };
        let buckets = node.all_buckets();
        let quota: u64 = buckets.iter().map(|b| b.bucket.memory().quota()).sum();
        overhead = next_overhead(overhead, resident, quota);
        for served in &buckets {
            let own = u128::from(served.bucket.memory().quota()) * u128::from(overhead);
            let share = own.checked_div(u128::from(quota)).unwrap_or(0);
            served
                .bucket
                .set_memory_overhead(u64::try_from(share).unwrap_or(0));
        }
    }
}

/// The overhead to be told, after `overhead` was told and `resident` is taken all the same.
fn next_overhead(overhead: u64, resident: u64, quota: u64) -> u64 {
    let share = |percent: u64| quota / 100 * percent;
    if resident > share(UPPER_PERCENT) {
        (overhead + share(STEP_PERCENT)).min(share(MOST_PERCENT))
    } else if resident < share(LOWER_PERCENT) {
        overhead.saturating_sub(share(STEP_PERCENT))
    } else {
        overhead
    }
}

/// Resident memory of this process; `None` where the system does not tell.
fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overhead_follows_what_the_process_takes_within_limits() {
        let mut overhead = 0;
        overhead = next_overhead(overhead, 1000, 1000);
        assert_eq!(overhead, 0, "at the quota");
        for expected in [20, 40, 60] {
            overhead = next_overhead(overhead, 1200, 1000);
            assert_eq!(overhead, expected);
        }
        assert_eq!(
            next_overhead(overhead, 1000, 1000),
            60,
            "it helped: no change"
        );
        for _ in 0..100 {
            overhead = next_overhead(overhead, 5000, 1000);
        }
        assert_eq!(overhead, 300, "never more");
        for _ in 0..100 {
            overhead = next_overhead(overhead, 500, 1000);
        }
        assert_eq!(overhead, 0);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn this_process_takes_some_megabytes() {
        let bytes = resident_bytes().unwrap();
        assert!((1 << 20..1 << 36).contains(&bytes), "{bytes}");
    }
}
