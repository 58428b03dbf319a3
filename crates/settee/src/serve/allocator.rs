//! What the allocator is to know before anything runs.

use std::env;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

/// Its settings; see `docs/adr/0047`. The first is the size above which a block comes from the system, and goes back
/// to it as soon as it is freed (without a unit it would be bytes). The second is for how many
/// milliseconds it keeps what is smaller.
const SETTINGS: [(&str, &str); 2] = [
    ("MIMALLOC_ARENA_MAX_OBJECT_SIZE", "4M"),
    ("MIMALLOC_PURGE_DELAY", "10"),
];

/// Begins this program anew, in this process, with the settings of its allocator: it reads them from
/// the environment, before `main`. Comes back if they were given, or if this cannot be done.
pub(super) fn settle() {
    let missing = SETTINGS
        .iter()
        .filter(|(name, _)| env::var_os(name).is_none());
    let missing: Vec<_> = missing.copied().collect();
    if !cfg!(feature = "mimalloc") || missing.is_empty() {
        return;
    }
    let Ok(program) = env::current_exe() else {
        return;
    };
    let mut arguments = env::args_os();
    let mut anew = Command::new(program);
    if let Some(called) = arguments.next() {
        anew.arg0(called);
    }
    let error = anew.args(arguments).envs(missing).exec();
    // No log is open yet, and nothing but memory is at stake.
    eprintln!("settee: goes on without the settings of its allocator: {error}");
}
