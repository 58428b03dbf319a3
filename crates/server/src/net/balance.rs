//! The controller of the pool: it decides how many workers serve, from the load of workers and machine.
//!
//! More workers help when the serving workers have no time left and a processor is idle, or when other processes
//! compete for the processors: two threads get more processor time than one. If clients share the machine and keep the
//! other processors busy, a second worker only adds sleeps and wakes. On two cores, four connections that send one
//! request at a time get about a third more answers from one worker than from two.
//!
//! If the system does not report its load, all workers serve.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::connection::Arrival;
use super::meter::{LoadSample, Meter};
use super::worker_pool::WorkerPool;

/// Interval between two looks at the pool: under load, and after a long idle time.
const PERIOD: Duration = Duration::from_millis(50);
const PERIOD_AT_REST: Duration = Duration::from_millis(200);
/// Number of last looks whose mean decides whether more workers are needed.
const LOOKS_TO_GROW: usize = 3;
/// Number of looks at which fewer workers would have sufficed before the pool shrinks, at first and at most. The number
/// doubles when the pool grows soon after it shrank. A look at which they did not suffice cancels `OUTWEIGHED` earlier
/// ones.
const LOOKS_TO_SHRINK: u32 = 60;
const LOOKS_TO_SHRINK_MOST: u32 = 960;
const OUTWEIGHED: u32 = 20;
/// Number of idle looks in a row after which one worker serves again.
const LOOKS_TO_REST: u32 = 20;

// Loads in thousandths of a processor.
/// Busy time from which a worker has next to no time left.
const FULL: u32 = 850;
/// Idle time of the machine that is worth using.
const SPARE: u32 = 350;
/// Busy time of a worker from which requests wait for each other.
const BUSY: u32 = 500;
/// Idle time of the machine that counts as plenty.
const PLENTY: u32 = 1000;
/// A worker is crowded out if it never sleeps (busy and waiting time together) and waits this long for other processes
/// to leave a processor.
const AWAKE: u32 = 950;
const CROWDED_OUT: u32 = 300;
/// Highest busy time of each remaining worker when one leaves: with little idle time, and with plenty.
const KEPT_SCARCE: u32 = 950;
const KEPT_PLENTY: u32 = 350;
/// Time beyond that for which the leaving worker may have been awake.
const LEAVES: u32 = 350;
/// Load below this counts as idle, and is no evidence of how many workers are needed.
const REST: u32 = 100;

// Sleeps of one worker per second, because nothing is to do.
/// A worker with more sleeps keeps up with its connections: a second one would only sleep more.
const KEEPS_UP: u32 = 1000;

/// The decision, without clock or system.
struct Balance {
    workers: u32,
    serving: u32,
    last: VecDeque<LoadSample>,
    fitting: u32,
    resting: u32,
    looks_to_shrink: u32,
    since_shrunk: u32,
}

impl Balance {
    fn new(workers: u32) -> Self {
        Self {
            workers,
            serving: 1,
            last: VecDeque::new(),
            fitting: 0,
            resting: 0,
            looks_to_shrink: LOOKS_TO_SHRINK,
            since_shrunk: u32::MAX,
        }
    }

    /// Returns the number of workers that serve after `sample`.
    fn next(&mut self, sample: LoadSample) -> u32 {
        self.since_shrunk = self.since_shrunk.saturating_add(1);
        if sample.busy < REST {
            self.last.clear();
            self.resting += 1;
            if self.is_at_rest() {
                self.serving = 1;
                self.looks_to_shrink = LOOKS_TO_SHRINK;
                self.fitting = 0;
            }
            return self.serving;
        }
        self.resting = 0;
        self.last.push_back(sample);
        if self.last.len() > LOOKS_TO_GROW {
            self.last.pop_front();
        }
        self.fitting = if self.fewer_suffice(sample) {
            self.fitting + 1
        } else {
            self.fitting.saturating_sub(OUTWEIGHED)
        };
        if self.is_crowded() && self.serving < self.workers {
            self.grow();
        } else if self.serving > 1 && self.fitting >= self.looks_to_shrink {
            self.serving -= 1;
            self.since_shrunk = 0;
            self.fitting = 0;
            self.last.clear();
        }
        self.serving
    }

    /// Checks whether the pool was idle for so long that one worker serves.
    fn is_at_rest(&self) -> bool {
        self.resting >= LOOKS_TO_REST
    }

    fn is_crowded(&self) -> bool {
        if self.last.len() < LOOKS_TO_GROW {
            return false;
        }
        let seen = LoadSample::mean(&self.last);
        let (busy, waited) = (seen.busy / self.serving, seen.waited / self.serving);
        let sleeps = seen.sleeps / self.serving;
        (busy >= FULL && seen.idle >= SPARE && sleeps < KEEPS_UP)
            || (busy >= BUSY && seen.idle >= PLENTY)
            || (busy + waited >= AWAKE && waited >= CROWDED_OUT)
    }

    fn grow(&mut self) {
        self.looks_to_shrink = if self.since_shrunk < self.looks_to_shrink {
            (self.looks_to_shrink * 2).min(LOOKS_TO_SHRINK_MOST)
        } else {
            LOOKS_TO_SHRINK
        };
        self.serving = (self.serving * 2).min(self.workers);
        self.last.clear();
        self.fitting = 0;
    }

    /// Checks whether one worker less would have had the time, and whether the superfluous one mostly slept.
    fn fewer_suffice(&self, sample: LoadSample) -> bool {
        let kept = if sample.idle >= PLENTY {
            KEPT_PLENTY
        } else {
            KEPT_SCARCE
        };
        let kept = (self.serving - 1) * kept;
        sample.busy < kept && sample.busy + sample.waited < kept + LEAVES
    }
}

/// Controls the pool for as long as the node serves. `threads` are the system's numbers of the pool's threads.
pub(crate) async fn balance(pool: Arc<WorkerPool<Arrival>>, threads: Vec<i32>) {
    if pool.len() < 2 {
        return;
    }
    let Some(mut meter) = Meter::new(&threads) else {
        tracing::debug!("this system does not tell how busy it is: all workers serve");
        return pool.serve_with(pool.len());
    };
    let mut balance = Balance::new(u32::try_from(pool.len()).unwrap_or(u32::MAX));
    let mut last = Instant::now();
    loop {
        let period = if balance.is_at_rest() {
            PERIOD_AT_REST
        } else {
            PERIOD
        };
        tokio::time::sleep(period).await;
        let now = Instant::now();
        let Some(sample) = meter.sample(now - last) else {
            return pool.serve_with(pool.len());
        };
        last = now;
        let serving = balance.next(sample) as usize;
        if serving != pool.serves_with() {
            tracing::debug!(serving, ?sample, "connections spread over other workers");
            pool.serve_with(serving);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A look at workers that sleep rarely.
    fn sample(busy: u32, waited: u32, idle: u32) -> LoadSample {
        LoadSample {
            busy,
            waited,
            idle,
            sleeps: 400,
        }
    }

    fn sleeping(sleeps: u32, sample: LoadSample) -> LoadSample {
        LoadSample { sleeps, ..sample }
    }

    /// Returns the serving workers after `times` equal looks.
    fn after(balance: &mut Balance, times: usize, sample: LoadSample) -> u32 {
        (0..times).map(|_| balance.next(sample)).last().unwrap()
    }

    /// Returns a balance of two workers that both serve.
    fn both() -> Balance {
        let mut balance = Balance::new(2);
        assert_eq!(after(&mut balance, 3, sample(1000, 0, 1000)), 2);
        balance
    }

    #[test]
    fn the_pool_grows_if_workers_are_full_and_processors_are_idle() {
        for (seen, serving) in [
            // Nothing to do; little to do.
            (sample(0, 0, 2000), 1),
            (sample(490, 50, 1500), 1),
            // Busy, and clients keep the other processor busy.
            (sample(870, 50, 250), 1),
            (sample(930, 60, 150), 1),
            // Busy, and a processor is idle.
            (sample(930, 0, 450), 2),
            (sample(520, 0, 1400), 2),
            // The worker keeps up with its connections; or requests always wait for it.
            (sleeping(4000, sample(870, 80, 450)), 1),
            (sleeping(10, sample(870, 80, 450)), 2),
            (sleeping(10, sample(930, 60, 150)), 1),
            // Other processes have the processors.
            (sample(500, 460, 0), 2),
            // The worker waits for processors, but sleeps, too.
            (sample(500, 400, 0), 1),
        ] {
            let mut balance = Balance::new(2);
            assert_eq!(after(&mut balance, 2, seen), 1, "{seen:?}");
            assert_eq!(after(&mut balance, 1, seen), serving, "{seen:?}");
        }
    }

    #[test]
    fn one_look_at_idle_processors_does_not_grow_the_pool() {
        let mut balance = Balance::new(2);
        for idle in [200, 200, 600, 100].repeat(10) {
            assert_eq!(balance.next(sample(900, 0, idle)), 1);
        }
        // Idle looks start the count again.
        let mut balance = Balance::new(2);
        for between in [0, 50].repeat(5) {
            assert_eq!(after(&mut balance, 2, sample(1000, 0, 1000)), 1);
            assert_eq!(balance.next(sample(between, 0, 2000)), 1);
        }
    }

    #[test]
    fn the_pool_doubles_up_to_all_workers() {
        let mut balance = Balance::new(6);
        let grown: Vec<u32> = (0..4)
            .map(|_| after(&mut balance, 3, sample(6000, 0, 1500)))
            .collect();
        assert_eq!(grown, [2, 4, 6, 6]);
    }

    #[test]
    fn the_pool_shrinks_once_fewer_suffice_for_a_while() {
        for (seen, serving) in [
            // One is enough, and the other only takes the clients' time.
            (sample(760, 300, 440), 1),
            // One would not be enough.
            (sample(1250, 100, 200), 2),
            (sample(700, 1100, 0), 2),
            // One would be enough, but there is plenty of idle time.
            (sample(760, 0, 1200), 2),
            (sample(300, 0, 1700), 1),
        ] {
            let mut balance = both();
            assert_eq!(after(&mut balance, 59, seen), 2, "{seen:?}");
            assert_eq!(after(&mut balance, 1, seen), serving, "{seen:?}");
        }
    }

    #[test]
    fn occasional_busy_looks_keep_the_pool() {
        let mut balance = both();
        for _ in 0..20 {
            assert_eq!(after(&mut balance, 38, sample(500, 0, 500)), 2);
            assert_eq!(after(&mut balance, 2, sample(1300, 0, 100)), 2);
        }
    }

    #[test]
    fn short_rests_keep_the_pool_and_a_long_rest_shrinks_it() {
        let mut balance = both();
        for _ in 0..10 {
            assert_eq!(after(&mut balance, 19, sample(20, 0, 1900)), 2);
            assert!(!balance.is_at_rest());
            assert_eq!(after(&mut balance, 4, sample(1300, 0, 100)), 2);
        }
        assert_eq!(after(&mut balance, 20, sample(20, 0, 1900)), 1);
        assert!(balance.is_at_rest());
        assert_eq!(balance.next(sample(700, 0, 100)), 1);
        assert!(!balance.is_at_rest());
    }

    #[test]
    fn the_pool_shrinks_later_after_a_wrong_shrink() {
        let mut balance = Balance::new(2);
        let seen = sample(900, 0, 500);
        let mut waits = Vec::new();
        for _ in 0..7 {
            assert_eq!(after(&mut balance, 3, seen), 2);
            waits.push((1..1000).find(|_| balance.next(seen) == 1).unwrap());
        }
        assert_eq!(waits, [60, 120, 240, 480, 960, 960, 960]);
        // Shrinking was right for long: back to the first number.
        assert_eq!(after(&mut balance, 2000, sample(300, 0, 1500)), 1);
        assert_eq!(after(&mut balance, 3, seen), 2);
        assert_eq!(after(&mut balance, 60, sample(300, 0, 1500)), 1);
    }
}
