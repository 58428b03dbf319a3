//! Keeps what the process really takes near the quotas of its buckets.
//!
//! A bucket books its documents to the byte. What the allocator holds beyond that, and what
//! stores and connections take, shows only in the process's resident memory. When that passes
//! the quotas, buckets are told of an overhead, count it as used, and so keep fewer documents.

use std::sync::Arc;
use std::time::Duration;

use super::NodeState;

const PERIOD: Duration = Duration::from_millis(500);
/// Resident memory above which there is an overhead, percent of the quotas.
const UPPER_PERCENT: u64 = 104;
/// What the overhead is of what is above that, percent. More than all of it, since documents
/// that leave give back only a part.
const GAIN_PERCENT: u64 = 200;
/// The most that it becomes, percent of the quotas, and the most that it changes by each time.
/// Without these, memory that comes back late would empty the buckets.
const MOST_PERCENT: u64 = 25;
const STEP_PERCENT: u64 = 2;

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
///
/// It follows from how far the process is above its quotas, and does not add up over time: what
/// the allocator keeps is used again by the next documents, and need not come back.
fn next_overhead(overhead: u64, resident: u64, quota: u64) -> u64 {
    let share = |percent: u64| quota / 100 * percent;
    let above = resident.saturating_sub(share(UPPER_PERCENT));
    let wanted = (above / 100 * GAIN_PERCENT).min(share(MOST_PERCENT));
    wanted.clamp(
        overhead.saturating_sub(share(STEP_PERCENT)),
        overhead + share(STEP_PERCENT),
    )
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
        let (mut overhead, quota) = (0, 10_000);
        overhead = next_overhead(overhead, 10_400, quota);
        assert_eq!(overhead, 0, "about at the quota");
        for expected in [200, 400, 600, 800, 1000, 1200, 1200] {
            overhead = next_overhead(overhead, 11_000, quota);
            assert_eq!(overhead, expected);
        }
        for expected in [1000, 800, 800] {
            overhead = next_overhead(overhead, 10_800, quota);
            assert_eq!(overhead, expected, "half of it came back");
        }
        for _ in 0..100 {
            overhead = next_overhead(overhead, 50_000, quota);
        }
        assert_eq!(overhead, 2_500, "never more");
        for _ in 0..100 {
            overhead = next_overhead(overhead, 5_000, quota);
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
