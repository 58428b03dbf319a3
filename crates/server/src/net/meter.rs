//! A meter of the load of threads and machine, read from `/proc`.
//!
//! The files stay open and are read into a buffer on the stack. A look costs some 20 us then, a third of the cost with
//! opening them each time.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::time::Duration;

/// Load between two looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LoadSample {
    /// Time of all workers on a processor, in thousandths of one.
    pub(super) busy: u32,
    /// Time in which workers were ready to run, but other threads had the processors, in thousandths of one.
    pub(super) waited: u32,
    /// Idle time of the machine, in thousandths of a processor.
    pub(super) idle: u32,
    /// Sleeps of all workers for lack of work, per second.
    pub(super) sleeps: u32,
}

impl LoadSample {
    /// Returns the mean of several looks, at least one.
    pub(super) fn mean(looks: &VecDeque<Self>) -> Self {
        let count = u32::try_from(looks.len()).unwrap_or(1).max(1);
        let of = |part: fn(&Self) -> u32| looks.iter().map(part).sum::<u32>() / count;
        Self {
            busy: of(|sample| sample.busy),
            waited: of(|sample| sample.waited),
            idle: of(|sample| sample.idle),
            sleeps: of(|sample| sample.sleeps),
        }
    }
}

/// Length of a clock tick of `/proc/stat`, ns: a hundredth of a second on every system that has the file.
const TICK_NS: u64 = 10_000_000;

/// Bytes at the start of a file that contain the values.
const LOOKED_AT: usize = 4 << 10;

/// Times of threads and machine since boot.
pub(super) struct Meter {
    threads: Vec<Thread>,
    machine: File,
    ran: Vec<ThreadTime>,
    idle_ns: u64,
}

/// Files in which the system reports on a thread.
struct Thread {
    times: File,
    status: File,
}

/// Time of a thread on a processor, and time in which it waited for one; number of its sleeps.
#[derive(Clone, Copy)]
struct ThreadTime {
    busy_ns: u64,
    waited_ns: u64,
    sleeps: u64,
}

impl Meter {
    /// Opens the files of these threads; `None` if the system does not have them, or there is no such thread.
    pub(super) fn new(threads: &[i32]) -> Option<Self> {
        let open = |number: &i32| {
            let folder = format!("/proc/self/task/{number}");
            Some(Thread {
                times: File::open(format!("{folder}/schedstat")).ok()?,
                status: File::open(format!("{folder}/status")).ok()?,
            })
        };
        let threads: Vec<Thread> = threads.iter().map(open).collect::<Option<_>>()?;
        let machine = File::open("/proc/stat").ok()?;
        Some(Self {
            ran: ran(&threads)?,
            idle_ns: idle_ns(&machine)?,
            threads,
            machine,
        })
    }

    /// Returns the load since the last call, which was `elapsed` ago.
    pub(super) fn sample(&mut self, elapsed: Duration) -> Option<LoadSample> {
        let (ran, idle_ns) = (ran(&self.threads)?, idle_ns(&self.machine)?);
        let spent = |part: fn(&ThreadTime) -> u64| -> u64 {
            let threads = ran.iter().zip(&self.ran);
            threads
                .map(|(now, then)| part(now).saturating_sub(part(then)))
                .sum()
        };
        let elapsed_ns = u64::try_from(elapsed.as_nanos()).ok()?.max(1);
        let share =
            |ns: u64| u32::try_from(ns.saturating_mul(1000) / elapsed_ns).unwrap_or(u32::MAX);
        let sample = LoadSample {
            busy: share(spent(|ran| ran.busy_ns)),
            waited: share(spent(|ran| ran.waited_ns)),
            idle: share(idle_ns.saturating_sub(self.idle_ns)),
            // Thousandths of sleeps per nanosecond.
            sleeps: share(spent(|ran| ran.sleeps).saturating_mul(1_000_000)),
        };
        (self.ran, self.idle_ns) = (ran, idle_ns);
        Some(sample)
    }
}

fn ran(threads: &[Thread]) -> Option<Vec<ThreadTime>> {
    let one = |thread: &Thread| {
        let mut buffer = [0; LOOKED_AT];
        let mut times = look_at(&thread.times, &mut buffer)?.split_whitespace();
        let mut time = || times.next()?.parse().ok();
        let (busy_ns, waited_ns) = (time()?, time()?);
        let status = look_at(&thread.status, &mut buffer)?;
        let sleeps = status
            .lines()
            .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
        Some(ThreadTime {
            busy_ns,
            waited_ns,
            sleeps: sleeps.trim().parse().ok()?,
        })
    };
    threads.iter().map(one).collect()
}

/// Returns the time in which processors were idle or waited for a disk, summed over all of them.
fn idle_ns(machine: &File) -> Option<u64> {
    let mut buffer = [0; LOOKED_AT];
    let line = look_at(machine, &mut buffer)?.lines().next()?;
    let mut times = line.strip_prefix("cpu ")?.split_whitespace().skip(3);
    let mut time = || times.next()?.parse::<u64>().ok();
    Some((time()? + time()?) * TICK_NS)
}

/// Reads the start of a file that the system generates on each read.
fn look_at<'a>(file: &File, buffer: &'a mut [u8; LOOKED_AT]) -> Option<&'a str> {
    let count = loop {
        match file.read_at(buffer, 0) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            read => break read.ok()?,
        }
    };
    std::str::from_utf8(&buffer[..count]).ok()
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use super::*;

    #[test]
    fn the_meter_reads_the_load_of_this_system() {
        let own = rustix::thread::gettid().as_raw_nonzero().get();
        let mut meter = Meter::new(&[own]).unwrap();
        let before = meter.ran[0].busy_ns;
        while ran(&meter.threads).unwrap()[0].busy_ns < before + 20_000_000 {
            std::hint::spin_loop();
        }
        for _ in 0..10 {
            std::thread::sleep(Duration::from_micros(100));
        }
        // Pretend that this took a tenth of a second.
        let seen = meter.sample(Duration::from_millis(100)).unwrap();
        assert!((200..2000).contains(&seen.busy), "{seen:?}");
        assert!((100..10_000).contains(&seen.sleeps), "{seen:?}");
        assert!(Meter::new(&[0]).is_none(), "no such thread");
    }
}
