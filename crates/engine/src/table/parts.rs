//! A hash table that grows and shrinks a small part at a time.

use super::part::{PART_SHIFT, Part, Rehash, WIDTH};

/// Size of a part in bytes at which it is split instead of doubled. One insertion costs at most a
/// rehash of so many entries. Up to a page, an allocator gives no more than the requested size;
/// above, up to a quarter more.
const PART_BYTES_MAX: usize = 4096;
/// Maximum number of parts is `2^DEPTH_MAX`; then parts double.
const DEPTH_MAX: u8 = 22;
/// Ratio of slots to entries at which a part shrinks, to a quarter. Rare, since all its entries
/// move.
const SPARSE: usize = 8;
/// Maximum number of parts that a removal checks for shrinking.
const LOOKS: usize = 4;
/// Entries per part when room is reserved at once: few parts will have to be split.
const PART_MEANT_FOR: usize = 320;

/// A slot, valid until the table changes.
///
/// One number, so that functions return it in a register: the part in the upper bits, the slot in
/// the lower ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SlotIndex(u64);

impl SlotIndex {
    /// No slot.
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
/// There is no counter of entries per part: an added or removed entry writes only its bucket and
/// the sums of the whole table. The entries of a part are counted when an entry would be far from
/// its bucket, and when the whole table has many more slots than entries.
///
/// Allocates nothing while it is empty. Cost: one directory access more than a plain table; growing
/// splits one part, which hashes the entries of [`PART_BYTES_MAX`].
#[repr(C)]
pub(crate) struct Parts<T> {
    len: usize,
    slots: usize,
    array_bytes: usize,
    resizes: u32,
    /// The part to check next for shrinking.
    next_sparse: u32,
    all: Vec<Part<T>>,
    /// Part for each value of the directory bits; empty while there is only one part.
    directory: Vec<u32>,
    /// Number of directory bits that the entries of each part share.
    depths: Vec<u8>,
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
            next_sparse: 0,
        }
    }
}

impl<T> Parts<T> {
    /// Number of slots at which a part is split; 448 for entries of 8 bytes.
    const SLOTS_MAX: usize = Part::<T>::slots_in(PART_BYTES_MAX);

    /// Creates an empty table with room for `entries`; it rarely grows before that.
    pub(crate) fn with_room(entries: usize) -> Self {
        let depth = (entries / PART_MEANT_FOR)
            .checked_ilog2()
            .map_or(0, |log| log + 1);
        let depth = (depth as u8).min(DEPTH_MAX);
        let slots = Part::<T>::rounded((entries >> depth) * 4 / 3).min(Self::SLOTS_MAX);
        let mut parts = Self::default();
        for index in 0..1_u32 << depth {
            parts.add_part(Part::with_slots(slots), depth);
            if depth > 0 {
                parts.directory.push(index);
            }
        }
        parts
    }

    #[inline]
    fn part_of(&self, hash: u64) -> usize {
        // A directory with one entry is not kept: the only part is part 0.
        let mask = self.directory.len().wrapping_sub(1);
        let index = (hash >> PART_SHIFT) as usize & mask;
        self.directory.get(index).map_or(0, |part| *part as usize)
    }

    /// Prefetches the memory that a look-up of this hash reads first.
    #[inline]
    pub(crate) fn prefetch(&self, hash: u64) {
        if let Some(part) = self.all.get(self.part_of(hash)) {
            part.prefetch(hash);
        }
    }

    /// Entries that a look-up of this hash most likely reads.
    #[inline]
    pub(crate) fn candidates(&self, hash: u64) -> impl Iterator<Item = &T> {
        let part = self.all.get(self.part_of(hash));
        part.into_iter().flat_map(move |part| part.candidates(hash))
    }

    /// Returns the slot with the entry of this hash that `is_it` accepts; [`SlotIndex::NONE`] if there
    /// is none.
    #[inline]
    pub(crate) fn find(&self, hash: u64, is_it: impl FnMut(&T) -> bool) -> SlotIndex {
        let index = self.part_of(hash);
        let part = self.all.get(index);
        let slot = part.and_then(|part| part.find(hash, is_it));
        slot.map_or(SlotIndex::NONE, |slot| SlotIndex::new(index, slot))
    }

    #[inline]
    pub(crate) fn get(&self, slot: SlotIndex) -> Option<&T> {
        self.all.get(slot.part())?.get(slot.slot())
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, slot: SlotIndex) -> Option<&mut T> {
        self.all.get_mut(slot.part())?.get_mut(slot.slot())
    }

    /// Adds an entry. The caller checks for an existing entry of the same key.
    pub(crate) fn insert(&mut self, hash: u64, entry: T, hasher: &impl Rehash<T>) {
        if self.all.is_empty() {
            self.add_part(Part::default(), 0);
        }
        let mut entry = entry;
        loop {
            let index = self.part_of(hash);
            let Err(back) = self.all[index].insert_near(hash, entry) else {
                break;
            };
            entry = back;
            if !self.all[index].is_full() {
                self.all[index].insert(hash, entry);
                break;
            }
            self.resizes += 1;
            let slots = self.all[index].slots();
            if slots >= Self::SLOTS_MAX && self.depths[index] < DEPTH_MAX {
                self.split(index, hash, hasher);
            } else {
                self.grow(index, hasher);
            }
        }
        self.len += 1;
    }

    /// Removes the entry that `is_it` accepts. Cost: as [`Parts::insert`].
    pub(crate) fn remove(
        &mut self,
        hash: u64,
        is_it: impl FnMut(&T) -> bool,
        hasher: &impl Rehash<T>,
    ) -> Option<T> {
        let index = self.part_of(hash);
        let part = self.all.get_mut(index)?;
        let slot = part.find(hash, is_it)?;
        let entry = part.remove(hash, slot)?;
        self.len -= 1;
        if self.len * SPARSE <= self.slots {
            self.shrink_one(hasher);
        }
        Some(entry)
    }

    /// Shrinks the next part with many more slots than entries, if one of the next few is such a
    /// part. An empty table drops all parts.
    fn shrink_one(&mut self, hasher: &impl Rehash<T>) {
        if self.len == 0 {
            let resizes = self.resizes;
            *self = Self {
                resizes,
                ..Self::default()
            };
            return;
        }
        for _ in 0..LOOKS {
            let index = self.next_sparse as usize % self.all.len();
            self.next_sparse = index as u32 + 1;
            let part = &self.all[index];
            let len = part.len();
            if part.slots() > 0 && len * SPARSE <= part.slots() {
                self.shrink(index, len * 2, hasher);
                return;
            }
        }
    }

    fn add_part(&mut self, part: Part<T>, depth: u8) -> usize {
        self.slots += part.slots();
        self.array_bytes += part.bytes();
        if self.all.len() == self.all.capacity() {
            // Not doubled: the unused half would cost each document some tenths of a byte.
            self.all.reserve_exact(self.all.len() / 16 + 1);
            self.depths.reserve_exact(self.all.len() / 16 + 1);
        }
        self.all.push(part);
        self.depths.push(depth);
        self.all.len() - 1
    }

    /// Shrinks a part to `slots`, if it has more.
    fn shrink(&mut self, index: usize, slots: usize, hasher: &impl Rehash<T>) {
        let (slots, part) = (Part::<T>::rounded(slots), &mut self.all[index]);
        let (slots_before, bytes_before) = (part.slots(), part.bytes());
        if slots < slots_before {
            part.shrink(slots, hasher);
            self.slots = self.slots + slots - slots_before;
            self.array_bytes = self.array_bytes + part.bytes() - bytes_before;
        }
    }

    /// Doubles the slots of a part.
    fn grow(&mut self, index: usize, hasher: &impl Rehash<T>) {
        let part = &mut self.all[index];
        let (slots_before, bytes_before) = (part.slots(), part.bytes());
        part.double(hasher);
        self.slots += part.slots() - slots_before;
        self.array_bytes += part.bytes() - bytes_before;
    }

    /// Splits a part, to which `hash` belongs, by the next directory bit.
    fn split(&mut self, index: usize, hash: u64, hasher: &impl Rehash<T>) {
        let depth = self.depths[index];
        let bit = 1_usize << depth;
        let bits = (hash >> PART_SHIFT) as usize;
        if self.directory.is_empty() {
            self.directory.push(0);
        }
        if self.directory.len() == bit {
            self.directory.extend_from_within(..);
        }
        let goes = |hash: u64| (hash >> PART_SHIFT) as usize & bit != 0;
        let split = &mut self.all[index];
        let (slots_before, bytes_before) = (split.slots(), split.bytes());
        let part = split.split(goes, hasher);
        self.slots = self.slots + split.slots() - slots_before;
        self.array_bytes = self.array_bytes + split.bytes() - bytes_before;
        self.depths[index] = depth + 1;
        let new = self.add_part(part, depth + 1);
        let first = (bits & (bit - 1)) | bit;
        for place in self.directory.iter_mut().skip(first).step_by(bit << 1) {
            *place = new as u32;
        }
    }

    /// Runs one step of a pass over all slots, and returns the slot to visit. `None` at the end;
    /// the next step starts again.
    ///
    /// A pass may visit entries that move during it twice, or only in the next pass.
    pub(crate) fn step(&self, next: &mut SlotIndex) -> Option<SlotIndex> {
        while let Some(part) = self.all.get(next.part()) {
            let slot = *next;
            *next = match part.next(slot.slot()) {
                Some(number) => SlotIndex::new(slot.part(), number),
                None => SlotIndex::new(slot.part() + 1, 0),
            };
            if part.has_slot(slot.slot()) {
                return Some(slot);
            }
        }
        *next = SlotIndex::default();
        None
    }

    /// Returns a slot chosen by `seed`, where a pass may begin.
    pub(crate) fn some_slot(&self, seed: u64) -> SlotIndex {
        let part = (seed % (self.all.len() as u64).max(1)) as usize;
        let slots = self.all.get(part).map_or(1, |part| part.slots().max(1));
        let index = (seed >> 32) as usize % slots;
        SlotIndex::new(part, Part::<T>::number_of(index))
    }

    /// Number of entries.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Number of buckets by their number of entries. Cost: reads every bucket.
    pub(crate) fn bucket_fill(&self) -> [u64; WIDTH + 1] {
        let mut counts = [0; WIDTH + 1];
        for part in &self.all {
            part.count_buckets(&mut counts);
        }
        counts
    }

    /// Number of slots, empty ones included.
    pub(crate) fn slots(&self) -> usize {
        self.slots
    }

    /// Number of times that a part grew or was split.
    pub(crate) fn resizes(&self) -> u64 {
        u64::from(self.resizes)
    }

    /// Bytes of all arrays.
    pub(crate) fn bytes(&self) -> usize {
        self.array_bytes
            + self.all.capacity() * size_of::<Part<T>>()
            + self.depths.capacity()
            + self.directory.capacity() * size_of::<u32>()
    }
}
