//! A hash table that grows and shrinks a small part at a time.

use hashbrown::HashTable;

/// Slots of a part beyond which it is split in two rather than doubled: what one insertion may
/// cost is a rehash of this many.
const PART_SLOTS_MAX: usize = 512;
/// Parts of a table are at most `2^DEPTH_MAX`; beyond that they double.
const DEPTH_MAX: u8 = 22;
/// Which bits of a hash choose the part: neither the lowest ones, which choose the slot in it,
/// nor the highest ones, which are the slot's tag.
const PART_SHIFT: u32 = 24;

/// A slot, good until the table changes.
///
/// One number, so that functions return it in a register: part above, slot in it below.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Spot(u64);

impl Spot {
    /// No slot: nothing is there.
    pub(crate) const NONE: Self = Self(u64::MAX);

    fn new(part: usize, slot: usize) -> Self {
        Self((part as u64) << 32 | slot as u64)
    }

    fn part(self) -> usize {
        (self.0 >> 32) as usize
    }

    fn slot(self) -> usize {
        self.0 as u32 as usize
    }
}

/// Entries by hash, in parts that a directory finds ("extendible hashing").
///
/// Allocates nothing while it is empty. Cost: one look into the directory more than a plain
/// table; growing splits one part, which hashes at most [`PART_SLOTS_MAX`] entries.
pub(crate) struct Parts<T> {
    all: Vec<HashTable<T>>,
    /// How many of the deciding bits the entries of each part share.
    depths: Vec<u8>,
    /// The part of each value of the deciding bits; empty while there is only one part.
    directory: Vec<u32>,
    len: usize,
    slots: u32,
    array_bytes: usize,
    resizes: u32,
}

fn slots_of<T>(entries: &HashTable<T>) -> u32 {
    // One without an array says that it has one slot.
    if entries.capacity() == 0 {
        0
    } else {
        entries.num_buckets() as u32
    }
}

impl<T> Default for Parts<T> {
    fn default() -> Self {
        Self {
            all: Vec::new(),
            depths: Vec::new(),
            directory: Vec::new(),
            len: 0,
            slots: 0,
            array_bytes: 0,
            resizes: 0,
        }
    }
}

impl<T> Parts<T> {
    #[inline]
    fn part_of(&self, hash: u64) -> usize {
        // A directory of one entry is not kept: nothing is found in it, and part 0 it is.
        let mask = self.directory.len().wrapping_sub(1);
        let index = (hash >> PART_SHIFT) as usize & mask;
        self.directory.get(index).map_or(0, |part| *part as usize)
    }

    /// Where the entry of this hash is that `is_it` accepts; [`Spot::NONE`] if there is none.
    #[inline]
    pub(crate) fn find(&self, hash: u64, is_it: impl FnMut(&T) -> bool) -> Spot {
        let index = self.part_of(hash);
        let part = self.all.get(index);
        let slot = part.and_then(|part| part.find_bucket_index(hash, is_it));
        slot.map_or(Spot::NONE, |slot| Spot::new(index, slot))
    }

    #[inline]
    pub(crate) fn get(&self, spot: Spot) -> Option<&T> {
        self.all.get(spot.part())?.get_bucket(spot.slot())
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, spot: Spot) -> Option<&mut T> {
        let part = self.all.get_mut(spot.part())?;
        part.get_bucket_mut(spot.slot())
    }

    /// Adds an entry; whether there is another of its kind is the caller's business.
    pub(crate) fn insert(&mut self, hash: u64, entry: T, hasher: impl Fn(&T) -> u64) {
        if self.all.is_empty() {
            self.add_part(HashTable::new(), 0);
        }
        let mut index = self.part_of(hash);
        loop {
            let entries = &self.all[index];
            let full = entries.len() == entries.capacity();
            let large = entries.num_buckets() >= PART_SLOTS_MAX
                && entries.len() > PART_SLOTS_MAX / 2
                && self.depths[index] < DEPTH_MAX;
            if !full {
                break;
            }
            self.resizes += 1;
            if large {
                self.split(index, &hasher);
                index = self.part_of(hash);
            } else {
                self.change_part(index, |part| part.reserve(1, &hasher));
                break;
            }
        }
        self.all[index].insert_unique(hash, entry, hasher);
        self.len += 1;
    }

    /// Takes the entry out that `is_it` accepts. Cost: as [`Parts::insert`].
    pub(crate) fn remove(
        &mut self,
        hash: u64,
        is_it: impl FnMut(&T) -> bool,
        hasher: impl Fn(&T) -> u64,
    ) -> Option<T> {
        let index = self.part_of(hash);
        let part = self.all.get_mut(index)?;
        let entry = part.find_entry(hash, is_it).ok()?.remove().0;
        self.len -= 1;
        let (len, capacity) = (part.len(), part.capacity());
        if capacity >= 16 && len * 4 <= capacity {
            self.change_part(index, |part| part.shrink_to(len * 2, hasher));
        }
        Some(entry)
    }

    fn add_part(&mut self, entries: HashTable<T>, depth: u8) -> usize {
        self.slots += slots_of(&entries);
        self.array_bytes += entries.allocation_size();
        if self.all.len() == self.all.capacity() {
            // Not doubled: its unused half would cost each document some tenths of a byte.
            self.all.reserve_exact(self.all.len() / 16 + 1);
            self.depths.reserve_exact(self.all.len() / 16 + 1);
        }
        self.all.push(entries);
        self.depths.push(depth);
        self.all.len() - 1
    }

    /// Changes a part's array, and books it.
    fn change_part(&mut self, index: usize, change: impl FnOnce(&mut HashTable<T>)) {
        let part = &mut self.all[index];
        let (slots, bytes) = (slots_of(part), part.allocation_size());
        change(part);
        self.slots = self.slots - slots + slots_of(part);
        self.array_bytes = self.array_bytes - bytes + part.allocation_size();
    }

    /// Makes two parts of one: the next of the deciding bits tells them apart.
    fn split(&mut self, index: usize, hasher: &impl Fn(&T) -> u64) {
        let depth = self.depths[index];
        let bit = 1_usize << depth;
        if self.directory.is_empty() {
            self.directory.push(0);
        }
        if self.directory.len() == bit {
            self.directory.extend_from_within(..);
        }
        let old = std::mem::take(&mut self.all[index]);
        self.slots -= slots_of(&old);
        self.array_bytes -= old.allocation_size();
        let room = old.len() * 7 / 8;
        let mut halves = [(); 2].map(|()| HashTable::with_capacity(room));
        // First all hashes, then all moves: what hashing waits for is in memory far away, and
        // much of it can be waited for at once.
        let mut hashes = [0; PART_SLOTS_MAX];
        for (hash, entry) in hashes.iter_mut().zip(&old) {
            *hash = hasher(entry);
        }
        let bits = (hashes[0] >> PART_SHIFT) as usize;
        for (hash, entry) in hashes.into_iter().zip(old) {
            let half = usize::from((hash >> PART_SHIFT) as usize & bit != 0);
            halves[half].insert_unique(hash, entry, hasher);
        }
        let [low, high] = halves;
        self.change_part(index, |part| *part = low);
        self.depths[index] = depth + 1;
        let new = self.add_part(high, depth + 1);
        let first = (bits & (bit - 1)) | bit;
        for place in self.directory.iter_mut().skip(first).step_by(bit << 1) {
            *place = new as u32;
        }
    }

    /// One step of a pass over all slots: the slot to look at. `None` at the end; the next step
    /// begins anew.
    ///
    /// Entries that move while a pass goes on may be met twice, or only in the next pass.
    pub(crate) fn step(&self, next: &mut Spot) -> Option<Spot> {
        while let Some(part) = self.all.get(next.part()) {
            let spot = *next;
            if spot.slot() < slots_of(part) as usize {
                *next = Spot::new(spot.part(), spot.slot() + 1);
                return Some(spot);
            }
            *next = Spot::new(spot.part() + 1, 0);
        }
        *next = Spot::default();
        None
    }

    /// A slot chosen by `seed`, where a pass may begin.
    pub(crate) fn some_spot(&self, seed: u64) -> Spot {
        let part = (seed % (self.all.len() as u64).max(1)) as usize;
        let slots = self.all.get(part).map_or(1, |part| slots_of(part).max(1));
        Spot::new(part, ((seed >> 32) as u32 % slots) as usize)
    }

    /// Entries.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Slots, empty ones included.
    pub(crate) fn slots(&self) -> usize {
        self.slots as usize
    }

    /// How often a part grew or was split.
    pub(crate) fn resizes(&self) -> u64 {
        u64::from(self.resizes)
    }

    /// Bytes of all arrays.
    pub(crate) fn bytes(&self) -> usize {
        self.array_bytes
            + self.all.capacity() * size_of::<HashTable<T>>()
            + self.depths.capacity()
            + self.directory.capacity() * size_of::<u32>()
    }
}
