//! The memory of the machine, or of the control group (container) that limits this process to less.

use std::path::Path;

use management::MachineMemory;

/// Files of a control group's memory controller, by the version of the interface.
struct Controller {
    root: &'static str,
    limit: &'static str,
    used: &'static str,
    /// Line of `memory.stat` with the part of `used` that the system can free at once.
    cache: &'static str,
}

const V2: Controller = Controller {
    root: "/sys/fs/cgroup",
    limit: "memory.max",
    used: "memory.current",
    cache: "inactive_file",
};
const V1: Controller = Controller {
    root: "/sys/fs/cgroup/memory",
    limit: "memory.limit_in_bytes",
    used: "memory.usage_in_bytes",
    cache: "total_inactive_file",
};

/// Returns the memory, as Linux reports it.
pub(super) fn machine_memory() -> MachineMemory {
    memory_of(&|path| std::fs::read_to_string(path).ok())
}

/// Like [`machine_memory`], from files that `read` returns.
fn memory_of(read: &dyn Fn(&Path) -> Option<String>) -> MachineMemory {
    let text = read(Path::new("/proc/meminfo")).unwrap_or_default();
    let bytes = |name| number_of(&text, name).unwrap_or(0) << 10;
    let swap_total = bytes("SwapTotal:");
    let mut memory = MachineMemory {
        total: bytes("MemTotal:"),
        available: bytes("MemAvailable:"),
        swap_total,
        swap_used: swap_total.saturating_sub(bytes("SwapFree:")),
    };
    let groups = read(Path::new("/proc/self/cgroup")).unwrap_or_default();
    for (controller, path) in groups.lines().filter_map(controller_of) {
        // Each group above limits it too. A container sees its own group as the root, whatever its path says.
        for above in Path::new(path).ancestors() {
            let place = Path::new(controller.root).join(above.strip_prefix("/").unwrap_or(above));
            let number = |file| read(&place.join(file))?.trim().parse::<u64>().ok();
            let Some(limit) = number(controller.limit) else {
                continue;
            };
            let stat = read(&place.join("memory.stat")).unwrap_or_default();
            let cache = number_of(&stat, controller.cache).unwrap_or(0);
            let used = number(controller.used).unwrap_or(0).saturating_sub(cache);
            memory.total = memory.total.min(limit);
            memory.available = memory.available.min(limit.saturating_sub(used));
        }
    }
    memory
}

/// Returns the controller and the path of a line of `/proc/self/cgroup`, if the line is about memory.
fn controller_of(line: &str) -> Option<(Controller, &str)> {
    let mut parts = line.splitn(3, ':').skip(1);
    let (controllers, path) = (parts.next()?, parts.next()?);
    if controllers.is_empty() {
        return Some((V2, path));
    }
    let is_memory = controllers.split(',').any(|name| name == "memory");
    is_memory.then_some((V1, path))
}

/// Returns the number after `name` at the start of a line.
pub(super) fn number_of(text: &str, name: &str) -> Option<u64> {
    let words = text.lines().map(|line| line.split_whitespace());
    let mut found =
        words.filter_map(|mut words| (words.next() == Some(name)).then(|| words.next()));
    found.next()??.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MACHINE: &str = "MemTotal: 4096 kB\nMemFree: 9 kB\nMemAvailable: 3072 kB\nSwapTotal: 8 kB\nSwapFree: 2 kB\n";

    /// Total and available memory with these files.
    fn found(files: &[(&str, &str)]) -> (u64, u64) {
        let read = |path: &Path| {
            let path = path.to_str();
            let mut files = files.iter().chain(&[("/proc/meminfo", MACHINE)]);
            let file = files.find(|file| Some(file.0) == path);
            file.map(|file| file.1.to_owned())
        };
        let memory = memory_of(&read);
        assert_eq!((memory.swap_total, memory.swap_used), (8 << 10, 6 << 10));
        (memory.total, memory.available)
    }

    #[test]
    fn without_a_group_it_is_the_memory_of_the_machine() {
        assert_eq!(found(&[]), (4 << 20, 3 << 20));
        let unlimited = [
            ("/proc/self/cgroup", "0::/a\n"),
            ("/sys/fs/cgroup/a/memory.max", "max\n"),
        ];
        assert_eq!(found(&unlimited), (4 << 20, 3 << 20));
    }

    #[test]
    fn the_lowest_limit_of_the_groups_above_counts() {
        let files = [
            ("/proc/self/cgroup", "0::/a/b\n"),
            ("/sys/fs/cgroup/a/b/memory.max", "max\n"),
            ("/sys/fs/cgroup/a/memory.max", "2097152\n"),
            ("/sys/fs/cgroup/a/memory.current", "1048576\n"),
            (
                "/sys/fs/cgroup/a/memory.stat",
                "anon 7\ninactive_file 4096\n",
            ),
        ];
        assert_eq!(found(&files), (2 << 20, (1 << 20) + 4096));
    }

    #[test]
    fn a_container_of_the_older_interface_sees_its_group_as_the_root() {
        let files = [
            (
                "/proc/self/cgroup",
                "2:cpu:/docker/x\n1:memory:/docker/x\n0::/\n",
            ),
            ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "2097152\n"),
            ("/sys/fs/cgroup/memory/memory.usage_in_bytes", "4194304\n"),
        ];
        assert_eq!(found(&files), (2 << 20, 0));
    }

    #[test]
    fn this_machine_has_memory() {
        let memory = machine_memory();
        assert!(0 < memory.total && memory.available <= memory.total);
    }
}
