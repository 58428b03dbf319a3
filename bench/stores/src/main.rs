//! Compares key-value stores: the same documents, the same batches, one sync per batch.
//!
//! `stores [--docs N] [--value BYTES] [--batch N]` runs each store in its own process and prints a table.
//! `stores run NAME` runs one store.

mod figures;
mod fjall;
mod lmdb;
mod peer;
mod redb;
mod settee;

use std::path::PathBuf;
use std::process::Command;

use figures::{Took, disk_bytes, measure, resident_bytes};
use peer::{Failure, Key, Peer};

const NAMES: [&str; 4] = ["settee", "fjall", "redb", "lmdb"];
const READS: u64 = 200_000;
const RANGES: u64 = 200;
const RANGE: usize = 1000;

/// Sizes of a run.
#[derive(Clone)]
struct Load {
    documents: u64,
    value_bytes: usize,
    batch: u64,
    dir: PathBuf,
}

impl Load {
    fn from_args(args: &[String]) -> Result<Self, Failure> {
        let option = |name: &str, default: u64| match args.iter().position(|arg| arg == name) {
            Some(at) => Ok(args
                .get(at + 1)
                .ok_or("an option without a number")?
                .parse()?),
            None => Ok::<_, Failure>(default),
        };
        Ok(Self {
            documents: option("--docs", 2_000_000)?,
            value_bytes: option("--value", 256)? as usize,
            batch: option("--batch", 10_000)?,
            dir: std::env::temp_dir().join(format!("stores-{}", std::process::id())),
        })
    }

    /// Size of keys and values in bytes.
    fn bytes(&self, documents: u64) -> u64 {
        documents * (self.value_bytes + size_of::<Key>()) as u64
    }
}

/// Pseudo-random numbers, the same in each run.
struct Dice(u64);

impl Dice {
    fn next(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % below
    }
}

/// Returns the key of a document. The order of keys differs from the order of numbers.
fn key(number: u64) -> Key {
    let scattered = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let text = format!("{scattered:016x}");
    text.as_bytes().try_into().expect("16 digits")
}

/// Returns a value that hardly compresses.
fn value(dice: &mut Dice, bytes: usize) -> Vec<u8> {
    let mut value = Vec::with_capacity(bytes + 8);
    while value.len() < bytes {
        value.extend(dice.next(u64::MAX).to_le_bytes());
    }
    value.truncate(bytes);
    value
}

fn write<P: Peer>(
    peer: &mut P,
    load: &Load,
    count: u64,
    mut pick: impl FnMut(u64) -> u64,
) -> Result<(), Failure> {
    let mut dice = Dice(count);
    let mut done = 0;
    while done < count {
        let batch = load.batch.min(count - done);
        let documents: Vec<_> = (done..done + batch)
            .map(|number| (key(pick(number)), value(&mut dice, load.value_bytes)))
            .collect();
        peer.commit(&documents)?;
        done += batch;
    }
    Ok(())
}

fn read<P: Peer>(peer: &mut P, base: u64, documents: u64, there: bool) -> Result<(), Failure> {
    let mut dice = Dice(7);
    for _ in 0..READS {
        let found = peer.get(&key(base + dice.next(documents)))?;
        if found.is_some() != there {
            return Err("a read answered wrong".into());
        }
    }
    Ok(())
}

fn row(name: &str, what: &str, number: u64, took: Took, bytes: u64) {
    let rate = number as f64 / took.seconds / 1e3;
    let cpu = took.cpu_seconds / number as f64 * 1e6;
    let amplification = if bytes > 0 {
        format!("{:.2}", took.written_bytes as f64 / bytes as f64)
    } else {
        "".into()
    };
    println!("| {name} | {what} | {rate:.0} | {cpu:.2} | {amplification} |");
}

fn run<P: Peer>(name: &str, load: &Load) -> Result<(), Failure> {
    std::fs::create_dir_all(&load.dir)?;
    let documents = load.documents;
    let mut peer = P::open(&load.dir)?;
    let ((), took) = measure(|| write(&mut peer, load, documents, |number| number))?;
    row(name, "load", documents, took, load.bytes(documents));
    let loaded = disk_bytes(&load.dir)? as f64 / load.bytes(documents) as f64;
    let replaced = documents * 3 / 4;
    let mut dice = Dice(1);
    let ((), took) = measure(|| write(&mut peer, load, replaced, |_| dice.next(documents)))?;
    row(name, "replace", replaced, took, load.bytes(replaced));
    let most = disk_bytes(&load.dir)? as f64 / load.bytes(documents) as f64;
    let ((), took) = measure(|| read(&mut peer, 0, documents, true))?;
    row(name, "read", READS, took, 0);
    let ((), took) = measure(|| read(&mut peer, documents, documents, false))?;
    row(name, "read what is not there", READS, took, 0);
    let (walked, took) = measure(|| peer.walk())?;
    row(name, "walk", walked, took, 0);
    let mut dice = Dice(9);
    let (ranged, took) = measure(|| {
        let mut rows = 0;
        for _ in 0..RANGES {
            match peer.range(&key(dice.next(documents)), RANGE)? {
                Some(found) => rows += found as u64,
                None => return Ok(0),
            }
        }
        Ok(rows)
    })?;
    if ranged > 0 {
        row(name, "ranges of 1,000", ranged, took, 0);
    }
    let resident = resident_bytes()? as f64 / documents as f64;
    peer.close()?;
    let (peer, took) = measure(|| P::open(&load.dir))?;
    peer.close()?;
    println!(
        "| {name} | disk to documents after the load {loaded:.2}, after replacing {most:.2}; \
         resident {resident:.0} bytes a document; opened in {:.2} s | | | |",
        took.seconds
    );
    Ok(())
}

fn run_named(name: &str, load: &Load) -> Result<(), Failure> {
    match name {
        "settee" => run::<settee::Settee>(name, load),
        "fjall" => run::<fjall::Fjall>(name, load),
        "redb" => run::<redb::Redb>(name, load),
        "lmdb" => run::<lmdb::Lmdb>(name, load),
        _ => Err(format!("no store of that name: {name}").into()),
    }
}

fn main() -> Result<(), Failure> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let load = Load::from_args(&args)?;
    if let [first, name, ..] = args.as_slice()
        && first == "run"
    {
        let done = run_named(name, &load);
        std::fs::remove_dir_all(&load.dir)?;
        return done;
    }
    println!(
        "| store | what | k/s | CPU us each | bytes written to bytes of documents |\n|---|---|---|---|---|"
    );
    for name in NAMES {
        let status = Command::new(std::env::current_exe()?)
            .args(["run", name])
            .args(&args)
            .status()?;
        if !status.success() {
            return Err(format!("{name} failed").into());
        }
    }
    Ok(())
}
