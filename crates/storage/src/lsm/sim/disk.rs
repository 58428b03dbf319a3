//! Content of a simulated disk, and the states that a power failure may leave.
//!
//! A file has its synced content and the later operations; so have the names. After a power failure
//! any part of these operations is on disk: any sectors of a write, the first changes of a length,
//! and consistent changes of names.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::content::{Content, PAGE};
use super::random::Random;

const SECTOR: usize = 512;
/// Longer writes are torn at pages.
const SECTORS_OF_BYTES: usize = 64 << 10;

pub(super) type FileId = u64;

/// Durability of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Surety {
    /// The next sync makes it durable.
    Pending,
    /// A sync failed, or lied: no later sync makes it durable.
    Doubtful,
    /// It is durable, although an earlier operation may not be.
    Sure,
}

#[derive(Clone, Debug)]
enum FileChange {
    /// Whole sectors, as in the cache.
    Write {
        at: u64,
        bytes: Arc<[u8]>,
    },
    Length(u64),
}

#[derive(Clone, Debug)]
enum NameChange {
    Create(String, FileId),
    Rename(String, String, FileId),
    Remove(String, FileId),
}

#[derive(Clone, Debug, Default)]
struct File {
    seen: Content,
    durable: Content,
    changes: Vec<(FileChange, Surety)>,
}

/// A directory on a disk.
#[derive(Clone, Debug, Default)]
pub(crate) struct Disk {
    files: BTreeMap<FileId, File>,
    names: BTreeMap<String, FileId>,
    durable_names: BTreeMap<String, FileId>,
    name_changes: Vec<(NameChange, Surety)>,
    next: FileId,
}

/// Changes since the last syncs that survive a power failure.
pub(super) enum SurvivingChanges<'r> {
    /// None.
    Nothing,
    /// Those with set bits, in the order of [`Disk::unsynced`].
    Whole(u64),
    /// Any part.
    Any(&'r mut Random),
}

impl Disk {
    /// Creates a disk with durable files.
    pub(super) fn of(contents: BTreeMap<String, Content>) -> Self {
        let mut disk = Self::default();
        for (name, content) in contents {
            disk.files.insert(
                disk.next,
                File {
                    seen: content.clone(),
                    durable: content,
                    changes: Vec::new(),
                },
            );
            disk.names.insert(name, disk.next);
            disk.next += 1;
        }
        disk.durable_names = disk.names.clone();
        disk
    }

    /// Returns the visible content of all files.
    pub(crate) fn contents(&self) -> BTreeMap<String, Content> {
        let content = |(name, id): (&String, &FileId)| (name.clone(), self.files[id].seen.clone());
        self.names.iter().map(content).collect()
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &String> {
        self.names.keys()
    }

    pub(super) fn find(&self, name: &str) -> Option<FileId> {
        self.names.get(name).copied()
    }

    pub(super) fn name_of(&self, id: FileId) -> Option<&String> {
        let mut names = self.names.iter();
        names.find(|(_, named)| **named == id).map(|(name, _)| name)
    }

    pub(super) fn seen(&self, id: FileId) -> &Content {
        &self.files[&id].seen
    }

    pub(super) fn held_bytes(&self) -> u64 {
        let held = self.names.values();
        held.map(|id| self.files[id].seen.held_bytes()).sum()
    }

    pub(super) fn create(&mut self, name: &str) -> FileId {
        if let Some(id) = self.find(name) {
            self.set_length(id, 0);
            return id;
        }
        let id = self.next;
        self.next += 1;
        self.files.insert(id, File::default());
        self.names.insert(name.to_owned(), id);
        let change = NameChange::Create(name.to_owned(), id);
        self.name_changes.push((change, Surety::Pending));
        id
    }

    /// Renames a file. Returns whether it existed.
    pub(super) fn rename(&mut self, from: &str, to: &str) -> bool {
        let Some(id) = self.names.remove(from) else {
            return false;
        };
        self.names.insert(to.to_owned(), id);
        let change = NameChange::Rename(from.to_owned(), to.to_owned(), id);
        self.name_changes.push((change, Surety::Pending));
        true
    }

    pub(super) fn remove(&mut self, name: &str) {
        if let Some(id) = self.names.remove(name) {
            let change = NameChange::Remove(name.to_owned(), id);
            self.name_changes.push((change, Surety::Pending));
        }
    }

    pub(super) fn write(&mut self, id: FileId, at: u64, bytes: &[u8]) {
        let file = self.files.get_mut(&id).expect("it is open");
        file.seen.write(at, bytes);
        let sector = SECTOR as u64;
        let from = at / sector * sector;
        let to = (at + bytes.len() as u64).next_multiple_of(sector);
        let mut sectors = vec![0; (to.min(file.seen.length()) - from) as usize];
        file.seen.read(from, &mut sectors);
        let change = FileChange::Write {
            at: from,
            bytes: sectors.into(),
        };
        file.changes.push((change, Surety::Pending));
    }

    pub(super) fn set_length(&mut self, id: FileId, length: u64) {
        let file = self.files.get_mut(&id).expect("it is open");
        file.seen.set_length(length);
        file.changes
            .push((FileChange::Length(length), Surety::Pending));
    }

    pub(super) fn sync(&mut self, id: FileId) {
        let file = self.files.get_mut(&id).expect("it is open");
        settle(&mut file.changes);
        if file.changes.is_empty() {
            file.durable = file.seen.clone();
        }
    }

    pub(super) fn sync_names(&mut self) {
        settle(&mut self.name_changes);
        if self.name_changes.is_empty() {
            self.durable_names = self.names.clone();
        }
    }

    /// Records a sync that did nothing: no later sync makes its operations durable.
    pub(super) fn doubt(&mut self, id: FileId) {
        doubt(&mut self.files.get_mut(&id).expect("it is open").changes);
    }

    /// As `doubt`, for names.
    pub(super) fn doubt_names(&mut self) {
        doubt(&mut self.name_changes);
    }

    /// Returns the number of unsynced changes of names, and of files with a possible name.
    pub(super) fn unsynced(&self) -> usize {
        let of_files = self.reachable().into_iter();
        let of_files: usize = of_files.map(|id| open(&self.files[&id].changes)).sum();
        of_files + open(&self.name_changes)
    }

    /// Returns the files that an image may have.
    fn reachable(&self) -> BTreeSet<FileId> {
        let mut found: BTreeSet<FileId> = self.names.values().copied().collect();
        found.extend(self.durable_names.values());
        found.extend(self.name_changes.iter().map(|(change, _)| match change {
            NameChange::Create(_, id)
            | NameChange::Rename(_, _, id)
            | NameChange::Remove(_, id) => *id,
        }));
        found
    }

    /// Returns the disk after the process was killed: all changes, some not durable.
    pub(super) fn killed(&self) -> Self {
        let mut disk = self.clone();
        let reachable = self.reachable();
        disk.files.retain(|id, _| reachable.contains(id));
        disk
    }

    /// Returns the disk after a power failure.
    pub(super) fn cut(&self, left: SurvivingChanges<'_>) -> Self {
        let mut picks = Picks { left, next: 0 };
        let mut contents = BTreeMap::new();
        for id in self.reachable() {
            contents.insert(id, cut_file(&self.files[&id], &mut picks));
        }
        let names = self.cut_names(&mut picks);
        let held = names.into_iter();
        let held = held.map(|(name, id)| (name, contents[&id].clone()));
        Self::of(held.collect())
    }

    fn cut_names(&self, picks: &mut Picks<'_>) -> BTreeMap<String, FileId> {
        let mut names = self.durable_names.clone();
        let (mode, mut over) = (picks.mode(), false);
        for (change, surety) in &self.name_changes {
            over |= mode == CrashMode::First && !over && picks.any(4);
            if *surety != Surety::Sure && (over || !picks.takes(mode)) {
                continue;
            }
            match change {
                NameChange::Create(name, id) => {
                    names.insert(name.clone(), *id);
                }
                NameChange::Rename(from, to, id) => {
                    if names.get(from) == Some(id) {
                        names.remove(from);
                    }
                    names.insert(to.clone(), *id);
                }
                NameChange::Remove(name, id) => {
                    if names.get(name) == Some(id) {
                        names.remove(name);
                    }
                }
            }
        }
        names
    }
}

fn settle<T>(changes: &mut Vec<(T, Surety)>) {
    if changes.iter().any(|change| change.1 == Surety::Doubtful) {
        let pending = changes.iter_mut();
        let pending = pending.filter(|change| change.1 == Surety::Pending);
        pending.for_each(|change| change.1 = Surety::Sure);
    } else {
        changes.clear();
    }
}

fn doubt<T>(changes: &mut [(T, Surety)]) {
    for change in changes {
        if change.1 == Surety::Pending {
            change.1 = Surety::Doubtful;
        }
    }
}

fn open<T>(changes: &[(T, Surety)]) -> usize {
    let open = changes.iter();
    open.filter(|change| change.1 != Surety::Sure).count()
}

/// Part of the changes of a file or of names that survives.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CrashMode {
    None,
    All,
    /// The first ones.
    First,
    /// Each one or not, independently.
    Some,
    /// Any sectors of each write.
    Torn,
}

/// Selects the surviving changes one by one.
struct Picks<'r> {
    left: SurvivingChanges<'r>,
    next: u32,
}

impl Picks<'_> {
    fn mode(&mut self) -> CrashMode {
        match &mut self.left {
            SurvivingChanges::Nothing => CrashMode::None,
            SurvivingChanges::Whole(_) => CrashMode::Some,
            SurvivingChanges::Any(random) => *random.pick(&[
                CrashMode::None,
                CrashMode::All,
                CrashMode::First,
                CrashMode::Some,
                CrashMode::Torn,
                CrashMode::Torn,
            ]),
        }
    }

    /// Whether the next change survives.
    fn takes(&mut self, mode: CrashMode) -> bool {
        match (&mut self.left, mode) {
            (SurvivingChanges::Whole(bits), _) => {
                let taken = self.next < u64::BITS && *bits >> self.next & 1 == 1;
                self.next += 1;
                taken
            }
            (_, CrashMode::None) => false,
            (_, CrashMode::All | CrashMode::First) => true,
            (SurvivingChanges::Any(random), _) => random.one_in(2),
            (SurvivingChanges::Nothing, _) => false,
        }
    }

    fn any(&mut self, in_how_many: u64) -> bool {
        match &mut self.left {
            SurvivingChanges::Any(random) => random.one_in(in_how_many),
            _ => false,
        }
    }

    /// Selects the surviving sectors of a write.
    fn sectors(&mut self, count: usize) -> Vec<bool> {
        let SurvivingChanges::Any(random) = &mut self.left else {
            return vec![false; count];
        };
        let at = random.next(count as u64 + 1) as usize;
        let form = random.next(6);
        let taken = |sector: usize, random: &mut Random| match form {
            0 => false,
            1 => true,
            2 => sector < at,
            3 => sector >= at,
            4 => sector != at,
            _ => random.one_in(2),
        };
        (0..count).map(|sector| taken(sector, random)).collect()
    }
}

fn cut_file(file: &File, picks: &mut Picks<'_>) -> Content {
    let mut content = file.durable.clone();
    let (mode, mut over) = (picks.mode(), false);
    for (change, surety) in &file.changes {
        over |= mode == CrashMode::First && !over && picks.any(4);
        let sure = *surety == Surety::Sure;
        match change {
            // File systems write lengths in order, as their own records: a file that was truncated
            // and rewritten shows no new content before the truncation.
            FileChange::Length(length) => {
                if sure
                    || (!over
                        && picks.takes(if mode == CrashMode::Torn {
                            CrashMode::Some
                        } else {
                            mode
                        }))
                {
                    content.set_length(*length);
                } else {
                    over = true;
                }
            }
            FileChange::Write { at, bytes } if sure => content.write(*at, bytes),
            FileChange::Write { at, bytes } if mode == CrashMode::Torn && !over => {
                let piece = if bytes.len() > SECTORS_OF_BYTES {
                    PAGE
                } else {
                    SECTOR
                };
                let taken = picks.sectors(bytes.len().div_ceil(piece));
                for (number, part) in bytes.chunks(piece).enumerate() {
                    if taken[number] {
                        content.write(*at + (number * piece) as u64, part);
                    }
                }
                grow(&mut content, *at, bytes, picks);
            }
            FileChange::Write { at, bytes } => {
                if !over && picks.takes(mode) {
                    content.write(*at, bytes);
                } else if !over {
                    grow(&mut content, *at, bytes, picks);
                }
            }
        }
    }
    content
}

/// The length may be durable before the written bytes.
fn grow(content: &mut Content, at: u64, bytes: &[u8], picks: &mut Picks<'_>) {
    let end = at + bytes.len() as u64;
    if end > content.length() && picks.any(3) {
        content.set_length(end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(disk: &Disk) -> Vec<String> {
        let contents = disk.contents().into_iter();
        let texts = contents.map(|(name, content)| {
            let bytes = content.bytes();
            format!(
                "{name}={}",
                String::from_utf8_lossy(&bytes).replace('\0', "_")
            )
        });
        texts.collect()
    }

    fn images(disk: &Disk) -> BTreeSet<String> {
        let mut random = Random(1);
        let any =
            (0..8_000).map(|_| texts(&disk.cut(SurvivingChanges::Any(&mut random))).join(" "));
        let mut found: BTreeSet<String> = any.collect();
        let whole = 0..1_u64 << disk.unsynced();
        found.extend(whole.map(|bits| texts(&disk.cut(SurvivingChanges::Whole(bits))).join(" ")));
        found
    }

    fn set(texts: &[&str]) -> BTreeSet<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    #[test]
    fn unsynced_changes_may_be_lost() {
        let mut disk = Disk::default();
        let id = disk.create("a");
        disk.write(id, 0, b"one");
        disk.sync(id);
        assert_eq!(images(&disk), set(&["", "a=one"]));
        disk.sync_names();
        assert_eq!(images(&disk), set(&["a=one"]));
        disk.write(id, 1, b"xyz");
        assert_eq!(images(&disk), set(&["a=one", "a=one_", "a=oxyz"]));
        let other = disk.create("b");
        disk.sync(id);
        disk.rename("b", "a");
        assert_eq!(disk.name_of(other).map(String::as_str), Some("a"));
        assert_eq!(images(&disk), set(&["a=", "a=oxyz", "a=oxyz b="]));
        disk.remove("a");
        disk.sync_names();
        assert_eq!(images(&disk), set(&[""]));
    }

    #[test]
    fn sectors_are_torn_and_lengths_precede_written_bytes() {
        let mut disk = Disk::default();
        let id = disk.create("a");
        disk.write(id, 0, &[b'o'; 1_024]);
        disk.sync(id);
        disk.sync_names();
        disk.write(id, 0, &[b'n'; 1_536]);
        let found = images(&disk);
        for (old, torn) in [("o", "n"), ("n", "o"), ("n", "n"), ("o", "o")] {
            for end in ["", "n", "_"] {
                let text = [old, torn, end].map(|byte| byte.repeat(512)).concat();
                assert!(found.contains(&format!("a={text}")), "{old}{torn}{end}");
            }
        }
        assert_eq!(found.len(), 12);
    }

    #[test]
    fn failed_sync_leaves_changes_that_no_later_one_writes() {
        let mut disk = Disk::default();
        let id = disk.create("a");
        disk.sync_names();
        disk.write(id, 0, b"one");
        disk.doubt(id);
        disk.write(id, 600, b"two");
        disk.sync(id);
        assert_eq!(disk.seen(id).length(), 603);
        let after = |first: &str| format!("a={first}{}two", "_".repeat(600 - first.len()));
        assert_eq!(images(&disk), set(&[&after(""), &after("one")]));
        disk.write(id, 4, b"end");
        disk.sync(id);
        assert_eq!(
            images(&disk),
            set(&[&after("one_end")]),
            "the sector lay in memory"
        );
    }
}
