//! State files, in which commands store their position.

use std::fs;
use std::io;
use std::path::Path;

use serde::Serialize;
use server::names;

use crate::exit::{Failure, Sysexit};

/// Reads a file of at most `bytes_max` bytes; `None` if it does not exist.
///
/// # Errors
/// The file cannot be read, or is no file of that size; or there is neither the file nor its directory.
pub(crate) fn read(path: &Path, bytes_max: u64, command: &str) -> Result<Option<String>, Failure> {
    let failure =
        |code, reason: &str| Failure::new(code, format!("state file {}: {reason}", path.display()));
    match fs::metadata(path) {
        Ok(metadata) if !metadata.is_file() || metadata.len() > bytes_max => {
            let reason = format!("it is no state of {command}");
            return Err(failure(Sysexit::Data, &reason));
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            // Without the directory the first position could not be written, after much work.
            let is_named = |directory: &&Path| !directory.as_os_str().is_empty();
            return match path.parent().filter(is_named).map(fs::metadata) {
                Some(Err(error)) => Err(failure(Sysexit::CantCreate, &error.to_string())),
                _ => Ok(None),
            };
        }
        _ => {}
    }
    let text = fs::read_to_string(path);
    text.map(Some)
        .map_err(|error| failure(Sysexit::Os, &error.to_string()))
}

/// Replaces the file: a reader sees the old or the new text, even after a power cut.
///
/// # Errors
/// The file cannot be written.
pub(crate) fn replace(path: &Path, state: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string(state).map_err(io::Error::from);
    let written = text.and_then(|text| names::replace(path, (text + "\n").as_bytes()));
    written.map_err(|error| {
        let path = path.display();
        Failure::new(Sysexit::CantCreate, format!("state file {path}: {error}"))
    })
}
