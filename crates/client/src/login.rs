//! Requests of a client before its first operation: HELLO, SASL, bucket, cluster map.

use identity::{Hash, SaltedCache, ScramClient};
use wire::{Feature, Opcode, Status};

use crate::address::Login;
use crate::connection::{Client, ConnectOptions, KeyForm};
use crate::error::ClientError;
use crate::map::BucketMap;
use crate::message::{Answer, Request};
use crate::random::random_u64;

/// Features that the client asks for; it can do without any of them.
const FEATURES: [Feature; 10] = [
    Feature::DUPLEX,
    Feature::CLUSTERMAP_CHANGE_NOTIFICATION,
    Feature::TCP_NODELAY,
    Feature::XERROR,
    Feature::SELECT_BUCKET,
    Feature::XATTR,
    Feature::JSON,
    Feature::COLLECTIONS,
    Feature::ALT_REQUEST_SUPPORT,
    Feature::SYNC_REPLICATION,
];

/// First character of internal users, by which nodes log in to each other: they use SASL even with a certificate.
const INTERNAL: char = '@';

impl Client {
    /// Connects; to a Couchbase server also logs in, selects the bucket and asks for its map.
    ///
    /// # Errors
    /// Every [`ClientError`]: not reachable, login refused, no such bucket.
    pub fn connect(options: &ConnectOptions, cache: &mut SaltedCache) -> Result<Self, ClientError> {
        let mut client = Self::open(options)?;
        if let Some(login) = &options.address.login {
            client.key_form = bootstrap(&mut client, login, cache)?;
        }
        Ok(client)
    }

    /// Connects and logs in without a bucket, for requests about the node as a whole.
    ///
    /// # Errors
    /// As [`Client::connect`].
    pub fn connect_to_node(
        options: &ConnectOptions,
        login: &Login,
        cache: &mut SaltedCache,
    ) -> Result<Self, ClientError> {
        let mut client = Self::open(options)?;
        hello(&mut client)?;
        authenticate(&mut client, login, cache)?;
        Ok(client)
    }
}

/// Makes a fresh connection ready for data operations.
fn bootstrap(
    client: &mut Client,
    login: &Login,
    cache: &mut SaltedCache,
) -> Result<KeyForm, ClientError> {
    hello(client)?;
    authenticate(client, login, cache)?;
    client.expect_success(&Request::with(
        Opcode::SELECT_BUCKET,
        login.bucket.as_bytes(),
        b"",
    ))?;
    let config = client.expect_success(&Request::new(Opcode::GET_CLUSTER_CONFIG))?;
    let map = BucketMap::parse(&config.value).ok_or_else(|| ClientError::Protocol {
        during: Opcode::GET_CLUSTER_CONFIG.name(),
        reason: "the map names no vBuckets".to_owned(),
    })?;
    let vbuckets = u16::try_from(map.rows().len()).unwrap_or(u16::MAX);
    client.map = Some(map);
    Ok(KeyForm {
        vbuckets: Some(vbuckets),
        ..client.key_form
    })
}

/// Sends HELLO, and keeps the features that the server granted.
fn hello(client: &mut Client) -> Result<(), ClientError> {
    let snappy = client.compressed.then_some(Feature::SNAPPY);
    let asked: Vec<u8> = FEATURES
        .into_iter()
        .chain(snappy)
        .flat_map(|feature| feature.0.to_be_bytes())
        .collect();
    let agent = concat!("{\"a\":\"settee/", env!("CARGO_PKG_VERSION"), "\"}");
    let answer = client.expect_success(&Request::with(Opcode::HELLO, agent.as_bytes(), &asked))?;
    let granted = |feature: Feature| {
        let mut all = answer.value.chunks_exact(2);
        all.any(|granted| granted == feature.0.to_be_bytes())
    };
    client.key_form.collections = granted(Feature::COLLECTIONS);
    client.compressed = granted(Feature::SNAPPY);
    Ok(())
}

/// Logs in by the strongest common mechanism; PLAIN only where there is no other.
fn authenticate(
    client: &mut Client,
    login: &Login,
    cache: &mut SaltedCache,
) -> Result<(), ClientError> {
    if login.user.starts_with(INTERNAL) {
        return scram(client, login, Hash::Sha512, cache);
    }
    let asked = Request::new(Opcode::SASL_LIST_MECHS);
    if client.certified {
        // A user's certificate is the login: the server refuses SASL then.
        let answer = client.request(&asked)?;
        if answer.status == Status::NOT_SUPPORTED {
            return Ok(());
        }
    }
    let offered = client.expect_success(&asked)?;
    let offered = String::from_utf8_lossy(&offered.value).into_owned();
    let offers = |name: &str| offered.split_ascii_whitespace().any(|offer| offer == name);
    if let Some(hash) = Hash::ALL.into_iter().find(|hash| offers(hash.mechanism())) {
        return scram(client, login, hash, cache);
    }
    if offers("PLAIN") {
        let payload = format!("\0{}\0{}", login.user, login.password);
        let plain = Request::with(Opcode::SASL_AUTH, b"PLAIN", payload.as_bytes());
        return client.expect_success(&plain).map(drop);
    }
    Err(ClientError::Mechanisms(offered))
}

fn scram(
    client: &mut Client,
    login: &Login,
    hash: Hash,
    cache: &mut SaltedCache,
) -> Result<(), ClientError> {
    let mechanism = hash.mechanism().as_bytes();
    let scram = ScramClient::new(hash, &login.user, &login.password, &nonce()?);
    let first = scram.first_message();
    let challenge = client.request(&Request::with(
        Opcode::SASL_AUTH,
        mechanism,
        first.as_bytes(),
    ))?;
    if challenge.status != Status::AUTH_CONTINUE {
        return Err(refused(Opcode::SASL_AUTH, &challenge));
    }
    let proof = scram.answer(&challenge.value, cache)?;
    let step = Request::with(Opcode::SASL_STEP, mechanism, proof.message.as_bytes());
    let last = client.expect_success(&step)?;
    Ok(proof.verify(&last.value)?)
}

fn refused(opcode: Opcode, answer: &Answer) -> ClientError {
    let (during, status) = (opcode.name(), answer.status);
    ClientError::Refused {
        during,
        about: String::new(),
        status,
        context: answer.context(),
    }
}

fn nonce() -> Result<String, ClientError> {
    Ok(format!("{:016x}{:016x}", random_u64()?, random_u64()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nonces_differ_and_are_printable() {
        let (first, second) = (nonce().unwrap(), nonce().unwrap());
        assert_ne!(first, second);
        assert!(first.len() == 32 && first.bytes().all(|byte| byte.is_ascii_alphanumeric()));
    }
}
