//! What is in the journals and not yet in the tables: where each row lies.
//!
//! ```text
//! current   the journal that is written into      what it knows of a row holds,
//!    |                                            whatever is below
//! sealed    the full one, while it becomes tables
//!    |
//! tables
//! ```

use std::collections::BTreeSet;
use std::fs::File;
use std::sync::Arc;

use model::{Seqno, VbId};

use super::journal::Entry;
use super::per_vb::PerVb;
use crate::disk::value_position::ValuePosition;

/// The seqno that stands for the record of a vBucket.
pub(crate) const RECORD: Seqno = Seqno(u64::MAX);

/// All that the journals tell.
#[derive(Debug)]
pub(crate) struct LogIndex {
    pub(crate) current: JournalIndex,
    pub(crate) sealed: Option<Arc<JournalIndex>>,
}

/// All that one journal tells.
#[derive(Debug)]
pub(crate) struct JournalIndex {
    /// The journal, in which the places are.
    pub(crate) file: Arc<File>,
    /// The vBuckets that it tells something of.
    pub(crate) vbs: PerVb<VbIndex>,
    /// Bytes of the journal, once it is sealed.
    pub(crate) bytes: u64,
}

impl JournalIndex {
    /// What an empty journal tells.
    pub(crate) fn empty(file: &Arc<File>) -> Self {
        Self {
            file: Arc::clone(file),
            vbs: PerVb::default(),
            bytes: 0,
        }
    }
}

impl LogIndex {
    /// The journals, the one that counts more first.
    pub(crate) fn indexes(&self) -> impl Iterator<Item = &JournalIndex> {
        std::iter::once(&self.current).chain(self.sealed.as_deref())
    }

    /// Where a row is.
    pub(crate) fn find(&self, vb: VbId, seqno: Seqno) -> RowLocation {
        for index in self.indexes() {
            let found = index.vbs.get(vb).map(|found| found.find(seqno));
            match found.unwrap_or_default() {
                RowAt::Journal(place) => {
                    return RowLocation::Journal(Arc::clone(&index.file), place);
                }
                RowAt::Nowhere => return RowLocation::Gone,
                RowAt::Below => {}
            }
        }
        RowLocation::Tables
    }
}

/// Where a row is.
#[derive(Debug)]
pub(crate) enum RowLocation {
    /// In a journal.
    Journal(Arc<File>, ValuePosition),
    /// Nowhere.
    Gone,
    /// In the tables, if at all.
    Tables,
}

/// Where a row or the record of a vBucket is, as a journal knows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum RowAt {
    /// In what is below, if at all.
    #[default]
    Below,
    /// It was removed.
    Nowhere,
    /// In the journal.
    Journal(ValuePosition),
}

/// Changes for which a group on its way takes space at first, and at once later.
const STAGED_AT_FIRST: usize = 4;
const STAGED_AT_ONCE: usize = 1024;

/// The changes of a group on its way.
///
/// Shape: blocks, so that a large group is never copied whole, and is freed as it is applied.
#[derive(Debug, Default)]
pub(crate) struct Staged {
    blocks: Vec<Vec<Entry>>,
}

impl Staged {
    pub(crate) fn push(&mut self, entry: Entry) {
        match self.blocks.last_mut() {
            Some(last) if last.len() < last.capacity() => last.push(entry),
            last => {
                // Small groups, of which there are many, take little.
                let before = last.map_or(0, |last| last.capacity());
                let rotation = (before * 2).clamp(STAGED_AT_FIRST, STAGED_AT_ONCE);
                let mut block = Vec::with_capacity(rotation);
                block.push(entry);
                self.blocks.push(block);
            }
        }
    }

    /// Makes the changes, in their order.
    pub(crate) fn apply(self, vbs: &mut PerVb<VbIndex>) {
        for block in self.blocks {
            for entry in block {
                let (Entry::Put(vb, ..) | Entry::Remove(vb, _)) = entry;
                vbs.slot(vb).get_or_insert_default().apply(entry);
            }
        }
    }
}

/// Changes of a vBucket that may wait to be sorted in.
const RECENT_MAX: usize = 32;

/// What a journal tells of one vBucket.
///
/// Shape: what changed last is put aside in the order of its coming, and sorted in together: a
/// commit changes a row or two of most vBuckets, and would touch many lines of memory for each.
/// Walks over rows take a [`VbIndex::settled`] one.
#[derive(Clone, Debug, Default)]
pub(crate) struct VbIndex {
    /// Its record.
    pub(crate) record: RowAt,
    /// What was written, or went, last.
    recent: Vec<(Seqno, Option<ValuePosition>)>,
    rows: Rows,
    gone: BTreeSet<Seqno>,
}

impl VbIndex {
    /// Takes a change in.
    pub(crate) fn apply(&mut self, entry: Entry) {
        match entry {
            Entry::Put(_, RECORD, place) => self.record = RowAt::Journal(place),
            Entry::Remove(_, RECORD) => self.record = RowAt::Nowhere,
            Entry::Put(_, seqno, place) => self.push((seqno, Some(place))),
            Entry::Remove(_, seqno) => self.push((seqno, None)),
        }
        if self.recent.len() >= RECENT_MAX {
            self.settle();
        }
    }

    /// Puts a change of a row aside. The first takes the place of one: in a bucket that is hardly used there
    /// is no second.
    fn push(&mut self, change: (Seqno, Option<ValuePosition>)) {
        if self.recent.is_empty() {
            self.recent.reserve_exact(1);
        }
        self.recent.push(change);
    }

    /// Sorts in what was put aside.
    pub(crate) fn settle(&mut self) {
        for (seqno, place) in self.recent.drain(..) {
            match place {
                Some(place) => self.rows.insert(seqno, place),
                // What this journal wrote is not in what is below; unless it had been there
                // before, and then it is among the gone ones already.
                None if self.rows.remove(seqno) => {}
                None => {
                    self.gone.insert(seqno);
                }
            }
        }
    }

    /// Itself, with all that it knows sorted in.
    pub(crate) fn settled(mut self) -> Self {
        self.settle();
        self
    }

    /// Where a row is.
    fn find(&self, seqno: Seqno) -> RowAt {
        let mut recent = self.recent.iter().rev();
        let place = match recent.find(|(changed, _)| *changed == seqno) {
            Some((_, place)) => *place,
            None => match self.rows.get(seqno) {
                None if !self.gone.contains(&seqno) => return RowAt::Below,
                found => found,
            },
        };
        place.map_or(RowAt::Nowhere, RowAt::Journal)
    }

    /// Rows that were written, ascending from `from`. It is settled.
    pub(crate) fn rows_from(
        &self,
        from: Seqno,
    ) -> impl Iterator<Item = (Seqno, ValuePosition)> + Send + '_ {
        debug_assert!(self.recent.is_empty(), "only a settled one is walked over");
        self.rows.from(from)
    }

    /// Rows that were removed and that what is below may have, ascending. A row may be here *and*
    /// among the written ones, when it was written anew after that. It is settled.
    pub(crate) fn gone(&self) -> impl Iterator<Item = Seqno> + '_ {
        debug_assert!(self.recent.is_empty(), "only a settled one is walked over");
        self.gone.iter().copied()
    }

    /// Whether what is below has nothing to say of a row.
    pub(crate) fn hides(&self, seqno: Seqno) -> bool {
        self.find(seqno) != RowAt::Below
    }

    /// Whether a row was written, and is not gone.
    pub(crate) fn has(&self, seqno: Seqno) -> bool {
        matches!(self.find(seqno), RowAt::Journal(_))
    }
}

/// Entries of a block. Sixteen bytes each.
const BLOCK: usize = 256;

/// Rows by seqno, almost always added in ascending order.
///
/// Shape: blocks of up to [`BLOCK`] entries, none empty, ascending throughout. Cost: 16 bytes a
/// row; adding at the end is O(1), anything else a binary search and a move within a block.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rows {
    blocks: Vec<Vec<(Seqno, ValuePosition)>>,
}

impl Rows {
    /// Adds a row, or gives it another place.
    pub(crate) fn insert(&mut self, seqno: Seqno, place: ValuePosition) {
        let Some(last) = self.blocks.last_mut() else {
            return self.blocks.push(vec![(seqno, place)]);
        };
        if ends(last) < Some(seqno) {
            if last.len() < BLOCK {
                last.push((seqno, place));
            } else {
                self.blocks.push(vec![(seqno, place)]);
            }
            return;
        }
        let at = self.block_of(seqno);
        let block = &mut self.blocks[at];
        match block.binary_search_by_key(&seqno, |(seqno, _)| *seqno) {
            Ok(found) => block[found].1 = place,
            Err(gap) => {
                block.insert(gap, (seqno, place));
                if block.len() > BLOCK {
                    let upper = block.split_off(BLOCK / 2);
                    self.blocks.insert(at + 1, upper);
                }
            }
        }
    }

    /// Takes a row away; says whether it was there.
    pub(crate) fn remove(&mut self, seqno: Seqno) -> bool {
        let at = self.block_of(seqno);
        let Some(block) = self.blocks.get_mut(at) else {
            return false;
        };
        let Ok(found) = block.binary_search_by_key(&seqno, |(seqno, _)| *seqno) else {
            return false;
        };
        block.remove(found);
        if block.is_empty() {
            self.blocks.remove(at);
        }
        true
    }

    /// Where a row lies.
    pub(crate) fn get(&self, seqno: Seqno) -> Option<ValuePosition> {
        let block = self.blocks.get(self.block_of(seqno))?;
        let found = block.binary_search_by_key(&seqno, |(seqno, _)| *seqno);
        found.ok().map(|at| block[at].1)
    }

    /// The rows from `from` on, ascending.
    pub(crate) fn from(
        &self,
        from: Seqno,
    ) -> impl Iterator<Item = (Seqno, ValuePosition)> + Send + '_ {
        let blocks = self.blocks[self.block_of(from)..].iter().flatten();
        blocks.copied().skip_while(move |(seqno, _)| *seqno < from)
    }

    /// The block in which a seqno is, if it is in any.
    fn block_of(&self, seqno: Seqno) -> usize {
        self.blocks
            .partition_point(|block| ends(block) < Some(seqno))
    }
}

/// The last seqno of a block.
fn ends(block: &[(Seqno, ValuePosition)]) -> Option<Seqno> {
    block.last().map(|row| row.0)
}

#[cfg(test)]
mod tests;
