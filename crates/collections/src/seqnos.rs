//! Seqnos of the collection changes in one vBucket.

use model::{Reader, Seqno};

/// Number of a step of a collection table; equal in all vBuckets. 0 is none.
pub(crate) type StepNumber = u32;

/// Number of runs below which unused runs are not looked for.
const RUNS_MIN: usize = 8;

/// Row of the event of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EventRow {
    pub(crate) seqno: Seqno,
    /// Whether the row has other steps too.
    pub(crate) grouped: bool,
}

/// Consecutive steps with consecutive seqnos.
#[derive(Clone, Copy, Debug)]
struct StepRun {
    first: StepNumber,
    /// Number of steps with a common row; zero if each step has its own row.
    grouped: u32,
    seqno: Seqno,
}

/// Map from steps to seqnos: a run-length encoding, since the changes of one manifest mostly are
/// consecutive.
///
/// Cost: 16 bytes for each run to which a collection refers, 32 at most.
#[derive(Clone, Debug, Default)]
pub(crate) struct StepSeqnos {
    runs: Vec<StepRun>,
}

impl StepSeqnos {
    fn run_of(&self, step: StepNumber) -> Option<&StepRun> {
        let begun = self.runs.partition_point(|run| run.first <= step);
        self.runs.get(begun.checked_sub(1)?).filter(|_| step > 0)
    }

    /// Returns the seqno of a step; zero for none.
    pub(crate) fn seqno(&self, step: StepNumber) -> Seqno {
        self.run_of(step).map_or(Seqno::ZERO, |run| {
            Seqno(run.seqno.0 + u64::from(step - run.first))
        })
    }

    /// Returns the row of a step; with seqno zero if there is none.
    pub(crate) fn row(&self, step: StepNumber) -> EventRow {
        match self.run_of(step) {
            Some(run) if run.grouped > 0 => EventRow {
                seqno: Seqno(run.seqno.0 + u64::from(run.grouped) - 1),
                grouped: true,
            },
            _ => EventRow {
                seqno: self.seqno(step),
                grouped: false,
            },
        }
    }

    /// Adds steps from `first` on, above all others: `grouped` steps with one row, or one step if
    /// it is zero. `in_use` returns the steps that are still needed.
    pub(crate) fn push(
        &mut self,
        first: StepNumber,
        seqno: Seqno,
        grouped: u32,
        in_use: impl FnOnce() -> Vec<StepNumber>,
    ) {
        if let Some(last) = self.runs.last()
            && last.grouped == 0
            && grouped == 0
            && seqno.0.checked_sub(last.seqno.0) == Some(u64::from(first - last.first))
        {
            return;
        }
        if self.runs.len() == self.runs.capacity() && self.runs.len() >= RUNS_MIN {
            self.prune(&in_use());
        }
        if self.runs.is_empty() {
            // Most vBuckets have one run, and there are many vBuckets.
            self.runs.reserve_exact(1);
        }
        self.runs.push(StepRun {
            first,
            grouped,
            seqno,
        });
    }

    /// Drops runs without a step of `in_use`, except for the last run.
    fn prune(&mut self, in_use: &[StepNumber]) {
        let mut used = vec![false; self.runs.len()];
        for step in in_use {
            let begun = self.runs.partition_point(|run| run.first <= *step);
            if let Some(at) = begun.checked_sub(1) {
                used[at] = true;
            }
        }
        if let Some(last) = used.last_mut() {
            *last = true;
        }
        let mut used = used.into_iter();
        self.runs.retain(|_| used.next().unwrap_or(true));
    }

    /// Appends the runs to a summary.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.extend((self.runs.len() as u32).to_be_bytes());
        for run in &self.runs {
            out.extend(run.first.to_be_bytes());
            out.extend(run.grouped.to_be_bytes());
            out.extend(run.seqno.0.to_be_bytes());
        }
    }

    /// Reads the runs of a summary.
    pub(crate) fn decode(input: &mut Reader<'_>) -> Option<Self> {
        let runs = input.list(|input| {
            Some(StepRun {
                first: input.u32()?,
                grouped: input.u32()?,
                seqno: Seqno(input.u64()?),
            })
        })?;
        Some(Self { runs })
    }

    /// Bytes allocated.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.runs.capacity() * size_of::<StepRun>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_have_the_seqnos_they_were_given() {
        let mut seqnos = StepSeqnos::default();
        let none = || panic!("it is not full");
        seqnos.push(1, Seqno(5), 0, none);
        seqnos.push(2, Seqno(6), 0, none);
        seqnos.push(3, Seqno(10), 4, none);
        seqnos.push(7, Seqno(14), 0, none);
        assert_eq!(seqnos.runs.len(), 3);
        let found: Vec<u64> = (0..=7).map(|step| seqnos.seqno(step).0).collect();
        assert_eq!(found, [0, 5, 6, 10, 11, 12, 13, 14]);
        let rows: Vec<_> = (1..=7).map(|step| seqnos.row(step)).collect();
        let row = |seqno, grouped| EventRow {
            seqno: Seqno(seqno),
            grouped,
        };
        assert_eq!(rows[..2], [row(5, false), row(6, false)]);
        assert_eq!(rows[2..6], [row(13, true); 4]);
        assert_eq!(rows[6], row(14, false));
    }

    #[test]
    fn unused_runs_are_dropped() {
        let mut seqnos = StepSeqnos::default();
        for step in 1..=10_000 {
            // Each step is between documents; only the last two and the third are still used.
            let in_use = || vec![3, step - 1, step];
            seqnos.push(step, Seqno(u64::from(step) * 3), 0, in_use);
            assert_eq!(seqnos.seqno(step), Seqno(u64::from(step) * 3));
        }
        assert_eq!(seqnos.seqno(3), Seqno(9));
        assert!(
            seqnos.memory_bytes() <= 16 * 16,
            "{}",
            seqnos.memory_bytes()
        );
    }
}
