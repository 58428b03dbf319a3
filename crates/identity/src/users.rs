//! The users of a node and their credentials.

use std::collections::HashMap;
use std::fmt;
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use hmac::{Hmac, KeyInit, Mac};
use parking_lot::{Mutex, RwLock};
use sha2::Sha256;
use subtle::ConstantTimeEq;

use super::Hash;
use super::access::Access;
use super::certificate::CertificateSettings;
use super::directory::{Directory, Roster};
use super::record::UserRecord;
use super::role::{Grant, ROLES};
use super::scram::{Keys, ScramKeys};
use super::user::User;
use super::verifier::Verifier;

/// Rounds of PBKDF2 that SCRAM demands of clients; the number of the reference server.
pub const SCRAM_ITERATIONS: u32 = 15_000;

/// Hash that judges a password which was not right before: the cheapest secure one.
const JUDGING: Hash = Hash::Sha256;

/// A password in the clear. `Debug` does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct Password(String);

impl<T: Into<String>> From<T> for Password {
    fn from(text: T) -> Self {
        Self(text.into())
    }
}

impl Deref for Password {
    type Target = String;

    fn deref(&self) -> &String {
        &self.0
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// The administrator of the configuration.
#[derive(Clone, Debug)]
pub struct Administrator {
    /// Name, 1 to [`USER_NAME_BYTES_MAX`](crate::USER_NAME_BYTES_MAX) bytes.
    pub name: String,
    /// The administrator's password.
    pub password: Password,
}

/// Random bytes that a node's logins depend on.
#[derive(Clone, Copy)]
pub struct Secrets {
    /// Secret of the salts. It is stored with the users: a salt must stay the same as long as its user exists, and the
    /// salts of unknown names must be as constant.
    pub salts: [u8; 32],
    /// Secret of this process.
    pub process: [u8; 32],
}

impl Secrets {
    /// Creates secrets of equal bytes, for nodes that do not store users.
    pub fn alike(secret: [u8; 32]) -> Self {
        Self {
            salts: secret,
            process: secret,
        }
    }
}

/// A user whose credentials were right, or were not required.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthenticatedUser {
    /// Configured name.
    pub name: Arc<str>,
    /// Whether this is the administrator of the configuration, not a user from management.
    pub built_in: bool,
    /// Rights of the user at the time of `revision`.
    pub access: Arc<Access>,
    /// [`Identity::revision`] at the time when `access` was computed.
    pub revision: u64,
}

impl AuthenticatedUser {
    /// Returns the peer of a node without an administrator: a full administrator under a name that no user can have.
    pub fn of_open_node() -> Self {
        Self {
            name: "@unprovisioned".into(),
            built_in: true,
            access: Arc::new(Access::new([Grant::everywhere(&ROLES[0])])),
            revision: 0,
        }
    }
}

/// A known user, or the decoy that stands in for unknown ones. A copy shares the content.
#[derive(Clone)]
pub(super) struct Account {
    user: User,
    built_in: Option<Arc<BuiltIn>>,
}

/// The configured password of a user, and values derived from it at first use.
struct BuiltIn {
    password: Password,
    /// Keys for the salts in force; replaced with them.
    keys: RwLock<Arc<ScramKeys>>,
    fingerprint: [u8; 32],
}

/// A password that was right once for this state of the user.
struct Seen {
    user: User,
    /// HMAC of the password under the process's key. PLAIN is compared with it, so that a comparison takes the same
    /// time for all lengths.
    fingerprint: [u8; 32],
}

/// The users of a node. Shared between connections.
pub struct Identity {
    /// The administrator of the configuration, if it names one.
    administrator: Option<Account>,
    /// The account with which other nodes of a cluster log in here, and this node there.
    peer: OnceLock<Account>,
    decoy: Account,
    roster: RwLock<Roster>,
    /// Edition of the users that are on disk.
    kept: AtomicU64,
    /// Right passwords of users that logged in with PLAIN or over HTTP.
    seen: Mutex<HashMap<String, Seen>>,
    /// [`Secrets::process`].
    process: [u8; 32],
    pub(super) iterations: u32,
    revision: AtomicU64,
    /// Settings of client certificates.
    pub(super) certificates: RwLock<CertificateSettings>,
}

impl Identity {
    /// Creates the users of a node: only the administrator. Cost: derives no key, see [`Identity::prepare`].
    pub fn new(administrator: Administrator, secrets: Secrets) -> Self {
        Self::with_iterations(administrator, secrets, SCRAM_ITERATIONS)
    }

    /// Creates the users of a node whose administrator will come from management: none yet.
    pub fn without_administrator(secrets: Secrets) -> Self {
        Self::of(None, secrets, SCRAM_ITERATIONS)
    }

    /// Creates users like [`Identity::new`], with another number of PBKDF2 rounds.
    pub fn with_iterations(
        administrator: Administrator,
        secrets: Secrets,
        iterations: u32,
    ) -> Self {
        Self::of(Some(administrator), secrets, iterations)
    }

    fn of(administrator: Option<Administrator>, secrets: Secrets, iterations: u32) -> Self {
        let decoy = Administrator {
            name: String::new(),
            password: hex(&keyed(&secrets.process, &[b"decoy"])).into(),
        };
        Self {
            administrator: administrator.map(|user| Account::built_in(user, &secrets.process)),
            peer: OnceLock::new(),
            decoy: Account::built_in(decoy, &secrets.process),
            roster: RwLock::new(Roster {
                salts: secrets.salts,
                ..Roster::default()
            }),
            seen: Mutex::default(),
            process: secrets.process,
            iterations,
            kept: AtomicU64::new(0),
            revision: AtomicU64::new(0),
            certificates: RwLock::default(),
        }
    }

    /// Returns a number that grows with every change of a user or a group. Values computed at an older revision must be
    /// computed again. Cost: one load.
    pub fn revision(&self) -> u64 {
        self.revision.load(Ordering::Acquire)
    }

    /// Returns the users and groups from management.
    pub fn directory(&self) -> Arc<Directory> {
        Arc::clone(&self.roster.read().directory)
    }

    /// Returns the roster. Cost: a copy that shares its users.
    pub fn roster(&self) -> Roster {
        self.roster.read().clone()
    }

    /// Returns the [`Roster::edition`] of the users in force.
    pub fn edition(&self) -> u64 {
        self.roster.read().edition
    }

    /// Returns the edition of the users that are on disk, which a failed write leaves behind those in force.
    pub fn kept_edition(&self) -> u64 {
        self.kept.load(Ordering::Acquire)
    }

    /// Notes that the users of this edition are on disk, or need not be.
    pub fn note_kept(&self, edition: u64) {
        self.kept.store(edition, Ordering::Release);
    }

    /// Replaces the users and groups from management; the edition is the next one.
    pub fn replace_directory(&self, directory: Directory) {
        let before = self.roster();
        self.replace_roster(Roster {
            edition: before.edition + 1,
            directory: directory.into(),
            ..before
        });
    }

    /// Replaces the users and groups from management. Connections see them before their next command. A user with the
    /// administrator's name is ignored.
    ///
    /// Cost: a look at each user.
    pub fn replace_roster(&self, mut roster: Roster) {
        let directory = Arc::make_mut(&mut roster.directory);
        if let Some(administrator) = &self.administrator {
            directory.users.remove(administrator.user.name());
        }
        let other_salts = self.roster.read().salts != roster.salts;
        let mut seen = self.seen.lock();
        seen.retain(|name, seen| !other_salts && directory.users.get(name) == Some(&seen.user));
        *self.roster.write() = roster;
        if other_salts {
            // Reset keys after the salts: a reader of the new keys finds the new salts as well.
            for account in self.plain() {
                if let Some(built_in) = &account.built_in {
                    *built_in.keys.write() = Arc::default();
                }
            }
        }
        self.revision.fetch_add(1, Ordering::Release);
    }

    /// Returns the accounts whose password is known in the clear.
    fn plain(&self) -> impl Iterator<Item = &Account> {
        let named = self.administrator.iter().chain(self.peer.get());
        named.chain([&self.decoy])
    }

    /// Derives the verifier of a user's new password. Cost: some 30 ms.
    pub fn verifier(&self, name: &str, password: &[u8]) -> Verifier {
        Verifier::derive(password, self.iterations, |hash| self.salt(name, hash))
    }

    /// Checks whether the configuration names this user.
    pub fn is_built_in(&self, name: &str) -> bool {
        self.built_in(name).is_some()
    }

    fn built_in(&self, name: &str) -> Option<&Account> {
        let mut built_in = self.administrator.iter().chain(self.peer.get());
        built_in.find(|one| one.user.name() == name)
    }

    /// Lets other nodes of a cluster log in, as a full administrator under a name that no user can have; once only.
    pub fn admit_peers(&self, user: Administrator) {
        let account = Account::built_in(user, &self.process);
        let first = self.peer.set(account).is_ok();
        debug_assert!(first, "a node is in one cluster");
    }

    /// Checks a name and a password of PLAIN or HTTP.
    ///
    /// Cost: two HMACs if the password was right before, else some 5 ms more. The time does not reveal whether the user
    /// exists.
    pub fn authenticate(&self, name: &str, password: &[u8]) -> Option<AuthenticatedUser> {
        let account = self.account(name);
        let judged = account.as_ref().unwrap_or(&self.decoy);
        let given = keyed(&self.process, &[b"password", password]);
        let mut equal = bool::from(self.fingerprint(name, judged).ct_eq(&given));
        if !equal {
            let keys = judged.keys(JUDGING, self);
            let salt = self.salt(name, JUDGING);
            let proven = Keys::derive(JUDGING, password, &salt, self.iterations);
            // HMAC pads short keys with zeros, so a password with appended zeros would count as equal.
            equal = bool::from(proven.stored.ct_eq(&keys.stored)) && !password.contains(&0);
            if equal && judged.built_in.is_none() {
                let seen = Seen {
                    user: judged.user.clone(),
                    fingerprint: given,
                };
                self.seen.lock().insert(name.to_owned(), seen);
            }
        }
        let account = account.filter(|_| equal)?;
        Some(self.authenticated(&account))
    }

    /// Returns the fingerprint of an account's right password; zeros if none is known.
    fn fingerprint(&self, name: &str, account: &Account) -> [u8; 32] {
        let seen = self.seen.lock();
        let seen = seen.get(name);
        let seen = seen.filter(|seen| seen.user == account.user);
        let built_in = account.built_in.as_ref().map(|one| one.fingerprint);
        let seen = seen.map(|seen| seen.fingerprint);
        built_in.or(seen).unwrap_or_default()
    }

    /// Returns the current state of a user; `None` if there is no user of that name.
    pub fn look_up(&self, name: &str) -> Option<AuthenticatedUser> {
        let account = self.account(name)?;
        Some(self.authenticated(&account))
    }

    /// Finds the account of a name, which judges an exchange.
    pub(super) fn account(&self, name: &str) -> Option<Account> {
        if let Some(administrator) = self.built_in(name) {
            return Some(administrator.clone());
        }
        let directory = self.directory();
        let user = directory.users.get(name)?.clone();
        let built_in = None;
        Some(Account { user, built_in })
    }

    /// Returns the user of an account with its current rights.
    pub(super) fn authenticated(&self, account: &Account) -> AuthenticatedUser {
        // Read the revision first: the next check of the revision sees a change in between.
        let revision = self.revision();
        let directory = self.directory();
        let record = account.user.record();
        let grants = directory.grants_of(&record);
        AuthenticatedUser {
            name: account.user.name().into(),
            built_in: account.built_in.is_some(),
            access: Arc::new(Access::new(grants.cloned())),
            revision,
        }
    }

    /// Derives the SCRAM keys of passwords in the clear: some 10 ms per user and hash.
    ///
    /// A session that needs a key earlier derives it itself, or waits for this one.
    pub fn prepare(&self) {
        for account in self.plain() {
            for hash in Hash::ALL {
                account.keys(hash, self);
            }
        }
    }

    /// Returns the salt of a name for one hash. Known and unknown names are treated alike, so an answer does not reveal
    /// which one it was.
    pub(super) fn salt(&self, name: &str, hash: Hash) -> [u8; 16] {
        let mac = keyed(
            &self.roster.read().salts,
            &[b"salt", hash.label(), name.as_bytes()],
        );
        let mut salt = [0; 16];
        salt.copy_from_slice(&mac[..16]);
        salt
    }

    /// Returns the keys that judge a user's proof; those of the decoy for an unknown user.
    pub(super) fn keys(&self, account: Option<&Account>, hash: Hash) -> Keys {
        account.unwrap_or(&self.decoy).keys(hash, self)
    }
}

#[cfg(test)]
impl Identity {
    pub(super) fn decoy_password(&self) -> &str {
        let built_in = self.decoy.built_in.as_ref();
        &built_in.expect("the decoy has a password").password
    }

    /// Checks whether a right password of a user is remembered.
    pub(super) fn was_right(&self, name: &str) -> bool {
        let account = self.account(name);
        account.is_some_and(|account| self.fingerprint(name, &account) != [0; 32])
    }

    /// Returns the hashes for which the keys of a built-in user are derived.
    pub(super) fn derived(&self, name: &str) -> Vec<Hash> {
        let account = self.account(name).expect("a user");
        let built_in = account.built_in.as_ref().expect("a password in the clear");
        let keys = built_in.keys.read();
        let there = |hash: &Hash| keys.is_derived(*hash);
        Hash::ALL.into_iter().filter(there).collect()
    }
}

impl fmt::Debug for Identity {
    /// Shows the number of users.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity")
            .field("users", &self.directory().users.all().len())
            .field("iterations", &self.iterations)
            .finish_non_exhaustive()
    }
}

impl Account {
    fn built_in(user: Administrator, process: &[u8; 32]) -> Self {
        let fingerprint = keyed(process, &[b"password", user.password.as_bytes()]);
        let record = UserRecord {
            roles: [Grant::everywhere(&ROLES[0])].into(),
            ..UserRecord::default()
        };
        let built_in = BuiltIn {
            password: user.password,
            keys: RwLock::default(),
            fingerprint,
        };
        Self {
            user: User::new(&user.name, &record),
            built_in: Some(Arc::new(built_in)),
        }
    }

    /// Returns the keys for one hash; a user without a password has those of the decoy.
    fn keys(&self, hash: Hash, identity: &Identity) -> Keys {
        if let Some(built_in) = &self.built_in {
            let keys = Arc::clone(&built_in.keys.read());
            let derive = || {
                let salt = identity.salt(self.user.name(), hash);
                let password = built_in.password.as_bytes();
                Keys::derive(hash, password, &salt, identity.iterations)
            };
            return keys.get(hash, derive).clone();
        }
        match self.user.record().password {
            Some(verifier) => verifier.keys(hash),
            None => identity.decoy.keys(hash, identity),
        }
    }
}

/// Returns the HMAC-SHA256 of length-prefixed parts, so that no two lists of parts collide.
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
