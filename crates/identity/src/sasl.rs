//! The SASL exchange of one connection.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::scram::{ClientFirst, Exchange, is_user_name};
use super::{AuthenticatedUser, Hash, Identity};

/// Longest payload that is parsed, bytes; more than the longest name, nonce and proof need.
const PAYLOAD_BYTES_MAX: usize = 4096;

/// The offered mechanisms, strongest first, separated by spaces.
///
/// Names have no dash between SHA and digits, unlike the IANA names. Token mechanisms, which need TLS, are not offered,
/// so the list is the same with and without it.
pub const MECHANISMS: &str = "SCRAM-SHA512 SCRAM-SHA256 SCRAM-SHA1 PLAIN";

/// Result of a peer's SASL message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SaslStep {
    /// Send this back and wait for the next step.
    Continue(Vec<u8>),
    /// The peer is this user; send `payload` back with success.
    Done {
        /// The authenticated user.
        user: AuthenticatedUser,
        /// The server's signature under SCRAM, empty under PLAIN.
        payload: Vec<u8>,
    },
    /// Wrong name, password or proof, or a mechanism that is not offered. The connection stays open and may try again.
    Failed,
    /// The message is not valid here; with the reason.
    Invalid(&'static str),
}

enum Mechanism {
    Scram(Hash),
    Plain,
}

impl Mechanism {
    fn parse(name: &[u8]) -> Option<Self> {
        let is = |known: &str| known.as_bytes().eq_ignore_ascii_case(name);
        let hash = Hash::ALL.into_iter().find(|hash| is(hash.mechanism()));
        let plain = is("PLAIN").then_some(Self::Plain);
        hash.map(Self::Scram).or(plain)
    }
}

/// The state of one connection's SASL exchange. A new one waits for a start.
///
/// It does not keep the authenticated user: the connection does, and it may authenticate again.
#[derive(Debug, Default)]
pub struct SaslSession {
    pending: Option<Exchange>,
}

impl SaslSession {
    /// Begins an exchange: `SASL_AUTH` with the mechanism's name as key and a payload as value.
    ///
    /// `random` fills the server's nonce. A start is refused without effect while a step is awaited. Cost: PLAIN like
    /// [`Identity::authenticate`]; SCRAM two HMACs, no password hashing.
    pub fn start(
        &mut self,
        identity: &Identity,
        mechanism: &[u8],
        payload: &[u8],
        random: &mut dyn FnMut(&mut [u8]),
    ) -> SaslStep {
        if self.pending.is_some() {
            return SaslStep::Invalid("authentication is already under way, a step is awaited");
        }
        let Some(mechanism) = Mechanism::parse(mechanism) else {
            return SaslStep::Failed;
        };
        if let Err(reason) = check_payload(payload) {
            return SaslStep::Invalid(reason);
        }
        match mechanism {
            Mechanism::Plain => plain(identity, payload),
            Mechanism::Scram(hash) => self.start_scram(identity, hash, payload, random),
        }
    }

    fn start_scram(
        &mut self,
        identity: &Identity,
        hash: Hash,
        payload: &[u8],
        random: &mut dyn FnMut(&mut [u8]),
    ) -> SaslStep {
        let first = match ClientFirst::parse(payload) {
            Ok(first) => first,
            Err(reason) => return SaslStep::Invalid(reason),
        };
        if !is_user_name(&first.user) {
            return SaslStep::Failed;
        }
        let mut nonce = [0; 24];
        random(&mut nonce);
        let salt = identity.salt(&first.user, hash);
        let (exchange, answer) = Exchange::begin(
            hash,
            first,
            &STANDARD.encode(nonce),
            &salt,
            identity.iterations,
        );
        self.pending = Some(exchange);
        SaslStep::Continue(answer.into_bytes())
    }

    /// Continues an exchange: `SASL_STEP`. Whatever the result, the exchange is over.
    ///
    /// Cost: four HMACs, and the derivation of the user's keys (10 ms) if it is the first with this hash and
    /// [`Identity::prepare`] has not derived them yet.
    pub fn step(&mut self, identity: &Identity, mechanism: &[u8], payload: &[u8]) -> SaslStep {
        let Some(exchange) = self.pending.take() else {
            return SaslStep::Invalid("no authentication is under way");
        };
        match Mechanism::parse(mechanism) {
            Some(Mechanism::Scram(hash)) if hash == exchange.hash => {}
            _ => return SaslStep::Invalid("the step's mechanism is not the one begun with"),
        }
        if let Err(reason) = check_payload(payload) {
            return SaslStep::Invalid(reason);
        }
        let account = identity.account(&exchange.user);
        let keys = identity.keys(account.as_ref(), exchange.hash);
        match (exchange.finish(payload, &keys), account) {
            (Ok(Some(signature)), Some(account)) => SaslStep::Done {
                user: identity.authenticated(&account),
                payload: signature.into_bytes(),
            },
            (Ok(_), _) => SaslStep::Failed,
            (Err(reason), _) => SaslStep::Invalid(reason),
        }
    }

    /// Returns the name of the user in the current exchange.
    pub fn tried(&self) -> Option<&str> {
        self.pending.as_ref().map(|exchange| &*exchange.user)
    }

    /// Checks whether a step is awaited.
    #[cfg(test)]
    pub(super) fn is_pending(&self) -> bool {
        self.pending.is_some()
    }
}

fn check_payload(payload: &[u8]) -> Result<(), &'static str> {
    match payload.len() {
        0 => Err("the challenge is empty"),
        1..=PAYLOAD_BYTES_MAX => Ok(()),
        _ => Err("the challenge is longer than 4096 bytes"),
    }
}

/// Handles PLAIN: `[authzid] NUL user NUL password`.
fn plain(identity: &Identity, payload: &[u8]) -> SaslStep {
    let mut parts = payload.splitn(3, |byte| *byte == 0);
    let (Some(acting_for), Some(user), Some(password)) = (parts.next(), parts.next(), parts.next())
    else {
        return SaslStep::Invalid("PLAIN needs user and password separated by NUL");
    };
    let acts_for_itself = acting_for.is_empty() || acting_for == user;
    let name = std::str::from_utf8(user).ok();
    let name = name.filter(|name| acts_for_itself && is_user_name(name));
    match name.and_then(|name| identity.authenticate(name, password)) {
        Some(user) => SaslStep::Done {
            user,
            payload: Vec::new(),
        },
        None => SaslStep::Failed,
    }
}
