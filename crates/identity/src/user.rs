//! A user in memory: one block of bytes, since there may be many.

use std::fmt;
use std::sync::Arc;

use parking_lot::RwLock;

use crate::record::UserRecord;
use crate::role::{Grant, ROLES, Role};
use crate::verifier::Verifier;

/// Largest length of a text, bytes, and of a list; more is cut off. The body of a request is never longer.
const LENGTH_MAX: usize = u16::MAX as usize;

/// Roles of grants that are not in the table: only roles that a program made.
static OTHER_ROLES: RwLock<Vec<&'static Role>> = RwLock::new(Vec::new());

/// A user's name and record, packed. Copies share it.
///
/// Shape: the second at which the password was set (4 bytes), name, full name, roles, groups; the rest is the password
/// verifier. A number has 2 bytes. A text is its length and its bytes; a list is the number of its members and the
/// members; a role is the number of its row and the text of its place.
///
/// Cost: one allocation of 270 bytes, name, places and groups.
#[derive(Clone, PartialEq, Eq)]
pub struct User(Arc<[u8]>);

impl User {
    /// Packs a user.
    pub fn new(name: &str, record: &UserRecord) -> Self {
        let mut bytes = record.password_set_unix_s.to_le_bytes().to_vec();
        put_text(&mut bytes, name);
        put_text(&mut bytes, &record.full_name);
        put_list(&mut bytes, &record.roles, |bytes, grant| {
            put_number(bytes, number_of(grant.role));
            put_text(bytes, grant.place());
        });
        put_list(&mut bytes, &record.groups, |bytes, name| {
            put_text(bytes, name);
        });
        let password = record.password.as_ref();
        bytes.extend_from_slice(password.map_or(&[], Verifier::as_bytes));
        Self(bytes.into())
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        self.parts().1.text()
    }

    /// Unpacks the record. Cost: allocates each part.
    pub fn record(&self) -> UserRecord {
        let (password_set_unix_s, mut parts) = self.parts();
        let _name = parts.text();
        UserRecord {
            password_set_unix_s,
            full_name: parts.text().into(),
            roles: parts.list(|parts| Grant::at(role_of(parts.number()), parts.text())),
            groups: parts.list(|parts| parts.text().to_owned()),
            password: Verifier::from_bytes(parts.0),
        }
    }

    fn parts(&self) -> (u32, PackedFields<'_>) {
        let (second, parts) = self.0.split_first_chunk().expect("it begins with a second");
        (u32::from_le_bytes(*second), PackedFields(parts))
    }
}

impl fmt::Debug for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("User")
            .field(&self.name())
            .field(&self.record())
            .finish()
    }
}

/// Returns the number of a role: its row of the table, or a number behind the last row.
fn number_of(role: &'static Role) -> usize {
    let rows = ROLES.iter().position(|row| std::ptr::eq(row, role));
    rows.unwrap_or_else(|| {
        let mut others = OTHER_ROLES.write();
        others.push(role);
        ROLES.len() + others.len() - 1
    })
}

fn role_of(number: usize) -> &'static Role {
    let row = ROLES.get(number);
    row.unwrap_or_else(|| OTHER_ROLES.read()[number - ROLES.len()])
}

fn put_number(bytes: &mut Vec<u8>, number: usize) {
    bytes.extend_from_slice(&number.to_le_bytes()[..2]);
}

fn put_text(bytes: &mut Vec<u8>, text: &str) {
    let text = &text[..text.floor_char_boundary(LENGTH_MAX)];
    put_number(bytes, text.len());
    bytes.extend_from_slice(text.as_bytes());
}

fn put_list<T>(bytes: &mut Vec<u8>, list: &[T], put: impl Fn(&mut Vec<u8>, &T)) {
    let list = &list[..list.len().min(LENGTH_MAX)];
    put_number(bytes, list.len());
    for one in list {
        put(bytes, one);
    }
}

/// The unread rest of a packed user.
struct PackedFields<'a>(&'a [u8]);

impl<'a> PackedFields<'a> {
    fn take(&mut self, length: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(length);
        self.0 = rest;
        taken
    }

    fn number(&mut self) -> usize {
        let bytes = self.take(2).try_into().expect("two bytes");
        u16::from_le_bytes(bytes).into()
    }

    fn text(&mut self) -> &'a str {
        let length = self.number();
        str::from_utf8(self.take(length)).expect("it was packed from a text")
    }

    fn list<T>(&mut self, read: impl Fn(&mut Self) -> T) -> Box<[T]> {
        let length = self.number();
        (0..length).map(|_| read(self)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_users_are_unpacked_unchanged() {
        let grant = |text: &str| Grant::parse(text).unwrap();
        let other: &'static Role = Box::leak(Box::new(Role {
            name: "data_reader",
            ..*ROLES.last().unwrap()
        }));
        let whole = UserRecord {
            full_name: "\u{e4} b".into(),
            roles: [
                grant("admin"),
                grant("data_reader[b:s:c]"),
                grant("data_writer[*]"),
            ]
            .into(),
            groups: ["g".into(), String::new()].into(),
            password: Verifier::from_bytes(&[7; Verifier::BYTES]),
            password_set_unix_s: u32::MAX,
        };
        let made = UserRecord {
            roles: [Grant::on(other, [Some("b"), None, Some("c")])].into(),
            ..UserRecord::default()
        };
        for (name, record) in [("n", whole), ("", UserRecord::default()), ("m", made)] {
            let user = User::new(name, &record);
            assert_eq!((user.name(), user.record()), (name, record));
        }
    }

    #[test]
    fn long_texts_and_lists_are_cut() {
        let record = UserRecord {
            full_name: "\u{e4}".repeat(LENGTH_MAX).into(),
            groups: vec!["g".to_owned(); LENGTH_MAX + 1].into(),
            ..UserRecord::default()
        };
        let cut = User::new("n", &record).record();
        assert_eq!(cut.full_name.len(), LENGTH_MAX - 1);
        assert_eq!(cut.groups.len(), LENGTH_MAX);
    }
}
