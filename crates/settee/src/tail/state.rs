//! The state file, in which a tail stores its position.

use std::path::{Path, PathBuf};

use changes::Position;
use serde::{Deserialize, Serialize};

use super::target::TailTarget;
use crate::exit::{Failure, Sysexit};
use crate::state_file;

const VERSION: u32 = 1;

/// Largest accepted file in bytes: well above any position.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

#[derive(Deserialize, Serialize)]
struct SavedPosition {
    settee_tail: u32,
    target: String,
    position: String,
}

/// A state file, which may not exist yet.
#[derive(Debug)]
pub(super) struct TailStateFile {
    path: PathBuf,
    target: String,
}

impl TailStateFile {
    /// Creates the state file of a target at `path`.
    pub(super) fn new(path: &Path, target: &TailTarget) -> Self {
        Self {
            path: path.to_owned(),
            target: target.to_string(),
        }
    }

    /// Returns the stored position; `None` if the file does not exist.
    ///
    /// # Errors
    /// The file cannot be read, is not a state file, or belongs to another target.
    pub(super) fn load(&self) -> Result<Option<Position>, Failure> {
        let refuse = |code, reason: &str| {
            let path = self.path.display();
            Err(Failure::new(code, format!("state file {path}: {reason}")))
        };
        let Some(text) = state_file::read(&self.path, FILE_BYTES_MAX, "settee tail")? else {
            return Ok(None);
        };
        let Ok(saved) = serde_json::from_str::<SavedPosition>(&text) else {
            return refuse(Sysexit::Data, "it is no state of settee tail");
        };
        if saved.settee_tail != VERSION {
            let reason = format!("its version is {}, known is {VERSION}", saved.settee_tail);
            return refuse(Sysexit::Data, &reason);
        }
        if saved.target != self.target {
            let reason = format!("it is about {}, not about {}", saved.target, self.target);
            return refuse(Sysexit::Usage, &reason);
        }
        match saved.position.parse() {
            Ok(position) => Ok(Some(position)),
            Err(error) => refuse(Sysexit::Data, &error.to_string()),
        }
    }

    /// Replaces the file.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(super) fn save(&self, position: &Position) -> Result<(), Failure> {
        let saved = SavedPosition {
            settee_tail: VERSION,
            target: self.target.clone(),
            position: position.to_string(),
        };
        state_file::replace(&self.path, &saved)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use changes::VbPosition;
    use model::{Seqno, VbUuid};

    use super::*;

    fn file(folder: &tempfile::TempDir, target: &str) -> TailStateFile {
        TailStateFile::new(&folder.path().join("state"), &target.parse().unwrap())
    }

    #[test]
    fn tail_state_keeps_position() {
        let folder = tempfile::tempdir().unwrap();
        let state = file(&folder, "travel");
        assert_eq!(state.load().unwrap(), None);
        let mut position = Position::beginning(64);
        for seqno in [8, 9] {
            position.places[3] = VbPosition::at(VbUuid(7), Seqno(seqno));
            state.save(&position).unwrap();
            assert_eq!(state.load().unwrap().as_ref(), Some(&position));
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn tail_state_refuses_invalid_files() {
        let folder = tempfile::tempdir().unwrap();
        let state = file(&folder, "travel");
        state.save(&Position::beginning(4)).unwrap();
        let code = |state: &TailStateFile| state.load().unwrap_err().code();
        let other = file(&folder, "travel.inventory");
        assert_eq!(code(&other), Sysexit::Usage);
        assert!(
            other
                .load()
                .unwrap_err()
                .to_string()
                .contains("travel.inventory")
        );
        let good = fs::read_to_string(&state.path).unwrap();
        let bad = [
            "",
            "{}",
            "\u{0}",
            &good[1..],
            &good.replace("_tail\":1", "_tail\":2"),
            &good.replace("s1.", "s1.A"),
            &" ".repeat(FILE_BYTES_MAX as usize + 1),
        ];
        for text in bad {
            fs::write(&state.path, text).unwrap();
            assert_eq!(code(&state), Sysexit::Data, "{text:.40}");
        }
        let folder_itself = TailStateFile::new(folder.path(), &"travel".parse().unwrap());
        assert_eq!(code(&folder_itself), Sysexit::Data);
        let nowhere = TailStateFile::new(
            Path::new("/no/such/folder/state"),
            &"travel".parse().unwrap(),
        );
        assert_eq!(code(&nowhere), Sysexit::CantCreate);
        let refused = nowhere.save(&Position::beginning(1)).unwrap_err();
        assert_eq!(refused.code(), Sysexit::CantCreate);
    }
}
