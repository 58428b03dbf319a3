//! A life of a store: steps, stops and power failures, with a record of all acknowledged changes.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use model::VbId;

use super::call::call;
use super::disk::Disk;
use super::files::{SPACE, SimFiles, Taking};
use super::harness::Harness;
use super::plan::OpKind;
use super::possible::{Candidate, Possible};
use super::random::Random;
use super::read::{Deviation, read, view};
use super::threads::{SimThreads, WORK_MAX};
use super::verdict::{Failed, Stats};
use super::workload::{Workload, again};
use super::world::{StoreCall, VbState, World};
use crate::port::{KvStore, Snapshot};
use crate::{ErrorKind, StoreError};

/// Attempts at a step during a failure.
const ATTEMPTS: usize = 3;

/// A snapshot and its expected state.
type Held = (Box<dyn Snapshot>, Option<Arc<VbState>>);

/// All states of the vBuckets, and all manifests.
#[derive(Clone, Debug, Default)]
pub(super) struct Past {
    pub(super) worlds: Vec<World>,
}

/// A running store.
pub(super) struct Life<'h, S> {
    harness: &'h Harness<S>,
    pub(super) files: SimFiles,
    threads: SimThreads,
    store: Option<S>,
    /// The acknowledged state.
    pub(super) world: World,
    /// Possible states after a restart.
    possible: Possible,
    /// Whether anything was acknowledged since the opening.
    changed: bool,
    workload: Workload,
    random: Random,
    held: Option<Held>,
    /// Images of the current step that were checked.
    seen: BTreeSet<u64>,
    /// Images to take; `None` for none.
    taking: Option<Taking>,
    /// Whether calls may fail.
    pub(super) faulty: bool,
    /// Whether the disk becomes full at times.
    pub(super) filled: bool,
    /// All states of each vBucket, for a disk that lies; such a life has no stops.
    pub(super) past: Option<Past>,
    pub(super) stats: Stats,
}

impl<'h, S: KvStore> Life<'h, S> {
    /// Creates a new life.
    pub(super) fn new(harness: &'h Harness<S>, seed: u64, taking: Option<Taking>) -> Self {
        let mut random = Random(seed);
        let possible = Possible::only(&World::default());
        Self {
            harness,
            files: SimFiles::over(Disk::default(), random.split()),
            threads: SimThreads::default(),
            store: None,
            world: World::default(),
            possible,
            changed: false,
            workload: Workload::new(random.split()),
            random,
            held: None,
            seen: BTreeSet::new(),
            taking,
            faulty: false,
            filled: false,
            past: None,
            stats: Stats::default(),
        }
    }

    /// Runs some steps.
    pub(super) fn run(&mut self, steps: u64) -> Result<(), Failed> {
        if self.store.is_none() {
            self.open(None)?;
        }
        for _ in 0..steps {
            let lasts = self.past.is_some();
            match self.random.next(100) {
                0..10 if lasts => {}
                0..4 => self.close()?,
                4..7 => self.restart()?,
                7..10 => self.hold()?,
                _ => {
                    let step = self.workload.step(&self.world);
                    self.drive(step)?;
                }
            }
            if self.filled && self.random.one_in(6) {
                let held = self.files.held_bytes();
                self.files.set_space(held + self.random.next(40_000));
            }
            let work = *self.random.pick(&[0, 1, 3, WORK_MAX]);
            self.work(work)?;
            if self.random.one_in(5) {
                self.look()?;
            }
        }
        self.look()
    }

    fn store(&self) -> &S {
        self.store.as_ref().expect("it is open")
    }

    /// Lets the workers make steps.
    fn work(&mut self, steps: usize) -> Result<(), Failed> {
        self.threads.pass(1_000_000_000);
        self.files.take(self.taking);
        let made = self.threads.run(steps);
        self.stats.steps_of_workers += made as u64;
        self.check_taken(&self.possible.clone())?;
        self.stats.restless += u64::from(made == WORK_MAX);
        Ok(())
    }

    /// Makes a step; after a failure until it succeeds.
    pub(super) fn drive(&mut self, mut step: StoreCall) -> Result<(), Failed> {
        for attempt in 0..ATTEMPTS {
            let met = self.files.plan().met.len();
            let Err(error) = self.perform(&step)? else {
                return Ok(());
            };
            if !self.faulty {
                return Err(Failed(format!("{error} in {step:?}")));
            }
            self.judge(&error, met)?;
            self.stats.refused += 1;
            if error.kind == ErrorKind::Poisoned {
                self.stats.poisoned += 1;
                let again = self.workload.commit(&self.world);
                let next = self.perform(&again)?;
                if !matches!(&next, Err(error) if error.kind == ErrorKind::Poisoned) {
                    return Err(Failed(format!("a poisoned store answers {next:?}")));
                }
                // If the log cannot be read, a failed commit may be partly visible.
                if !self.files.plan().met[met..].contains(&OpKind::Read) {
                    self.look_at(&self.possible)?;
                }
                return self.restart();
            }
            if matches!(step, StoreCall::Commit(_)) {
                self.look()?;
            }
            step = again(&step, &mut self.random);
            self.threads.pass(60_000_000_000);
            let work = if attempt == 0 { 0 } else { WORK_MAX };
            self.work(work)?;
            if attempt + 2 == ATTEMPTS {
                self.put_right();
            }
        }
        Err(Failed(format!("it does not recover: {step:?}")))
    }

    /// Removes all planned failures.
    fn put_right(&self) {
        self.files.set_space(SPACE);
        self.files.plan().faults.clear();
    }

    /// Checks that an error can result from the planned failures.
    fn judge(&self, error: &StoreError, met_before: usize) -> Result<(), Failed> {
        let plan = self.files.plan();
        if self.filled && error.kind == ErrorKind::NoSpace {
            return Ok(());
        }
        if plan.met.is_empty() {
            return Err(Failed(format!("{error} before the fault")));
        }
        // A failure may be reported after it was removed.
        let Some(fault) = plan.faults.first() else {
            return Ok(());
        };
        let just_then = &plan.met[met_before..];
        if fault.allows(error.kind, just_then) {
            Ok(())
        } else {
            Err(Failed(format!("{error} after {fault:?} at {just_then:?}")))
        }
    }

    /// Makes a step once.
    fn perform(&mut self, step: &StoreCall) -> Result<Result<(), StoreError>, Failed> {
        let after = self.world.after(step);
        let during = self.possible.during(step, &self.world, &after);
        self.files.take(self.taking);
        let result = self.threads.call(|| call(self.store(), step, &after));
        self.check_taken(&during)?;
        self.stats.steps += 1;
        if let Err(error) = result {
            let Deviation::Said(error) = error else {
                return Err(Failed(format!("{error} in {step:?}")));
            };
            self.possible = during;
            return Ok(Err(error));
        }
        for vb in step.touched() {
            let state = after.vbs.get(&vb).cloned();
            self.possible.vbs.insert(vb, vec![Candidate::Exact(state)]);
        }
        self.possible.manifests = vec![after.manifest.clone()];
        if let Some(past) = &mut self.past {
            past.worlds.push(after.clone());
        }
        // Other steps may have nothing to write.
        self.changed |= matches!(step, StoreCall::Commit(_) | StoreCall::Manifest(_));
        self.world = after;
        Ok(Ok(()))
    }

    /// Reads everything of the open store.
    fn look(&self) -> Result<(), Failed> {
        self.look_at(&Possible::only(&self.world))
    }

    fn look_at(&self, possible: &Possible) -> Result<(), Failed> {
        let found = read(self.store()).and_then(|found| possible.recognize(found));
        match found {
            Ok(_) => Ok(()),
            Err(Deviation::Said(error)) if self.faulty && error.kind.may_pass() => Ok(()),
            Err(wrong) => Err(Failed(format!("while it is open: {wrong}"))),
        }
    }

    /// Takes a snapshot, or checks the one taken earlier.
    fn hold(&mut self) -> Result<(), Failed> {
        match self.held.take() {
            None => {
                let vb: VbId = *self.random.pick(&super::workload::VBS);
                if let Ok(snapshot) = self.store().snapshot(vb) {
                    self.held = Some((snapshot, self.world.vbs.get(&vb).cloned()));
                }
            }
            Some((snapshot, Some(state))) => match view(&*snapshot) {
                Ok(view) if view.shows(&state) => {}
                Ok(view) => {
                    return Err(Failed(format!(
                        "a snapshot moved: {}",
                        view.differs(&state)
                    )));
                }
                Err(Deviation::Said(_)) if self.faulty => {}
                Err(wrong) => return Err(Failed(format!("of a snapshot: {wrong}"))),
            },
            Some((_, None)) => {}
        }
        Ok(())
    }

    /// Closes the store and opens it again.
    fn close(&mut self) -> Result<(), Failed> {
        self.held = None;
        self.files.take(self.taking);
        let closed = self.store().close();
        self.check_taken(&self.possible.clone())?;
        if let Err(error) = &closed
            && !self.faulty
        {
            return Err(Failed(format!("{error} while closing")));
        }
        let disk = if self.random.one_in(2) {
            self.files.cut()
        } else {
            self.files.killed()
        };
        self.let_go();
        // After a successful close everything is durable.
        let disk = if closed.is_ok() {
            disk
        } else {
            self.files.killed()
        };
        self.files.set_disk(disk);
        self.open(closed.is_ok().then_some(true))
    }

    /// Ends without closing: by a power failure or a kill.
    pub(super) fn restart(&mut self) -> Result<(), Failed> {
        let disk = match self.random.next(3) {
            0 => self.files.killed(),
            1 => self.files.cut(),
            _ => self.files.cut_somehow(&mut self.random),
        };
        self.let_go();
        self.files.set_disk(disk);
        let clean = self.changed.then_some(false);
        self.open(clean)
    }

    /// Closes the store, or kills it. Returns its disk.
    pub(super) fn end(&mut self, close: bool) -> Result<Disk, Failed> {
        if close {
            let closed = self.store().close();
            closed.map_err(|error| Failed(format!("{error} while closing")))?;
        }
        let disk = self.files.killed();
        self.let_go();
        Ok(disk)
    }

    fn let_go(&mut self) {
        self.held = None;
        self.files.take(None);
        self.files.taken();
        self.store = None;
        self.threads = SimThreads::default();
    }

    /// Opens the store; `clean` is the expected kind of the last stop.
    fn open(&mut self, clean: Option<bool>) -> Result<(), Failed> {
        let mut tries = if self.faulty { ATTEMPTS } else { 1 };
        let (store, said) = loop {
            tries -= 1;
            self.files.take(self.taking);
            let opened = self.harness.open(&self.files, &self.threads);
            self.check_taken(&self.possible.clone())?;
            match opened {
                Ok(opened) => break opened,
                Err(refused) if tries == 0 || refused.damage => {
                    return Err(Failed(format!("it is refused: {}", refused.text)));
                }
                Err(_) => {
                    self.threads = SimThreads::default();
                    if tries == 1 {
                        self.put_right();
                    }
                }
            }
        };
        // A failed commit may exist completely: then the stop does not count as clean.
        if clean.is_some_and(|clean| clean != said && !(clean && self.faulty)) {
            let trace = self.files.trace();
            return Err(Failed(format!(
                "it says of the last stop: clean = {said} ({trace})"
            )));
        }
        self.store = Some(store);
        self.changed = false;
        let mut tries = if self.faulty { ATTEMPTS } else { 1 };
        let world = loop {
            tries -= 1;
            match read(self.store()).and_then(|found| self.possible.recognize(found)) {
                Ok(world) => break world,
                Err(Deviation::Said(error)) if tries > 0 && error.kind.may_pass() => {
                    if tries == 1 {
                        self.put_right();
                    }
                }
                Err(wrong) => return Err(Failed(format!("once opened again: {wrong}"))),
            }
        };
        self.possible = Possible::only(&world);
        self.world = world;
        Ok(())
    }

    /// Checks the images.
    fn check_taken(&mut self, possible: &Possible) -> Result<(), Failed> {
        self.files.take(None);
        self.seen.clear();
        for (number, image) in self.files.taken().into_iter().enumerate() {
            let mut hasher = DefaultHasher::new();
            image.contents().hash(&mut hasher);
            if !self.seen.insert(hasher.finish()) {
                continue;
            }
            let random = self.random.split();
            self.harness
                .check_image(
                    image,
                    possible,
                    (random, self.workload.clone()),
                    &mut self.stats,
                )
                .map_err(|failed| {
                    let trace = self.files.trace();
                    Failed(format!("image {number}: {} ({trace})", failed.0))
                })?;
        }
        Ok(())
    }
}
