//! Shared code of benchmarks with their own `main`: rows selected by a filter, ten repetitions with
//! statistics, one JSON object a line.
//!
//! This crate must not be part of the product: it is only a development dependency.

use std::time::Instant;

use rustix::time::{ClockId, clock_gettime};

/// Number of repetitions of each measurement.
pub const REPETITIONS: usize = 10;

type Measure<'a> = Box<dyn FnOnce() -> Figures + 'a>;

/// The rows of a benchmark: names with their measurements.
#[derive(Default)]
pub struct Rows<'a>(Vec<(String, Measure<'a>)>);

impl<'a> Rows<'a> {
    /// Adds a row.
    pub fn add(&mut self, name: impl Into<String>, measure: impl FnOnce() -> Figures + 'a) {
        self.0.push((name.into(), Box::new(measure)));
    }

    /// Adds a row with the times of `measured`, each with a fresh state from `build`.
    pub fn add_timed<S, R>(
        &mut self,
        name: impl Into<String>,
        build: impl FnMut() -> S + 'a,
        measured: impl FnMut(&mut S) -> R + 'a,
    ) {
        self.add(name, move || Figures::of_times(&times(build, measured)));
    }

    /// Measures and prints the rows selected by the program's arguments. The first argument that
    /// does not begin with `-` is the filter: the name of a row, else a part of names.
    pub fn run(self) {
        let filter = std::env::args().skip(1).find(|word| !word.starts_with('-'));
        let filter = filter.unwrap_or_default();
        let is_whole = self.0.iter().any(|(name, _)| *name == filter);
        for (name, measure) in self.0 {
            if selects(&filter, is_whole, &name) {
                #[expect(clippy::print_stdout, reason = "this is its purpose")]
                {
                    println!("{}", measure().line(&name));
                }
            }
        }
    }
}

/// Whether a filter selects a row; `is_whole` if it is a row's whole name.
fn selects(filter: &str, is_whole: bool, name: &str) -> bool {
    name == filter || !is_whole && name.contains(filter)
}

/// Measures each run of `measured` in nanoseconds, without building its state and dropping its
/// result.
pub fn times<S, R>(
    mut build: impl FnMut() -> S,
    mut measured: impl FnMut(&mut S) -> R,
) -> Vec<f64> {
    let one = |_| {
        let mut state = build();
        let (result, took_ns) = timed(|| measured(&mut state));
        drop(result);
        took_ns
    };
    (0..REPETITIONS).map(one).collect()
}

/// Runs `work`; returns its result and the time in nanoseconds.
pub fn timed<R>(work: impl FnOnce() -> R) -> (R, f64) {
    let started = Instant::now();
    let result = work();
    (result, started.elapsed().as_secs_f64() * 1e9)
}

/// Returns `total` divided by the number of items, at least one.
#[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
pub fn per(total: u64, items: u64) -> f64 {
    total as f64 / items.max(1) as f64
}

/// CPU time of this thread so far, in nanoseconds; hardly affected by other load.
pub fn thread_cpu_ns() -> u64 {
    cpu_ns(ClockId::ThreadCPUTime)
}

/// CPU time of all threads so far, in nanoseconds.
pub fn process_cpu_ns() -> u64 {
    cpu_ns(ClockId::ProcessCPUTime)
}

fn cpu_ns(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    u64::try_from(time.tv_sec * 1_000_000_000 + time.tv_nsec).unwrap_or(0)
}

/// Statistics of samples.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// Arithmetic mean.
    pub mean: f64,
    /// Median; for an even number of samples, the mean of the two in the middle.
    pub median: f64,
    /// Standard deviation of a sample (divisor: number of samples minus one).
    pub stddev: f64,
    /// Coefficient of variation: standard deviation divided by mean.
    pub cv: f64,
}

impl Summary {
    /// Computes the statistics of at least one sample.
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    pub fn of(samples: &[f64]) -> Self {
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        let count = sorted.len();
        let mean = sorted.iter().sum::<f64>() / count as f64;
        let squares: f64 = sorted.iter().map(|sample| (sample - mean).powi(2)).sum();
        let stddev = (squares / (count.max(2) - 1) as f64).sqrt();
        Self {
            mean,
            median: f64::midpoint(sorted[(count - 1) / 2], sorted[count / 2]),
            stddev,
            cv: if mean == 0.0 { 0.0 } else { stddev / mean },
        }
    }
}

/// The figures of a row.
#[derive(Debug, Default)]
pub struct Figures(Vec<(&'static str, f64)>);

impl Figures {
    /// Returns mean, median, standard deviation and coefficient of variation of times in
    /// nanoseconds.
    pub fn of_times(samples_ns: &[f64]) -> Self {
        let summary = Summary::of(samples_ns);
        Self::default()
            .and("mean_ns", summary.mean)
            .and("median_ns", summary.median)
            .and("stddev_ns", summary.stddev)
            .and("cv", summary.cv)
    }

    /// Adds a figure.
    #[must_use]
    pub fn and(mut self, name: &'static str, value: f64) -> Self {
        self.0.push((name, value));
        self
    }

    /// Returns a JSON object with the name of the row.
    fn line(&self, name: &str) -> String {
        let figures = self.0.iter().map(|(figure, value)| {
            let decimals = if value.fract() == 0.0 { 0 } else { 3 };
            format!(",\"{figure}\":{value:.decimals$}")
        });
        format!("{{\"name\":\"{name}\"{}}}", figures.collect::<String>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_name_selects_its_row_alone() {
        let names = ["Flush/1", "Flush/10", "Scan/1"];
        let chosen = |filter: &str| {
            let is_whole = names.contains(&filter);
            let all = names.iter();
            all.filter(|name| selects(filter, is_whole, name)).count()
        };
        assert_eq!(chosen("Flush/1"), 1);
        assert_eq!(chosen("Flush"), 2);
        assert_eq!(chosen("/1"), 3);
        assert_eq!(chosen(""), 3);
        assert_eq!(chosen("flush"), 0);
    }

    #[test]
    fn samples_are_summed_up() {
        let summary = Summary::of(&[4.0, 2.0, 9.0, 5.0]);
        assert_eq!((summary.mean, summary.median), (5.0, 4.5));
        assert!((summary.stddev - (26.0_f64 / 3.0).sqrt()).abs() < 1e-9);
        assert!((summary.cv - summary.stddev / 5.0).abs() < 1e-9);
        let one = Summary::of(&[3.0]);
        assert_eq!((one.median, one.stddev, one.cv), (3.0, 0.0, 0.0));
        assert!(!Summary::of(&[0.0]).cv.is_nan());
    }

    #[test]
    fn a_row_is_one_json_object() {
        let figures = Figures::of_times(&[1.0, 2.0]).and("items", 3.0);
        let expected = r#"{"name":"Row/1","mean_ns":1.500,"median_ns":1.500,"stddev_ns":0.707,"cv":0.471,"items":3}"#;
        assert_eq!(figures.line("Row/1"), expected);
    }

    #[test]
    fn each_repetition_has_a_state_of_its_own() {
        let mut built = 0;
        let mut seen = Vec::new();
        let times = times(
            || {
                built += 1;
                built
            },
            |state| seen.push(*state),
        );
        assert_eq!(times.len(), REPETITIONS);
        assert_eq!(seen, (1..=REPETITIONS).collect::<Vec<_>>());
    }
}
