//! The load of the machine and the node, for monitoring.

use std::collections::BTreeMap;
use std::path::Path;

use management::{Machine, MachineCpu, MachineFiles};
use registry::{Rates, Registry};

use super::machine_memory::machine_memory;

/// Fields of the first line of `/proc/stat`: ticks that only rise.
const TICKS: [&str; 8] = [
    "user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal",
];
const GETS: &str = "gets";
const HITS: &str = "hits";

/// The previous counters, for rates.
#[derive(Debug, Default)]
pub(super) struct Load(Rates);

/// Figures of the machine, and reads of documents per second since the previous call.
pub(super) struct LoadFigures {
    pub(super) gets: f64,
    pub(super) hits: f64,
    pub(super) machine: Machine,
}

impl Load {
    /// Returns the load; `data` is the data directory, if there is one.
    #[expect(clippy::cast_precision_loss, reason = "figures for display")]
    pub(super) fn look(&self, node: &Registry, data: Option<&Path>) -> LoadFigures {
        let reads = stats::reads(node);
        let mut rates = ticks(&std::fs::read_to_string("/proc/stat").unwrap_or_default());
        rates.insert(GETS.into(), reads.all as f64);
        rates.insert(HITS.into(), reads.hits as f64);
        self.0.look(&mut rates, node.clock.mono_ns());
        let of = |name: &str| rates.get(name).copied().unwrap_or(0.0);
        let all: f64 = TICKS.iter().map(|name| of(name)).sum();
        let percent = |ticks: f64| if all > 0.0 { 100.0 * ticks / all } else { 0.0 };
        let cores = std::thread::available_parallelism();
        LoadFigures {
            gets: of(GETS),
            hits: of(HITS),
            machine: Machine {
                memory: machine_memory(),
                cpu: MachineCpu {
                    cores: cores.map_or(0, usize::from),
                    user: percent(of("user") + of("nice")),
                    system: percent(of("system")),
                    irq: percent(of("irq") + of("softirq")),
                    stolen: percent(of("steal")),
                },
                files: data.map_or_else(MachineFiles::default, files),
            },
        }
    }
}

/// Returns the ticks of all processors together, by kind, from the text of Linux's `/proc/stat`.
fn ticks(stat: &str) -> BTreeMap<String, f64> {
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu "));
    let numbers = line.unwrap_or_default().split_whitespace();
    let named = TICKS.iter().zip(numbers);
    named
        .filter_map(|(name, number)| Some(((*name).to_owned(), number.parse().ok()?)))
        .collect()
}

fn files(data: &Path) -> MachineFiles {
    rustix::fs::statvfs(data).map_or_else(
        |_| MachineFiles::default(),
        |found| MachineFiles {
            total: found.f_blocks * found.f_frsize,
            available: found.f_bavail * found.f_frsize,
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_read_by_their_place() {
        let found = ticks("cpu  10 1 5 100 3 0 2 4 0 0\ncpu0 9 9 9 9\n");
        assert_eq!(
            (found["user"], found["idle"], found["steal"]),
            (10.0, 100.0, 4.0)
        );
        assert!(ticks("").is_empty());
    }

    #[test]
    fn the_machine_has_a_file_system() {
        let files = files(Path::new("/"));
        assert!(files.available <= files.total && 0 < files.total);
    }
}
