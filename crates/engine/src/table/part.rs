//! A small open-addressed table whose buckets are cache lines.

use std::hint::black_box;

use prefetch_index::prefetch_index;

/// Which bits of a hash choose the part: neither the lowest ones, which choose the bucket in it,
/// nor the highest ones, which are the slot's tag.
pub(super) const PART_SHIFT: u32 = 24;

/// What a table must know of its entries to move them.
pub(crate) trait Rehash<T> {
    /// Hash of the entry's key.
    fn hash(&self, entry: &T) -> u64;

    /// Reads what [`Rehash::hash`] will read, and does little else: called for many entries one
    /// after the other, it waits for all of their memory at once.
    fn touch(&self, _entry: &T) -> u8 {
        0
    }
}

impl<T, F: Fn(&T) -> u64> Rehash<T> for F {
    fn hash(&self, entry: &T) -> u64 {
        self(entry)
    }
}

/// What a processor reads at once.
#[repr(align(64))]
struct CacheLine;

/// Slots of a bucket. With their tags and the count of guests they fill a cache line.
pub(super) const WIDTH: usize = 7;
/// Where the count lies among the tags.
const PASSED: usize = 7;
const LOW_BITS: u64 = 0x0101_0101_0101_0101;
/// The high bit of each tag; the count is none.
const TAGS: u64 = 0x0080_8080_8080_8080;
/// All bits of all tags.
const WITHOUT_COUNT: u64 = 0x00ff_ffff_ffff_ffff;

/// Seven entries and their tags: what a look-up needs before it looks at an entry itself.
#[repr(C)]
struct Bucket<T> {
    line: [CacheLine; 0],
    /// Bits of each entry's hash, never zero, zero where there is none. The last byte counts
    /// the entries that belong here or before, but lie behind this bucket since it was full.
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

    /// A bit for each slot with this tag, and maybe for others that hold an entry.
    #[inline]
    fn tagged(&self, tag: u8) -> u64 {
        let differ = self.word() ^ (LOW_BITS * u64::from(tag));
        differ.wrapping_sub(LOW_BITS) & !differ & TAGS
    }

    fn free(&self) -> Option<usize> {
        let free = !self.word() & TAGS;
        (free != 0).then(|| free.trailing_zeros() as usize / 8)
    }

    /// Entries in it.
    fn len(&self) -> usize {
        (self.word() & TAGS).count_ones() as usize
    }

    fn is_passed(&self) -> bool {
        self.tags[PASSED] > 0
    }
}

/// A part of a table: entries by hash, in a power of two of buckets. An
/// entry lies in the bucket of its hash, or, if that was full, in one of those that follow.
///
/// What look-ups read before the buckets is written only when a part grows or shrinks, so that it
/// stays in the caches of all processors.
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
    /// An empty one of so many slots, a number that [`Part::rounded`] gave. None takes no memory.
    pub(super) fn with_slots(slots: usize) -> Self {
        Self {
            buckets: (0..slots / WIDTH).map(|_| Bucket::new()).collect(),
        }
    }

    /// How many slots a part has that is to have this many.
    pub(super) fn rounded(slots: usize) -> usize {
        match slots.div_ceil(WIDTH) {
            0 => 0,
            buckets => buckets.next_power_of_two() * WIDTH,
        }
    }

    /// The bucket where an entry of this hash belongs.
    #[inline]
    fn home(&self, hash: u64) -> usize {
        hash as usize & self.buckets.len().wrapping_sub(1)
    }

    /// The bucket that follows this one.
    #[inline]
    fn after(&self, index: usize) -> usize {
        (index + 1) & self.buckets.len().wrapping_sub(1)
    }

    /// How many slots take so many bytes, a power of two.
    pub(super) const fn slots_in(bytes: usize) -> usize {
        bytes / size_of::<Bucket<T>>() * WIDTH
    }

    /// Slots, empty ones included.
    pub(super) fn slots(&self) -> usize {
        self.buckets.len() * WIDTH
    }

    pub(super) fn bytes(&self) -> usize {
        size_of_val(&*self.buckets)
    }

    /// Entries in it. Cost: reads all buckets.
    pub(super) fn len(&self) -> usize {
        self.buckets.iter().map(Bucket::len).sum()
    }

    /// Counts its buckets by how many entries they have.
    /// Cost: as [`Part::len`].
    pub(super) fn count_buckets(&self, counts: &mut [u64; WIDTH + 1]) {
        for bucket in &self.buckets {
            counts[bucket.len()] += 1;
        }
    }

    /// Whether it should grow once an entry found no room in reach: at seven eighths, or more.
    /// Cost: as [`Part::len`].
    pub(super) fn is_full(&self) -> bool {
        self.len() * 8 >= self.slots() * 7
    }

    /// In how many buckets an entry may lie, its own included, before the part is
    /// counted. That happens some two times until a part is full, at nine tenths on average.
    fn reach(&self) -> usize {
        self.buckets.len().min(4 + self.buckets.len() / 8)
    }

    /// Asks for the memory that a look-up of this hash will look at first.
    #[inline]
    pub(super) fn prefetch(&self, hash: u64) {
        prefetch_index(&self.buckets, self.home(hash));
    }

    /// The entries that a look-up of this hash will most likely look at.
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

    /// The number of the slot with the entry of this hash that `is_it` accepts.
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

    /// The number of the slot after this one, for passes; from zero on, until it is `None`.
    pub(super) fn next(&self, number: usize) -> Option<usize> {
        let next = if number & 7 == WIDTH - 1 {
            (number | 7) + 1
        } else {
            number + 1
        };
        (next >> 3 < self.buckets.len()).then_some(next)
    }

    /// Whether there is a slot of this number.
    pub(super) fn has_slot(&self, number: usize) -> bool {
        number >> 3 < self.buckets.len()
    }

    /// The number of the slot at `index` of all.
    pub(super) fn number_of(index: usize) -> usize {
        ((index / WIDTH) << 3) | (index % WIDTH)
    }

    /// Adds an entry unless all buckets in reach are full; then gives it back, and changes nothing.
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

    /// The same, with what it takes of the hash: the bucket where the entry belongs and its tag.
    fn insert_at(&mut self, home: usize, tag: u8, entry: T) {
        let mut index = home;
        loop {
            let bucket = &mut self.buckets[index];
            if let Some(slot) = bucket.free() {
                bucket.tags[slot] = tag;
                bucket.slots[slot] = Some(entry);
                return;
            }
            // One that counted that far counts no more: look-ups go on from it forever.
            bucket.tags[PASSED] = bucket.tags[PASSED].saturating_add(1);
            index = self.after(index);
        }
    }

    /// Takes the entry in a slot out; `hash` is its own.
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

    /// Makes it one of fewer slots, which must be enough, and a number that [`Part::rounded`] gave.
    ///
    /// Only entries that lie behind a full bucket are hashed: of the others the bucket that they
    /// are in says all that is needed.
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

    /// Gives it twice as many buckets.
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

    /// Takes out the entries whose hash `goes`, and makes another part of them.
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
/// `low` is a whole part. Gives back those that were not in the bucket of their hash, taken out.
///
/// First all are touched, then hashed, then they move: what hashing waits for is far away in
/// memory, and most of it can be waited for at once, as long as nothing is decided by it.
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
    // For each bucket the tags' bits of those that go, and of guests.
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
