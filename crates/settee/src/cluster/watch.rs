//! The progress of a rebalance.

use std::thread;
use std::time::{Duration, Instant};

use server::ClusterStatus;

use super::view::MemberLink;
use crate::exit::{Failure, Sysexit};
use crate::output;

const LOOK: Duration = Duration::from_millis(250);
/// Width of the progress bar in characters.
const BAR: usize = 30;

/// Shows the progress of moves on standard error until none are left.
///
/// # Errors
/// No member can be asked, or the rebalance was paused.
pub(super) fn until_settled(link: &mut MemberLink) -> Result<(), Failure> {
    let shown = output::ProgressLine::new(false);
    let began = Instant::now();
    let mut most = 0;
    loop {
        let (_, status) = link.status_of_controller()?;
        let left = status.moves + status.moves_left.unwrap_or(0);
        if status.rebalance == "paused" {
            let reason = "the rebalance is paused: settee cluster rebalance goes on with it";
            return Err(Failure::new(Sysexit::TempFail, reason));
        }
        if is_settled(&status) {
            return Ok(());
        }
        most = most.max(left);
        shown.show(&progress(most - left, most, began.elapsed()));
        thread::sleep(LOOK);
    }
}

fn is_settled(status: &ClusterStatus) -> bool {
    status.rebalance == "idle" && status.moves + status.moves_left.unwrap_or(0) == 0
}

/// Returns a progress bar, the number of finished moves, their rate, and the estimated time left.
#[expect(clippy::cast_precision_loss, reason = "the rate is told to one place")]
fn progress(done: usize, all: usize, took: Duration) -> String {
    let filled = (done * BAR).checked_div(all).unwrap_or(0);
    let bar: String = (0..BAR)
        .map(|at| if at < filled { '#' } else { '.' })
        .collect();
    let per_second = done as f64 / took.as_secs_f64().max(0.001);
    let rest = match done {
        0 => String::new(),
        _ => format!(", {:.0} s left", (all - done) as f64 / per_second),
    };
    format!("[{bar}] {done} of {all} vBuckets moved, {per_second:.1}/s{rest}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_bar_shows_finished_moves() {
        let bar = |filled: usize| "#".repeat(filled) + &".".repeat(BAR - filled);
        let second = Duration::from_secs(1);
        let begun = format!("[{}] 0 of 0 vBuckets moved, 0.0/s", bar(0));
        assert_eq!(progress(0, 0, second), begun);
        let half = format!("[{}] 50 of 100 vBuckets moved, 5.0/s, 10 s left", bar(15));
        assert_eq!(progress(50, 100, 10 * second), half);
    }
}
