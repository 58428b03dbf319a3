//! Results of steps and suites, and the summary of them.

use std::time::Instant;

/// Result of one step or suite.
pub(super) struct Tally {
    pub(super) name: String,
    pub(super) passed: usize,
    pub(super) failed: usize,
    pub(super) seconds: f64,
    pub(super) note: String,
}

pub(super) fn tally(name: &str, (passed, failed): (usize, usize), started: Instant) -> Tally {
    let seconds = started.elapsed().as_secs_f64();
    Tally {
        name: name.to_owned(),
        passed,
        failed,
        seconds,
        note: String::new(),
    }
}

pub(super) fn headline(name: &str) {
    println!("\n== {name}");
}

/// Returns the number before `word`: 3 for `3 passed`.
pub(super) fn number_before(line: &str, word: &str) -> usize {
    let words: Vec<&str> = line
        .split([' ', ';', ','])
        .filter(|part| !part.is_empty())
        .collect();
    let pair = words.windows(2).find(|pair| pair[1] == word);
    pair.and_then(|pair| pair[0].parse().ok()).unwrap_or(0)
}

/// Prints one line per step, those that failed last, and the closing line.
pub(super) fn summarize(tallies: &[Tally]) -> bool {
    headline("summary");
    let (passing, failing): (Vec<_>, Vec<_>) = tallies.iter().partition(|tally| tally.failed == 0);
    for tally in passing.iter().chain(&failing) {
        let outcome = if tally.failed == 0 { "ok  " } else { "FAIL" };
        println!(
            "{outcome} {:<12} {:>5} passed {:>3} failed {:>6.1} s  {}",
            tally.name, tally.passed, tally.failed, tally.seconds, tally.note
        );
    }
    let passed: usize = tallies.iter().map(|tally| tally.passed).sum();
    let failed: usize = tallies.iter().map(|tally| tally.failed).sum();
    println!("{passed} passed, {failed} failed");
    failed == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closing_line_is_read() {
        assert_eq!(number_before("12 passed, 3 failed", "passed"), 12);
        assert_eq!(number_before("12 passed, 3 failed", "failed"), 3);
        assert_eq!(number_before("", "failed"), 0);
    }
}
