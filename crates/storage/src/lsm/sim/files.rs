//! A file system in memory with planned failures. It can return the state after a power failure at any time.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use cipher::{EncryptionKeys, Keyring};
use parking_lot::{MappedMutexGuard, Mutex, MutexGuard};

use super::disk::{Disk, FileId, SurvivingChanges};
use super::plan::{FaultPlan, Mishap, OpKind};
use super::random::Random;
use crate::lsm::files::{Files, RawFile};

/// More bytes than any test uses.
pub(super) const SPACE: u64 = 1 << 40;

/// A failing write stops at the end of a sector.
const SECTOR: u64 = 512;

/// Number of images to take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taking {
    /// Images before each sync; all possible ones, if there are not more.
    pub(crate) at_sync: usize,
    /// One image before one of so many other changes.
    pub(crate) one_in: u64,
}

/// A simulated directory. Copies are the same directory.
#[derive(Clone, Debug)]
pub(crate) struct SimFiles {
    inside: Arc<Mutex<Inside>>,
    keyring: Option<Arc<Keyring>>,
}

#[derive(Debug)]
struct Inside {
    disk: Disk,
    plan: FaultPlan,
    random: Random,
    taking: Option<Taking>,
    taken: Vec<Disk>,
    /// Bytes that fit.
    space: u64,
    /// Operations so far, if `SETTEE_TRACE` is set.
    trace: Option<Vec<String>>,
}

/// An open file of the directory.
#[derive(Debug)]
struct SimFile {
    inside: Arc<Mutex<Inside>>,
    id: FileId,
}

impl SimFiles {
    /// Creates a directory with the content of a disk.
    pub(crate) fn over(disk: Disk, random: Random) -> Self {
        let inside = Inside {
            disk,
            plan: FaultPlan::default(),
            random,
            taking: None,
            taken: Vec::new(),
            space: SPACE,
            trace: std::env::var_os("SETTEE_TRACE").map(|_| Vec::new()),
        };
        Self {
            inside: Arc::new(Mutex::new(inside)),
            keyring: None,
        }
    }

    /// Returns the same directory, with these keys for its files.
    pub(crate) fn with_keys(&self, keys: Option<&Arc<EncryptionKeys>>) -> Self {
        Self {
            inside: Arc::clone(&self.inside),
            keyring: keys.map(|keys| Arc::new(Keyring::new(keys))),
        }
    }

    /// Starts or stops taking images.
    pub(crate) fn take(&self, taking: Option<Taking>) {
        self.inside.lock().taking = taking;
    }

    /// Returns the images, and forgets them.
    pub(crate) fn taken(&self) -> Vec<Disk> {
        std::mem::take(&mut self.inside.lock().taken)
    }

    /// Returns the plan of failures, and its counts.
    pub(crate) fn plan(&self) -> MappedMutexGuard<'_, FaultPlan> {
        MutexGuard::map(self.inside.lock(), |inside| &mut inside.plan)
    }

    /// Sets the maximum bytes of all files.
    pub(crate) fn set_space(&self, bytes: u64) {
        self.inside.lock().space = bytes;
    }

    /// Returns the last operations, for messages.
    pub(crate) fn trace(&self) -> String {
        let inside = self.inside.lock();
        let trace = inside.trace.as_deref().unwrap_or_default();
        trace[trace.len().saturating_sub(60)..].join(", ")
    }

    /// Returns the bytes of all files.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.inside.lock().disk.held_bytes()
    }

    /// Replaces the disk.
    pub(crate) fn set_disk(&self, disk: Disk) {
        self.inside.lock().disk = disk;
    }

    /// Returns the disk after the process is killed.
    pub(crate) fn killed(&self) -> Disk {
        self.inside.lock().disk.killed()
    }

    /// Returns the worst disk after a power failure.
    pub(crate) fn cut(&self) -> Disk {
        self.inside.lock().disk.cut(SurvivingChanges::Nothing)
    }

    /// Returns a possible disk after a power failure.
    pub(crate) fn cut_somehow(&self, random: &mut Random) -> Disk {
        self.inside.lock().disk.cut(SurvivingChanges::Any(random))
    }

    fn file(&self, id: FileId) -> Arc<dyn RawFile> {
        Arc::new(SimFile {
            inside: Arc::clone(&self.inside),
            id,
        })
    }
}

impl Inside {
    /// Counts an operation. Returns its planned failure.
    fn begin(&mut self, kind: OpKind, file: Option<FileId>) -> Option<Mishap> {
        if let Some(taking) = self.taking {
            match kind {
                OpKind::Sync | OpKind::SyncNames => self.take_at_sync(taking.at_sync),
                _ if kind.changes() && self.random.one_in(taking.one_in) => {
                    let image = self.disk.cut(SurvivingChanges::Any(&mut self.random));
                    self.taken.push(image);
                }
                _ => {}
            }
        }
        let disk = &self.disk;
        if let Some(trace) = &mut self.trace {
            let name = file.and_then(|id| disk.name_of(id)).cloned();
            trace.push(format!("{kind:?} {}", name.unwrap_or_default()));
        }
        let name = || file.and_then(|id| disk.name_of(id)).cloned();
        self.plan.next(kind, || name().unwrap_or_default())
    }

    fn note(&mut self, name: &str) {
        if let Some(trace) = &mut self.trace {
            trace.push(format!("[{name}]"));
        }
    }

    fn take_at_sync(&mut self, count: usize) {
        let unsynced = self.disk.unsynced();
        let all = u32::try_from(unsynced)
            .ok()
            .and_then(|bits| 1_usize.checked_shl(bits));
        if let Some(all) = all.filter(|all| *all <= count) {
            let images = (0..all as u64).map(|bits| self.disk.cut(SurvivingChanges::Whole(bits)));
            self.taken.extend(images);
        } else {
            self.taken.push(self.disk.cut(SurvivingChanges::Nothing));
            self.taken.push(self.disk.killed());
        }
        for _ in 0..count.div_ceil(2) {
            let image = self.disk.cut(SurvivingChanges::Any(&mut self.random));
            self.taken.push(image);
        }
    }

    /// Runs an operation that either happens or fails.
    fn plainly(&mut self, kind: OpKind) -> io::Result<()> {
        match self.begin(kind, None) {
            Some(Mishap::Error(code)) => Err(io::Error::from_raw_os_error(code)),
            _ => Ok(()),
        }
    }

    /// Runs an operation that may happen even if it fails.
    fn perhaps(&mut self, kind: OpKind, change: impl FnOnce(&mut Disk)) -> io::Result<()> {
        let result = self.plainly(kind);
        if result.is_ok() || self.random.one_in(3) {
            change(&mut self.disk);
        }
        result
    }

    fn check_space(&self, id: FileId, end: u64) -> io::Result<()> {
        let grows = end.saturating_sub(self.disk.seen(id).length());
        if grows > 0 && self.disk.held_bytes() + grows > self.space {
            return Err(io::Error::from_raw_os_error(super::plan::ENOSPC));
        }
        Ok(())
    }
}

fn not_found(name: &str) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, format!("there is no {name}"))
}

impl Files for SimFiles {
    fn create(&self, name: &str) -> io::Result<Arc<dyn RawFile>> {
        let mut inside = self.inside.lock();
        inside.note(name);
        inside.perhaps(OpKind::Create, |disk| {
            disk.create(name);
        })?;
        let id = inside.disk.find(name).expect("it was made");
        Ok(self.file(id))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn RawFile>> {
        let mut inside = self.inside.lock();
        inside.note(name);
        inside.plainly(OpKind::Open)?;
        let id = inside.disk.find(name).ok_or_else(|| not_found(name))?;
        Ok(self.file(id))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut inside = self.inside.lock();
        let mut found = true;
        inside.perhaps(OpKind::Rename, |disk| found = disk.rename(from, to))?;
        if found { Ok(()) } else { Err(not_found(from)) }
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut inside = self.inside.lock();
        inside.note(name);
        inside.perhaps(OpKind::Remove, |disk| disk.remove(name))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let mut inside = self.inside.lock();
        inside.plainly(OpKind::List)?;
        let mut names: Vec<String> = inside.disk.names().cloned().collect();
        let at = inside.random.next(names.len() as u64) as usize;
        names.rotate_left(at);
        Ok(names)
    }

    fn sync_names(&self) -> io::Result<()> {
        let mut inside = self.inside.lock();
        match inside.begin(OpKind::SyncNames, None) {
            None => {
                inside.disk.sync_names();
                Ok(())
            }
            // The file system has a log of names, which it continues or not at all.
            Some(Mishap::Error(code)) => Err(io::Error::from_raw_os_error(code)),
            Some(Mishap::Lie) => {
                inside.disk.doubt_names();
                Ok(())
            }
        }
    }

    fn free_bytes(&self) -> io::Result<u64> {
        let mut inside = self.inside.lock();
        inside.plainly(OpKind::FreeBytes)?;
        Ok(inside.space.saturating_sub(inside.disk.held_bytes()))
    }

    fn path_of(&self, name: &str) -> PathBuf {
        PathBuf::from("/simulated").join(name)
    }

    fn keyring(&self) -> Option<&Keyring> {
        self.keyring.as_deref()
    }
}

impl RawFile for SimFile {
    fn read_at(&self, bytes: &mut [u8], at: u64) -> io::Result<()> {
        let mut inside = self.inside.lock();
        inside.plainly(OpKind::Read)?;
        let content = inside.disk.seen(self.id);
        if at + bytes.len() as u64 > content.length() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        content.read(at, bytes);
        Ok(())
    }

    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        let mut inside = self.inside.lock();
        if let Some(mishap) = inside.begin(OpKind::Write, Some(self.id)) {
            let end = at + inside.random.next(bytes.len() as u64 + SECTOR);
            let written = (end / SECTOR * SECTOR).saturating_sub(at) as usize;
            let written = written.min(bytes.len());
            if written > 0 {
                inside.disk.write(self.id, at, &bytes[..written]);
            }
            return mishap.answer();
        }
        inside.check_space(self.id, at + bytes.len() as u64)?;
        if !bytes.is_empty() {
            inside.disk.write(self.id, at, bytes);
        }
        Ok(())
    }

    fn length(&self) -> io::Result<u64> {
        let mut inside = self.inside.lock();
        inside.plainly(OpKind::Length)?;
        Ok(inside.disk.seen(self.id).length())
    }

    fn disk_bytes(&self) -> io::Result<u64> {
        let mut inside = self.inside.lock();
        inside.plainly(OpKind::DiskBytes)?;
        Ok(inside.disk.seen(self.id).held_bytes())
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        let mut inside = self.inside.lock();
        inside.perhaps(OpKind::SetLength, |disk| disk.set_length(self.id, length))
    }

    fn sync(&self) -> io::Result<()> {
        let mut inside = self.inside.lock();
        if let Some(mishap) = inside.begin(OpKind::Sync, Some(self.id)) {
            inside.disk.doubt(self.id);
            return mishap.answer();
        }
        inside.disk.sync(self.id);
        if inside.disk.name_of(self.id).is_some() {
            Ok(())
        } else {
            Err(not_found("such name any more"))
        }
    }
}
