//! Identity of a peer: users, their credentials, their rights, and the SASL exchange that proves them.
//!
//! Both sides of the exchange are here: a node's ([`SaslSession`]) and that of links and tools ([`ScramClient`]). Bytes
//! are passed in and out as values. Of a password that was set while the node runs, only the verifier is kept.
//!
//! This crate must not know sockets, buckets or HTTP. It reads no clock, starts no thread and draws no random numbers:
//! randomness and time are parameters.

mod access;
mod brake;
mod certificate;
mod certificate_login;
mod client;
mod collections;
mod directory;
mod hash;
mod privilege;
mod record;
mod role;
mod sasl;
mod scram;
mod user;
mod users;
mod verifier;

#[cfg(test)]
mod tests;

pub use access::{Access, BucketGrant};
pub use brake::{FAILURES_PER_CONNECTION, LoginBrake, LoginTurn};
pub use certificate::{CertificateSettings, CertificateState, NamePath, NameRule};
pub use certificate_login::CertificateVerdict;
pub use client::{Proof, SaltedCache, ScramClient, ScramError};
pub use collections::CollectionPrivileges;
pub use directory::{Directory, Roster, Users};
pub use hash::Hash;
pub use privilege::{Privilege, PrivilegeSet};
pub use record::{GroupRecord, UserRecord};
pub use role::{Grant, ROLES, Reach, Role};
pub use sasl::{MECHANISMS, SaslSession, SaslStep};
pub use scram::USER_NAME_BYTES_MAX;
pub use user::User;
pub use users::{Administrator, AuthenticatedUser, Identity, Password, SCRAM_ITERATIONS, Secrets};
pub use verifier::Verifier;
