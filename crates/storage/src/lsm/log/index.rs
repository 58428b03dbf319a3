//! Index of a log in memory: the position of each row, by name and by vBucket.

use std::io;

use hashbrown::HashTable;
use model::{Seqno, VbId};

use crate::lsm::log::chunk::EntryKind;
use crate::lsm::log::place::LogPlace;
use crate::lsm::row::Row;
use crate::lsm::sealed::StoreFile;
use crate::per_vb::PerVb;

/// A row of a log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogRow {
    pub(crate) seqno: Seqno,
    pub(crate) place: LogPlace,
    /// See [`hash`](crate::lsm::row::hash).
    pub(crate) hash: u64,
    /// The previous row of the vBucket, counted from 1; 0 for none. Before the row is linked: the
    /// low bits of the seqno of the row that it replaces, if known.
    before: u32,
    pub(crate) vb: VbId,
    /// Whether it is the removal of a row.
    pub(crate) gone: bool,
    /// Number of the [class](crate::lsm::row::class) of its name; `SUPERSEDED`.
    marks: u8,
}

/// Mark: a later row has the name.
const SUPERSEDED: u8 = 0x80;

impl LogRow {
    pub(crate) fn new(
        (vb, seqno): (VbId, Seqno),
        (hash, class): (u64, u8),
        place: LogPlace,
        gone: bool,
    ) -> Self {
        Self {
            seqno,
            place,
            hash,
            before: 0,
            vb,
            gone,
            marks: class,
        }
    }

    /// Returns the number of its name's [class](crate::lsm::row::class).
    pub(crate) fn class(&self) -> u8 {
        self.marks & !SUPERSEDED
    }

    fn is_superseded(&self) -> bool {
        self.marks & SUPERSEDED != 0
    }

    /// Sets the seqno of the row that it replaces, which has the same name.
    pub(crate) fn after(mut self, seqno: Seqno) -> Self {
        self.before = seqno.0 as u32;
        self
    }

    /// Reads the row into `bytes`.
    pub(crate) fn read(&self, file: &StoreFile, bytes: &mut Vec<u8>) -> io::Result<()> {
        self.place.read(file, EntryKind::Row, self.vb, bytes)
    }
}

/// Position of a vBucket's record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum RecordAt {
    /// The log has no record; an older one may exist.
    #[default]
    Before,
    /// The record is in the log.
    Log(LogPlace),
    /// The vBucket is removed.
    Nowhere,
}

/// The rows of a vBucket in a log.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct VbRows {
    /// The last row, counted from 1; 0 for none.
    last: u32,
    /// The epoch of all rows.
    pub(crate) epoch: u64,
    pub(crate) record: RecordAt,
}

const SEGMENT_BITS: u32 = 12;
const SEGMENT: usize = 1 << SEGMENT_BITS;

/// Positions of the rows of a log.
///
/// Cost: 32 bytes a row, and 5 to 9 for the table of names.
#[derive(Debug, Default)]
pub(crate) struct LogIndex {
    /// Rows in segments, so that the index grows without a copy.
    rows: Vec<Vec<LogRow>>,
    len: usize,
    /// The newest row of each name.
    by_name: HashTable<u32>,
    vbs: PerVb<VbRows>,
    /// The text of the bucket.
    pub(crate) text: Option<LogPlace>,
}

impl LogIndex {
    fn row(&self, number: u32) -> &LogRow {
        let at = number as usize;
        &self.rows[at >> SEGMENT_BITS][at & (SEGMENT - 1)]
    }

    fn row_mut(&mut self, number: u32) -> &mut LogRow {
        let at = number as usize;
        &mut self.rows[at >> SEGMENT_BITS][at & (SEGMENT - 1)]
    }

    /// Returns the number of rows, including invalid ones.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Returns the memory in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        let segments = self.rows.iter().map(Vec::capacity).sum::<usize>();
        segments * size_of::<LogRow>() + self.by_name.allocation_size()
    }

    /// Adds a row that becomes visible once it is linked.
    pub(crate) fn stage(&mut self, row: LogRow) {
        if self.len & (SEGMENT - 1) == 0 {
            // The first segment of an idle log stays small.
            let room = if self.len == 0 { 0 } else { SEGMENT };
            self.rows.push(Vec::with_capacity(room));
        }
        if let Some(segment) = self.rows.last_mut() {
            segment.push(row);
            self.len += 1;
        }
    }

    /// Removes the rows from number `from` on, which must not be linked.
    pub(crate) fn unstage(&mut self, from: usize) {
        self.len = from;
        self.rows.truncate(from.div_ceil(SEGMENT));
        if let Some(segment) = self.rows.last_mut()
            && from & (SEGMENT - 1) > 0
        {
            segment.truncate(from & (SEGMENT - 1));
        }
    }

    fn hash_of(rows: &[Vec<LogRow>], number: u32) -> u64 {
        let at = number as usize;
        rows[at >> SEGMENT_BITS][at & (SEGMENT - 1)].hash
    }

    /// Links the rows from number `from` on, which are in `file`.
    ///
    /// A row of the same hash that cannot be read counts as one of the same name: its content is
    /// lost anyway, and the group of the new row is durable already.
    ///
    /// Cost: a lookup in the table for each, and two reads for a row that replaces another one
    /// whose seqno it does not have.
    pub(crate) fn link(&mut self, from: usize, file: &StoreFile) {
        let rows = &self.rows;
        let hash = |number: &u32| Self::hash_of(rows, *number);
        self.by_name.reserve(self.len - from, hash);
        let (mut bytes, mut others) = (Vec::new(), Vec::new());
        for number in from..self.len {
            let number = number as u32;
            let row = *self.row(number);
            let mut own = false;
            let mut same = |found: &LogRow| {
                if row.before != 0 && row.before == found.seqno.0 as u32 {
                    return Ok(true);
                }
                if !std::mem::replace(&mut own, true) {
                    row.read(file, &mut bytes)?;
                }
                found.read(file, &mut others)?;
                io::Result::Ok(Row::of(&bytes)?.name() == Row::of(&others)?.name())
            };
            let older = self.find_number(row.vb, row.hash, &mut |found| {
                Ok(same(found).unwrap_or(true))
            });
            self.link_one(number, older.ok().flatten());
        }
    }

    /// Links a row, which replaces `older`.
    fn link_one(&mut self, number: u32, older: Option<u32>) {
        let row = *self.row(number);
        if let Some(older) = older {
            let found = self.row_mut(older);
            if found.seqno > row.seqno {
                // The removal of an old row, written after a newer row.
                return;
            }
            found.marks |= SUPERSEDED;
            if let Ok(entry) = self.by_name.find_entry(row.hash, |known| *known == older) {
                entry.remove();
            }
        }
        let rows = &self.rows;
        let hash = |number: &u32| Self::hash_of(rows, *number);
        self.by_name.insert_unique(row.hash, number, hash);
        let vb = self.vbs.slot(row.vb).get_or_insert_default();
        let before = std::mem::replace(&mut vb.last, number + 1);
        self.row_mut(number).before = before;
    }

    /// Returns the newest row of a hash for which `same` is true.
    fn find_number(
        &self,
        vb: VbId,
        hash: u64,
        same: &mut dyn FnMut(&LogRow) -> io::Result<bool>,
    ) -> io::Result<Option<u32>> {
        let mut failed = None;
        let found = self.by_name.find(hash, |number| {
            let row = self.row(*number);
            let known = row.hash == hash && row.vb == vb && failed.is_none();
            known
                && same(row).unwrap_or_else(|error| {
                    failed = Some(error);
                    true
                })
        });
        failed.map_or(Ok(found.copied()), Err)
    }

    /// Whether there is a row of this hash.
    pub(crate) fn has_hash(&self, vb: VbId, hash: u64) -> bool {
        let found = self.find_number(vb, hash, &mut |_| Ok(true));
        found.is_ok_and(|found| found.is_some())
    }

    /// Returns the newest row of a name, after reading it from `file` into `bytes`.
    pub(crate) fn find(
        &self,
        vb: VbId,
        (name, hash): (&[u8], u64),
        file: &StoreFile,
        bytes: &mut Vec<u8>,
    ) -> io::Result<Option<LogRow>> {
        let found = self.find_number(vb, hash, &mut |row| {
            row.read(file, bytes)?;
            Ok(Row::of(bytes)?.name() == name)
        })?;
        Ok(found.map(|number| *self.row(number)))
    }

    /// Iterates over the valid rows of a vBucket, the last one first.
    pub(crate) fn rows_of(&self, vb: VbId) -> impl Iterator<Item = &LogRow> {
        let mut next = self.vbs.get(vb).map_or(0, |rows| rows.last);
        std::iter::from_fn(move || {
            loop {
                let row = self.row(next.checked_sub(1)?);
                next = row.before;
                if !row.is_superseded() {
                    return Some(row);
                }
            }
        })
    }

    /// Returns the entry of a vBucket.
    pub(crate) fn vb(&self, vb: VbId) -> Option<&VbRows> {
        self.vbs.get(vb)
    }

    /// Returns the epoch of a vBucket's rows; zero if there are none.
    pub(crate) fn epoch(&self, vb: VbId) -> u64 {
        self.vb(vb).map_or(0, |rows| rows.epoch)
    }

    /// Iterates over all vBuckets in the log, ascending.
    pub(crate) fn vbs(&self) -> impl Iterator<Item = (VbId, &VbRows)> {
        self.vbs.iter()
    }

    /// Sets the record of a vBucket, and the epoch of later rows. If the epoch changes, earlier
    /// rows above `limit` become invalid.
    pub(crate) fn set_record(
        &mut self,
        vb: VbId,
        place: LogPlace,
        epoch: u64,
        limit: Option<Seqno>,
    ) {
        let known = self.vbs.get(vb).copied().unwrap_or_default();
        if known.epoch != 0 && known.epoch != epoch {
            self.unlink(vb, limit);
        }
        let rows = self.vbs.slot(vb).get_or_insert_default();
        (rows.epoch, rows.record) = (epoch, RecordAt::Log(place));
    }

    /// Records the removal of a vBucket.
    pub(crate) fn forget(&mut self, vb: VbId) {
        self.unlink(vb, None);
        let rows = self.vbs.slot(vb).get_or_insert_default();
        (rows.epoch, rows.record) = (0, RecordAt::Nowhere);
    }

    /// Removes the rows of a vBucket above `limit`; all without one.
    fn unlink(&mut self, vb: VbId, limit: Option<Seqno>) {
        let mut stay = Vec::new();
        let mut next = self.vbs.get(vb).map_or(0, |rows| rows.last);
        while let Some(number) = next.checked_sub(1) {
            let row = *self.row(number);
            next = row.before;
            if limit.is_some_and(|limit| row.seqno <= limit) {
                stay.push(number);
            } else if !row.is_superseded()
                && let Ok(entry) = self.by_name.find_entry(row.hash, |known| *known == number)
            {
                entry.remove();
            }
        }
        let mut before = 0;
        for number in stay.into_iter().rev() {
            self.row_mut(number).before = before;
            before = number + 1;
        }
        if let Some(rows) = self.vbs.slot(vb) {
            rows.last = before;
        }
    }
}
