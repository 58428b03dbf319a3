//! Damage at rest, and disks that lie about syncs: it is detected, or does no harm.

use std::collections::BTreeMap;
use std::ops::Range;

use model::VbId;

use super::call::call;
use super::content::Content;
use super::disk::Disk;
use super::files::SimFiles;
use super::harness::Harness;
use super::possible::Possible;
use super::random::Random;
use super::read::{Deviation, ReadBack, read};
use super::threads::{SimThreads, WORK_MAX};
use super::verdict::{Failed, Stats};
use super::workload::Workload;
use super::world::{StoreCall, World};
use crate::ErrorKind;
use crate::port::KvStore;

type ManifestContents = BTreeMap<String, Content>;

/// Damages files, of which older versions exist as well. Returns a description.
pub(super) fn damage(
    files: &mut ManifestContents,
    older: &[ManifestContents],
    random: &mut Random,
) -> String {
    let names: Vec<String> = files.keys().cloned().collect();
    let (name, other) = (random.pick(&names).clone(), random.pick(&names).clone());
    let past = random.pick(older);
    match random.next(12) {
        0 => {
            files.remove(&name);
            format!("{name}: missing")
        }
        1..3 => {
            let same = |name: &&String| past.contains_key(*name);
            if let Some(name) = [&name, &other].into_iter().find(same) {
                files.insert(name.clone(), past[name].clone());
                return format!("{name}: stale");
            }
            "nothing".to_owned()
        }
        3 => {
            let gone = past.keys().filter(|name| !files.contains_key(*name));
            let gone: Vec<&String> = gone.collect();
            if gone.is_empty() {
                return "nothing".to_owned();
            }
            let name = (*random.pick(&gone)).clone();
            files.insert(name.clone(), past[&name].clone());
            format!("{name}: back again")
        }
        4 => {
            let (mut ours, mut theirs) = (files[&name].bytes(), files[&other].bytes());
            let both = ours.len().min(theirs.len()) as u64;
            let range = piece(both, random);
            // With a part of a log, the part of the tail that reveals the loss would be lost, too.
            if name != other && [&name, &other].iter().all(|name| *name != "TAIL") {
                ours[range.clone()].swap_with_slice(&mut theirs[range.clone()]);
                files.insert(name.clone(), Content::of(&ours));
                files.insert(other.clone(), Content::of(&theirs));
            }
            format!("{name}: {range:?} swapped with {other}")
        }
        _ => {
            let mut bytes = files[&name].bytes();
            let length = bytes.len();
            let what = damage_within(&mut bytes, random);
            files.insert(name.clone(), Content::of(&bytes));
            format!("{name} of {length}: {what}")
        }
    }
}

/// Returns a range with bounds at a page, a sector, a word or any byte.
fn piece(length: u64, random: &mut Random) -> Range<usize> {
    let size = *random.pick(&[1, 8, 64, 512, 4096]);
    let at = random.next(length) / size * size;
    at as usize..(at + size).min(length) as usize
}

/// Damages the bytes of a file. Returns a description.
fn damage_within(bytes: &mut Vec<u8>, random: &mut Random) -> String {
    let length = bytes.len() as u64;
    let (part, from) = (piece(length, random), piece(length, random));
    match random.next(10) {
        _ if length == 0 => {
            bytes.push(1);
            "a byte more".to_owned()
        }
        0..3 => {
            let bit = random.next(8);
            let at = random.next(length);
            bytes[at as usize] ^= 1 << bit;
            format!("bit {bit} of byte {at}")
        }
        3 => {
            let end = *random.pick(&[part.start, length as usize - 1]);
            bytes.truncate(end);
            format!("cut to {end}")
        }
        4..6 => {
            bytes[part.clone()].fill(0);
            format!("zeros at {part:?}")
        }
        6 => {
            let count = part.len().min(from.len());
            bytes.copy_within(from.start..from.start + count, part.start);
            format!("{count} from {} doubled at {}", from.start, part.start)
        }
        7 => {
            let count = part.len().min(from.len());
            for offset in 0..count {
                bytes.swap(from.start + offset, part.start + offset);
            }
            format!("{count} at {} and {} swapped", from.start, part.start)
        }
        8 => {
            for byte in &mut bytes[part.clone()] {
                *byte = random.next(256) as u8;
            }
            format!("noise at {part:?}")
        }
        _ => {
            let count = 1 + random.next(300);
            bytes.extend((0..count).map(|_| random.next(256) as u8));
            format!("{count} more bytes")
        }
    }
}

impl<S: KvStore> Harness<S> {
    /// Opens damaged files, reads everything, makes a step, and reads everything again.
    pub(super) fn check_damaged(
        &self,
        damaged: &ManifestContents,
        world: &World,
        (mut random, mut workload): (Random, Workload),
        stats: &mut Stats,
    ) -> Result<(), Failed> {
        stats.damages += 1;
        let files = SimFiles::over(Disk::of(damaged.clone()), random.split());
        let is_found = !self.damaged(&files)?.is_empty();
        let unnoticed = |what: &str| Failed(format!("{what}, and a check finds nothing"));
        let Some((store, threads)) = self.open_damaged(&files, damaged, stats)? else {
            return if is_found {
                Ok(())
            } else {
                Err(unnoticed("refused"))
            };
        };
        let mut told = judge_found(read(&store), &Possible::only(world))
            .map_err(|failed| Failed(format!("at first: {}", failed.0)))?;
        if told && !is_found {
            return Err(unnoticed("told"));
        }
        if random.one_in(3) {
            let step = workload.step(world);
            let mut possible = Possible::only(world);
            told |= go_on(&store, &threads, world, &step, &mut possible)
                .map_err(|failed| Failed(format!("after {step:?}: {}", failed.0)))?;
            told |= random.one_in(2) && store.close().is_err();
            let disk = files.cut();
            let contents = disk.contents();
            drop(store);
            let files = SimFiles::over(disk, random.split());
            if let Some((store, _)) = self.open_damaged(&files, &contents, stats)? {
                told |= judge_found(read(&store), &possible)?;
            }
        }
        stats.told += u64::from(told);
        Ok(())
    }

    /// Opens damaged files; `None` if the store refuses them, which must change nothing.
    pub(super) fn open_damaged(
        &self,
        files: &SimFiles,
        damaged: &ManifestContents,
        stats: &mut Stats,
    ) -> Result<Option<(S, SimThreads)>, Failed> {
        let threads = SimThreads::default();
        stats.openings += 1;
        match self.open(files, &threads) {
            Ok((store, _)) => Ok(Some((store, threads))),
            Err(refused) if !refused.damage => Err(Failed(format!(
                "refused, but not as damage: {}",
                refused.text
            ))),
            Err(refused) => {
                stats.refused_openings += 1;
                drop(threads);
                if files.killed().contents() == *damaged {
                    Ok(None)
                } else {
                    Err(Failed(format!(
                        "a refused opening changed files: {}",
                        refused.text
                    )))
                }
            }
        }
    }
}

/// Makes a step, merges, and reads everything. Returns whether the store reported damage.
fn go_on<S: KvStore>(
    store: &S,
    threads: &SimThreads,
    world: &World,
    step: &StoreCall,
    possible: &mut Possible,
) -> Result<bool, Failed> {
    threads.run(WORK_MAX);
    let after = world.after(step);
    let done = threads.call(|| call(store, step, &after));
    match &done {
        Ok(()) => *possible = Possible::only(&after),
        Err(Deviation::Said(error))
            if matches!(error.kind, ErrorKind::Corrupt | ErrorKind::Poisoned) =>
        {
            *possible = possible.during(step, world, &after);
        }
        Err(wrong) => return Err(Failed(format!("{wrong} in {step:?}"))),
    }
    threads.pass(60_000_000_000);
    threads.run(WORK_MAX);
    Ok(judge_found(read(store), possible)? || done.is_err())
}

/// Whether the store reported damage; all other content must be right.
pub(super) fn judge_found(
    found: Result<ReadBack, Deviation>,
    possible: &Possible,
) -> Result<bool, Failed> {
    let ReadBack { vbs, manifest } = match found {
        Ok(found) => found,
        Err(wrong) => return said(wrong).map(|()| true),
    };
    let mut told = false;
    let all: std::collections::BTreeSet<VbId> =
        vbs.keys().chain(possible.vbs.keys()).copied().collect();
    let mut vbs = vbs;
    for vb in all {
        match vbs.remove(&vb) {
            Some(Err(wrong)) => {
                said(wrong)?;
                told = true;
            }
            found => {
                let view = found.and_then(Result::ok);
                possible.find(vb, view.as_ref()).map_err(Failed)?;
            }
        }
    }
    match manifest {
        Ok(text) if possible.manifests.contains(&text) => Ok(told),
        Ok(_) => Err(Failed::of("the manifest is another")),
        Err(wrong) => said(wrong).map(|()| true),
    }
}

/// Checks that an error reports damage.
fn said(wrong: Deviation) -> Result<(), Failed> {
    match wrong {
        Deviation::Said(error) if error.kind == ErrorKind::Corrupt => Ok(()),
        Deviation::Said(error) => Err(Failed(format!("damage is told as {error}"))),
        Deviation::Silent(text) => Err(Failed(text)),
    }
}
