//! What the allocator is to know before anything runs.

use std::env;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

/// Above how many KiB a block comes from the system, and goes back to it as soon as it is freed; see
/// `docs/adr/0047`.
const DIRECT: (&str, &str) = ("MIMALLOC_ARENA_MAX_OBJECT_SIZE", "4096");

/// Begins this program anew, in this process, with the settings of its allocator: it reads them from
/// the environment, before `main`. Comes back if they were given, or if this cannot be done.
pub(super) fn settle() {
    let (name, value) = DIRECT;
    if !cfg!(feature = "mimalloc") || env::var_os(name).is_some() {
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
    let error = anew.args(arguments).env(name, value).exec();
    // No log is open yet, and nothing but memory is at stake.
    eprintln!("settee: goes on without the settings of its allocator: {error}");
}
