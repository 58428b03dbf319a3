use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use proptest::prelude::*;
use sha1::Sha1;
use sha2::{Digest, Sha256, Sha512};

use super::scram::{ClientFirst, Exchange};
use super::*;

/// Few rounds: the tests do not depend on the number.
const ROUNDS: u32 = 16;

fn with(administrator: &str, password: &str) -> Identity {
    let administrator = Administrator {
        name: administrator.into(),
        password: password.into(),
    };
    Identity::with_iterations(administrator, Secrets::alike([7; 32]), ROUNDS)
}

/// Returns the administrator, and two users from management.
fn identity() -> Identity {
    let identity = with("Administrator", "password");
    let mut directory = Directory::default();
    for (name, password) in [("a=b,c", "p\u{e4}ss"), ("empty", "")] {
        let record = user(&identity, name, password, &[]);
        directory.users.insert(name, &record);
    }
    identity.replace_directory(directory);
    identity
}

fn user(identity: &Identity, name: &str, password: &str, roles: &[&str]) -> UserRecord {
    UserRecord {
        password: Some(identity.verifier(name, password.as_bytes())),
        roles: grants(roles),
        ..UserRecord::default()
    }
}

fn grants(texts: &[&str]) -> Box<[Grant]> {
    texts
        .iter()
        .map(|text| Grant::parse(text).unwrap())
        .collect()
}

fn nonce(bytes: &mut [u8]) {
    bytes.fill(0x5a);
}

fn start(session: &mut SaslSession, mechanism: &str, payload: &[u8]) -> SaslStep {
    session.start(&identity(), mechanism.as_bytes(), payload, &mut nonce)
}

fn mac<D: hmac::EagerHash>(key: &[u8], message: &[u8]) -> Vec<u8> {
    let mut mac = Hmac::<D>::new_from_slice(key).unwrap();
    mac.update(message);
    mac.finalize().into_bytes().to_vec()
}

/// The client's side of the exchange, written independently from the formulas of RFC 5802.
struct Client<'a> {
    mechanism: &'a str,
    header: &'a str,
    bare: String,
    password: &'a str,
}

struct ScramProof {
    message: String,
    /// Expected answer of the server.
    verifier: String,
}

impl<'a> Client<'a> {
    fn new(mechanism: &'a str, user: &str, password: &'a str) -> Self {
        let user = user.replace('=', "=3D").replace(',', "=2C");
        Self {
            mechanism,
            header: "n,,",
            bare: format!("n={user},r=fyko+d2lbbFgONRv9"),
            password,
        }
    }

    fn first(&self) -> Vec<u8> {
        format!("{}{}", self.header, self.bare).into_bytes()
    }

    fn prove(&self, server_first: &[u8]) -> ScramProof {
        let server_first = std::str::from_utf8(server_first).unwrap();
        let field = |name: &str| {
            server_first
                .split(',')
                .find_map(|part| part.strip_prefix(name))
                .unwrap()
                .to_owned()
        };
        let salt = STANDARD.decode(field("s=")).unwrap();
        let rounds = field("i=").parse().unwrap();
        let last = format!("c={},r={}", STANDARD.encode(self.header), field("r="));
        let signed = format!("{},{server_first},{last}", self.bare);
        let (proof, verifier) = match self.mechanism {
            "SCRAM-SHA512" => self.sign::<Sha512>(&salt, rounds, &signed),
            "SCRAM-SHA256" => self.sign::<Sha256>(&salt, rounds, &signed),
            _ => self.sign::<Sha1>(&salt, rounds, &signed),
        };
        ScramProof {
            message: format!("{last},p={proof}"),
            verifier: format!("v={verifier}"),
        }
    }

    fn sign<D: hmac::EagerHash + Digest>(
        &self,
        salt: &[u8],
        rounds: u32,
        signed: &str,
    ) -> (String, String) {
        let mut salted = vec![0; <D as Digest>::output_size()];
        pbkdf2::pbkdf2_hmac::<D>(self.password.as_bytes(), salt, rounds, &mut salted);
        let client_key = mac::<D>(&salted, b"Client Key");
        let signature = mac::<D>(&D::digest(&client_key), signed.as_bytes());
        let proof: Vec<u8> = client_key
            .iter()
            .zip(signature)
            .map(|(k, s)| k ^ s)
            .collect();
        let server = mac::<D>(&mac::<D>(&salted, b"Server Key"), signed.as_bytes());
        (STANDARD.encode(proof), STANDARD.encode(server))
    }
}

/// Runs a whole exchange; returns the server's last step and the answer that the client expects.
fn login(identity: &Identity, client: &Client<'_>) -> (SaslStep, String) {
    let mut session = SaslSession::default();
    let mechanism = client.mechanism.as_bytes();
    let answer = session.start(identity, mechanism, &client.first(), &mut nonce);
    let SaslStep::Continue(server_first) = answer else {
        panic!("{answer:?}")
    };
    assert!(session.is_pending());
    let proof = client.prove(&server_first);
    let end = session.step(identity, mechanism, proof.message.as_bytes());
    assert!(!session.is_pending());
    (end, proof.verifier)
}

/// Appendix A of the protocol specification.
mod vectors {
    use super::*;

    struct Vector {
        hash: Hash,
        proof: &'static str,
        verifier: &'static str,
        stored_key: Option<&'static str>,
    }

    const VECTORS: [Vector; 3] = [
        Vector {
            hash: Hash::Sha1,
            proof: "yV7/wEdy4TA6tYAtB7Jz7K4gzcc=",
            verifier: "JrPzo+zUkaJknFITQo4/P13wxc4=",
            stored_key: Some("rPJ7iPSJer+bnDr9PCWJNRIA68M="),
        },
        Vector {
            hash: Hash::Sha256,
            proof: "HcQUObn0EeLMqFD9xvmIyyIsAVtca1ChSQEMd+/Douc=",
            verifier: "xpurH7BVnQq/nrDBEdkDgDh3+pRP3QAQZTOdDIjsh+8=",
            stored_key: Some("nQpbZ77WudtqufPwikHXGRt6g2QJ4zns8bZLw273DRM="),
        },
        Vector {
            hash: Hash::Sha512,
            proof: "mQXnu9Ij3Pm1BDDnwP4XTpRW78Gm4o5v9vxoGBYEfWbX3b1krZPtW5rNb9GLgNBYkf0CV1qP\
                    aOx82WVN4xjzpw==",
            verifier: "GSxEYAgvNtCCaYrV5VL1aE5Gnlx1iskrgt7W19yudf0PdEvaKGfdAsSswKektzYX5BKMUfq\
                       9LqBCnl89EYz46Q==",
            stored_key: None,
        },
    ];

    #[test]
    fn every_hash_computes_the_published_exchange() {
        for vector in VECTORS {
            let salt = b"0123456789abcdef";
            let keys = scram::Keys::derive(vector.hash, b"pencil", salt, 4096);
            if let Some(stored_key) = vector.stored_key {
                assert_eq!(
                    STANDARD.encode(&keys.stored),
                    stored_key,
                    "{:?}",
                    vector.hash
                );
            }
            let first = ClientFirst::parse(b"n,,n=user,r=clientnonce").unwrap();
            let (exchange, answer) = Exchange::begin(vector.hash, first, "servernonce", salt, 4096);
            assert_eq!(
                answer,
                "r=clientnonceservernonce,s=MDEyMzQ1Njc4OWFiY2RlZg==,i=4096"
            );
            let last = format!("c=biws,r=clientnonceservernonce,p={}", vector.proof);
            let verifier = exchange.finish(last.as_bytes(), &keys).unwrap().unwrap();
            assert_eq!(
                verifier,
                format!("v={}", vector.verifier),
                "{:?}",
                vector.hash
            );
        }
    }
}

#[test]
fn every_offered_mechanism_accepts_the_right_password() {
    let identity = identity();
    for mechanism in MECHANISMS.split(' ').filter(|name| *name != "PLAIN") {
        for (user, password) in [("Administrator", "password"), ("a=b,c", "p\u{e4}ss")] {
            let (end, verifier) = login(&identity, &Client::new(mechanism, user, password));
            let SaslStep::Done {
                user: proven,
                payload,
            } = end
            else {
                panic!("{end:?}")
            };
            assert_eq!(&*proven.name, user);
            assert_eq!(proven.built_in, user == "Administrator");
            assert_eq!(String::from_utf8(payload).unwrap(), verifier, "{mechanism}");
        }
    }
}

#[test]
fn the_list_is_strongest_first() {
    assert_eq!(MECHANISMS, "SCRAM-SHA512 SCRAM-SHA256 SCRAM-SHA1 PLAIN");
}

#[test]
fn wrong_password_fails_at_the_step() {
    for mechanism in ["SCRAM-SHA512", "SCRAM-SHA256", "SCRAM-SHA1"] {
        let (end, _) = login(
            &identity(),
            &Client::new(mechanism, "Administrator", "Password"),
        );
        assert_eq!(end, SaslStep::Failed);
    }
}

#[test]
fn an_unknown_user_looks_like_a_known_one_before_the_step() {
    let identity = identity();
    let server_first = |user: &str| {
        let client = Client::new("SCRAM-SHA256", user, "");
        let mut session = SaslSession::default();
        match session.start(&identity, b"SCRAM-SHA256", &client.first(), &mut nonce) {
            SaslStep::Continue(answer) => String::from_utf8(answer).unwrap(),
            other => panic!("{other:?}"),
        }
    };
    let (known, unknown) = (server_first("Administrator"), server_first("nobody"));
    assert_eq!(unknown, server_first("nobody"), "the salt does not change");
    assert_ne!(
        unknown,
        server_first("nobody2"),
        "each name has its own salt"
    );
    assert_eq!(known.len(), unknown.len());
    let (end, _) = login(&identity, &Client::new("SCRAM-SHA256", "nobody", ""));
    assert_eq!(end, SaslStep::Failed);
}

#[test]
fn the_decoy_of_unknown_users_accepts_no_password() {
    let identity = identity();
    let password = identity.decoy_password().to_owned();
    assert_eq!(identity.authenticate("", password.as_bytes()), None);
    assert_eq!(identity.authenticate("nobody", password.as_bytes()), None);
    // Its keys have the salt of the empty name, with which no session can start.
    let answer = start(&mut SaslSession::default(), "SCRAM-SHA1", b"n,,n=,r=abc");
    assert_eq!(answer, SaslStep::Failed);
}

#[test]
fn plain_checks_name_and_password() {
    let done = |payload: &[u8]| start(&mut SaslSession::default(), "PLAIN", payload);
    let proven = SaslStep::Done {
        user: identity().look_up("Administrator").unwrap(),
        payload: vec![],
    };
    assert_eq!(done(b"\0Administrator\0password"), proven);
    assert_eq!(done(b"Administrator\0Administrator\0password"), proven);
    assert!(matches!(done(b"\0empty\0"), SaslStep::Done { .. }));
    for wrong in [
        &b"\0Administrator\0"[..],
        b"\0Administrator\0passwor",
        b"\0Administrator\0password\0",
        b"\0administrator\0password",
        b"\0\0password",
        b"somebody\0Administrator\0password",
        b"\0\xff\0password",
    ] {
        assert_eq!(done(wrong), SaslStep::Failed, "{wrong:?}");
    }
    for malformed in [&b"Administrator"[..], b"\0Administrator", b""] {
        assert!(
            matches!(done(malformed), SaslStep::Invalid(_)),
            "{malformed:?}"
        );
    }
}

#[test]
fn mechanism_names_ignore_case_and_unknown_ones_fail() {
    let payload = b"\0Administrator\0password";
    let start = |name: &str| start(&mut SaslSession::default(), name, payload);
    assert!(matches!(start("plain"), SaslStep::Done { .. }));
    for unknown in ["", "SCRAM-SHA-256", "CRAM-MD5", "OAUTHBEARER", "PLAIN "] {
        assert_eq!(start(unknown), SaslStep::Failed, "{unknown}");
    }
}

#[test]
fn steps_out_of_order_are_invalid_and_change_nothing() {
    let identity = identity();
    let client = Client::new("SCRAM-SHA512", "Administrator", "password");
    let mut session = SaslSession::default();
    let early = session.step(&identity, b"SCRAM-SHA512", b"c=biws,r=x,p=AA==");
    assert_eq!(early, SaslStep::Invalid("no authentication is under way"));

    let mechanism = client.mechanism.as_bytes();
    let SaslStep::Continue(server_first) =
        session.start(&identity, mechanism, &client.first(), &mut nonce)
    else {
        panic!("the first message is right")
    };
    let again = session.start(&identity, mechanism, &client.first(), &mut nonce);
    assert!(matches!(again, SaslStep::Invalid(_)));
    let plain = session.start(
        &identity,
        b"PLAIN",
        b"\0Administrator\0password",
        &mut nonce,
    );
    assert!(matches!(plain, SaslStep::Invalid(_)));

    let proof = client.prove(&server_first);
    let end = session.step(&identity, mechanism, proof.message.as_bytes());
    assert!(matches!(end, SaslStep::Done { .. }), "{end:?}");
    let replayed = session.step(&identity, mechanism, proof.message.as_bytes());
    assert!(matches!(replayed, SaslStep::Invalid(_)));
}

#[test]
fn a_step_under_another_mechanism_ends_the_exchange() {
    let identity = identity();
    for other in [&b"SCRAM-SHA256"[..], b"PLAIN", b"?"] {
        let client = Client::new("SCRAM-SHA512", "Administrator", "password");
        let mut session = SaslSession::default();
        let SaslStep::Continue(server_first) =
            session.start(&identity, b"SCRAM-SHA512", &client.first(), &mut nonce)
        else {
            panic!("the first message is right")
        };
        let proof = client.prove(&server_first);
        let answer = session.step(&identity, other, proof.message.as_bytes());
        assert!(matches!(answer, SaslStep::Invalid(_)), "{answer:?}");
        assert!(!session.is_pending());
    }
}

#[test]
fn the_final_message_is_bound_to_the_first() {
    let identity = identity();
    let client = Client::new("SCRAM-SHA1", "Administrator", "password");
    for tampering in [
        ("c=biws", "c=eSws"),
        ("r=fyko", "r=gyko"),
        (",p=", ",x=1,p="),
    ] {
        let mut session = SaslSession::default();
        let SaslStep::Continue(server_first) =
            session.start(&identity, b"SCRAM-SHA1", &client.first(), &mut nonce)
        else {
            panic!("the first message is right")
        };
        let message = client
            .prove(&server_first)
            .message
            .replacen(tampering.0, tampering.1, 1);
        let answer = session.step(&identity, b"SCRAM-SHA1", message.as_bytes());
        assert_eq!(answer, SaslStep::Failed, "{tampering:?}");
    }
}

#[test]
fn a_client_that_supports_channel_binding_may_log_in() {
    let mut client = Client::new("SCRAM-SHA256", "Administrator", "password");
    for header in ["y,,", "n,a=Administrator,"] {
        client.header = header;
        let (end, _) = login(&identity(), &client);
        assert!(matches!(end, SaslStep::Done { .. }), "{header}");
    }
}

#[test]
fn malformed_scram_messages_are_invalid() {
    let long_nonce = format!("n,,n=user,r={}", "x".repeat(257));
    for first in [
        "",
        "n",
        "n,,",
        "n,,n=user",
        "n,,r=abc,n=user",
        "n,,n=user,r=",
        "n,,n=us=er,r=abc",
        "n,,n=user=,r=abc",
        "n,,m=ext,n=user,r=abc",
        "p=tls-unique,,n=user,r=abc",
        "n,a=other,n=user,r=abc",
        long_nonce.as_str(),
    ] {
        let answer = start(
            &mut SaslSession::default(),
            "SCRAM-SHA512",
            first.as_bytes(),
        );
        assert!(
            matches!(answer, SaslStep::Invalid(_)),
            "{first}: {answer:?}"
        );
    }
    for last in [
        "",
        "c=biws",
        "c=biws,r=x",
        "c=biws,r=x,p=!",
        "r=x,c=biws,p=AA==",
        "\u{0},p=AA==",
    ] {
        let mut session = SaslSession::default();
        let first = start(&mut session, "SCRAM-SHA512", b"n,,n=user,r=abc");
        assert!(matches!(first, SaslStep::Continue(_)));
        let answer = session.step(&identity(), b"SCRAM-SHA512", last.as_bytes());
        assert!(matches!(answer, SaslStep::Invalid(_)), "{last}: {answer:?}");
    }
}

#[test]
fn names_and_payloads_are_limited() {
    let longest = "n".repeat(USER_NAME_BYTES_MAX);
    let first = |name: &str| format!("n,,n={name},r=abc").into_bytes();
    let answer = start(&mut SaslSession::default(), "SCRAM-SHA1", &first(&longest));
    assert!(matches!(answer, SaslStep::Continue(_)));
    let too_long = format!("{longest}n");
    let answer = start(&mut SaslSession::default(), "SCRAM-SHA1", &first(&too_long));
    assert_eq!(answer, SaslStep::Failed);
    let plain = format!("\0{too_long}\0password");
    let answer = start(&mut SaslSession::default(), "PLAIN", plain.as_bytes());
    assert_eq!(answer, SaslStep::Failed);
    for (bytes, expected) in [(4096, SaslStep::Failed), (4097, too_much())] {
        let payload = [b"\0a\0", vec![b'x'; bytes - 3].as_slice()].concat();
        assert_eq!(
            start(&mut SaslSession::default(), "PLAIN", &payload),
            expected
        );
    }
}

fn too_much() -> SaslStep {
    SaslStep::Invalid("the challenge is longer than 4096 bytes")
}

#[test]
fn the_nonce_consists_of_the_random_bytes() {
    let mut session = SaslSession::default();
    let mut fill = |bytes: &mut [u8]| bytes.fill(0xff);
    let step = session.start(&identity(), b"SCRAM-SHA1", b"n,,n=u,r=abc", &mut fill);
    let SaslStep::Continue(answer) = step else {
        panic!("{step:?}")
    };
    let expected = format!("r=abc{},s=", "/".repeat(32));
    assert!(
        answer.starts_with(expected.as_bytes()),
        "{}",
        String::from_utf8_lossy(&answer)
    );
}

#[test]
fn preparing_derives_every_key_once() {
    let identity = identity();
    identity.prepare();
    assert_eq!(identity.derived("Administrator"), Hash::ALL);
    let client = Client::new("SCRAM-SHA512", "Administrator", "password");
    let (end, _) = login(&identity, &client);
    assert!(matches!(end, SaslStep::Done { .. }));
}

#[test]
fn secrets_are_not_shown() {
    let administrator = Administrator {
        name: "u".into(),
        password: "hunter2".into(),
    };
    assert!(!format!("{administrator:?}").contains("hunter2"));
    let identity = with("u", "hunter2");
    assert!(!format!("{identity:?}").contains("hunter2"));
    let record = user(&identity, "v", "hunter2", &[]);
    assert!(format!("{record:?}").ends_with("password: Some(Verifier), password_set_unix_s: 0 }"));
}

#[test]
fn users_and_groups_are_the_same_after_a_restart() {
    let identity = identity();
    let mut directory = Directory::clone(&identity.directory());
    let record = user(&identity, "u", "secret", &["data_reader[b:s]"]);
    directory.users.insert("u", &record);
    let group = GroupRecord {
        description: "all".into(),
        ldap_group_ref: "cn=all".into(),
        roles: grants(&["data_writer[*]"]),
    };
    directory.groups.insert("g".into(), group);
    let kept = serde_json::to_vec(&directory).unwrap();
    assert!(!String::from_utf8_lossy(&kept).contains("secret"));
    let read: Directory = serde_json::from_slice(&kept).unwrap();
    assert_eq!(read, directory);
    let later = with("Administrator", "password");
    later.replace_directory(read);
    assert!(later.authenticate("u", b"secret").is_some());
    let (end, _) = login(&later, &Client::new("SCRAM-SHA256", "u", "secret"));
    assert!(matches!(end, SaslStep::Done { .. }));
}

#[test]
fn each_change_of_a_user_or_a_group_has_its_own_revision() {
    let identity = identity();
    let mut directory = Directory::clone(&identity.directory());
    let mut record = user(&identity, "u", "one", &[]);
    record.groups = ["g".into(), "not there".into()].into();
    directory.users.insert("u", &record);
    identity.replace_directory(directory.clone());
    let before = identity.authenticate("u", b"one").unwrap();
    assert_eq!(before.revision, identity.revision());
    assert_eq!(before.access.of_bucket("b"), PrivilegeSet::EMPTY);

    let roles = grants(&["data_reader[b]"]);
    let group = GroupRecord {
        roles,
        ..GroupRecord::default()
    };
    directory.groups.insert("g".into(), group);
    identity.replace_directory(directory.clone());
    assert_ne!(identity.revision(), before.revision);
    let after = identity.look_up("u").unwrap();
    assert!(after.access.of_bucket("b").has(Privilege::Read));

    let changed = user(&identity, "u", "two", &[]);
    directory.users.insert("u", &changed);
    identity.replace_directory(directory.clone());
    assert!(identity.authenticate("u", b"one").is_none());
    assert!(identity.authenticate("u", b"two").is_some());
    directory.users.remove("u");
    identity.replace_directory(directory);
    assert!(identity.look_up("u").is_none());
    assert!(identity.authenticate("u", b"two").is_none());
}

#[test]
fn the_administrator_stays_whatever_users_are_created() {
    let identity = identity();
    let mut directory = Directory::clone(&identity.directory());
    let impostor = user(&identity, "Administrator", "other", &[]);
    directory.users.insert("Administrator", &impostor);
    identity.replace_directory(directory);
    assert!(identity.authenticate("Administrator", b"other").is_none());
    let administrator = identity.authenticate("Administrator", b"password");
    assert!(administrator.is_some_and(|user| user.built_in && user.access.is_admin()));
    assert_eq!(identity.directory().users.get("Administrator"), None);
}

/// A following node takes the roster: passwords are those of the other node, and so are the salts of unknown names.
#[test]
fn the_roster_of_another_node_is_taken_with_its_salts() {
    let there = identity();
    let mut directory = Directory::clone(&there.directory());
    for name in ["u", "v"] {
        let record = user(&there, name, "secret", &[]);
        directory.users.insert(name, &record);
    }
    there.replace_directory(directory);
    let administrator = Administrator {
        name: "root".into(),
        password: "own".into(),
    };
    let here = Identity::with_iterations(administrator, Secrets::alike([8; 32]), ROUNDS);
    here.prepare();
    assert_ne!(
        here.salt("none", Hash::Sha1),
        there.salt("none", Hash::Sha1)
    );
    let take = |roster: &Roster| {
        let told = serde_json::to_vec(roster).unwrap();
        here.replace_roster(serde_json::from_slice(&told).unwrap());
        assert_eq!(here.roster(), *roster);
    };
    take(&there.roster());
    assert_eq!(
        here.salt("none", Hash::Sha1),
        there.salt("none", Hash::Sha1)
    );
    for name in ["u", "v"] {
        let (end, _) = login(&here, &Client::new("SCRAM-SHA512", name, "secret"));
        assert!(matches!(end, SaslStep::Done { .. }));
        assert!(here.authenticate(name, b"secret").is_some());
    }
    let own = Client::new("SCRAM-SHA256", "root", "own");
    assert!(matches!(login(&here, &own).0, SaslStep::Done { .. }));

    // An unchanged user need not prove its password again.
    let mut roster = there.roster();
    let directory = Arc::make_mut(&mut roster.directory);
    directory.users.remove("u");
    take(&roster);
    assert!(here.was_right("v") && !here.was_right("u"));
    assert!(here.authenticate("u", b"secret").is_none());
}

#[test]
fn a_user_without_a_password_cannot_log_in() {
    let identity = identity();
    let mut directory = Directory::clone(&identity.directory());
    directory.users.insert("u", &UserRecord::default());
    identity.replace_directory(directory);
    assert!(identity.authenticate("u", b"").is_none());
    let (end, _) = login(&identity, &Client::new("SCRAM-SHA1", "u", ""));
    assert_eq!(end, SaslStep::Failed);
}

/// Returns messages that are right in some order, and others that never are.
fn message() -> impl Strategy<Value = (bool, &'static str, Vec<u8>)> {
    let mechanism = prop::sample::select(vec![
        "SCRAM-SHA512",
        "SCRAM-SHA256",
        "SCRAM-SHA1",
        "PLAIN",
        "scram-sha1",
        "?",
        "",
    ]);
    let fixed: Vec<Vec<u8>> = [
        &b"n,,n=Administrator,r=abc"[..],
        b"n,,n=nobody,r=abc",
        b"c=biws,r=abc,p=AAAA",
        b"\0Administrator\0wrong",
        b",p=",
        b"n,,n==,r=",
        b"=2",
        b"",
    ]
    .map(<[u8]>::to_vec)
    .to_vec();
    let payload = prop_oneof![
        prop::sample::select(fixed),
        prop::collection::vec(any::<u8>(), 0..64),
        "[nyc]=?,?a?=?,[nr=,2CD]{0,20}(,p=)?[A-Za-z0-9=]{0,9}".prop_map(String::into_bytes),
    ];
    (any::<bool>(), mechanism, payload)
}

proptest! {
    #[test]
    fn no_order_of_messages_logs_in_without_the_password(
        messages in prop::collection::vec(message(), 1..12)
    ) {
        let identity = identity();
        let mut session = SaslSession::default();
        for (is_start, mechanism, payload) in messages {
            let pending = session.is_pending();
            let mechanism = mechanism.as_bytes();
            let step = if is_start {
                session.start(&identity, mechanism, &payload, &mut nonce)
            } else {
                session.step(&identity, mechanism, &payload)
            };
            match (&step, is_start, pending) {
                (SaslStep::Invalid(_), true, true) => prop_assert!(session.is_pending()),
                (SaslStep::Continue(_), true, false) => prop_assert!(session.is_pending()),
                (SaslStep::Failed | SaslStep::Invalid(_), true, false) => {
                    prop_assert!(!session.is_pending());
                }
                (SaslStep::Failed, false, true) | (SaslStep::Invalid(_), false, _) => {
                    prop_assert!(!session.is_pending());
                }
                _ => prop_assert!(false, "{step:?} start={is_start} pending={pending}"),
            }
        }
    }
}
