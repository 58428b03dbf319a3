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
    /// UUIDs of the buckets of each direction, if they are known.
    #[serde(default)]
    uuids: [BucketUuids; 2],
}

/// UUIDs of the bucket that a direction reads, and of the one that it writes.
pub(super) type BucketUuids = [Option<String>; 2];

/// Fault of a file for another replication.
const OTHER_BUCKETS: &str = "it is about other buckets, or another part of them";

/// The state file, shared by both directions.
#[derive(Debug)]
pub(super) struct ReplicateStateFile {
    path: PathBuf,
    saved: Mutex<SavedPositions>,
    /// Whether FROM or TO has another address in the file: it must be another node of the same bucket.
    moved: [bool; 2],
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
            ..SavedPositions::default()
        };
        let mut moved = [false; 2];
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
                moved = [saved.from != expected.from, saved.to != expected.to];
                let is_known = saved.uuids.iter().flatten().any(Option::is_some);
                let is_other =
                    (saved.settee_replicate, &saved.filter) != (VERSION, &expected.filter);
                if is_other || moved.contains(&true) && !is_known {
                    return refuse(Sysexit::Usage, OTHER_BUCKETS);
                }
                SavedPositions {
                    positions: saved.positions,
                    uuids: saved.uuids,
                    ..expected
                }
            }
        };
        Ok(Self {
            path: path.to_owned(),
            saved: Mutex::new(saved),
            moved,
        })
    }

    /// Records the buckets to which a direction is connected. Returns whether its position is valid: not if the
    /// target was made anew, since it lacks what was written before.
    ///
    /// # Errors
    /// The addresses are not those in the file, and the buckets are other ones; or the file cannot be written.
    pub(super) fn meet(&self, direction: usize, uuids: BucketUuids) -> Result<bool, Failure> {
        let mut saved = self.saved.lock().expect("no thread panicked with it");
        let known = saved.uuids[direction].clone();
        let has_begun = saved.positions[direction].is_some();
        let moved = [self.moved[direction], self.moved[1 - direction]];
        if has_begun && (0..2).any(|end| moved[end] && known[end] != uuids[end]) {
            let path = self.path.display();
            let reason = format!("state file {path}: {OTHER_BUCKETS}");
            return Err(Failure::new(Sysexit::Usage, reason));
        }
        let is_valid = known[1].is_none() || known[1] == uuids[1];
        if !is_valid {
            saved.positions[direction] = None;
        }
        saved.uuids[direction] = uuids;
        if has_begun {
            state_file::replace(&self.path, &*saved)?;
        }
        Ok(is_valid)
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
    fn addresses_may_change_and_a_new_target_voids_the_position() {
        let folder = tempfile::tempdir().unwrap();
        let uuids = |from: &str, to: &str| [Some(from.to_owned()), Some(to.to_owned())];
        let state = open(&folder, "a").unwrap();
        assert!(state.meet(0, uuids("x", "y")).unwrap(), "nothing is known");
        state.save(0, &Position::beginning(4)).unwrap();
        let moved = open(&folder, "c").unwrap();
        assert!(moved.meet(0, uuids("x", "y")).unwrap());
        moved.save(0, &Position::beginning(4)).unwrap();
        let others = open(&folder, "a").unwrap().meet(0, uuids("z", "y"));
        assert_eq!(others.unwrap_err().code(), Sysexit::Usage);
        let state = open(&folder, "c").unwrap();
        assert!(
            state.meet(0, uuids("z", "y")).unwrap(),
            "a rollback follows"
        );
        assert!(!state.meet(0, uuids("z", "new")).unwrap());
        assert_eq!(state.position(0).unwrap(), None);
        assert!(state.meet(0, uuids("z", "new")).unwrap());
    }

    #[test]
    fn invalid_state_files_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let state = open(&folder, "a").unwrap();
        state.save(0, &Position::beginning(4)).unwrap();
        let code = |result: Result<ReplicateStateFile, Failure>| result.unwrap_err().code();
        let at = |path: &str| {
            let nodes = ["a".into(), "b".into()];
            ReplicateStateFile::open(Path::new(path), nodes, String::new())
        };
        assert_eq!(code(at("/dev/full")), Sysexit::Data);
        assert_eq!(code(at("/no/such/folder/state")), Sysexit::CantCreate);
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
