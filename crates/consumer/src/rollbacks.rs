//! Rollbacks, collected for the log: when a node comes back, many vBuckets roll back at once.

/// Time for which rollbacks are collected before they are logged, ns.
const COLLECT_NS: u64 = 1_000_000_000;

/// Rollbacks that are not logged yet. The rest is logged at the end.
#[derive(Debug, Default)]
pub(crate) struct Rollbacks {
    vbuckets: u64,
    /// Number of seqnos that the vBuckets gave up.
    seqnos: u64,
    since_ns: Option<u64>,
}

impl Rollbacks {
    /// Notes that a vBucket gave up so many seqnos.
    pub(crate) fn note(&mut self, seqnos: u64) {
        self.vbuckets += 1;
        self.seqnos += seqnos;
    }

    /// Logs the rollbacks of the last second, in one line. Call it often.
    pub(crate) fn log(&mut self, now_ns: u64) {
        if self.vbuckets > 0 {
            self.since_ns.get_or_insert(now_ns);
        }
        if now_ns >= self.due_ns() {
            *self = Self::default();
        }
    }

    /// Returns the time when the next line is due.
    pub(crate) fn due_ns(&self) -> u64 {
        self.since_ns
            .map_or(u64::MAX, |since_ns| since_ns.saturating_add(COLLECT_NS))
    }
}

impl Drop for Rollbacks {
    fn drop(&mut self) {
        if self.vbuckets > 0 {
            let (vbuckets, seqnos) = (self.vbuckets, self.seqnos);
            tracing::info!(vbuckets, seqnos, "rolled back");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_has_all_rollbacks_of_a_second() {
        let mut rollbacks = Rollbacks::default();
        rollbacks.log(5);
        assert_eq!(rollbacks.due_ns(), u64::MAX);
        rollbacks.note(3);
        rollbacks.log(6);
        rollbacks.note(4);
        rollbacks.log(5 + COLLECT_NS);
        assert_eq!((rollbacks.vbuckets, rollbacks.seqnos), (2, 7));
        assert_eq!(rollbacks.due_ns(), 6 + COLLECT_NS);
        rollbacks.log(6 + COLLECT_NS);
        assert_eq!((rollbacks.vbuckets, rollbacks.due_ns()), (0, u64::MAX));
    }
}
