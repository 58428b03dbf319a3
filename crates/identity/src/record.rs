//! Stored records of users and groups.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::role::Grant;
use crate::verifier::Verifier;

/// Record of a user from management.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct UserRecord {
    /// Name for people; may be empty.
    #[serde(default, skip_serializing_if = "str::is_empty")]
    pub full_name: Box<str>,
    /// The user's own roles.
    #[serde(default, skip_serializing_if = "<[_]>::is_empty")]
    pub roles: Box<[Grant]>,
    /// Names of groups; the user has their roles as well.
    #[serde(default, skip_serializing_if = "<[_]>::is_empty")]
    pub groups: Box<[String]>,
    /// Verifier of the password.
    pub password: Option<Verifier>,
    /// Time when the password was set, seconds since 1970.
    #[serde(default)]
    pub password_set_unix_s: u32,
}

/// A group of users with common roles.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct GroupRecord {
    /// Purpose of the group; may be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// Name of an LDAP group; it is only stored and shown. May be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub ldap_group_ref: String,
    /// Roles of the group's users.
    #[serde(default, skip_serializing_if = "<[_]>::is_empty")]
    pub roles: Box<[Grant]>,
}

impl Serialize for Grant {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Grant {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| D::Error::custom(format!("no role: {text}")))
    }
}

impl Serialize for Verifier {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode(self.as_bytes()))
    }
}

impl<'de> Deserialize<'de> for Verifier {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let bytes = STANDARD.decode(text);
        let verifier = bytes.ok().and_then(|bytes| Self::from_bytes(&bytes));
        verifier.ok_or_else(|| D::Error::custom("a password's verifier is malformed"))
    }
}
