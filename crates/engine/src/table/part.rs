//! A small open-addressing hash table whose buckets are cache lines.

use std::hint::black_box;

use prefetch_index::prefetch_index;

/// Lowest bit of a hash that selects the part. Lower bits select the bucket in the part, the
/// highest bits are the slot's tag.
pub(super) const PART_SHIFT: u32 = 24;

/// Hash function of a table's entries, needed to move them.
pub(crate) trait Rehash<T> {
    /// Returns the hash of the entry's key.
    fn hash(&self, entry: &T) -> u64;

    /// Reads the memory that [`Rehash::hash`] will read, and does little else: calls for many
    /// entries in a row wait for all of their memory at once.
    fn touch(&self, _entry: &T) -> u8 {
        0
    }
}

impl<T, F: Fn(&T) -> u64> Rehash<T> for F {
    fn hash(&self, entry: &T) -> u64 {
        self(entry)
    }
}

/// Alignment of a cache line.
#[repr(align(64))]
struct CacheLine;

/// Slots of a bucket. With their tags and the counter of displaced entries they fill a cache line.
pub(super) const WIDTH: usize = 7;
/// Index of the counter among the tags.
const PASSED: usize = 7;
const LOW_BITS: u64 = 0x0101_0101_0101_0101;
/// The high bit of each tag, without the counter.
const TAGS: u64 = 0x0080_8080_8080_8080;
/// All bits of all tags, without the counter.
const WITHOUT_COUNT: u64 = 0x00ff_ffff_ffff_ffff;

/// Seven entries and their tags. A look-up reads only this before it reads an entry itself.
#[repr(C)]
struct Bucket<T> {
    line: [CacheLine; 0],
    /// Bits of each entry's hash, never zero; zero for an empty slot. The last byte counts the
    /// displaced entries: those that belong into this bucket or an earlier one, but are in a later
    /// one because this was full.
    tags: [u8; WIDTH + 1],
    slots: [Option<T>; WIDTH],
}

impl<T> Bucket<T> {
    fn new() -> Self {
        Self {
            line: [],
            tags: [0; WIDTH + 1],
            slots: [const { None }; WIDTH],
        }
    }

    fn word(&self) -> u64 {
        u64::from_le_bytes(self.tags)
    }

    /// Returns a bit for each slot with this tag, possibly also for other occupied slots.
    #[inline]
    fn tagged(&self, tag: u8) -> u64 {
        let differ = self.word() ^ (LOW_BITS * u64::from(tag));
        differ.wrapping_sub(LOW_BITS) & !differ & TAGS
    }

    fn free(&self) -> Option<usize> {
        let free = !self.word() & TAGS;
        (free != 0).then(|| free.trailing_zeros() as usize / 8)
    }

    /// Number of entries.
    fn len(&self) -> usize {
        (self.word() & TAGS).count_ones() as usize
    }

    fn is_passed(&self) -> bool {
        self.tags[PASSED] > 0
    }
}

/// A part of a table: entries by hash, in a power of two of buckets. An entry is in the bucket of
/// its hash or, if that was full, in a later one.
///
/// The fields that look-ups read before the buckets change only when a part grows or shrinks, so
/// they stay in the caches of all processors.
pub(super) struct Part<T> {
    buckets: Box<[Bucket<T>]>,
}

impl<T> Default for Part<T> {
    fn default() -> Self {
        Self {
            buckets: Box::default(),
        }
    }
}

#[inline]
fn tag_of(hash: u64) -> u8 {
    (hash >> 57) as u8 | 0x80
}

impl<T> Part<T> {
    /// Creates an empty part with `slots` slots, a result of [`Part::rounded`]. Zero slots take no
    /// memory.
    pub(super) fn with_slots(slots: usize) -> Self {
        Self {
            buckets: (0..slots / WIDTH).map(|_| Bucket::new()).collect(),
        }
    }

    /// Returns the number of slots of a part that needs at least `slots`.
    pub(super) fn rounded(slots: usize) -> usize {
        match slots.div_ceil(WIDTH) {
            0 => 0,
            buckets => buckets.next_power_of_two() * WIDTH,
        }
    }

    /// Index of the bucket to which an entry of this hash belongs.
    #[inline]
    fn home(&self, hash: u64) -> usize {
        hash as usize & self.buckets.len().wrapping_sub(1)
    }

    /// Index of the next bucket.
    #[inline]
    fn after(&self, index: usize) -> usize {
        (index + 1) & self.buckets.len().wrapping_sub(1)
    }

    /// Number of slots that fit into `bytes`, a power of two.
    pub(super) const fn slots_in(bytes: usize) -> usize {
        bytes / size_of::<Bucket<T>>() * WIDTH
    }

    /// Number of slots, empty ones included.
    pub(super) fn slots(&self) -> usize {
        self.buckets.len() * WIDTH
    }

    pub(super) fn bytes(&self) -> usize {
        size_of_val(&*self.buckets)
    }

    /// Number of entries. Cost: reads all buckets.
    pub(super) fn len(&self) -> usize {
        self.buckets.iter().map(Bucket::len).sum()
    }

    /// Counts buckets by their number of entries.
    /// Cost: as [`Part::len`].
    pub(super) fn count_buckets(&self, counts: &mut [u64; WIDTH + 1]) {
        for bucket in &self.buckets {
            counts[bucket.len()] += 1;
        }
    }

    /// Whether the part is at least seven eighths full, and should grow when an entry finds no room
    /// in reach.
    /// Cost: as [`Part::len`].
    pub(super) fn is_full(&self) -> bool {
        self.len() * 8 >= self.slots() * 7
    }

    /// Number of buckets, the own one included, in which an entry may be before the part's entries
    /// are counted. That happens about twice until a part is full, at nine tenths on average.
    fn reach(&self) -> usize {
        self.buckets.len().min(4 + self.buckets.len() / 8)
    }

    /// Prefetches the memory that a look-up of this hash reads first.
    #[inline]
    pub(super) fn prefetch(&self, hash: u64) {
        prefetch_index(&self.buckets, self.home(hash));
    }

    /// Entries that a look-up of this hash most likely reads.
    #[inline]
    pub(super) fn candidates(&self, hash: u64) -> impl Iterator<Item = &T> {
        let bucket = self.buckets.get(self.home(hash));
        let mut tagged = bucket.map_or(0, |bucket| bucket.tagged(tag_of(hash)));
        std::iter::from_fn(move || {
            let slot = (tagged != 0).then(|| tagged.trailing_zeros() as usize / 8)?;
            tagged &= tagged - 1;
            bucket?.slots.get(slot)?.as_ref()
        })
    }

    /// Returns the number of the slot with the entry of this hash that `is_it` accepts.
    #[inline]
    pub(super) fn find(&self, hash: u64, mut is_it: impl FnMut(&T) -> bool) -> Option<usize> {
        let tag = tag_of(hash);
        let mut index = self.home(hash);
        for _ in 0..self.buckets.len() {
            let bucket = self.buckets.get(index)?;
            let mut tagged = bucket.tagged(tag);
            while tagged != 0 {
                let slot = tagged.trailing_zeros() as usize / 8;
                if bucket.slots.get(slot)?.as_ref().is_some_and(&mut is_it) {
                    return Some((index << 3) | slot);
                }
                tagged &= tagged - 1;
            }
            if !bucket.is_passed() {
                return None;
            }
            index = self.after(index);
        }
        None
    }

    #[inline]
    pub(super) fn get(&self, number: usize) -> Option<&T> {
        let bucket = self.buckets.get(number >> 3)?;
        bucket.slots.get(number & 7)?.as_ref()
    }

    #[inline]
    pub(super) fn get_mut(&mut self, number: usize) -> Option<&mut T> {
        let bucket = self.buckets.get_mut(number >> 3)?;
        bucket.slots.get_mut(number & 7)?.as_mut()
    }

    /// Returns the number of the next slot, for passes that start at zero; `None` at the end.
    pub(super) fn next(&self, number: usize) -> Option<usize> {
        let next = if number & 7 == WIDTH - 1 {
            (number | 7) + 1
        } else {
            number + 1
        };
        (next >> 3 < self.buckets.len()).then_some(next)
    }

    /// Whether a slot with this number exists.
    pub(super) fn has_slot(&self, number: usize) -> bool {
        number >> 3 < self.buckets.len()
    }

    /// Returns the number of the slot at `index` of all slots.
    pub(super) fn number_of(index: usize) -> usize {
        ((index / WIDTH) << 3) | (index % WIDTH)
    }

    /// Adds an entry. If all buckets in reach are full, returns it and changes nothing.
    pub(super) fn insert_near(&mut self, hash: u64, entry: T) -> Result<(), T> {
        let home = self.home(hash);
        let mut index = home;
        for _ in 0..self.reach() {
            if self.buckets[index].free().is_some() {
                self.insert_at(home, tag_of(hash), entry);
                return Ok(());
            }
            index = self.after(index);
        }
        Err(entry)
    }

    /// Adds an entry to a part that is not full.
    pub(super) fn insert(&mut self, hash: u64, entry: T) {
        self.insert_at(self.home(hash), tag_of(hash), entry);
    }

    /// Adds an entry, given its home bucket and its tag.
    fn insert_at(&mut self, home: usize, tag: u8, entry: T) {
        let mut index = home;
        loop {
            let bucket = &mut self.buckets[index];
            if let Some(slot) = bucket.free() {
                bucket.tags[slot] = tag;
                bucket.slots[slot] = Some(entry);
                return;
            }
            // A saturated counter stays so: look-ups always go on to the next bucket.
            bucket.tags[PASSED] = bucket.tags[PASSED].saturating_add(1);
            index = self.after(index);
        }
    }

    /// Removes the entry in a slot, and returns it; `hash` is the entry's hash.
    pub(super) fn remove(&mut self, hash: u64, number: usize) -> Option<T> {
        let bucket = self.buckets.get_mut(number >> 3)?;
        let entry = bucket.slots.get_mut(number & 7)?.take()?;
        bucket.tags[number & 7] = 0;
        let mut index = self.home(hash);
        while index != number >> 3 {
            let passed = &mut self.buckets[index].tags[PASSED];
            if *passed < u8::MAX {
                *passed -= 1;
            }
            index = self.after(index);
        }
        Some(entry)
    }

    /// Shrinks the part to `slots`, which must be enough, and a result of [`Part::rounded`].
    ///
    /// Hashes only entries behind a full bucket; for other entries their bucket has all needed
    /// bits.
    pub(super) fn shrink(&mut self, slots: usize, hasher: &impl Rehash<T>) {
        let mut old = std::mem::replace(self, Self::with_slots(slots)).buckets;
        let Some(mut is_passed) = old.last().map(Bucket::is_passed) else {
            return;
        };
        let mask = self.buckets.len().wrapping_sub(1);
        for (home, bucket) in old.iter_mut().enumerate() {
            let may_be_guests = std::mem::replace(&mut is_passed, bucket.is_passed());
            let mut full = bucket.word() & TAGS;
            while full != 0 {
                let slot = full.trailing_zeros() as usize / 8;
                full &= full - 1;
                match bucket.slots[slot].take() {
                    Some(entry) if may_be_guests => self.insert(hasher.hash(&entry), entry),
                    Some(entry) => self.insert_at(home & mask, bucket.tags[slot], entry),
                    None => {}
                }
            }
        }
    }

    /// Doubles the number of buckets.
    pub(super) fn double(&mut self, hasher: &impl Rehash<T>) {
        let half = self.buckets.len();
        let mut doubled = Self::with_slots(Self::rounded((self.slots() * 2).max(1)));
        for (new, old) in doubled.buckets.iter_mut().zip(&mut *self.buckets) {
            std::mem::swap(new, old);
        }
        *self = doubled;
        let (low, high) = self.buckets.split_at_mut(half);
        for (hash, entry) in divide(low, high, |hash| hash as usize & half != 0, hasher) {
            self.insert(hash, entry);
        }
    }

    /// Moves the entries whose hash `goes` to a new part, and returns it.
    pub(super) fn split(&mut self, goes: impl Fn(u64) -> bool, hasher: &impl Rehash<T>) -> Self {
        let mut other = Self::with_slots(self.slots());
        for (hash, entry) in divide(&mut self.buckets, &mut other.buckets, &goes, hasher) {
            let part = if goes(hash) { &mut other } else { &mut *self };
            part.insert(hash, entry);
        }
        other
    }
}

/// Moves entries whose hash `goes` to the bucket of the same number in `high`, which is empty;
/// `low` is a whole part. Takes out displaced entries, and returns them.
///
/// First touches all entries, then hashes them, then moves them. Hashing waits for distant memory,
/// and the waits overlap as long as no decision depends on them.
fn divide<T>(
    low: &mut [Bucket<T>],
    high: &mut [Bucket<T>],
    goes: impl Fn(u64) -> bool,
    hasher: &impl Rehash<T>,
) -> Vec<(u64, T)> {
    let mask = low.len().wrapping_sub(1);
    let mut taken = Vec::new();
    let touched = low.iter().flat_map(|bucket| bucket.slots.iter().flatten());
    black_box(touched.fold(0, |sum, entry| sum ^ hasher.touch(entry)));
    // For each bucket, the tag bits of entries that go and of displaced entries.
    let mut moves = Vec::with_capacity(low.len());
    moves.extend(low.iter().enumerate().map(|(index, bucket)| {
        let (mut going, mut guests) = (0, 0);
        for (slot, entry) in bucket.slots.iter().enumerate() {
            if let Some(entry) = entry {
                let hash = hasher.hash(entry);
                going |= u64::from(goes(hash)) << (slot * 8);
                guests |= u64::from(hash as usize & mask != index) << (slot * 8);
            }
        }
        (going & !guests, guests)
    }));
    for ((from, to), (mut going, mut guests)) in low.iter_mut().zip(high).zip(moves) {
        let word = from.word() & WITHOUT_COUNT;
        let tags_of = |slots: u64| word & (slots * 0xff);
        to.tags = tags_of(going).to_le_bytes();
        from.tags = (word ^ tags_of(going | guests)).to_le_bytes();
        while going != 0 {
            let slot = going.trailing_zeros() as usize / 8;
            going &= going - 1;
            std::mem::swap(&mut from.slots[slot], &mut to.slots[slot]);
        }
        while guests != 0 {
            let slot = guests.trailing_zeros() as usize / 8;
            guests &= guests - 1;
            let guest = from.slots[slot].take();
            taken.extend(guest.map(|guest| (hasher.hash(&guest), guest)));
        }
    }
    taken
}
