//! The state file: the position of each direction of a replication.

use std::path::{Path, PathBuf};
use std::sync::Mutex;

use changes::Position;
use serde::{Deserialize, Serialize};

use crate::exit::{Failure, Sysexit};
use crate::state_file;

const VERSION: u32 = 1;

/// Maximum size of the file: well above any two positions.
const FILE_BYTES_MAX: u64 = 2 * 1024 * 1024;

#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
struct SavedPositions {
    settee_replicate: u32,
    from: String,
    to: String,
    filter: String,
    /// Positions as text: in FROM, and in TO if both directions are replicated.
    positions: [Option<String>; 2],
}

/// The state file, shared by both directions.
#[derive(Debug)]
pub(super) struct ReplicateStateFile {
    path: PathBuf,
    saved: Mutex<SavedPositions>,
}

impl ReplicateStateFile {
    /// Opens the file at `path` for a pair of buckets; the state is empty if there is no file.
    ///
    /// # Errors
    /// The file cannot be read, is no state file, or is about other buckets.
    pub(super) fn open(
        path: &Path,
        [from, to]: [String; 2],
        filter: String,
    ) -> Result<Self, Failure> {
        let expected = SavedPositions {
            settee_replicate: VERSION,
            from,
            to,
            filter,
            positions: [None, None],
        };
        let refuse = |code, reason: &str| {
            let path = path.display();
            Err(Failure::new(code, format!("state file {path}: {reason}")))
        };
        let saved = match state_file::read(path, FILE_BYTES_MAX, "settee replicate")? {
            None => expected,
            Some(text) => {
                let Ok(saved) = serde_json::from_str::<SavedPositions>(&text) else {
                    return refuse(Sysexit::Data, "it is no state of settee replicate");
                };
                let known = SavedPositions {
                    positions: saved.positions.clone(),
                    ..expected
                };
                if saved != known {
                    return refuse(
                        Sysexit::Usage,
                        "it is about other buckets, or another part of them",
                    );
                }
                saved
            }
        };
        Ok(Self {
            path: path.to_owned(),
            saved: Mutex::new(saved),
        })
    }

    /// Returns the position of a direction; `None` if it has not begun.
    ///
    /// # Errors
    /// The text in the file is no position.
    pub(super) fn position(&self, direction: usize) -> Result<Option<Position>, Failure> {
        let saved = self.saved.lock().expect("no thread panicked with it");
        let text = saved.positions[direction].as_deref();
        text.map(str::parse).transpose().map_err(|error| {
            let path = self.path.display();
            Failure::new(Sysexit::Data, format!("state file {path}: {error}"))
        })
    }

    /// Saves the position of a direction: replaces the file.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(super) fn save(&self, direction: usize, position: &Position) -> Result<(), Failure> {
        let mut saved = self.saved.lock().expect("no thread panicked with it");
        saved.positions[direction] = Some(position.to_string());
        state_file::replace(&self.path, &*saved)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use changes::VbPosition;
    use model::{Seqno, VbUuid};

    use super::*;

    fn open(folder: &tempfile::TempDir, from: &str) -> Result<ReplicateStateFile, Failure> {
        let path = folder.path().join("state");
        ReplicateStateFile::open(&path, [from.into(), "b".into()], String::new())
    }

    #[test]
    fn each_direction_has_its_position() {
        let folder = tempfile::tempdir().unwrap();
        let state = open(&folder, "a").unwrap();
        assert_eq!(state.position(0).unwrap(), None);
        let mut position = Position::beginning(64);
        position.places[3] = VbPosition::at(VbUuid(7), Seqno(9));
        state.save(1, &position).unwrap();
        let again = open(&folder, "a").unwrap();
        assert_eq!(again.position(0).unwrap(), None);
        assert_eq!(again.position(1).unwrap(), Some(position));
    }

    #[test]
    fn invalid_state_files_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let state = open(&folder, "a").unwrap();
        state.save(0, &Position::beginning(4)).unwrap();
        let code = |result: Result<ReplicateStateFile, Failure>| result.unwrap_err().code();
        assert_eq!(code(open(&folder, "c")), Sysexit::Usage);
        let text = fs::read_to_string(&state.path).unwrap();
        for bad in ["", "{}", &text[1..]] {
            fs::write(&state.path, bad).unwrap();
            assert_eq!(code(open(&folder, "a")), Sysexit::Data, "{bad:.20}");
        }
        fs::write(&state.path, text.replace("s1.", "s1.A")).unwrap();
        let state = open(&folder, "a").unwrap();
        assert_eq!(state.position(0).unwrap_err().code(), Sysexit::Data);
    }
}
