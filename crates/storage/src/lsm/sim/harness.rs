//! Opens stores over simulated files, and judges what they show.

use std::sync::Arc;

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

/// A store, and whether the last stop was a clean one.
pub(crate) type Opening<S> = Result<(S, bool), Refused>;

/// Opens one.
pub(crate) type Open<S> = fn(Arc<dyn Files>, Arc<dyn Threads>) -> Opening<S>;

/// Opens stores.
pub(crate) struct Harness<S> {
    open: Open<S>,
}

impl<S: KvStore> Harness<S> {
    pub(crate) fn new(open: Open<S>) -> Self {
        Self { open }
    }

    pub(super) fn open(&self, files: &SimFiles, threads: &SimThreads) -> Opening<S> {
        (self.open)(Arc::new(files.clone()), Arc::new(threads.clone()))
    }

    /// Opens an image: it must show what is possible, go on from there, and still show that after the power is cut.
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
            let super::world::Step::Commit(batches) = &step else {
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
        let damaged = damaged(files)?;
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

/// What a check finds damaged.
pub(super) fn damaged(files: &SimFiles) -> Result<Vec<Damage>, Failed> {
    let checked = check_files(files, &mut |_| {});
    let checked = checked.map_err(|error| Failed(format!("a check: {error}")))?;
    Ok(checked.damaged)
}
