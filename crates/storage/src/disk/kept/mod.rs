//! Journals that are kept for their rows, though the tables know of all of them.
//!
//! A run refers to the larger rows of its journal, which thus are written once. Merges leave them there
//! while the journal is young; one takes over those that still live, and then nothing refers to the journal any more.
//!
//! ```text
//! journal --drain--> run: keys, and where the rows lie     the journal is kept
//!                     | merge
//!                     v
//!                    tables: the same for young journals   it is still kept
//!                     | merge
//!                     v
//!                    tables with the rows themselves       it goes
//! ```

mod list;
mod values;

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};
use rustix::fs::{Advice, fadvise};

use super::{lists, names};
use crate::disk::segments::{NextPlace, numbered, path_of, recycle};
pub(crate) use list::{Listed, NAME, read};

pub(crate) use values::{TakingOver, Values};

/// What the names of files begin with that are there to be used again.
const SPARE: &str = "spare-";

/// Bytes of the youngest journals that opening reads ahead.
const AHEAD_BYTES_MAX: u64 = 2 << 30;

/// Bytes of rows that live, by the generations of journals.
pub(crate) type Living = BTreeMap<u64, u64>;

/// Journals by their generations.
pub(crate) type Files = BTreeMap<u64, Arc<File>>;

/// The journals that rows of the tables lie in.
#[derive(Debug)]
pub(crate) struct Kept {
    directory: PathBuf,
    /// As on disk.
    listed: Mutex<Listed>,
    /// At least all that the tables there are refer to.
    files: RwLock<Arc<Files>>,
    /// Bytes of these.
    bytes: AtomicU64,
    /// Files of journals that were let go of, for the next ones.
    spares: Mutex<Vec<PathBuf>>,
    /// The directory is of a version of which that is known.
    begun: AtomicBool,
    /// The last generation whose rows a merge takes over.
    taken: AtomicU64,
    /// What lived in journals when the last merge took rows over.
    living: Mutex<Living>,
    /// Nobody waits for merges any more.
    ending: AtomicBool,
}

impl Kept {
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
            taken: AtomicU64::new(u64::MAX),
            living: Mutex::default(),
            ending: AtomicBool::new(false),
        })
    }

    /// Opens those that are listed and in the tables, which is all up to generation `drained`.
    ///
    /// Changes nothing.
    ///
    /// # Errors
    /// `InvalidData`: one of them is missing or cut, or the list is newer than the tables.
    pub(crate) fn open(&self, drained: u64) -> io::Result<()> {
        let mut files = Files::new();
        let mut ahead = 0;
        let listed = self.listed.lock();
        if let Some(last) = listed
            .keys()
            .next_back()
            .filter(|last| **last > drained + 1)
        {
            let tables = lists::end_of_tables(&self.directory, drained);
            let kept = self.directory.join(NAME);
            let reason = format!("{} has journal {last}, and {tables}", kept.display());
            return Err(io::Error::new(io::ErrorKind::InvalidData, reason));
        }
        for (generation, bytes) in listed.range(..=drained).rev() {
            let file = open(&self.directory, *generation, *bytes)?;
            // Whoever warms up reads most of it, though not in this order.
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

    /// Those that are kept now. What a look into the tables finds afterwards may refer to one that
    /// is not among them only if its run was added since.
    pub(crate) fn files(&self) -> Arc<Files> {
        Arc::clone(&self.files.read())
    }

    /// Whether a journal is kept.
    pub(crate) fn has(&self, generation: u64) -> bool {
        self.files.read().contains_key(&generation)
    }

    /// Bytes of all of them. Waits for no disk.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// The generations that are listed, ascending, with their bytes.
    pub(crate) fn listed(&self) -> Listed {
        self.listed.lock().clone()
    }

    /// Has the merges that begin now take over the rows of journals up to this generation.
    pub(crate) fn take_over(&self, taken: u64) {
        self.taken.store(taken, Ordering::Relaxed);
        self.living.lock().clear();
    }

    fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }

    /// Has a merge that is under way fail, since the store stops: the next opening makes it.
    pub(crate) fn give_up_merges(&self) {
        self.ending.store(true, Ordering::Relaxed);
    }

    fn is_ending(&self) -> bool {
        self.ending.load(Ordering::Relaxed)
    }

    fn note_living(&self, living: Living) {
        *self.living.lock() = living;
    }

    /// What lived in each journal when the last merge looked.
    pub(crate) fn living(&self) -> Living {
        self.living.lock().clone()
    }

    fn set_files(&self, files: Files, listed: &Listed) {
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
        let mut next = Files::clone(&self.files());
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
        let mut going = Files::clone(&self.files());
        let staying = going.split_off(&(last + 1));
        self.set_files(staying, &listed);
        for (generation, file) in going {
            self.spare_or_remove(generation, file);
        }
        Ok(())
    }

    /// The file of a journal becomes one to use again, unless somebody reads it.
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

/// Makes the list of a store that has none yet: nothing is kept.
pub(crate) fn make_list(directory: &Path) -> io::Result<()> {
    list::write(directory, &Listed::new())
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

#[cfg(test)]
mod tests;
