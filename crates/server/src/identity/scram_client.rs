//! The client's side of SCRAM, for connections to other nodes: the password never leaves.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use subtle::ConstantTimeEq;

use super::scram::Hash;

/// The mechanism that is used; there is no falling back to a weaker one.
pub(crate) const MECHANISM: &[u8] = b"SCRAM-SHA512";
const HASH: Hash = Hash::Sha512;
/// More rounds than this are no server's need but a waste of our time.
const ITERATIONS_MAX: u32 = 1_000_000;

/// One exchange.
#[derive(Clone)]
pub(crate) struct ScramClient {
    user: String,
    password: String,
    nonce: String,
}

/// The answer to the server's challenge, and how the server proves that it knows the password.
#[derive(Clone)]
pub(crate) struct Proof {
    pub(crate) message: String,
    signature: Vec<u8>,
}

impl ScramClient {
    /// An exchange with a random `nonce` of printable characters without commas.
    pub(crate) fn new(user: &str, password: &str, nonce: &str) -> Self {
        Self {
            user: user.replace('=', "=3D").replace(',', "=2C"),
            password: password.to_owned(),
            nonce: nonce.to_owned(),
        }
    }

    fn bare(&self) -> String {
        format!("n={},r={}", self.user, self.nonce)
    }

    /// The first message.
    pub(crate) fn first(&self) -> String {
        format!("n,,{}", self.bare())
    }

    /// Answers a challenge; `None` if it is none to this exchange.
    ///
    /// Cost: as many hashes as the server demands, at most a million.
    pub(crate) fn answer(&self, challenge: &[u8]) -> Option<Proof> {
        let challenge = std::str::from_utf8(challenge).ok()?;
        let mut parts = challenge.split(',');
        let nonce = parts.next()?.strip_prefix("r=")?;
        let salt = STANDARD.decode(parts.next()?.strip_prefix("s=")?).ok()?;
        let iterations: u32 = parts.next()?.strip_prefix("i=")?.parse().ok()?;
        let fresh = nonce.len() > self.nonce.len() && nonce.starts_with(&self.nonce);
        if !fresh || !(1..=ITERATIONS_MAX).contains(&iterations) {
            return None;
        }
        let without_proof = format!("c=biws,r={nonce}");
        let signed = format!("{},{challenge},{without_proof}", self.bare());
        let salted = HASH.salted(self.password.as_bytes(), &salt, iterations);
        let client_key = HASH.hmac(&salted, b"Client Key");
        let client_signature = HASH.hmac(&HASH.digest(&client_key), signed.as_bytes());
        let proof: Vec<u8> = client_key
            .iter()
            .zip(&client_signature)
            .map(|(key, signature)| key ^ signature)
            .collect();
        let server_key = HASH.hmac(&salted, b"Server Key");
        Some(Proof {
            message: format!("{without_proof},p={}", STANDARD.encode(proof)),
            signature: HASH.hmac(&server_key, signed.as_bytes()),
        })
    }
}

impl Proof {
    /// Whether the server's last message proves that it knows the password too.
    pub(crate) fn verify(&self, last: &[u8]) -> bool {
        let signature = last.strip_prefix(b"v=");
        let signature = signature.and_then(|text| STANDARD.decode(text).ok());
        signature.is_some_and(|signature| bool::from(signature.ct_eq(&self.signature)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::{Identity, NewUser, Role, SaslSession, SaslStep};

    fn exchange(password: &str) -> Option<bool> {
        let user = NewUser {
            name: "a=b,c".into(),
            password: "pencil".into(),
            role: Role::Admin,
        };
        let identity = Identity::with_iterations([user], [7; 32], 16);
        let client = ScramClient::new("a=b,c", password, "clientnonce");
        let mut session = SaslSession::default();
        let mut random = |bytes: &mut [u8]| bytes.fill(9);
        let first = client.first();
        let SaslStep::Continue(challenge) =
            session.start(&identity, MECHANISM, first.as_bytes(), &mut random)
        else {
            panic!("no challenge");
        };
        let proof = client.answer(&challenge).expect("a valid challenge");
        match session.step(&identity, MECHANISM, proof.message.as_bytes()) {
            SaslStep::Done { payload, .. } => Some(proof.verify(&payload)),
            _ => None,
        }
    }

    #[test]
    fn both_sides_prove_that_they_know_the_password() {
        assert_eq!(exchange("pencil"), Some(true));
        assert_eq!(exchange("pencils"), None);
    }

    #[test]
    fn what_is_no_challenge_to_this_exchange_is_refused() {
        let client = ScramClient::new("u", "p", "nonce");
        for challenge in [
            "",
            "r=nonce,s=AAAA,i=16",
            "r=othernonce,s=AAAA,i=16",
            "r=nonceX,s=?,i=16",
            "r=nonceX,s=AAAA,i=0",
            "r=nonceX,s=AAAA,i=4000000000",
            "r=nonceX,s=AAAA",
        ] {
            assert!(client.answer(challenge.as_bytes()).is_none(), "{challenge}");
        }
        let proof = client.answer(b"r=nonceX,s=AAAA,i=16").expect("a challenge");
        for last in [&b""[..], b"v=", b"v=AAAA", b"e=other"] {
            assert!(!proof.verify(last));
        }
    }
}
