//! The users and groups of a node, as a value.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::record::{GroupRecord, UserRecord};
use super::role::Grant;
use super::user::User;

/// Users by name. A copy shares them, and costs 16 bytes each.
///
/// Shape on disk: JSON, names to records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Users(
    /// Users, sorted by name.
    Vec<User>,
);

impl Users {
    fn position(&self, name: &str) -> Result<usize, usize> {
        self.0.binary_search_by(|user| user.name().cmp(name))
    }

    /// Finds the user of a name.
    pub fn get(&self, name: &str) -> Option<&User> {
        self.position(name).ok().map(|index| &self.0[index])
    }

    /// Adds a user, or replaces the one of that name.
    pub fn insert(&mut self, name: &str, record: &UserRecord) {
        let user = User::new(name, record);
        match self.position(name) {
            Ok(index) => self.0[index] = user,
            Err(index) => self.0.insert(index, user),
        }
    }

    /// Removes a user.
    pub fn remove(&mut self, name: &str) -> Option<User> {
        let index = self.position(name).ok()?;
        Some(self.0.remove(index))
    }

    /// Returns all users, sorted by name.
    pub fn all(&self) -> &[User] {
        &self.0
    }
}

impl Serialize for Users {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|user| (user.name(), user.record())))
    }
}

impl<'de> Deserialize<'de> for Users {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(UsersVisitor)
    }
}

struct UsersVisitor;

impl<'de> Visitor<'de> for UsersVisitor {
    type Value = Users;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("users by name")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Users, A::Error> {
        let mut users = Users::default();
        while let Some((name, record)) = map.next_entry::<String, _>()? {
            users.insert(&name, &record);
        }
        users.0.shrink_to_fit();
        Ok(users)
    }
}

/// The users and groups from management. A copy shares the users.
///
/// Shape on disk: JSON, names to records.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct Directory {
    /// The users.
    pub users: Users,
    /// Groups by name.
    pub groups: BTreeMap<String, GroupRecord>,
}

impl Directory {
    /// Returns the roles of a user, and those of the user's groups.
    pub fn grants_of<'a>(&'a self, user: &'a UserRecord) -> impl Iterator<Item = &'a Grant> {
        let groups = user.groups.iter();
        let groups = groups.filter_map(|name| self.groups.get(name));
        let of_groups = groups.flat_map(|group| &group.roles);
        user.roles.iter().chain(of_groups)
    }
}

/// All data about the users of a group of nodes: one node stores it, and sends it to following nodes.
///
/// Shape on disk and on links: JSON.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(from = "FlatRoster")]
pub struct Roster {
    /// Time of the last change, nanoseconds since 1970; larger than any earlier edition; 0 if there was never a user.
    /// Nodes with the same edition have the same roster.
    pub edition: u64,
    /// See [`Secrets::salts`](crate::Secrets::salts); the password verifiers depend on them.
    pub salts: [u8; 32],
    /// The users and groups.
    #[serde(flatten)]
    pub directory: Arc<Directory>,
}

impl Roster {
    /// Returns the next edition of the roster, of a time in nanoseconds since 1970; `None` if `edit` returns false or
    /// changes nothing.
    pub fn edited(self, now_ns: u64, edit: &mut dyn FnMut(&mut Directory) -> bool) -> Option<Self> {
        let mut directory = Directory::clone(&self.directory);
        let changed = edit(&mut directory) && directory != *self.directory;
        changed.then(|| Self {
            edition: now_ns.max(self.edition + 1),
            directory: directory.into(),
            ..self
        })
    }
}

/// The JSON form of a roster: for a flattened field, serde would hold all of it a second time.
#[derive(Deserialize)]
struct FlatRoster {
    #[serde(default)]
    edition: u64,
    salts: [u8; 32],
    users: Users,
    groups: BTreeMap<String, GroupRecord>,
}

impl From<FlatRoster> for Roster {
    fn from(flat: FlatRoster) -> Self {
        let (users, groups) = (flat.users, flat.groups);
        Self {
            edition: flat.edition,
            salts: flat.salts,
            directory: Arc::new(Directory { users, groups }),
        }
    }
}
