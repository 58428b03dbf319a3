//! The server's side of SCRAM (RFC 5802): its arithmetic and the grammar of its messages.
//!
//! Source: protocol specification, section 7. Vectors: `tests::vectors`.

use std::sync::OnceLock;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use subtle::ConstantTimeEq;

use super::Hash;

/// Longest user name accepted, in bytes.
pub const USER_NAME_BYTES_MAX: usize = 128;

const NONCE_BYTES_MAX: usize = 256;

/// The server's keys of a password for one hash.
#[derive(Clone)]
pub(super) struct Keys {
    pub(super) stored: Vec<u8>,
    pub(super) server: Vec<u8>,
}

impl Keys {
    /// Derives the keys. Cost: `iterations` HMACs, about 10 ms for 15,000.
    pub(super) fn derive(hash: Hash, password: &[u8], salt: &[u8], iterations: u32) -> Self {
        let salted = hash.salted(password, salt, iterations);
        let client = hash.hmac(&salted, b"Client Key");
        Self {
            stored: hash.digest(&client),
            server: hash.hmac(&salted, b"Server Key"),
        }
    }
}

/// The keys of one user by hash, derived at first use.
#[derive(Default)]
pub(super) struct ScramKeys([OnceLock<Keys>; Hash::ALL.len()]);

impl ScramKeys {
    pub(super) fn get(&self, hash: Hash, derive: impl FnOnce() -> Keys) -> &Keys {
        self.0[hash as usize].get_or_init(derive)
    }

    #[cfg(test)]
    pub(super) fn is_derived(&self, hash: Hash) -> bool {
        self.0[hash as usize].get().is_some()
    }
}

/// The client's first message, `n,,n=USER,r=NONCE`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ClientFirst {
    /// Header in front of the bare message; the final message repeats it in base64.
    pub(super) gs2_header: String,
    /// The message without that header; it is part of the signed text.
    pub(super) bare: String,
    pub(super) user: String,
    pub(super) nonce: String,
}

impl ClientFirst {
    /// # Errors
    /// The error of the message, for the answer to the peer.
    pub(super) fn parse(payload: &[u8]) -> Result<Self, &'static str> {
        let text = std::str::from_utf8(payload).map_err(|_| "SCRAM message is not UTF-8")?;
        let mut parts = text.splitn(3, ',');
        let (Some(binding), Some(acting_for), Some(bare)) =
            (parts.next(), parts.next(), parts.next())
        else {
            return Err("SCRAM message has no GS2 header");
        };
        if !matches!(binding, "n" | "y") {
            return Err("SCRAM channel binding is not offered");
        }
        let mut attributes = bare.split(',');
        let user = attributes.next().and_then(|part| part.strip_prefix("n="));
        let nonce = attributes.next().and_then(|part| part.strip_prefix("r="));
        let (Some(user), Some(nonce)) = (user, nonce) else {
            return Err("SCRAM message needs user and nonce");
        };
        let user = unescape(user).ok_or("SCRAM user name has a stray '='")?;
        check_acting_for(acting_for, &user)?;
        if !is_nonce(nonce) {
            return Err("SCRAM nonce is empty, too long or not printable");
        }
        Ok(Self {
            gs2_header: format!("{binding},{acting_for},"),
            bare: bare.to_owned(),
            user,
            nonce: nonce.to_owned(),
        })
    }
}

/// Checks an authorization name, which must be empty or the user's own.
fn check_acting_for(acting_for: &str, user: &str) -> Result<(), &'static str> {
    if acting_for.is_empty() {
        return Ok(());
    }
    let name = acting_for.strip_prefix("a=").and_then(unescape);
    if name.is_some_and(|name| name == user) {
        Ok(())
    } else {
        Err("SCRAM authorization name must be the user's own")
    }
}

/// Checks a nonce. The RFC allows printable characters without space and comma. The C++ core's nonces have spaces
/// (`0x34 0x05 0xffffffa1`), so spaces are accepted as well. A comma cannot occur: it is the separator.
fn is_nonce(nonce: &str) -> bool {
    let printable = |byte: u8| byte == b' ' || byte.is_ascii_graphic();
    (1..=NONCE_BYTES_MAX).contains(&nonce.len()) && nonce.bytes().all(printable)
}

/// Decodes `=2C` and `=3D`; any other `=` is malformed.
fn unescape(name: &str) -> Option<String> {
    let mut parts = name.split('=');
    let mut out = parts.next()?.to_owned();
    for part in parts {
        let (code, rest) = part.split_at_checked(2)?;
        out.push(match code {
            "2C" | "2c" => ',',
            "3D" | "3d" => '=',
            _ => return None,
        });
        out.push_str(rest);
    }
    Some(out)
}

/// An exchange after the answer to the first message.
#[derive(Clone, Debug)]
pub(super) struct Exchange {
    pub(super) hash: Hash,
    pub(super) user: String,
    gs2_header: String,
    /// Both nonces; the client must repeat them.
    nonce: String,
    /// The known part of the signed text: `client-first-bare , server-first`.
    transcript: String,
}

impl Exchange {
    /// Answers the client's first message; the second value goes to the client.
    pub(super) fn begin(
        hash: Hash,
        first: ClientFirst,
        server_nonce: &str,
        salt: &[u8],
        iterations: u32,
    ) -> (Self, String) {
        let nonce = format!("{}{server_nonce}", first.nonce);
        let answer = format!("r={nonce},s={},i={iterations}", STANDARD.encode(salt));
        let transcript = format!("{},{answer}", first.bare);
        let exchange = Self {
            hash,
            user: first.user,
            gs2_header: first.gs2_header,
            nonce,
            transcript,
        };
        (exchange, answer)
    }

    /// Checks the client's proof. Returns the server's signature, or `Ok(None)` if the proof is wrong.
    ///
    /// # Errors
    /// The grammar error of the message.
    pub(super) fn finish(
        &self,
        payload: &[u8],
        keys: &Keys,
    ) -> Result<Option<String>, &'static str> {
        let text = std::str::from_utf8(payload).map_err(|_| "SCRAM message is not UTF-8")?;
        let (without_proof, proof) = text
            .rsplit_once(",p=")
            .ok_or("SCRAM message has no proof")?;
        let proof = STANDARD
            .decode(proof)
            .map_err(|_| "SCRAM proof is not base64")?;
        let mut attributes = without_proof.split(',');
        let binding = attributes.next().and_then(|part| part.strip_prefix("c="));
        let nonce = attributes.next().and_then(|part| part.strip_prefix("r="));
        let (Some(binding), Some(nonce)) = (binding, nonce) else {
            return Err("SCRAM message needs channel binding and nonce");
        };
        let same_header = binding == STANDARD.encode(&self.gs2_header);
        let same_nonce = bool::from(nonce.as_bytes().ct_eq(self.nonce.as_bytes()));
        if !same_header || !same_nonce || proof.len() != self.hash.output_bytes() {
            return Ok(None);
        }
        let signed = format!("{},{without_proof}", self.transcript);
        let client_signature = self.hash.hmac(&keys.stored, signed.as_bytes());
        let client_key = self.hash.digest(&xor(&proof, &client_signature));
        if !bool::from(client_key.ct_eq(&keys.stored)) {
            return Ok(None);
        }
        let signature = self.hash.hmac(&keys.server, signed.as_bytes());
        Ok(Some(format!("v={}", STANDARD.encode(signature))))
    }
}

/// Computes a proof from a key and a signature, or a key from a proof and a signature.
pub(super) fn xor(left: &[u8], right: &[u8]) -> Vec<u8> {
    left.iter().zip(right).map(|(a, b)| a ^ b).collect()
}

/// Checks whether a name can belong to a user at all.
pub(super) fn is_user_name(name: &str) -> bool {
    (1..=USER_NAME_BYTES_MAX).contains(&name.len())
}

#[cfg(test)]
mod nonces {
    use super::ClientFirst;

    #[test]
    fn the_cpp_core_nonce_with_spaces_is_accepted() {
        let first = ClientFirst::parse(b"n,,n=user,r=0x34 0x05 0xffffffa1").unwrap();
        assert_eq!(first.nonce, "0x34 0x05 0xffffffa1");
        assert!(ClientFirst::parse(b"n,,n=user,r=").is_err());
        assert!(ClientFirst::parse(b"n,,n=user,r=a\tb").is_err());
    }
}
