//! The users from management, and the file that keeps them (docs/format/node.md).

use std::path::{Path, PathBuf};
use std::sync::Arc;

use identity::{Administrator, Directory, Identity, Roster, Secrets};
use serde::Serialize;

use super::random::fill_random;
use super::sealed_file::USERS;
use crate::config::{NodeConfig, StartError};

/// Version of `users.json` that this release reads and writes.
const VERSION: u32 = 1;

/// The content of `users.json`.
#[derive(Serialize)]
struct Content<'a> {
    version: u32,
    #[serde(flatten)]
    roster: &'a Roster,
}

/// The file of the users.
struct UsersFile(
    /// `None` for a node that keeps nothing on disk.
    Option<PathBuf>,
);

/// The users in force, and the file to which changes are written.
pub(super) struct Users {
    file: UsersFile,
    pub(super) identity: Arc<Identity>,
}

/// The users at a start.
pub(super) struct KeptUsers {
    file: UsersFile,
    roster: Roster,
}

impl KeptUsers {
    /// Reads the file of a data directory. Without a file there are no users, and the salts are those of this process.
    ///
    /// # Errors
    /// The file cannot be read, is damaged, or is of a later release. The node must not start then, since it would not
    /// know its users.
    pub(super) fn load(dir: Option<&Path>) -> Result<Self, StartError> {
        let path = dir.map(|dir| dir.join(USERS.name));
        let read = path.as_ref().map_or(Ok(None), |path| {
            let read = USERS.read(path, VERSION);
            read.map_err(|why| why.refusal(path, "only the administrator may log in"))
        });
        let roster = read?.map_or_else(fresh, |roster: Roster| Roster {
            // The file was written by a release without editions.
            edition: roster.edition.max(1),
            ..roster
        });
        Ok(Self {
            file: UsersFile(path),
            roster,
        })
    }

    /// Puts these users in force, with the administrator of the configuration, if there is one.
    pub(super) fn in_force(self, config: &NodeConfig) -> Users {
        let Self { file, roster } = self;
        let mut process = [0; 32];
        fill_random(&mut process);
        let salts = roster.salts;
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
        identity.note_kept(roster.edition);
        identity.replace_roster(roster);
        let identity = Arc::new(identity);
        Users { file, identity }
    }
}

/// Copies the users of one data directory into another one, if there are any.
///
/// # Errors
/// The users are lost; with the reason.
pub(super) fn copy_users(from: &Path, to: &Path) -> Result<(), String> {
    let kept = KeptUsers::load(Some(from)).map_err(|error| error.to_string())?;
    let file = UsersFile(Some(to.join(USERS.name)));
    if *kept.roster.directory == Directory::default() {
        return Ok(());
    }
    let written = file.write(&kept.roster);
    written.map_err(|error| format!("{}: {error}", to.display()))
}

/// Returns no users, and salts of this process.
fn fresh() -> Roster {
    let mut roster = Roster::default();
    fill_random(&mut roster.salts);
    roster
}

impl UsersFile {
    /// Writes the file, atomically.
    fn write(&self, roster: &Roster) -> std::io::Result<()> {
        let Some(path) = &self.0 else {
            return Ok(());
        };
        let content = Content {
            version: VERSION,
            roster,
        };
        USERS.replace(path, &content)
    }
}

impl Users {
    /// Changes users and groups at a time, ns since 1970, if `edit` returns true. The change applies to every command
    /// that arrives after this returns.
    ///
    /// # Errors
    /// The users could not be written, and stay as they were.
    pub(super) fn edit(
        &self,
        now_ns: u64,
        edit: &mut dyn FnMut(&mut Directory) -> bool,
    ) -> Result<(), String> {
        let Some(roster) = self.identity.roster().edited(now_ns, edit) else {
            return Ok(());
        };
        self.keep(&roster)
            .inspect_err(|reason| tracing::error!(reason, "users could not be changed"))?;
        self.identity.replace_roster(roster);
        Ok(())
    }

    /// Writes the users.
    ///
    /// # Errors
    /// They could not be written.
    pub(super) fn keep(&self, roster: &Roster) -> Result<(), String> {
        let written = self.file.write(roster);
        written.map_err(|error| format!("The users could not be written: {error}"))?;
        self.identity.note_kept(roster.edition);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use identity::{Grant, UserRecord};

    use super::*;

    fn roster() -> Roster {
        let user = UserRecord {
            roles: [Grant::parse("data_reader[b:s]").unwrap()].into(),
            ..UserRecord::default()
        };
        let mut directory = Directory::default();
        directory.users.insert("ada", &user);
        Roster {
            edition: 7,
            directory: directory.into(),
            ..fresh()
        }
    }

    #[test]
    fn users_and_salts_survive_and_nothing_is_written_before_there_is_a_user() {
        let place = tempfile::tempdir().unwrap();
        let kept = KeptUsers::load(Some(place.path())).unwrap();
        assert_eq!(*kept.roster.directory, Directory::default());
        assert!(!place.path().join(USERS.name).exists());
        let roster = roster();
        kept.file.write(&roster).unwrap();
        let again = KeptUsers::load(Some(place.path())).unwrap();
        assert_eq!(again.roster, roster);
    }

    #[test]
    fn users_in_force_are_written_once_they_can_be() {
        let place = tempfile::tempdir().unwrap();
        let config = crate::node::tests::config(None, Vec::new());
        let users = KeptUsers::load(Some(place.path()))
            .unwrap()
            .in_force(&config);
        let identity = Arc::clone(&users.identity);
        let in_the_way = place.path().join("users.json.tmp");
        fs::create_dir(&in_the_way).unwrap();
        identity.replace_roster(roster());
        users.keep(&roster()).unwrap_err();
        assert!(identity.directory().users.get("ada").is_some());
        assert_eq!((identity.edition(), identity.kept_edition()), (7, 0));
        let gone = &mut |directory: &mut Directory| directory.users.remove("ada").is_some();
        users.edit(9, gone).unwrap_err();
        assert!(identity.directory().users.get("ada").is_some());

        fs::remove_dir(&in_the_way).unwrap();
        users.keep(&roster()).unwrap();
        assert_eq!(identity.kept_edition(), 7);
        let again = KeptUsers::load(Some(place.path())).unwrap();
        assert_eq!(again.in_force(&config).identity.kept_edition(), 7);
    }

    #[test]
    fn a_salvage_copies_users_or_reports_their_loss() {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        copy_users(from.path(), to.path()).unwrap();
        assert!(!to.path().join(USERS.name).exists(), "there is none");
        let kept = KeptUsers::load(Some(from.path())).unwrap();
        let roster = roster();
        kept.file.write(&roster).unwrap();
        copy_users(from.path(), to.path()).unwrap();
        let copied = KeptUsers::load(Some(to.path())).unwrap();
        assert_eq!(copied.roster, roster);
        fs::write(from.path().join(USERS.name), "{}").unwrap();
        let lost = copy_users(from.path(), to.path()).unwrap_err();
        assert!(lost.contains("damaged"), "{lost}");
    }

    #[test]
    fn a_damaged_file_is_refused_with_its_name() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join(USERS.name);
        let kept = KeptUsers::load(Some(place.path())).unwrap();
        kept.file.write(&roster()).unwrap();
        let whole = fs::read(&path).unwrap();
        let refused = |bytes: &[u8]| {
            fs::write(&path, bytes).unwrap();
            match KeptUsers::load(Some(place.path())) {
                Err(StartError::DataFormat(line)) => {
                    assert!(line.starts_with(&path.display().to_string()), "{line}");
                    line
                }
                other => panic!("{:?}", other.map(|kept| kept.roster)),
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
        match KeptUsers::load(Some(place.path())) {
            Err(StartError::DataAccess(line)) => {
                assert!(line.starts_with(&path.display().to_string()), "{line}");
                assert!(!line.contains("remove"), "{line}");
            }
            other => panic!("{:?}", other.map(|kept| kept.roster)),
        }
    }
}
