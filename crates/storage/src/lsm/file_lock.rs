//! A lock of a file or a directory against other processes.

use std::fs::{File, TryLockError};
use std::thread;
use std::time::Duration;

/// Attempts to take a lock, with a pause: the process that holds it may be ending.
const TRIES: u32 = 10;
const PAUSE: Duration = Duration::from_millis(20);

/// A locked file or directory.
///
/// The lock ends with this value, even while a child process that just started has the file inherited.
#[derive(Debug)]
pub struct FileLock(File);

impl FileLock {
    /// Locks a file; waits up to 0.2 s for another process to release it.
    ///
    /// # Errors
    /// `WouldBlock` if another process holds the lock; those of the system.
    pub fn take(file: File) -> Result<Self, TryLockError> {
        for _ in 1..TRIES {
            match file.try_lock() {
                Err(TryLockError::WouldBlock) => thread::sleep(PAUSE),
                taken => return taken.map(|()| Self(file)),
            }
        }
        file.try_lock().map(|()| Self(file))
    }
}

impl Drop for FileLock {
    fn drop(&mut self) {
        // A failure releases it later, when the last process closes the file.
        drop(self.0.unlock());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lock_ends_while_another_descriptor_of_its_file_is_open() {
        let file = tempfile::tempfile().unwrap();
        let inherited = file.try_clone().unwrap();
        drop(FileLock::take(file).unwrap());
        let path = format!(
            "/proc/self/fd/{}",
            std::os::fd::AsRawFd::as_raw_fd(&inherited)
        );
        let again = FileLock::take(File::open(path).unwrap());
        assert!(again.is_ok(), "{again:?}");
    }
}
