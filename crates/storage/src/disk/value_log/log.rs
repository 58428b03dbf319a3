//! The journals that rows of the tables lie in: their list, their files, and how they go.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};
use rustix::fs::{Advice, fadvise};

use super::list::{self, NAME, SegmentBytes, read};
use crate::disk::journal_files::{NextPlace, numbered, path_of, recycle};
use crate::disk::{names, table_lists};

/// What the names of files begin with that are there to be used again.
pub(super) const SPARE: &str = "spare-";

/// Bytes of the youngest journals that opening reads ahead.
const AHEAD_BYTES_MAX: u64 = 2 << 30;

/// Bytes of rows that live, by the generations of journals.
pub(crate) type LiveBytes = BTreeMap<u64, u64>;

/// Journals by their generations.
pub(crate) type Segments = BTreeMap<u64, Arc<File>>;

/// The journals that rows of the tables lie in.
#[derive(Debug)]
pub(crate) struct ValueLog {
    directory: PathBuf,
    /// As on disk.
    pub(super) listed: Mutex<SegmentBytes>,
    /// At least all that the tables there are refer to.
    files: RwLock<Arc<Segments>>,
    /// Bytes of these.
    bytes: AtomicU64,
    /// Files of journals that were let go of, for the next ones.
    spares: Mutex<Vec<PathBuf>>,
    /// The directory is of a version of which that is known.
    begun: AtomicBool,
    /// The last generation whose rows a merge takes over.
    pub(super) inlined: AtomicU64,
    /// What lived in journals when the last merge took rows over.
    pub(super) live: Mutex<LiveBytes>,
    /// The store stops, and merges are given up.
    pub(super) ending: AtomicBool,
}

impl ValueLog {
    /// Reads the list.
    ///
    /// # Errors
    /// `InvalidData`: it is damaged.
    pub(crate) fn read(directory: &Path) -> io::Result<Self> {
        Ok(Self {
            directory: directory.to_owned(),
            listed: Mutex::new(read(directory)?),
            files: RwLock::default(),
            bytes: AtomicU64::new(0),
            spares: Mutex::default(),
            begun: AtomicBool::new(false),
            inlined: AtomicU64::new(u64::MAX),
            live: Mutex::default(),
            ending: AtomicBool::new(false),
        })
    }

    /// Opens those that are listed and in the tables, which is all up to generation `flushed`.
    ///
    /// Changes nothing.
    ///
    /// # Errors
    /// `InvalidData`: one of them is missing or cut, or the list is newer than the tables.
    pub(crate) fn open(&self, flushed: u64) -> io::Result<()> {
        let mut files = Segments::new();
        let mut ahead = 0;
        let listed = self.listed.lock();
        if let Some(last) = listed
            .keys()
            .next_back()
            .filter(|last| **last > flushed + 1)
        {
            let tables = table_lists::end_of_tables(&self.directory, flushed);
            let value_log = self.directory.join(NAME);
            let reason = format!("{} has journal {last}, and {tables}", value_log.display());
            return Err(io::Error::new(io::ErrorKind::InvalidData, reason));
        }
        for (generation, bytes) in listed.range(..=flushed).rev() {
            let file = open(&self.directory, *generation, *bytes)?;
            // A warmup reads most of it, though not in this order.
            ahead += bytes;
            if ahead <= AHEAD_BYTES_MAX
                && let Err(error) = fadvise(&file, 0, NonZeroU64::new(*bytes), Advice::WillNeed)
            {
                tracing::debug!(%error, generation, "a journal is not read ahead");
            }
            files.insert(*generation, Arc::new(file));
        }
        self.set_files(files, &listed);
        Ok(())
    }

    /// Removes the files that an earlier opening left to be used again.
    pub(crate) fn clear_spares(&self) -> io::Result<()> {
        for (_, path) in numbered(&self.directory, SPARE)? {
            names::remove_unsynced(&path)?;
        }
        Ok(())
    }

    /// Tables may refer to journals from now on.
    pub(crate) fn begin(&self) {
        self.begun.store(true, Ordering::SeqCst);
    }

    /// Whether they may.
    pub(crate) fn is_begun(&self) -> bool {
        self.begun.load(Ordering::SeqCst)
    }

    /// Those that there are now. What a look into the tables finds afterwards may refer to one that
    /// is not among them only if its run was added since.
    pub(crate) fn files(&self) -> Arc<Segments> {
        Arc::clone(&self.files.read())
    }

    /// Whether it has a journal.
    pub(crate) fn has(&self, generation: u64) -> bool {
        self.files.read().contains_key(&generation)
    }

    /// Bytes of all of them. Waits for no disk.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// The generations that are listed, ascending, with their bytes.
    pub(crate) fn listed(&self) -> SegmentBytes {
        self.listed.lock().clone()
    }

    /// Has the merges that begin now take over the rows of journals up to this generation.
    pub(crate) fn inline_up_to(&self, inlined: u64) {
        self.inlined.store(inlined, Ordering::Relaxed);
        self.live.lock().clear();
    }

    /// Has a merge that is under way fail, since the store stops: the next opening makes it.
    pub(crate) fn give_up_merges(&self) {
        self.ending.store(true, Ordering::Relaxed);
    }

    /// What lived in each journal when the last merge looked.
    pub(crate) fn live(&self) -> LiveBytes {
        self.live.lock().clone()
    }

    fn set_files(&self, files: Segments, listed: &SegmentBytes) {
        let bytes = files.keys().filter_map(|generation| listed.get(generation));
        self.bytes.store(bytes.sum(), Ordering::Relaxed);
        *self.files.write() = Arc::new(files);
    }

    /// Keeps a journal, durably, before a run refers to it.
    ///
    /// Cost: two syncs.
    pub(crate) fn keep(&self, generation: u64, bytes: u64, file: &Arc<File>) -> io::Result<()> {
        let mut listed = self.listed.lock();
        if listed.get(&generation) != Some(&bytes) {
            let mut next = listed.clone();
            next.insert(generation, bytes);
            list::write(&self.directory, &next)?;
            *listed = next;
        }
        let mut next = Segments::clone(&self.files());
        next.insert(generation, Arc::clone(file));
        self.set_files(next, &listed);
        Ok(())
    }

    /// Lets go of all up to generation `last`, to which no table refers any more. What fails is done
    /// with the next ones.
    ///
    /// Cost: two syncs, if there are any.
    pub(crate) fn release(&self, last: u64) -> io::Result<()> {
        let mut listed = self.listed.lock();
        let mut going = listed.clone();
        let staying = going.split_off(&(last + 1));
        if going.is_empty() {
            return Ok(());
        }
        list::write(&self.directory, &staying)?;
        *listed = staying;
        let mut going = Segments::clone(&self.files());
        let staying = going.split_off(&(last + 1));
        self.set_files(staying, &listed);
        for (generation, file) in going {
            self.spare_or_remove(generation, file);
        }
        Ok(())
    }

    /// The file of a journal becomes one to use again, unless it has readers.
    fn spare_or_remove(&self, generation: u64, file: Arc<File>) {
        let path = path_of(&self.directory, generation);
        let done = match Arc::try_unwrap(file) {
            Ok(file) => {
                let spare = self.directory.join(format!("{SPARE}{generation}"));
                drop(file);
                names::rename_unsynced(&path, &spare).map(|()| self.spares.lock().push(spare))
            }
            Err(_read) => names::remove_unsynced(&path).map(drop),
        };
        if let Err(error) = done {
            let path = path.display();
            tracing::warn!(%error, %path, "cannot remove a journal; the next start does");
        }
    }

    /// Makes a file that was let go of that of the next generation, if there is one: its blocks are there and
    /// written, so that syncs of new groups need not touch the file system's own journal.
    pub(crate) fn spare(&self, next: &NextPlace) -> Option<(File, u64)> {
        let path = self.spares.lock().pop()?;
        let file = File::options().read(true).write(true).open(&path);
        file.and_then(|file| recycle(file, &path, next))
            .inspect_err(|error| tracing::warn!(%error, "cannot use an old journal again"))
            .ok()
    }

    /// Whether there are files to use again.
    pub(crate) fn has_spares(&self) -> bool {
        !self.spares.lock().is_empty()
    }

    /// Removes them: nothing comes that would use them.
    pub(crate) fn drop_spares(&self) {
        for path in std::mem::take(&mut *self.spares.lock()) {
            if let Err(error) = names::remove_unsynced(&path) {
                let path = path.display();
                tracing::warn!(%error, %path, "cannot remove an old journal; the next start does");
            }
        }
    }
}

/// Makes the list of a store that has none yet: an empty one.
pub(crate) fn make_list(directory: &Path) -> io::Result<()> {
    list::write(directory, &SegmentBytes::new())
}

/// Opens a journal of which at least so many bytes must be there.
fn open(directory: &Path, generation: u64, bytes: u64) -> io::Result<File> {
    let path = path_of(directory, generation);
    let bad = |what: &str| {
        let reason = format!(
            "{} is {what}, and rows of the tables lie in it",
            path.display()
        );
        io::Error::new(io::ErrorKind::InvalidData, reason)
    };
    let file = File::open(&path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => bad("missing"),
        _ => error,
    })?;
    if file.metadata()?.len() < bytes {
        return Err(bad("cut"));
    }
    Ok(file)
}
