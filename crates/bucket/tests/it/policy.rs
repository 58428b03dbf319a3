//! Simulation of eviction policies: the clock with two bits against the reference's counters.

const KEYS: usize = 8_000;
const READS: usize = 80_000;
/// Documents that fit into memory, and those that stay after an eviction: 85 and 75 parts of 85.
const HIGH: usize = KEYS / 10;
const LOW: usize = HIGH * 75 / 85;

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        self.0 >> 33
    }

    /// Returns a number from 0 up to 1, exclusive.
    #[expect(clippy::cast_precision_loss, reason = "31 bits")]
    fn share(&mut self) -> f64 {
        self.next() as f64 / (1_u64 << 31) as f64
    }
}

/// Returns keys in the order of their reads, zipf with theta 0.99; `drift` slowly changes the hot keys.
#[expect(clippy::cast_precision_loss, reason = "small numbers")]
fn reads(drift: bool) -> Vec<usize> {
    let mut sum = 0.0;
    let shares: Vec<f64> = (1..=KEYS)
        .map(|rank| {
            sum += 1.0 / (rank as f64).powf(0.99);
            sum
        })
        .collect();
    let mut random = Random(7);
    (0..READS)
        .map(|read| {
            let wanted = random.share() * sum;
            let rank = shares.partition_point(|share| *share < wanted);
            let moved = if drift { read / 40 } else { 0 };
            // Neighbours in rank are not neighbours in the table.
            (rank + moved) * 7_919 % KEYS
        })
        .collect()
}

trait Policy {
    /// Reads a document. Returns whether it was in memory.
    fn read(&mut self, key: usize) -> bool;
}

/// Our policy: a read sets the heat to 3, a fetch to 1; the hand cools by one and evicts cold documents.
struct Clock {
    heat: Vec<Option<u8>>,
    hand: usize,
    resident: usize,
}

impl Policy for Clock {
    fn read(&mut self, key: usize) -> bool {
        let hit = self.heat[key].is_some();
        self.heat[key] = Some(if hit { 3 } else { 1 });
        self.resident += usize::from(!hit);
        while self.resident > LOW && (self.resident > HIGH || self.hand != 0) {
            match &mut self.heat[self.hand] {
                Some(0) => {
                    self.heat[self.hand] = None;
                    self.resident -= 1;
                }
                Some(heat) => *heat -= 1,
                None => {}
            }
            self.hand = (self.hand + 1) % KEYS;
        }
        hit
    }
}

/// The reference's policy: counters of eight bits that grow ever more slowly, a threshold from
/// their histogram, one less for documents that stay, and a start at the 25th percentile.
struct Counters {
    counts: Vec<Option<u8>>,
    hand: usize,
    resident: usize,
    start: u8,
    random: Random,
}

impl Counters {
    fn percentile(&self, share: f64) -> u8 {
        let mut counts: Vec<u8> = self.counts.iter().copied().flatten().collect();
        counts.sort_unstable();
        #[expect(clippy::cast_precision_loss, clippy::cast_sign_loss, reason = "a rank")]
        let rank = (counts.len() as f64 * share) as usize;
        counts[rank.min(counts.len() - 1)]
    }

    #[expect(clippy::cast_precision_loss, reason = "a share")]
    fn evict(&mut self) {
        let share = (self.resident - LOW) as f64 / self.resident as f64;
        let threshold = self.percentile(share);
        // Continues where it stopped, so that no document is preferred.
        for _ in 0..KEYS {
            if self.resident <= LOW {
                break;
            }
            match &mut self.counts[self.hand] {
                Some(cold) if *cold <= threshold => {
                    self.counts[self.hand] = None;
                    self.resident -= 1;
                }
                Some(count) => *count = count.saturating_sub(1),
                None => {}
            }
            self.hand = (self.hand + 1) % KEYS;
        }
        self.start = self.percentile(0.25);
    }
}

impl Policy for Counters {
    fn read(&mut self, key: usize) -> bool {
        let hit = self.counts[key].is_some();
        let count = self.counts[key].unwrap_or(self.start);
        let grows = count == 0
            || self.random.share() < 1.0 / (1.0 + 0.012 * f64::from(count) * f64::from(count));
        self.counts[key] = Some(if hit && grows {
            count.saturating_add(1)
        } else {
            count
        });
        self.resident += usize::from(!hit);
        if self.resident > HIGH {
            self.evict();
        }
        hit
    }
}

/// Returns the hits in a thousand reads, after memory is full.
fn per_mille(policy: &mut dyn Policy, reads: &[usize]) -> usize {
    let (first, rest) = reads.split_at(READS / 4);
    for key in first {
        policy.read(*key);
    }
    let hits = rest.iter().filter(|key| policy.read(**key)).count();
    hits * 1000 / rest.len()
}

#[test]
fn clock_with_two_bits_keeps_hot_documents_as_well_as_counters() {
    let mut seen = Vec::new();
    for drift in [false, true] {
        let reads = reads(drift);
        let mut clock = Clock {
            heat: vec![None; KEYS],
            hand: 0,
            resident: 0,
        };
        let mut counters = Counters {
            counts: vec![None; KEYS],
            hand: 0,
            resident: 0,
            start: 4,
            random: Random(11),
        };
        let ours = per_mille(&mut clock, &reads);
        let theirs = per_mille(&mut counters, &reads);
        seen.push((ours, theirs));
    }
    let [still, drifting] = seen[..] else {
        panic!("two runs");
    };
    assert!(still.0 + 20 >= still.1, "zipf: {still:?} hits of 1,000");
    assert!(
        drifting.0 >= drifting.1,
        "drifting: {drifting:?} hits of 1,000"
    );
}
