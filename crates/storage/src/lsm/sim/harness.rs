//! Opens stores over simulated files, and checks their content.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cipher::EncryptionKeys;
use parking_lot::Mutex;

use super::disk::Disk;
use super::files::SimFiles;
use super::possible::Possible;
use super::random::Random;
use super::read::read;
use super::threads::{SimThreads, WORK_MAX};
use super::verdict::{Failed, Refused, Stats};
use super::workload::Workload;
use super::world::World;
use crate::lsm::check::check_files;
use crate::lsm::damage::Damage;
use crate::lsm::files::Files;
use crate::port::{KvStore, VbBatch};
use crate::work::Threads;

/// A store, and whether the last stop was clean.
pub(crate) type Opening<S> = Result<(S, bool), Refused>;

/// Function that opens a store.
pub(crate) type Open<S> = fn(Arc<dyn Files>, Arc<dyn Threads>) -> Opening<S>;

/// Opens stores.
pub(crate) struct Harness<S> {
    open: Open<S>,
    /// Two orders of the same two keys, of which the first one writes; `None` without encryption.
    keys: Option<[Arc<EncryptionKeys>; 2]>,
    /// Number of openings so far, and number of those without encryption.
    openings: AtomicU64,
    plain: u64,
}

/// Creates keys with reproducible random numbers.
fn keys(text: &str, seed: u64) -> Arc<EncryptionKeys> {
    let random = Mutex::new(Random(seed));
    let keys = EncryptionKeys::parse(text, move || random.lock().next(u64::MAX));
    Arc::new(keys.expect("they are keys"))
}

impl<S: KvStore> Harness<S> {
    pub(crate) fn new(open: Open<S>) -> Self {
        Self {
            open,
            keys: None,
            openings: AtomicU64::new(0),
            plain: 0,
        }
    }

    /// Creates the harness of a seed. In one of three everything is encrypted from the start, or
    /// from the second opening on, with alternating keys.
    pub(crate) fn of_seed(&self, seed: u64) -> Self {
        let line = |id: &str, byte| EncryptionKeys::line(id, &[byte; 32]).expect("an ID");
        let (one, two) = (line("one", 1), line("two", 2));
        let texts = [format!("{one}\n{two}"), format!("{two}\n{one}")];
        Self {
            open: self.open,
            keys: seed
                .is_multiple_of(3)
                .then(|| texts.map(|text| keys(&text, seed))),
            openings: AtomicU64::new(0),
            plain: u64::from(seed.is_multiple_of(6)),
        }
    }

    fn keyed(&self, files: &SimFiles, writes: u64) -> SimFiles {
        let keys = self.keys.as_ref().map(|keys| &keys[writes as usize % 2]);
        files.with_keys(keys)
    }

    pub(super) fn open(&self, files: &SimFiles, threads: &SimThreads) -> Opening<S> {
        let opening = self.openings.fetch_add(1, Ordering::SeqCst);
        let files: Arc<dyn Files> = if opening < self.plain {
            Arc::new(files.clone())
        } else {
            Arc::new(self.keyed(files, opening / 3))
        };
        (self.open)(files, Arc::new(threads.clone()))
    }

    /// Returns the damage that a check finds.
    pub(super) fn damaged(&self, files: &SimFiles) -> Result<Vec<Damage>, Failed> {
        let checked = check_files(&self.keyed(files, 0), &mut |_| {});
        let checked = checked.map_err(|error| Failed(format!("a check: {error}")))?;
        Ok(checked.damaged)
    }

    /// Opens an image: it must show a possible state, continue from there, and still show that after a power failure.
    pub(super) fn check_image(
        &self,
        image: Disk,
        possible: &Possible,
        (mut random, mut workload): (Random, Workload),
        stats: &mut Stats,
    ) -> Result<(), Failed> {
        stats.images += 1;
        let seen: Vec<String> = image.names().cloned().collect();
        let files = SimFiles::over(image, random.split());
        let (threads, mut world, store) = self.open_as(&files, possible, stats)?;
        if !random.one_in(4) {
            threads.run(*random.pick(&[0, 2, WORK_MAX]));
            let step = workload.commit(&world);
            world = world.after(&step);
            let super::world::StoreCall::Commit(batches) = &step else {
                return Ok(());
            };
            let batches: Vec<VbBatch<'_>> = batches.iter().map(|batch| batch.as_batch()).collect();
            let done = threads.call(|| store.commit(&batches));
            done.map_err(|error| Failed(format!("a commit after it: {error}")))?;
        }
        let disk = match random.next(4) {
            0 => {
                let closed = store.close();
                closed.map_err(|error| Failed(format!("a close after it: {error}")))?;
                files.cut()
            }
            1 => files.cut_somehow(&mut random),
            2 => files.killed(),
            _ => files.cut(),
        };
        drop(store);
        let trace = files.trace();
        let files = SimFiles::over(disk, random.split());
        self.open_as(&files, &Possible::only(&world), stats)
            .map_err(|failed| {
                Failed(format!("opened once more: {} ({seen:?} {trace})", failed.0))
            })?;
        Ok(())
    }

    fn open_as(
        &self,
        files: &SimFiles,
        possible: &Possible,
        stats: &mut Stats,
    ) -> Result<(SimThreads, World, S), Failed> {
        stats.openings += 1;
        let damaged = self.damaged(files)?;
        if !damaged.is_empty() {
            return Err(Failed(format!("a check finds {damaged:?}")));
        }
        let threads = SimThreads::default();
        let (store, _) = self
            .open(files, &threads)
            .map_err(|refused| Failed(format!("it is refused: {}", refused.text)))?;
        let world = read(&store).and_then(|found| possible.recognize(found));
        let world = world.map_err(|wrong| Failed(wrong.to_string()))?;
        Ok((threads, world, store))
    }
}
