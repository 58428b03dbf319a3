//! Durations of commands: one histogram per opcode and worker thread, merged for reading.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use bucket::{Histogram, HistogramBucket};
use model::Cas;
use serde_json::{Value, json};
use wire::{Family, Opcode, OpcodeInfo, Status};

/// Result of a command, as statistics distinguish results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum CountedResult {
    /// The command was done.
    Done = 0,
    /// The document does not exist.
    Missing = 1,
    /// The document has another revision than the named one.
    Conflict = 2,
    /// The document is locked.
    Locked = 3,
    /// The command was refused for another reason.
    Refused = 4,
}

const ANSWERS: usize = 5;

impl CountedResult {
    /// Maps the status of a request that named `cas` to a result.
    pub fn of(status: Status, cas: Cas) -> Self {
        match status {
            Status::SUCCESS => Self::Done,
            Status::KEY_ENOENT => Self::Missing,
            Status::KEY_EEXISTS if cas != Cas::ANY => Self::Conflict,
            Status::LOCKED => Self::Locked,
            _ => Self::Refused,
        }
    }

    /// Returns the result of a command that was not refused: a quiet read that finds nothing sends no answer.
    pub fn of_done(opcode: Opcode, was_answered: bool) -> Self {
        let reads_quietly = |info: &OpcodeInfo| {
            info.quiet.is_some() && matches!(info.family, Family::Get | Family::Meta)
        };
        if !was_answered && opcode.info().is_some_and(reads_quietly) {
            Self::Missing
        } else {
            Self::Done
        }
    }
}

/// The timings of one worker thread. Recording costs one relaxed addition.
pub struct Timings {
    opcodes: Box<[OnceLock<Box<Histogram>>; 256]>,
    answers: Box<[[AtomicU64; ANSWERS]; 256]>,
    /// Number of responses by status; all statuses fit a byte.
    responses: Box<[AtomicU64; 256]>,
}

impl Default for Timings {
    fn default() -> Self {
        Self {
            opcodes: Box::new(std::array::from_fn(|_| OnceLock::new())),
            answers: Box::new(std::array::from_fn(|_| Default::default())),
            responses: Box::new(std::array::from_fn(|_| AtomicU64::new(0))),
        }
    }
}

impl Timings {
    /// Records that a command took `ns`.
    pub fn record(&self, opcode: u8, ns: u64) {
        let histogram = self.opcodes[usize::from(opcode)].get_or_init(Box::default);
        histogram.record(ns);
    }

    /// Counts the result of a command.
    pub fn answered(&self, opcode: u8, answer: CountedResult) {
        self.answers[usize::from(opcode)][answer as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a response with this status.
    pub fn responded(&self, status: Status) {
        // Usually one thread writes. Counts that two threads lose against each other cost less than an atomic addition.
        let count = &self.responses[usize::from(status.0).min(255)];
        count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// Returns the number of responses with this status.
    pub fn responses(&self, status: Status) -> u64 {
        self.responses[usize::from(status.0).min(255)].load(Ordering::Relaxed)
    }

    /// Returns the number of commands of an opcode with this result.
    pub fn answers(&self, opcode: u8, answer: CountedResult) -> u64 {
        self.answers[usize::from(opcode)][answer as usize].load(Ordering::Relaxed)
    }

    /// Returns the number of recorded commands of all opcodes.
    pub fn total(&self) -> u64 {
        let recorded = self.opcodes.iter().filter_map(OnceLock::get);
        recorded.map(|histogram| histogram.total()).sum()
    }

    /// Resets all counts.
    pub fn reset(&self) {
        for count in self.answers.iter().flatten().chain(&*self.responses) {
            count.store(0, Ordering::Relaxed);
        }
        for histogram in self.opcodes.iter().filter_map(OnceLock::get) {
            histogram.reset();
        }
    }
}

/// The merged histogram of one opcode.
pub struct Merged(Box<Histogram>);

impl Merged {
    /// Merges the records of all workers.
    pub fn of<'a>(workers: impl Iterator<Item = &'a Timings>, opcode: u8) -> Self {
        let merged = Box::<Histogram>::default();
        for histogram in workers.filter_map(|worker| worker.opcodes[usize::from(opcode)].get()) {
            merged.add(histogram);
        }
        Self(merged)
    }

    /// Returns the number of recorded commands.
    pub fn total(&self) -> u64 {
        self.0.total()
    }

    /// Returns the total time of all commands, nanoseconds. Each command counts as the middle of its histogram bucket,
    /// so the error is about 6 %.
    pub fn sum_ns(&self) -> u64 {
        let middle = |bucket: &HistogramBucket| bucket.low.midpoint(bucket.high);
        self.0
            .buckets()
            .map(|bucket| bucket.count.saturating_mul(middle(&bucket)))
            .fold(0, u64::saturating_add)
    }

    /// Returns the histogram buckets with commands: inclusive upper edge in nanoseconds, count.
    pub fn rows(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.0.buckets().map(|bucket| (bucket.high, bucket.count))
    }

    /// Returns the form that timing tools read: whole microseconds, cumulative percentages.
    #[expect(clippy::cast_precision_loss, reason = "a percentage")]
    pub fn to_json(&self) -> Value {
        let total = self.total();
        let mut data: Vec<(u64, u64)> = Vec::new();
        for (upper_ns, count) in self.rows() {
            let upper_us = upper_ns.div_ceil(1000);
            match data.last_mut() {
                Some(last) if last.0 == upper_us => last.1 += count,
                _ => data.push((upper_us, count)),
            }
        }
        let mut seen = 0;
        let data: Vec<Value> = data
            .into_iter()
            .map(|(upper_us, count)| {
                seen += count;
                json!([upper_us, count, seen as f64 * 100.0 / total.max(1) as f64])
            })
            .collect();
        json!({
            "total": total,
            "bucketsLow": 0,
            "data": data,
            "overflowed": 0,
            "overflowed_sum": 0,
            "max_trackable": Histogram::MAX / 1000,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_counted_apart_and_reset() {
        let timings = Timings::default();
        timings.answered(0, CountedResult::of(Status::SUCCESS, Cas::ANY));
        timings.answered(0, CountedResult::of(Status::KEY_ENOENT, Cas::ANY));
        timings.answered(0, CountedResult::of(Status::KEY_ENOENT, Cas::ANY));
        timings.answered(1, CountedResult::of(Status::E2BIG, Cas::ANY));
        assert_eq!(timings.answers(0, CountedResult::Done), 1);
        assert_eq!(timings.answers(0, CountedResult::Missing), 2);
        assert_eq!(timings.answers(1, CountedResult::Refused), 1);
        let exists = |cas| CountedResult::of(Status::KEY_EEXISTS, cas);
        assert_eq!(exists(Cas(5)), CountedResult::Conflict);
        assert_eq!(
            exists(Cas::ANY),
            CountedResult::Refused,
            "as of an addition"
        );
        timings.reset();
        assert_eq!(timings.answers(0, CountedResult::Missing), 0);
        assert_eq!(
            CountedResult::of_done(Opcode::GETQ, false),
            CountedResult::Missing
        );
        assert_eq!(
            CountedResult::of_done(Opcode::GETQ, true),
            CountedResult::Done
        );
        assert_eq!(
            CountedResult::of_done(Opcode::SETQ, false),
            CountedResult::Done
        );
    }

    #[test]
    fn the_sum_is_close() {
        let timings = Timings::default();
        for ns in 1_000..2_000 {
            timings.record(7, ns);
        }
        let merged = Merged::of([&timings].into_iter(), 7);
        let (sum, truth) = (merged.sum_ns(), (1_000..2_000).sum::<u64>());
        assert!(sum.abs_diff(truth) < truth / 15, "{sum} of {truth}");
        assert_eq!(timings.total(), 1_000);
    }

    #[test]
    fn workers_are_merged_and_percentages_end_at_100() {
        let workers = [Timings::default(), Timings::default()];
        workers[0].record(0, 1_500);
        workers[1].record(0, 1_500);
        workers[1].record(0, 900_000);
        let merged = Merged::of(workers.iter(), 0);
        assert_eq!(merged.total(), 3);
        let json = merged.to_json();
        let data = json["data"].as_array().unwrap();
        assert_eq!(data.len(), 2);
        assert_eq!(
            (data[0][0].as_u64(), data[0][1].as_u64()),
            (Some(2), Some(2))
        );
        assert_eq!(data[1][2].as_f64(), Some(100.0));
        workers[1].reset();
        assert_eq!(Merged::of(workers.iter(), 0).total(), 1);
    }
}
