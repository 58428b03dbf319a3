//! `settee encryption`, and the key flags of other commands.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{env, fs, io};

use serde_json::{Value, json};
use server::{EncryptionKeys, FileEncryption};

use crate::exit::{Failure, Sysexit};
use crate::output;

/// Environment variable with the keys themselves.
const VARIABLE: &str = "SETTEE_ENCRYPTION_KEYS";

/// Make keys for encryption at rest, and show which keys are in use
#[derive(Debug, clap::Args)]
pub(crate) struct EncryptionArgs {
    #[command(subcommand)]
    command: EncryptionCommand,
}

#[derive(Debug, clap::Subcommand)]
enum EncryptionCommand {
    /// Print the line of a new key
    ///
    /// --encryption-key-file takes a file of such lines: the first key encrypts, all of them decrypt. For the
    /// first key: (umask 077; settee encryption new-key > keys)
    NewKey {
        /// ID of the key, 1 to 11 letters, digits, '-', '_' and '.' [default: a generated one]
        #[arg(value_name = "ID")]
        id: Option<String>,
    },
    /// Show the keys with which the files of a data directory are encrypted
    ///
    /// DIR is the data directory of a node, which may be running, or the directory of one of its buckets. A key
    /// that is not listed can be removed. settee compact encrypts everything with the first key.
    Status {
        /// The data directory
        #[arg(env = "SETTEE_DATA_DIR", value_name = "DIR")]
        data_dir: PathBuf,
        /// Print one JSON object
        #[arg(long, env = "SETTEE_JSON")]
        json: bool,
    },
}

/// The keys for a directory that a command reads.
#[derive(Debug, clap::Args)]
pub(crate) struct KeyArgs {
    /// File with the keys of encryption at rest, a line ID:KEY for each; without it, SETTEE_ENCRYPTION_KEYS may
    /// hold them, separated by commas
    #[arg(long, env = "SETTEE_ENCRYPTION_KEY_FILE", value_name = "FILE")]
    encryption_key_file: Option<PathBuf>,
}

impl KeyArgs {
    /// Returns the keys, if any are given.
    ///
    /// # Errors
    /// They cannot be read, or are not valid.
    pub(crate) fn keys(&self) -> Result<Option<Arc<EncryptionKeys>>, Failure> {
        let (text, from) = if let Some(path) = &self.encryption_key_file {
            let from = path.display().to_string();
            let text = read_keys(path)
                .map_err(|error| Failure::new(Sysexit::NoInput, format!("{from}: {error}")))?;
            (text, from)
        } else {
            match env::var(VARIABLE) {
                Ok(text) if !text.is_empty() => (text, VARIABLE.to_owned()),
                _ => return Ok(None),
            }
        };
        let keys = server::encryption_keys(&text);
        let keys = keys.map_err(|error| Failure::new(Sysexit::Config, format!("{from}: {error}")));
        keys.map(Some)
    }
}

/// Reads a file of keys, to which only its owner may have access.
///
/// # Errors
/// Other users have access, or the file cannot be read.
pub(crate) fn read_keys(path: &Path) -> io::Result<String> {
    let mode = fs::metadata(path)?.mode() & 0o7777;
    if mode & 0o077 != 0 {
        let reason = format!("other users may read it (mode {mode:03o}); chmod 600 it");
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, reason));
    }
    fs::read_to_string(path)
}

/// Runs the command.
///
/// # Errors
/// The directory cannot be read.
pub(crate) fn run(args: &EncryptionArgs) -> Result<(), Failure> {
    match &args.command {
        EncryptionCommand::NewKey { id } => {
            let line = server::new_encryption_key(id.as_deref()).ok_or_else(|| {
                let reason = "an ID has 1 to 11 letters, digits, '-', '_' and '.'";
                Failure::new(Sysexit::Usage, reason)
            })?;
            output::print(format!("{line}\n").as_bytes())
        }
        EncryptionCommand::Status { data_dir, json } => status(data_dir, *json),
    }
}

fn status(data_dir: &Path, json: bool) -> Result<(), Failure> {
    let found = server::encryption_of(data_dir);
    let found = found
        .map_err(|error| Failure::new(Sysexit::Os, format!("{}: {error}", data_dir.display())))?;
    let (mut lines, mut buckets) = (Vec::new(), Vec::new());
    for (bucket, files) in found {
        let files = files.map_err(|error| Failure::new(Sysexit::Data, error.to_string()))?;
        let by_key = sum(&files);
        for (key, (files, bytes)) in &by_key {
            let key = key.map_or("not encrypted".to_owned(), |key| format!("key {key}"));
            lines.push(format!("{bucket}: {key}: {files} files, {bytes} bytes\n"));
        }
        let object = |(key, (files, bytes)): (Option<&str>, (u64, u64))| json!({ "key": key, "files": files, "bytes": bytes });
        let keys: Vec<Value> = by_key.into_iter().map(object).collect();
        buckets.push(json!({ "bucket": bucket, "keys": keys }));
    }
    if json {
        output::print_json(&json!({ "buckets": buckets }))
    } else {
        output::print(lines.concat().as_bytes())
    }
}

/// Returns the number of files and bytes for each key.
fn sum(files: &[FileEncryption]) -> BTreeMap<Option<&str>, (u64, u64)> {
    let mut by_key: BTreeMap<_, (u64, u64)> = BTreeMap::new();
    for file in files {
        let of_key = by_key.entry(file.key.as_deref()).or_default();
        of_key.0 += 1;
        of_key.1 += file.bytes;
    }
    by_key
}
