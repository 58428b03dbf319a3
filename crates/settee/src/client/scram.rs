//! The client's side of SCRAM (RFC 5802) as Couchbase servers speak it.

use std::fmt;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Digest as _;

/// Hash function of the exchange, strongest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hash {
    /// SHA-512.
    Sha512,
    /// SHA-256.
    Sha256,
    /// SHA-1.
    Sha1,
}

/// Highest iteration count that the client is willing to work for.
const ITERATIONS_MAX: u32 = 10_000_000;

impl Hash {
    /// Every hash, strongest first.
    pub(crate) const ALL: [Self; 3] = [Self::Sha512, Self::Sha256, Self::Sha1];

    /// Name of the mechanism as servers spell it.
    pub(crate) fn mechanism(self) -> &'static str {
        match self {
            Self::Sha512 => "SCRAM-SHA512",
            Self::Sha256 => "SCRAM-SHA256",
            Self::Sha1 => "SCRAM-SHA1",
        }
    }

    fn digest(self, bytes: &[u8]) -> Vec<u8> {
        match self {
            Self::Sha512 => sha2::Sha512::digest(bytes).to_vec(),
            Self::Sha256 => sha2::Sha256::digest(bytes).to_vec(),
            Self::Sha1 => sha1::Sha1::digest(bytes).to_vec(),
        }
    }

    fn mac(self, key: &[u8], bytes: &[u8]) -> Vec<u8> {
        macro_rules! mac {
            ($hash:ty) => {{
                let mut mac = Hmac::<$hash>::new_from_slice(key).expect("any key length is legal");
                mac.update(bytes);
                mac.finalize().into_bytes().to_vec()
            }};
        }
        match self {
            Self::Sha512 => mac!(sha2::Sha512),
            Self::Sha256 => mac!(sha2::Sha256),
            Self::Sha1 => mac!(sha1::Sha1),
        }
    }

    fn salted_password(self, password: &[u8], salt: &[u8], iterations: u32) -> Vec<u8> {
        let mut salted = vec![0; self.digest(b"").len()];
        match self {
            Self::Sha512 => {
                pbkdf2::pbkdf2_hmac::<sha2::Sha512>(password, salt, iterations, &mut salted);
            }
            Self::Sha256 => {
                pbkdf2::pbkdf2_hmac::<sha2::Sha256>(password, salt, iterations, &mut salted);
            }
            Self::Sha1 => {
                pbkdf2::pbkdf2_hmac::<sha1::Sha1>(password, salt, iterations, &mut salted);
            }
        }
        salted
    }
}

/// Why an exchange cannot go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ScramError {
    /// The server's first message is not of the agreed form.
    #[error("the server's SCRAM challenge is malformed ({0})")]
    Malformed(&'static str),
    /// The server does not know the password: it may not be the right server.
    #[error("the server could not prove that it knows the password")]
    ServerNotGenuine,
}

/// The last salted password, kept so that many connections do not repeat the costly part.
#[derive(Clone, Default)]
pub(crate) struct SaltedCache {
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
            key: hash.salted_password(password, salt, iterations),
        });
        &entry.key
    }
}

/// One exchange, after its first message was made.
pub(crate) struct Scram<'a> {
    hash: Hash,
    password: &'a str,
    first_bare: String,
    nonce: String,
}

/// The client's last message and what the server must answer.
pub(crate) struct Proof {
    /// Payload of the SASL step.
    pub(crate) message: String,
    server_final: String,
}

impl<'a> Scram<'a> {
    /// Begins an exchange; `nonce` is random printable text without commas.
    pub(crate) fn new(hash: Hash, user: &str, password: &'a str, nonce: &str) -> Self {
        let user = user.replace('=', "=3D").replace(',', "=2C");
        let first_bare = format!("n={user},r={nonce}");
        Self {
            hash,
            password,
            first_bare,
            nonce: nonce.to_owned(),
        }
    }

    /// Payload of the SASL start.
    pub(crate) fn first_message(&self) -> String {
        format!("n,,{}", self.first_bare)
    }

    /// Answers the server's challenge. Cost: the server's iteration count, unless cached.
    ///
    /// # Errors
    /// [`ScramError::Malformed`]: the challenge lacks a part, or its nonce does not begin with ours.
    pub(crate) fn answer(
        &self,
        challenge: &[u8],
        cache: &mut SaltedCache,
    ) -> Result<Proof, ScramError> {
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
            .and_then(|salt| BASE64_STANDARD.decode(salt).ok())
            .ok_or(ScramError::Malformed("salt"))?;
        let iterations = part("i=")
            .and_then(|count| count.parse::<u32>().ok())
            .filter(|count| (1..=ITERATIONS_MAX).contains(count))
            .ok_or(ScramError::Malformed("iteration count"))?;
        let without_proof = format!("c=biws,r={nonce}");
        let signed = format!("{},{challenge},{without_proof}", self.first_bare);
        let salted = cache.salted(self.hash, self.password.as_bytes(), &salt, iterations);
        let client_key = self.hash.mac(salted, b"Client Key");
        let stored_key = self.hash.digest(&client_key);
        let signature = self.hash.mac(&stored_key, signed.as_bytes());
        let proof: Vec<u8> = client_key
            .iter()
            .zip(&signature)
            .map(|(a, b)| a ^ b)
            .collect();
        let server_key = self.hash.mac(salted, b"Server Key");
        let server_signature = self.hash.mac(&server_key, signed.as_bytes());
        Ok(Proof {
            message: format!("{without_proof},p={}", BASE64_STANDARD.encode(proof)),
            server_final: format!("v={}", BASE64_STANDARD.encode(server_signature)),
        })
    }
}

impl Proof {
    /// Checks the server's last message.
    ///
    /// # Errors
    /// [`ScramError::ServerNotGenuine`]: the signature is not the one that the password yields.
    pub(crate) fn verify(&self, server_final: &[u8]) -> Result<(), ScramError> {
        if server_final == self.server_final.as_bytes() {
            Ok(())
        } else {
            Err(ScramError::ServerNotGenuine)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn known_exchanges() {
        for (hash, proof, signature) in VECTORS {
            let scram = Scram::new(hash, "user", "pencil", "clientnonce");
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
            let scram = Scram::new(Hash::Sha1, "user", password, "clientnonce");
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
        let scram = Scram::new(Hash::Sha1, "a=b,c", "", "x");
        assert_eq!(scram.first_message(), "n,,n=a=3Db=2Cc,r=x");
    }

    #[test]
    fn malformed_challenges() {
        let scram = Scram::new(Hash::Sha256, "user", "pencil", "clientnonce");
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
}
