//! Random samples. A hash of the key decides which documents belong to a sample, so the same seed
//! gives the same sample of the same documents.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use model::{Meta, Seqno};
use storage::{KeyRange, Snapshot, StoreError};

/// Maximum number of hashes kept for an exact count; larger samples are approximate.
const EXACT_MAX: usize = 64 << 10;

/// Size and seed of a sample of a vBucket's documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sampling {
    /// Maximum number of documents.
    pub samples: u64,
    /// Seed: any number.
    pub seed: u64,
}

/// Returns a hash that depends on all bits of key and seed.
pub(super) fn hash(seed: u64, key: &[u8]) -> u64 {
    let mut state = mix(seed ^ 0x9e37_79b9_7f4a_7c15);
    for chunk in key.chunks(8) {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        state = mix(state ^ u64::from_le_bytes(word) ^ (chunk.len() as u64) << 56);
    }
    state
}

/// A bijection in which every bit of the result depends on every bit of the number.
fn mix(mut number: u64) -> u64 {
    number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (number ^ (number >> 31)).wrapping_add(0x9e37_79b9_7f4a_7c15)
}

/// Returns the highest hash of documents in the sample; `None` for no document.
///
/// # Errors
/// The store's.
///
/// Cost: one walk over the rows of the range, less than 1 MiB of numbers.
pub(super) fn threshold(
    sampling: Sampling,
    range: &KeyRange,
    snapshot: &dyn Snapshot,
    wants: &dyn Fn(&Meta, &[u8]) -> bool,
) -> Result<Option<u64>, StoreError> {
    let exact = usize::try_from(sampling.samples).unwrap_or(usize::MAX);
    let exact = exact.min(EXACT_MAX);
    let (mut lowest, mut count) = (BTreeSet::new(), 0_u64);
    snapshot.look(Seqno::ZERO, range, &mut |row| {
        let (meta, key) = (row.meta, row.key);
        if meta.kind.is_tombstone() || !wants(meta, key) {
            return Ok(ControlFlow::Continue(()));
        }
        count += 1;
        lowest.insert(hash(sampling.seed, key));
        if lowest.len() > exact {
            lowest.pop_last();
        }
        Ok(ControlFlow::Continue(()))
    })?;
    if count <= sampling.samples {
        return Ok((count > 0).then_some(u64::MAX));
    }
    if sampling.samples > EXACT_MAX as u64 {
        let share = u128::from(u64::MAX) * u128::from(sampling.samples) / u128::from(count);
        return Ok(Some(share as u64));
    }
    Ok(lowest.last().copied())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_spread_and_depend_on_the_seed() {
        let keys: Vec<String> = (0..10_000).map(|n| format!("key-{n}")).collect();
        let below = |seed: u64| {
            let low = keys
                .iter()
                .filter(|key| hash(seed, key.as_bytes()) < u64::MAX / 4);
            low.count()
        };
        for seed in [0, 1, u64::MAX] {
            assert!((2_200..2_800).contains(&below(seed)), "{}", below(seed));
        }
        let all: BTreeSet<u64> = keys.iter().map(|key| hash(7, key.as_bytes())).collect();
        assert_eq!(all.len(), keys.len());
        assert_ne!(hash(1, b"k"), hash(2, b"k"));
        assert_ne!(hash(1, b"k"), hash(1, b"k\0"));
    }
}
