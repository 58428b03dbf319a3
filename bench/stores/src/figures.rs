//! Resource usage of this process, as the system counts it.

use std::fs;
use std::path::Path;
use std::time::Instant;

use crate::peer::Failure;

/// Time and resources that some work used.
#[derive(Clone, Copy, Default)]
pub struct Took {
    pub seconds: f64,
    pub cpu_seconds: f64,
    pub written_bytes: u64,
}

/// Measures some work. Background work counts as far as it is done by then.
pub fn measure<T>(work: impl FnOnce() -> Result<T, Failure>) -> Result<(T, Took), Failure> {
    let (began, cpu, written) = (Instant::now(), cpu_seconds()?, written_bytes()?);
    let done = work()?;
    let took = Took {
        seconds: began.elapsed().as_secs_f64(),
        cpu_seconds: cpu_seconds()? - cpu,
        written_bytes: written_bytes()? - written,
    };
    Ok((done, took))
}

fn cpu_seconds() -> Result<f64, Failure> {
    const TICKS_A_SECOND: f64 = 100.0;
    let stat = fs::read_to_string("/proc/self/stat")?;
    let (_, fields) = stat.rsplit_once(')').ok_or("no name")?;
    let ticks = fields.split_whitespace().skip(11).take(2);
    Ok(ticks
        .filter_map(|field| field.parse::<f64>().ok())
        .sum::<f64>()
        / TICKS_A_SECOND)
}

/// Returns the number in the line that begins with `name`, in a file below /proc/self.
fn field(file: &str, name: &str) -> Result<u64, Failure> {
    let text = fs::read_to_string(Path::new("/proc/self").join(file))?;
    let line = text.lines().find(|line| line.starts_with(name));
    let number = line.and_then(|line| line.split_whitespace().nth(1));
    Ok(number.ok_or("no such line")?.parse()?)
}

/// Bytes passed to `write` and similar calls.
fn written_bytes() -> Result<u64, Failure> {
    field("io", "wchar:")
}

/// Resident memory without mapped files.
pub fn resident_bytes() -> Result<u64, Failure> {
    Ok(field("status", "RssAnon:")? * 1024)
}

/// Size of all files in a directory, in bytes.
pub fn disk_bytes(dir: &Path) -> Result<u64, Failure> {
    use std::os::unix::fs::MetadataExt as _;
    let mut all = 0;
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        all += if metadata.is_dir() {
            disk_bytes(&entry.path())?
        } else {
            metadata.blocks() * 512
        };
    }
    Ok(all)
}
