//! What is kept of users and groups.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::role::Grant;
use crate::verifier::Verifier;

/// A user as management makes one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct UserRecord {
    /// The name that people read; may be empty.
    #[serde(default, skip_serializing_if = "str::is_empty")]
    pub full_name: Box<str>,
    /// Roles of the user's own.
    #[serde(default, skip_serializing_if = "<[_]>::is_empty")]
    pub roles: Box<[Grant]>,
    /// Names of groups, whose roles the user has as well.
    #[serde(default, skip_serializing_if = "<[_]>::is_empty")]
    pub groups: Box<[String]>,
    /// What is kept of the password.
    pub password: Option<Verifier>,
    /// When the password was set, seconds since 1970.
    #[serde(default)]
    pub password_set_unix_s: u32,
}

/// A group of users that have roles in common.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct GroupRecord {
    /// What it is for; may be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// The group of an LDAP directory that it stands for; told, without an effect. May be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub ldap_group_ref: String,
    /// What its users may do.
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
