//! Identity of a peer: users, their credentials, and the SASL exchange that proves them.
//!
//! Both sides of the exchange: a node's ([`SaslSession`]) and that of links and tools
//! ([`ScramClient`]). Bytes come in and go out as values. What is kept of a password lives as long as the
//! process.
//!
//! What this crate may not do: know sockets, buckets or HTTP; read a clock, start a thread, draw random numbers:
//! randomness and time are parameters.

mod brake;
mod client;
mod hash;
mod sasl;
mod scram;

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use subtle::ConstantTimeEq;

pub use brake::{FAILURES_PER_CONNECTION, LoginBrake, LoginTurn};
pub use client::{Proof, SaltedCache, ScramClient, ScramError};
pub use hash::Hash;
pub use sasl::{SaslSession, SaslStep, list_mechanisms};
use scram::ScramKeys;

/// Rounds of PBKDF2 that SCRAM asks of clients; the count the reference uses.
pub const SCRAM_ITERATIONS: u32 = 15_000;

/// Longest user name accepted, in bytes.
pub const USER_NAME_BYTES_MAX: usize = 128;

/// What a user may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// Everything.
    Admin,
    /// Documents and harmless statistics of one bucket: every client of the memcached port, whether
    /// it logged in or not.
    Memcached,
}

impl Role {
    /// The role's name in HTTP answers.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Admin => "admin",
            Self::Memcached => "memcached",
        }
    }
}

/// A user to be made known to an [`Identity`].
#[derive(Clone)]
pub struct NewUser {
    /// Name, 1 to [`USER_NAME_BYTES_MAX`] bytes.
    pub name: String,
    /// Password in the clear.
    pub password: String,
    /// What the user may do.
    pub role: Role,
}

impl fmt::Debug for NewUser {
    /// All but the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewUser")
            .field("name", &self.name)
            .field("role", &self.role)
            .finish_non_exhaustive()
    }
}

/// A user whose credentials were right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthenticatedUser {
    /// Name as configured.
    pub name: Arc<str>,
    /// What the user may do.
    pub role: Role,
}

/// One known user, or the decoy that stands in for the unknown ones.
struct Account {
    user: AuthenticatedUser,
    password: String,
    /// HMAC of the password under the process's key: PLAIN is checked against it, so a
    /// comparison takes the same time whatever the lengths.
    fingerprint: [u8; 32],
    scram: ScramKeys,
}

/// The users of a node. Shared between connections; immutable.
pub struct Identity {
    accounts: HashMap<String, Account>,
    decoy: Account,
    secret: [u8; 32],
    iterations: u32,
}

impl Identity {
    /// The users of a node. `secret` is 32 random bytes that live as long as the process; salts
    /// come from it. Cost: no key is derived yet, see [`Identity::prepare`].
    #[must_use]
    pub fn new(users: impl IntoIterator<Item = NewUser>, secret: [u8; 32]) -> Self {
        Self::with_iterations(users, secret, SCRAM_ITERATIONS)
    }

    /// [`Identity::new`] with another number of PBKDF2 rounds.
    #[must_use]
    pub fn with_iterations(
        users: impl IntoIterator<Item = NewUser>,
        secret: [u8; 32],
        iterations: u32,
    ) -> Self {
        let decoy_password = hex(&keyed(&secret, &[b"decoy"]));
        let decoy = NewUser {
            name: String::new(),
            password: decoy_password,
            role: Role::Admin,
        };
        let accounts = users
            .into_iter()
            .map(|user| (user.name.clone(), Account::new(user, &secret)))
            .collect();
        Self {
            accounts,
            decoy: Account::new(decoy, &secret),
            secret,
            iterations,
        }
    }

    /// Checks a name and a password, as PLAIN and HTTP carry them.
    ///
    /// Cost: two HMACs, in a time that does not tell whether the user exists.
    #[must_use]
    pub fn authenticate(&self, name: &str, password: &[u8]) -> Option<AuthenticatedUser> {
        let account = self.accounts.get(name);
        let expected = account.unwrap_or(&self.decoy).fingerprint;
        let given = keyed(&self.secret, &[b"password", password]);
        let equal = bool::from(expected.ct_eq(&given));
        account
            .filter(|_| equal)
            .map(|account| account.user.clone())
    }

    /// Derives the SCRAM keys of all users now: some 10 ms per user and hash.
    ///
    /// A session that needs a key earlier derives it itself, or waits for this one.
    pub fn prepare(&self) {
        for hash in Hash::ALL {
            for account in self.accounts.values().chain([&self.decoy]) {
                self.keys(account, hash);
            }
        }
    }

    /// The salt of a user for one hash, the same for as long as the process lives. Known and
    /// unknown names are treated alike, so an answer does not tell which one it was.
    fn salt(&self, name: &str, hash: Hash) -> [u8; 16] {
        let mac = keyed(&self.secret, &[b"salt", hash.label(), name.as_bytes()]);
        let mut salt = [0; 16];
        salt.copy_from_slice(&mac[..16]);
        salt
    }

    fn keys<'a>(&self, account: &'a Account, hash: Hash) -> &'a scram::Keys {
        account.scram.get(hash, || {
            let salt = self.salt(&account.user.name, hash);
            scram::Keys::derive(hash, account.password.as_bytes(), &salt, self.iterations)
        })
    }
}

impl fmt::Debug for Identity {
    /// The names of the users.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity")
            .field("users", &self.accounts.keys())
            .field("iterations", &self.iterations)
            .finish_non_exhaustive()
    }
}

impl Account {
    fn new(user: NewUser, secret: &[u8; 32]) -> Self {
        let fingerprint = keyed(secret, &[b"password", user.password.as_bytes()]);
        Self {
            user: AuthenticatedUser {
                name: user.name.into(),
                role: user.role,
            },
            password: user.password,
            fingerprint,
            scram: ScramKeys::default(),
        }
    }
}

/// HMAC-SHA256 of length-prefixed parts, so that no two lists of parts collide.
fn keyed(secret: &[u8; 32], parts: &[&[u8]]) -> [u8; 32] {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret).expect("HMAC takes a key of any length");
    for part in parts {
        mac.update(&(part.len() as u64).to_be_bytes());
        mac.update(part);
    }
    mac.finalize().into_bytes().into()
}

fn hex(bytes: &[u8]) -> String {
    use fmt::Write;
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("writing to a string does not fail");
        text
    })
}
