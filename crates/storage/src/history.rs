//! Rows of the history: every version of the documents of some collections, for a while.
//!
//! ```text
//! rows      1 . 3 . . 6 7      the newest version of each key, and nothing else
//! history       3 4 5 . 7      every version of a collection that has one, from the oldest on that
//!                              is still kept; the newest versions lie in both
//! ```

use model::Seqno;

/// Limits of the history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HistoryLimits {
    /// Maximum bytes of its rows in the vBucket.
    pub bytes: u64,
    /// Rows written before this time are dropped, in Unix seconds.
    pub before_s: u32,
}

impl HistoryLimits {
    /// Limits that drop everything.
    pub const NOTHING: Self = Self {
        bytes: 0,
        before_s: u32::MAX,
    };
}

/// Size of a vBucket's history.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HistoryKept {
    /// Seqno from which on every version is kept; `None` for an empty history.
    pub from: Option<Seqno>,
    /// Number of rows kept.
    pub rows: u64,
    /// Bytes of these rows, encoded.
    pub bytes: u64,
    /// Number of rows dropped.
    pub dropped: u64,
}

/// Decides for the rows of a history, oldest first, which ones are dropped.
pub(crate) struct Trim {
    limits: HistoryLimits,
    /// Bytes of the current row and all after it.
    left: u64,
    done: bool,
    kept: HistoryKept,
}

impl Trim {
    /// Begins with a history of `bytes`.
    pub(crate) fn new(limits: HistoryLimits, bytes: u64) -> Self {
        Self {
            limits,
            left: bytes,
            done: false,
            kept: HistoryKept::default(),
        }
    }

    /// Whether the next row is dropped. After the first kept row only `dead` rows are.
    pub(crate) fn goes(&mut self, seqno: Seqno, bytes: u64, at_s: u32, dead: bool) -> bool {
        self.done |= self.left <= self.limits.bytes && at_s >= self.limits.before_s;
        self.left = self.left.saturating_sub(bytes);
        let goes = dead || !self.done;
        if goes {
            self.kept.dropped += 1;
        } else {
            self.kept.from.get_or_insert(seqno);
            self.kept.rows += 1;
            self.kept.bytes += bytes;
        }
        goes
    }

    pub(crate) fn end(self) -> HistoryKept {
        self.kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trim_drops_the_oldest_rows_and_dead_rows() {
        let rows = [
            (1, 10, 100),
            (2, 10, 90),
            (3, 10, 110),
            (4, 10, 120),
            (5, 10, 130),
        ];
        let left = |bytes, before_s| {
            let mut trim = Trim::new(HistoryLimits { bytes, before_s }, 50);
            let stay = rows
                .iter()
                .filter(|row| !trim.goes(Seqno(row.0), row.1, row.2, row.0 == 4));
            let stay: Vec<u64> = stay.map(|row| row.0).collect();
            let kept = trim.end();
            assert_eq!(kept.from.map(|seqno| seqno.0), stay.first().copied());
            assert_eq!(
                (kept.rows, kept.dropped),
                (stay.len() as u64, 5 - stay.len() as u64)
            );
            assert_eq!(kept.bytes, 10 * kept.rows);
            stay
        };
        assert_eq!(left(u64::MAX, 0), [1, 2, 3, 5]);
        assert_eq!(
            left(u64::MAX, 100),
            [1, 2, 3, 5],
            "the second one follows one that stays"
        );
        assert_eq!(left(u64::MAX, 101), [3, 5]);
        assert_eq!(left(35, 0), [3, 5]);
        assert_eq!(left(30, 120), [5]);
        assert!(left(0, 0).is_empty());
        assert!(left(u64::MAX, u32::MAX).is_empty());
    }
}
