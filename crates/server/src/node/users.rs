//! The users that management made, and the file in which they are kept (docs/format/directory.md).

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use identity::{Administrator, Directory, Identity, Secrets};
use serde::{Deserialize, Serialize};

use super::random::fill_random;
use super::sealed_file::{USERS, check_version, damaged};
use crate::config::{NodeConfig, StartError};

/// The version of `users.json` that this release reads and writes.
const VERSION: u32 = 1;

/// What `users.json` holds.
#[derive(Debug, Deserialize, Serialize)]
struct Content {
    version: u32,
    /// [`Secrets::salts`].
    salts: [u8; 32],
    #[serde(flatten)]
    directory: Directory,
}

/// Where changes of the users are written.
pub(super) struct UsersFile {
    /// `None` for a node that keeps nothing.
    path: Option<PathBuf>,
    salts: [u8; 32],
}

/// The users as a start finds them.
pub(super) struct KeptUsers {
    file: UsersFile,
    directory: Directory,
}

impl KeptUsers {
    /// Reads the file of a data directory. Without one there are no users, and salts of this process.
    ///
    /// # Errors
    /// It cannot be read, is damaged, or of a later release: then the node must not start, since it would not know its
    /// users.
    pub(super) fn load(dir: Option<&Path>) -> Result<Self, StartError> {
        let path = dir.map(|dir| dir.join(USERS.name));
        let read = path.as_ref().map(|path| (path, fs::read(path)));
        let content = match read {
            Some((path, Ok(bytes))) => {
                let content = Content::parse(&bytes);
                let refused = |why: String| StartError::DataFormat(refusal(path, &why));
                Some(content.map_err(refused)?)
            }
            Some((path, Err(error))) if error.kind() != ErrorKind::NotFound => {
                return Err(StartError::DataFormat(refusal(path, &error.to_string())));
            }
            _ => None,
        };
        let content = content.unwrap_or_else(Content::new);
        Ok(Self {
            file: UsersFile {
                path,
                salts: content.salts,
            },
            directory: content.directory,
        })
    }

    /// What logins are judged by: the administrator of the configuration, if that names one, and these users.
    pub(super) fn identity(self, config: &NodeConfig) -> (UsersFile, Arc<Identity>) {
        let Self { file, directory } = self;
        let mut process = [0; 32];
        fill_random(&mut process);
        let salts = file.salts;
        let secrets = Secrets { salts, process };
        let identity = if config.provisionable.is_some() {
            Identity::without_administrator(secrets)
        } else {
            let administrator = Administrator {
                name: config.username.clone(),
                password: config.password.clone(),
            };
            Identity::new(administrator, secrets)
        };
        identity.replace_directory(directory);
        (file, Arc::new(identity))
    }
}

/// Copies the users of one data directory into another one, if there are any.
///
/// # Errors
/// They are lost; why.
pub(super) fn copy_users(from: &Path, to: &Path) -> Result<(), String> {
    let kept = KeptUsers::load(Some(from)).map_err(|error| error.to_string())?;
    let file = UsersFile {
        path: Some(to.join(USERS.name)),
        ..kept.file
    };
    if kept.directory == Directory::default() {
        return Ok(());
    }
    let written = file.write(&kept.directory);
    written.map_err(|error| format!("{}: {error}", to.display()))
}

fn refusal(path: &Path, why: &str) -> String {
    format!(
        "{}: {why}; put the right {} back, or remove it: then only the administrator may log in",
        path.display(),
        USERS.name
    )
}

impl Content {
    fn new() -> Self {
        let mut salts = [0; 32];
        fill_random(&mut salts);
        Self {
            version: VERSION,
            salts,
            directory: Directory::default(),
        }
    }

    fn parse(bytes: &[u8]) -> Result<Self, String> {
        let text = USERS.unseal(bytes).map_err(damaged)?;
        if !text.sealed {
            return Err(damaged("it has no checksum"));
        }
        check_version(text.json, VERSION)?;
        serde_json::from_slice(text.json).map_err(damaged)
    }
}

impl UsersFile {
    /// Changes users and groups. Once this returns they hold for every command that arrives.
    ///
    /// # Errors
    /// They could not be written, and are as before.
    pub(super) fn edit(
        &self,
        identity: &Identity,
        edit: &mut dyn FnMut(&mut Directory),
    ) -> Result<(), String> {
        let before = identity.directory();
        let mut directory = Directory::clone(&before);
        edit(&mut directory);
        if directory == *before {
            return Ok(());
        }
        self.write(&directory).map_err(|error| {
            tracing::error!(%error, "the users could not be written");
            format!("The users could not be written: {error}")
        })?;
        identity.replace_directory(directory);
        Ok(())
    }

    /// Writes it: whole or not at all.
    fn write(&self, directory: &Directory) -> std::io::Result<()> {
        let Some(path) = &self.path else {
            return Ok(());
        };
        let content = Content {
            version: VERSION,
            salts: self.salts,
            directory: directory.clone(),
        };
        USERS.replace(path, &content)
    }
}

#[cfg(test)]
mod tests {
    use identity::{Grant, UserRecord};

    use super::*;

    fn directory() -> Directory {
        let user = UserRecord {
            roles: vec![Grant::parse("data_reader[b:s]").unwrap()],
            ..UserRecord::default()
        };
        Directory {
            users: [("ada".into(), user.into())].into(),
            groups: [].into(),
        }
    }

    #[test]
    fn users_and_salts_survive_and_nothing_is_written_before_there_is_a_user() {
        let place = tempfile::tempdir().unwrap();
        let kept = KeptUsers::load(Some(place.path())).unwrap();
        assert!(kept.directory.users.is_empty());
        assert!(!place.path().join(USERS.name).exists());
        kept.file.write(&directory()).unwrap();
        let again = KeptUsers::load(Some(place.path())).unwrap();
        assert_eq!(again.directory, directory());
        assert_eq!(again.file.salts, kept.file.salts);
    }

    #[test]
    fn a_salvage_copies_users_or_tells_that_they_are_lost() {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        copy_users(from.path(), to.path()).unwrap();
        assert!(!to.path().join(USERS.name).exists(), "there is none");
        let kept = KeptUsers::load(Some(from.path())).unwrap();
        kept.file.write(&directory()).unwrap();
        copy_users(from.path(), to.path()).unwrap();
        let copied = KeptUsers::load(Some(to.path())).unwrap();
        assert_eq!(copied.directory, directory());
        assert_eq!(copied.file.salts, kept.file.salts);
        fs::write(from.path().join(USERS.name), "{}").unwrap();
        let lost = copy_users(from.path(), to.path()).unwrap_err();
        assert!(lost.contains("damaged"), "{lost}");
    }

    #[test]
    fn a_damaged_file_is_refused_with_its_name() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join(USERS.name);
        let kept = KeptUsers::load(Some(place.path())).unwrap();
        kept.file.write(&directory()).unwrap();
        let whole = fs::read(&path).unwrap();
        let refused = |bytes: &[u8]| {
            fs::write(&path, bytes).unwrap();
            match KeptUsers::load(Some(place.path())) {
                Err(StartError::DataFormat(line)) => {
                    assert!(line.starts_with(&path.display().to_string()), "{line}");
                    line
                }
                other => panic!("{:?}", other.map(|kept| kept.directory)),
            }
        };
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 1;
            refused(&bytes);
            refused(&whole[..at]);
        }
        let json = &whole[whole.iter().position(|byte| *byte == b'\n').unwrap() + 1..];
        assert!(refused(json).contains("no checksum"));
        let newer = USERS.seal(br#"{"version":2}"#);
        assert!(refused(&newer).contains("version 2"));
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        let unreadable = KeptUsers::load(Some(place.path()));
        assert!(matches!(unreadable, Err(StartError::DataFormat(_))));
    }
}
