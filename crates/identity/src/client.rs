//! The client's side of SCRAM (RFC 5802), for links to other nodes and for tools. The password is never sent.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use subtle::ConstantTimeEq;

use super::Hash;
use super::scram::xor;

/// Largest accepted number of rounds: no server needs more, and they cost the client's time.
const ITERATIONS_MAX: u32 = 1_000_000;

/// Reason why an exchange cannot continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScramError {
    /// The server's first message is not of the agreed form.
    #[error("the server's SCRAM challenge is malformed ({0})")]
    Malformed(&'static str),
    /// The server does not know the password: it may not be the right server.
    #[error("the server could not prove that it knows the password")]
    ServerNotGenuine,
}

/// The last salted password, kept so that many connections do not repeat the costly part.
#[derive(Clone, Default)]
pub struct SaltedCache {
    entry: Option<Salted>,
}

#[derive(Clone)]
struct Salted {
    hash: Hash,
    salt: Vec<u8>,
    iterations: u32,
    password: Vec<u8>,
    key: Vec<u8>,
}

impl fmt::Debug for SaltedCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SaltedCache")
            .field("filled", &self.entry.is_some())
            .finish()
    }
}

impl SaltedCache {
    fn salted(&mut self, hash: Hash, password: &[u8], salt: &[u8], iterations: u32) -> &[u8] {
        let same = |entry: &Salted| {
            entry.hash == hash
                && entry.salt == salt
                && entry.iterations == iterations
                && entry.password == password
        };
        if !self.entry.as_ref().is_some_and(same) {
            self.entry = None;
        }
        let entry = self.entry.get_or_insert_with(|| Salted {
            hash,
            salt: salt.to_vec(),
            iterations,
            password: password.to_vec(),
            key: hash.salted(password, salt, iterations),
        });
        &entry.key
    }
}

/// One exchange.
#[derive(Clone)]
pub struct ScramClient {
    hash: Hash,
    password: String,
    first_bare: String,
    nonce: String,
}

/// The client's last message, and the server's expected proof that it knows the password.
#[derive(Clone)]
pub struct Proof {
    /// Payload of the SASL step.
    pub message: String,
    signature: Vec<u8>,
}

impl ScramClient {
    /// Begins an exchange; `nonce` is random printable text without commas.
    pub fn new(hash: Hash, user: &str, password: &str, nonce: &str) -> Self {
        let user = user.replace('=', "=3D").replace(',', "=2C");
        Self {
            hash,
            password: password.to_owned(),
            first_bare: format!("n={user},r={nonce}"),
            nonce: nonce.to_owned(),
        }
    }

    /// Returns the payload of the SASL start.
    pub fn first_message(&self) -> String {
        format!("n,,{}", self.first_bare)
    }

    /// Answers the server's challenge. Cost: the server's iteration count, at most a million, unless cached.
    ///
    /// # Errors
    /// [`ScramError::Malformed`]: the challenge lacks a part, or its nonce does not begin with the client's.
    pub fn answer(&self, challenge: &[u8], cache: &mut SaltedCache) -> Result<Proof, ScramError> {
        let challenge =
            std::str::from_utf8(challenge).map_err(|_| ScramError::Malformed("not UTF-8"))?;
        let part = |name: &str| {
            challenge
                .split(',')
                .find_map(|part| part.strip_prefix(name))
        };
        let nonce = part("r=")
            .filter(|nonce| nonce.len() > self.nonce.len() && nonce.starts_with(&self.nonce))
            .ok_or(ScramError::Malformed("nonce"))?;
        let salt = part("s=")
            .and_then(|salt| STANDARD.decode(salt).ok())
            .ok_or(ScramError::Malformed("salt"))?;
        let iterations = part("i=")
            .and_then(|count| count.parse::<u32>().ok())
            .filter(|count| (1..=ITERATIONS_MAX).contains(count))
            .ok_or(ScramError::Malformed("iteration count"))?;
        let without_proof = format!("c=biws,r={nonce}");
        let signed = format!("{},{challenge},{without_proof}", self.first_bare);
        let salted = cache.salted(self.hash, self.password.as_bytes(), &salt, iterations);
        let client_key = self.hash.hmac(salted, b"Client Key");
        let stored_key = self.hash.digest(&client_key);
        let signature = self.hash.hmac(&stored_key, signed.as_bytes());
        let proof = xor(&client_key, &signature);
        let server_key = self.hash.hmac(salted, b"Server Key");
        Ok(Proof {
            message: format!("{without_proof},p={}", STANDARD.encode(proof)),
            signature: self.hash.hmac(&server_key, signed.as_bytes()),
        })
    }
}

impl Proof {
    /// Checks the server's last message.
    ///
    /// # Errors
    /// [`ScramError::ServerNotGenuine`]: the signature does not match the password.
    pub fn verify(&self, last: &[u8]) -> Result<(), ScramError> {
        let signature = last.strip_prefix(b"v=");
        let signature = signature.and_then(|text| STANDARD.decode(text).ok());
        let genuine =
            signature.is_some_and(|signature| bool::from(signature.ct_eq(&self.signature)));
        genuine.then_some(()).ok_or(ScramError::ServerNotGenuine)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Administrator, Identity, SaslSession, SaslStep, Secrets};

    const MECHANISM: &str = "SCRAM-SHA512";

    const CHALLENGE: &str = "r=clientnonceservernonce,s=MDEyMzQ1Njc4OWFiY2RlZg==,i=4096";

    /// Vectors of the protocol specification, Appendix A.
    const VECTORS: [(Hash, &str, &str); 3] = [
        (
            Hash::Sha1,
            "yV7/wEdy4TA6tYAtB7Jz7K4gzcc=",
            "JrPzo+zUkaJknFITQo4/P13wxc4=",
        ),
        (
            Hash::Sha256,
            "HcQUObn0EeLMqFD9xvmIyyIsAVtca1ChSQEMd+/Douc=",
            "xpurH7BVnQq/nrDBEdkDgDh3+pRP3QAQZTOdDIjsh+8=",
        ),
        (
            Hash::Sha512,
            concat!(
                "mQXnu9Ij3Pm1BDDnwP4XTpRW78Gm4o5v9vxoGBYEfWbX3b1krZPtW5rNb9GLgNBYkf0CV1qPaOx82",
                "WVN4xjzpw=="
            ),
            concat!(
                "GSxEYAgvNtCCaYrV5VL1aE5Gnlx1iskrgt7W19yudf0PdEvaKGfdAsSswKektzYX5BKMUfq9LqBCnl",
                "89EYz46Q=="
            ),
        ),
    ];

    #[test]
    fn exchanges_match_published_vectors() {
        for (hash, proof, signature) in VECTORS {
            let scram = ScramClient::new(hash, "user", "pencil", "clientnonce");
            assert_eq!(scram.first_message(), "n,,n=user,r=clientnonce");
            let answer = scram
                .answer(CHALLENGE.as_bytes(), &mut SaltedCache::default())
                .ok()
                .unwrap();
            assert_eq!(
                answer.message,
                format!("c=biws,r=clientnonceservernonce,p={proof}")
            );
            assert_eq!(answer.verify(format!("v={signature}").as_bytes()), Ok(()));
            assert_eq!(answer.verify(b"v=AAAA"), Err(ScramError::ServerNotGenuine));
            assert_eq!(answer.verify(b""), Err(ScramError::ServerNotGenuine));
        }
    }

    #[test]
    fn the_cache_never_crosses_passwords_or_salts() {
        let mut cache = SaltedCache::default();
        let mut message = |password: &str, challenge: &str| {
            let scram = ScramClient::new(Hash::Sha1, "user", password, "clientnonce");
            scram
                .answer(challenge.as_bytes(), &mut cache)
                .ok()
                .unwrap()
                .message
        };
        let other_salt = CHALLENGE.replace("MDEy", "MDEz");
        let first = message("pencil", CHALLENGE);
        assert_eq!(message("pencil", CHALLENGE), first);
        assert_ne!(message("pencils", CHALLENGE), first);
        assert_ne!(message("pencil", &other_salt), first);
        assert_eq!(message("pencil", CHALLENGE), first);
    }

    #[test]
    fn names_are_escaped() {
        let scram = ScramClient::new(Hash::Sha1, "a=b,c", "", "x");
        assert_eq!(scram.first_message(), "n,,n=a=3Db=2Cc,r=x");
    }

    #[test]
    fn malformed_challenges_are_refused() {
        let scram = ScramClient::new(Hash::Sha256, "user", "pencil", "clientnonce");
        for challenge in [
            "",
            "r=clientnonce,s=AAAA,i=1",
            "r=othernonceservernonce,s=AAAA,i=1",
            "r=clientnonceX,s=?,i=1",
            "r=clientnonceX,i=1",
            "r=clientnonceX,s=AAAA,i=0",
            "r=clientnonceX,s=AAAA,i=4294967295",
            "r=clientnonceX,s=AAAA",
        ] {
            let answer = scram.answer(challenge.as_bytes(), &mut SaltedCache::default());
            assert!(
                matches!(answer, Err(ScramError::Malformed(_))),
                "{challenge}"
            );
        }
    }

    fn exchange(password: &str) -> Option<bool> {
        let user = Administrator {
            name: "a=b,c".into(),
            password: "pencil".into(),
        };
        let identity = Identity::with_iterations(user, Secrets::alike([7; 32]), 16);
        let client = ScramClient::new(Hash::Sha512, "a=b,c", password, "clientnonce");
        let mut session = SaslSession::default();
        let mut random = |bytes: &mut [u8]| bytes.fill(9);
        let first = client.first_message();
        let SaslStep::Continue(challenge) = session.start(
            &identity,
            MECHANISM.as_bytes(),
            first.as_bytes(),
            &mut random,
        ) else {
            panic!("no challenge");
        };
        let proof = client
            .answer(&challenge, &mut SaltedCache::default())
            .expect("a valid challenge");
        match session.step(&identity, MECHANISM.as_bytes(), proof.message.as_bytes()) {
            SaslStep::Done { payload, .. } => Some(proof.verify(&payload).is_ok()),
            _ => None,
        }
    }

    #[test]
    fn both_sides_prove_that_they_know_the_password() {
        assert_eq!(exchange("pencil"), Some(true));
        assert_eq!(exchange("pencils"), None);
    }
}
