//! Estimate of the seqno from which on there are so many rows.

use std::cmp::Reverse;

use model::Seqno;

use super::rows::RowView;

/// Maximum number of rows that a look reads for each wanted one.
const READ_FOR_ONE: u64 = 8;

/// Rows that are stored together, and so are read together.
#[derive(Clone, Copy, Debug)]
struct Part {
    lowest: Seqno,
    highest: Seqno,
    rows: u64,
}

impl RowView {
    /// See [`Snapshot::newest`](crate::Snapshot::newest).
    pub(super) fn newest(&self, rows: u64) -> Seqno {
        let sections = self.sections();
        let sections = sections.map(|(_, section, limit)| Part {
            lowest: section.lowest,
            highest: section.highest.min(limit),
            rows: u64::from(section.rows),
        });
        let logged = || self.logged.iter().map(|(row, _)| row.seqno);
        let logged = logged().min().zip(logged().max());
        let logged = logged.map(|(lowest, highest)| Part {
            lowest,
            highest,
            rows: self.logged.len() as u64,
        });
        newest(sections.chain(logged).collect(), rows)
    }
}

/// Returns the seqno from which on there are about `wanted` rows, as if the seqnos of a part were spread evenly.
fn newest(mut parts: Vec<Part>, wanted: u64) -> Seqno {
    parts.sort_unstable_by_key(|part| Reverse(part.highest));
    let mut read = 0;
    for part in parts {
        let before = read;
        read += part.rows;
        let wanted = wanted.max(read / READ_FOR_ONE);
        if wanted < read {
            let of_it = u128::from(wanted.saturating_sub(before));
            let seqnos = u128::from(part.highest.0.saturating_sub(part.lowest.0) + 1);
            let above = seqnos * of_it / u128::from(part.rows);
            return Seqno(part.highest.0 + 1 - above as u64);
        }
    }
    Seqno::ZERO
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newest_rows_begin_at_a_seqno_with_a_bounded_read() {
        let part = |lowest, highest, rows| Part {
            lowest: Seqno(lowest),
            highest: Seqno(highest),
            rows,
        };
        let parts = vec![
            part(1, 8_000, 8_000),
            part(9_001, 9_100, 100),
            part(8_001, 9_000, 500),
        ];
        let table = [
            (10, 9_089),
            (50, 9_051),
            // The next part has a row for two seqnos.
            (150, 8_901),
            (350, 8_501),
            // All 8,600 rows are read: an eighth is taken.
            (700, 7_526),
            (2_000, 6_601),
            (8_600, 0),
            (u64::MAX, 0),
        ];
        for (wanted, from) in table {
            assert_eq!(newest(parts.clone(), wanted), Seqno(from), "{wanted}");
        }
        assert_eq!(newest(Vec::new(), 7), Seqno::ZERO);
    }
}
