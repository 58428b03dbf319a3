//! What is in the journals and not yet in the tables: where each row lies.
//!
//! ```text
//! current   the journal that is written into      what it knows of a row holds,
//!    |                                            whatever is below
//! sealed    the full one, while it becomes tables
//!    |
//! tables
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::sync::Arc;

use model::{Seqno, VbId};

use super::journal::{Entry, Place};

/// The seqno that stands for the record of a vBucket.
pub(crate) const RECORD: Seqno = Seqno(u64::MAX);

/// All that the journals tell.
#[derive(Debug)]
pub(crate) struct Front {
    pub(crate) current: Layer,
    pub(crate) sealed: Option<Arc<Layer>>,
}

/// All that one journal tells.
#[derive(Debug)]
pub(crate) struct Layer {
    /// The journal, in which the places are.
    pub(crate) file: Arc<File>,
    /// The vBuckets that it tells something of.
    pub(crate) vbs: BTreeMap<VbId, VbFront>,
    /// Bytes of the journal, once it is sealed.
    pub(crate) bytes: u64,
}

impl Layer {
    /// What an empty journal tells.
    pub(crate) fn empty(file: &Arc<File>) -> Self {
        Self {
            file: Arc::clone(file),
            vbs: BTreeMap::new(),
            bytes: 0,
        }
    }
}

impl Front {
    /// Takes a group in.
    pub(crate) fn apply(&mut self, staged: Vec<(VbId, Staged)>) {
        for (vb, staged) in staged {
            staged.apply(self.current.vbs.entry(vb).or_default());
        }
    }

    /// The journals, the one that counts more first.
    pub(crate) fn layers(&self) -> impl Iterator<Item = &Layer> {
        std::iter::once(&self.current).chain(self.sealed.as_deref())
    }

    /// Where a row is.
    pub(crate) fn find(&self, vb: VbId, seqno: Seqno) -> Found {
        for layer in self.layers() {
            let Some(found) = layer.vbs.get(&vb) else {
                continue;
            };
            match found.rows.get(seqno) {
                Some(place) => return Found::Journal(Arc::clone(&layer.file), place),
                None if found.gone.contains(&seqno) => return Found::Gone,
                None => {}
            }
        }
        Found::Tables
    }
}

/// Where a row is.
#[derive(Debug)]
pub(crate) enum Found {
    /// In a journal.
    Journal(Arc<File>, Place),
    /// Nowhere.
    Gone,
    /// In the tables, if at all.
    Tables,
}

/// Where the record of a vBucket is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum RecordAt {
    /// In what is below, if at all.
    #[default]
    Below,
    /// It was removed.
    Nowhere,
    /// In the journal.
    Journal(Place),
}

/// What a journal tells of one vBucket.
#[derive(Clone, Debug, Default)]
pub(crate) struct VbFront {
    /// Its record.
    pub(crate) record: RecordAt,
    /// Rows that were written.
    pub(crate) rows: Rows,
    /// Rows that were removed, and that what is below may have. A row may be here *and* among the
    /// written ones, when it was written anew after that.
    pub(crate) gone: BTreeSet<Seqno>,
}

impl VbFront {
    /// Whether what is below has nothing to say of a row.
    pub(crate) fn hides(&self, seqno: Seqno) -> bool {
        self.gone.contains(&seqno) || self.rows.get(seqno).is_some()
    }

    /// Takes a row away.
    pub(crate) fn remove(&mut self, seqno: Seqno) {
        // What this journal wrote is not in what is below; unless it had been there before,
        // and then it is among the gone ones already.
        if !self.rows.remove(seqno) {
            self.gone.insert(seqno);
        }
    }
}

/// The changes of one vBucket in a group, on their way.
#[derive(Debug, Default)]
pub(crate) struct Staged {
    pub(crate) record: RecordAt,
    pub(crate) rows: Rows,
    pub(crate) gone: Vec<Seqno>,
}

impl Staged {
    /// The changes of a group, by vBucket in the order of their first one.
    pub(crate) fn of_group(group: impl IntoIterator<Item = Entry>) -> Vec<(VbId, Self)> {
        let mut all = Vec::new();
        for entry in group {
            Self::add_to(&mut all, entry);
        }
        all
    }

    /// Adds a change to those of its vBucket: most often that of the change before.
    pub(crate) fn add_to(all: &mut Vec<(VbId, Self)>, entry: Entry) {
        let (Entry::Put(vb, ..) | Entry::Remove(vb, _)) = entry;
        if all.last().is_none_or(|(last, _)| *last != vb) {
            all.push((vb, Self::default()));
        }
        if let Some((_, staged)) = all.last_mut() {
            staged.add(entry);
        }
    }

    fn add(&mut self, entry: Entry) {
        match entry {
            Entry::Put(_, RECORD, place) => self.record = RecordAt::Journal(place),
            Entry::Remove(_, RECORD) => self.record = RecordAt::Nowhere,
            Entry::Put(_, seqno, place) => self.rows.insert(seqno, place),
            Entry::Remove(_, seqno) => {
                self.rows.remove(seqno);
                self.gone.push(seqno);
            }
        }
    }

    /// Makes the changes. What is both written and removed was written last.
    pub(crate) fn apply(self, to: &mut VbFront) {
        for seqno in self.gone {
            to.remove(seqno);
        }
        to.rows.append(self.rows);
        if self.record != RecordAt::Below {
            to.record = self.record;
        }
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
    blocks: Vec<Vec<(Seqno, Place)>>,
}

impl Rows {
    /// Adds a row, or gives it another place.
    pub(crate) fn insert(&mut self, seqno: Seqno, place: Place) {
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
    pub(crate) fn get(&self, seqno: Seqno) -> Option<Place> {
        let block = self.blocks.get(self.block_of(seqno))?;
        let found = block.binary_search_by_key(&seqno, |(seqno, _)| *seqno);
        found.ok().map(|at| block[at].1)
    }

    /// Adds all of `other`; blocks are moved as they are where that is possible.
    pub(crate) fn append(&mut self, other: Self) {
        for block in other.blocks {
            let last = self.blocks.last();
            let behind = last.is_none_or(|last| ends(last) < block.first().map(|row| row.0));
            let room = last.map_or(0, |last| BLOCK - last.len());
            if behind && block.len() > room {
                self.blocks.push(block);
            } else {
                for (seqno, place) in block {
                    self.insert(seqno, place);
                }
            }
        }
    }

    /// The rows from `from` on, ascending.
    pub(crate) fn from(&self, from: Seqno) -> impl Iterator<Item = (Seqno, Place)> + Send + '_ {
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
fn ends(block: &[(Seqno, Place)]) -> Option<Seqno> {
    block.last().map(|row| row.0)
}

#[cfg(test)]
mod tests;
