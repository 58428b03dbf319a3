//! The order by name of a log's rows, which are stored in the order of commits. It is made on
//! demand, for looks at few rows of many.

use std::io;
use std::sync::Arc;

use model::VbId;
use parking_lot::Mutex;

use super::chunk::EntryKind;
use super::index::{LogIndex, LogRow};
use super::piece::EntryReader;
use super::place::LogPlace;
use crate::lsm::row::Row;
use crate::lsm::sealed::StoreFile;
use crate::per_vb::PerVb;

/// Maximum gap between rows of a log that are read at once, in bytes.
const GAP_MAX: u64 = 8 << 10;
/// Maximum bytes that are read at once.
const READ_BYTES: u64 = 256 << 10;
/// Rows that are read at once for an order.
const ROWS_AT_ONCE: usize = 2048;
/// Number of rows without an order: each look reads those of its vBucket. Tests have few rows.
const ROWS_WITHOUT: usize = if cfg!(test) { 8 } else { 4096 };

/// The order of a log, as far as it is known.
#[derive(Clone, Debug, Default)]
pub(crate) struct LogOrder(Arc<Mutex<Arc<Ordered>>>);

impl LogOrder {
    /// Returns the known order.
    pub(crate) fn known(&self) -> Arc<Ordered> {
        Arc::clone(&self.0.lock())
    }

    /// Returns the rows of a log, if so many are missing in the order that it should be made again.
    pub(crate) fn lacks(&self, index: &LogIndex) -> Option<Vec<LogRow>> {
        let known = self.known().rows;
        (index.len() > known + known / 2 + ROWS_WITHOUT).then(|| {
            let of = |(vb, _)| index.rows_of(vb).copied();
            index.vbs().flat_map(of).collect()
        })
    }

    /// Makes the order from the rows of a log, which has `len` rows including invalid ones.
    ///
    /// Cost: reads the rows, in the order of their offsets; holds their names meanwhile.
    pub(crate) fn make(
        &self,
        (file, len): (&StoreFile, usize),
        mut rows: Vec<LogRow>,
    ) -> io::Result<()> {
        rows.sort_unstable_by_key(|row| row.place.offset());
        let end = rows.last().map_or(0, |row| row.place.offset() + 1);
        let (mut names, mut bytes) = (Vec::new(), Vec::new());
        let mut entries = Vec::with_capacity(rows.len());
        for some in rows.chunks_mut(ROWS_AT_ONCE) {
            bytes.clear();
            let lie = read_rows(file, some, &mut bytes)?;
            for (row, (vb, from, length)) in some.iter().zip(lie) {
                let name = Row::of(&bytes[from..from + length])?.name();
                entries.push((vb, names.len() as u32, name.len() as u32, row.place));
                names.extend_from_slice(name);
            }
        }
        drop((rows, bytes));
        let name =
            |of: &(VbId, u32, u32, LogPlace)| &names[of.1 as usize..of.1 as usize + of.2 as usize];
        entries.sort_unstable_by(|a, b| a.0.cmp(&b.0).then_with(|| name(a).cmp(name(b))));
        let vbs = entries.chunk_by(|a, b| a.0 == b.0);
        let vbs = vbs.map(|of_one| (of_one[0].0, of_one.iter().map(|of| of.3).collect()));
        let vbs = vbs.collect();
        *self.0.lock() = Arc::new(Ordered {
            rows: len,
            end,
            vbs,
        });
        Ok(())
    }
}

/// Rows of a log in the order of their names.
#[derive(Debug, Default)]
pub(crate) struct Ordered {
    /// Number of rows of the log at that time.
    rows: usize,
    /// Offset up to which rows are in the order.
    end: u64,
    vbs: PerVb<Box<[LogPlace]>>,
}

impl Ordered {
    /// Whether a row is in the order.
    pub(crate) fn has(&self, row: &LogRow) -> bool {
        row.place.offset() < self.end
    }

    /// Passes the rows of a vBucket with names from `from` (inclusive) to `to` (exclusive) to `f`, in order.
    ///
    /// Cost: a read of each, and of log2(rows) others.
    pub(crate) fn range(
        &self,
        (file, vb): (&StoreFile, VbId),
        (from, to): (&[u8], &[u8]),
        f: &mut dyn FnMut(LogPlace, Vec<u8>) -> io::Result<()>,
    ) -> io::Result<()> {
        let places = self.vbs.get(vb).map_or(&[][..], |places| places);
        let read = |place: LogPlace| {
            let mut bytes = Vec::new();
            place.read(file, EntryKind::Row, vb, &mut bytes)?;
            io::Result::Ok(bytes)
        };
        let (mut low, mut high) = (0, places.len());
        while low < high {
            let middle = low + (high - low) / 2;
            if Row::of(&read(places[middle])?)?.name() < from {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        for place in &places[low..] {
            let bytes = read(*place)?;
            if Row::of(&bytes)?.name() >= to {
                break;
            }
            f(*place, bytes)?;
        }
        Ok(())
    }
}

/// Reads rows into `arena`, adjacent ones at once, and sorts them by their offsets in the log.
/// Returns the position of each in the arena.
///
/// # Errors
/// Those of the system; `InvalidData` if one is not the written row.
pub(crate) fn read_rows(
    file: &StoreFile,
    rows: &mut [LogRow],
    arena: &mut Vec<u8>,
) -> io::Result<Vec<(VbId, usize, usize)>> {
    rows.sort_unstable_by_key(|row| row.place.offset());
    let mut places = Vec::with_capacity(rows.len());
    let mut reader = EntryReader::new(file);
    let mut rest = &*rows;
    while let Some(first) = rest.first() {
        let from = first.place.offset();
        let (mut end, mut count) = (from, 0);
        for row in rest {
            let (begin, after) = (
                row.place.offset(),
                row.place.offset() + row.place.length() as u64,
            );
            if count > 0 && (begin > end + GAP_MAX || after - from > READ_BYTES) {
                break;
            }
            (end, count) = (after, count + 1);
        }
        reader.load(from..end)?;
        let (adjacent, others) = rest.split_at(count);
        for row in adjacent {
            let body = reader.body(EntryKind::Row, row.vb, row.place)?;
            places.push((row.vb, arena.len(), body.len()));
            arena.extend_from_slice(body);
        }
        rest = others;
    }
    Ok(places)
}
