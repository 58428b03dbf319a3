//! Tests of client certificates: which certificates are accepted, and for which user.

mod audited;
mod authority;
mod handed_on;
mod http;
mod outdated;

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use identity::{CertificateSettings, CertificateState, Directory, Grant, UserRecord};
use management::{ClusterChange, NodeView as _};
use rcgen::{DnType, SanType};
use rustls::ClientConfig;
use rustls::version::{TLS12, TLS13};
use serde_json::{Value, json};
use wire::{Opcode, Status};

use self::authority::{Authority, Made};
use super::client::{Client, Request, SDK, hello, plain, set};
use super::{Node, NodeConfig, Waits, bucket, config, started};
use crate::config::StartError;

const USER: &str = "ada";

/// A node with ports over TLS, the user `ada`, and an authority of clients in a file.
pub(super) struct Certified {
    place: tempfile::TempDir,
    authority: Authority,
    pub(super) node: Node,
}

impl Certified {
    pub(super) fn start(state: CertificateState) -> Self {
        let place = tempfile::tempdir().unwrap();
        let authority = Authority::new("clients");
        std::fs::write(place.path().join("clients.pem"), authority.pem()).unwrap();
        let node = started(&settings(place.path(), Some(state)), Waits::default());
        let certified = Self {
            place,
            authority,
            node,
        };
        certified.make_user("data_reader[default]");
        certified
    }

    fn client_ca(&self) -> PathBuf {
        self.place.path().join("clients.pem")
    }

    fn make_user(&self, role: &str) {
        let user = UserRecord {
            roles: [Grant::parse(role).unwrap()].into(),
            ..UserRecord::default()
        };
        self.change_users(|directory| {
            directory.users.insert(USER, &user);
        });
    }

    fn change_users(&self, mut edit: impl FnMut(&mut Directory)) {
        let mut edit = |directory: &mut Directory| {
            edit(directory);
            true
        };
        self.node.state.change_users(&mut edit).unwrap();
    }

    fn set(&self, settings: &Value) {
        let settings: CertificateSettings = serde_json::from_value(settings.clone()).unwrap();
        let change = ClusterChange {
            client_certificates: Some(settings),
            ..ClusterChange::default()
        };
        self.node.state.change_cluster(change).unwrap();
    }

    /// Returns a certificate of `ada`.
    fn ada(&self) -> Made {
        self.of(USER)
    }

    /// Returns a certificate of a user.
    pub(super) fn of(&self, user: &str) -> Made {
        self.authority.sign(|params| {
            params.distinguished_name.push(DnType::CommonName, user);
        })
    }

    pub(super) fn connect(&self, made: Option<&Made>) -> Client {
        let tls = rustls::ClientConnection::new(
            trusting(&self.node, made).into(),
            "127.0.0.1".try_into().unwrap(),
        );
        Client::sealed(self.node.ports().kv_tls.unwrap(), tls.unwrap())
    }

    fn outcome(&self, made: Option<&Made>) -> Outcome {
        outcome(&self.node, trusting(&self.node, made))
    }
}

fn settings(place: &Path, client_cert: Option<CertificateState>) -> NodeConfig {
    NodeConfig {
        kv_tls_port: Some(0),
        https_port: Some(0),
        client_cert,
        client_ca: Some(place.join("clients.pem")),
        ..config(Some(&place.join("data")), vec![bucket("default")])
    }
}

fn trusting(node: &Node, made: Option<&Made>) -> ClientConfig {
    authority::trusting(&node.authority().unwrap(), &[&TLS13, &TLS12], made)
}

/// Result of a connection to the KV port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// The connection is closed.
    Refused,
    /// The connection may log in.
    MayLogIn,
    /// The connection is logged in by its certificate.
    IsUser,
}

fn outcome(node: &Node, tls: ClientConfig) -> Outcome {
    let asked = Request::new(Opcode::SASL_LIST_MECHS);
    let Ok(answer) = first_answer(node.ports().kv_tls.unwrap(), tls, &asked.bytes()) else {
        return Outcome::Refused;
    };
    match Status(u16::from_be_bytes([answer[6], answer[7]])) {
        Status::SUCCESS => Outcome::MayLogIn,
        Status::NOT_SUPPORTED => Outcome::IsUser,
        other => panic!("{other:?}"),
    }
}

/// Sends bytes, and returns the header of the answer.
fn first_answer(port: u16, tls: ClientConfig, bytes: &[u8]) -> std::io::Result<[u8; 24]> {
    let name = "127.0.0.1".try_into().unwrap();
    let mut tls = rustls::ClientConnection::new(tls.into(), name).unwrap();
    let mut socket = TcpStream::connect(("127.0.0.1", port))?;
    socket.set_read_timeout(Some(std::time::Duration::from_secs(30)))?;
    let mut stream = rustls::Stream::new(&mut tls, &mut socket);
    stream.write_all(bytes)?;
    let mut answer = [0; 24];
    let read = stream.read_exact(&mut answer);
    let timed_out = |error: &std::io::Error| error.kind() == std::io::ErrorKind::WouldBlock;
    assert!(
        !read.as_ref().is_err_and(timed_out),
        "neither closed nor answered"
    );
    read.map(|()| answer)
}

fn get(key: &str) -> Request {
    Request::of(Opcode::GET, key)
}

#[test]
fn each_certificate_has_its_result_in_each_mode() {
    use CertificateState::{Disable, Enable, Mandatory};
    use Outcome::{IsUser, MayLogIn, Refused};

    let served = Certified::start(Disable);
    let stranger = Authority::new("clients");
    let named = |name: &'static str| {
        move |params: &mut rcgen::CertificateParams| {
            params.distinguished_name.push(DnType::CommonName, name);
        }
    };
    let dated = |from: i32, to: i32| {
        move |params: &mut rcgen::CertificateParams| {
            named(USER)(params);
            params.not_before = rcgen::date_time_ymd(from, 1, 1);
            params.not_after = rcgen::date_time_ymd(to, 1, 1);
        }
    };
    let other_key = Made {
        key: served.ada().key,
        ..served.ada()
    };
    let cases = [
        ("none", None, [MayLogIn, MayLogIn, Refused]),
        ("valid", Some(served.ada()), [MayLogIn, IsUser, IsUser]),
        (
            "of no user",
            Some(served.authority.sign(named("bob"))),
            [MayLogIn, MayLogIn, Refused],
        ),
        (
            "expired",
            Some(served.authority.sign(dated(2000, 2001))),
            [MayLogIn, Refused, Refused],
        ),
        (
            "of the future",
            Some(served.authority.sign(dated(2200, 2201))),
            [MayLogIn, Refused, Refused],
        ),
        (
            "of a stranger",
            Some(stranger.sign(named(USER))),
            [MayLogIn, Refused, Refused],
        ),
        (
            "for servers",
            Some(served.authority.sign(|params| {
                named(USER)(params);
                params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ServerAuth];
            })),
            [MayLogIn, Refused, Refused],
        ),
        (
            "with the key of another",
            Some(other_key),
            [MayLogIn, Refused, Refused],
        ),
    ];
    for (at, state) in [Disable, Enable, Mandatory].into_iter().enumerate() {
        served.set(&json!({ "state": state, "prefixes": whole_name() }));
        for (what, made, expected) in &cases {
            for version in [&TLS12, &TLS13] {
                let trusted = served.node.authority().unwrap();
                let tls = authority::trusting(&trusted, &[version], made.as_ref());
                let came = outcome(&served.node, tls);
                assert_eq!(came, expected[at], "{what} {state:?} {version:?}");
            }
        }
    }
    served.node.shutdown().unwrap();
}

fn whole_name() -> Value {
    json!([{ "path": "subject.cn", "prefix": "", "delimiter": "" }])
}

#[test]
fn a_certificate_is_a_login_with_the_roles_of_its_user() {
    let served = Certified::start(CertificateState::Enable);
    let ada = served.ada();
    let mut client = served.connect(Some(&ada));
    client.call(&hello(&SDK)).ok();
    client.select("default").ok();
    client.call(&get("a")).is(Status::KEY_ENOENT);
    client.call(&set("a", "1")).is(Status::EACCESS);
    // A changed role applies from the next command on.
    served.make_user("data_writer[default]");
    client.call(&set("a", "1")).ok();
    client.call(&get("a")).is(Status::EACCESS);
    served.change_users(|directory| directory.users = identity::Users::default());
    client.call(&set("a", "2")).is(Status::EACCESS);
    assert_eq!(served.outcome(Some(&ada)), Outcome::MayLogIn);
}

#[test]
fn a_connection_with_a_certificate_takes_no_other_login() {
    let served = Certified::start(CertificateState::Enable);
    let mut client = served.connect(Some(&served.ada()));
    client.call(&hello(&SDK)).ok();
    for request in [
        Request::new(Opcode::SASL_LIST_MECHS),
        plain(super::client::USER, super::client::PASSWORD),
        plain(super::client::USER, "wrong"),
    ] {
        client.call(&request).is(Status::NOT_SUPPORTED);
    }
    client.select("default").ok();
    client.call(&set("a", "1")).is(Status::EACCESS);
    // A connection without a certificate does.
    let mut client = served.connect(None);
    client.hello(&SDK).ok();
    client.log_in().ok();
    client.select("default").ok();
    client.call(&set("a", "1")).ok();
}

#[test]
fn rules_find_the_name_of_the_user() {
    let served = Certified::start(CertificateState::Enable);
    let made = served.authority.sign(|params| {
        params
            .distinguished_name
            .push(DnType::CommonName, "www.bob-1.org");
        params.subject_alt_names = vec![
            SanType::DnsName("other.ada.org".try_into().unwrap()),
            SanType::DnsName("www.ada.org".try_into().unwrap()),
            SanType::Rfc822Name("ada@example.org".try_into().unwrap()),
            SanType::URI("spiffe://example.org/ada;v=1".try_into().unwrap()),
        ];
    });
    let rule = |path: &str, prefix: &str, delimiter: &str| json!({ "path": path, "prefix": prefix, "delimiter": delimiter });
    for (rules, expected) in [
        (vec![rule("subject.cn", "www.", ".,;")], Outcome::MayLogIn),
        (vec![rule("san.dns", "www.", ".,;")], Outcome::IsUser),
        (vec![rule("san.dns", "other.", ".")], Outcome::IsUser),
        (vec![rule("san.dns", "www", ".")], Outcome::MayLogIn),
        (vec![rule("san.email", "", "@")], Outcome::IsUser),
        (vec![rule("san.email", "", "")], Outcome::MayLogIn),
        (
            vec![rule("san.uri", "spiffe://example.org/", ";")],
            Outcome::IsUser,
        ),
        (
            vec![rule("subject.cn", "us", "."), rule("san.email", "", "@")],
            Outcome::IsUser,
        ),
        // The first rule that yields a name counts, whether there is such a user or not.
        (
            vec![rule("subject.cn", "www.", "-"), rule("san.email", "", "@")],
            Outcome::MayLogIn,
        ),
    ] {
        served.set(&json!({ "state": "enable", "prefixes": rules }));
        assert_eq!(served.outcome(Some(&made)), expected, "{rules:?}");
    }
    served.node.shutdown().unwrap();
}

#[test]
fn a_new_bundle_revokes_certificates_of_the_old_one() {
    let served = Certified::start(CertificateState::Mandatory);
    let (ada, other) = (served.ada(), Authority::new("other"));
    let mut open = served.connect(Some(&ada));
    open.call(&Request::new(Opcode::NOOP)).ok();
    std::fs::write(served.client_ca(), other.pem()).unwrap();
    assert_eq!(served.outcome(Some(&ada)), Outcome::IsUser, "not read yet");
    served.node.reload_certificate().unwrap();
    assert_eq!(served.outcome(Some(&ada)), Outcome::Refused);
    let of_other = other.sign(|params| {
        params.distinguished_name.push(DnType::CommonName, USER);
    });
    assert_eq!(served.outcome(Some(&of_other)), Outcome::IsUser);
    open.call(&Request::new(Opcode::NOOP)).ok();
    // A bundle with both authorities, for the time of a change.
    let both = format!("{}{}", served.authority.pem(), other.pem());
    std::fs::write(served.client_ca(), both).unwrap();
    served.node.reload_certificate().unwrap();
    assert_eq!(served.outcome(Some(&ada)), Outcome::IsUser);
    assert_eq!(served.outcome(Some(&of_other)), Outcome::IsUser);
}

#[test]
fn a_revocation_list_refuses_the_certificates_that_it_names() {
    let served = Certified::start(CertificateState::Enable);
    let (listed, other) = (&served.authority, Authority::new("other"));
    let numbered = |authority: &Authority, serial: u64| {
        authority.sign(|params| {
            params.distinguished_name.push(DnType::CommonName, USER);
            params.serial_number = Some(serial.into());
        })
    };
    let (lost, kept) = (numbered(listed, 7), numbered(listed, 8));
    let of_other = numbered(&other, 7);
    let outcomes = |made: &Made| {
        [&TLS12, &TLS13].map(|version| {
            let trusted = served.node.authority().unwrap();
            let tls = authority::trusting(&trusted, &[version], Some(made));
            outcome(&served.node, tls)
        })
    };
    let authorities = format!("{}{}", listed.pem(), other.pem());
    let reload = |list: &str| {
        std::fs::write(served.client_ca(), format!("{authorities}{list}")).unwrap();
        served.node.reload_certificate()
    };
    reload("").unwrap();
    assert_eq!(outcomes(&lost), [Outcome::IsUser; 2]);
    // A list whose successor is overdue counts, too.
    for year in [2100, 2001] {
        reload(&listed.revoke(&[7], year)).unwrap();
        assert_eq!(outcomes(&lost), [Outcome::Refused; 2], "{year}");
        assert_eq!(outcomes(&kept), [Outcome::IsUser; 2], "{year}");
        assert_eq!(outcomes(&of_other), [Outcome::IsUser; 2], "{year}");
    }
    // A damaged list leaves the previous one in force.
    let whole = listed.revoke(&[8], 2100);
    for damaged in [&whole[..whole.len() / 2], &whole.replacen('M', "N", 1)] {
        let refused = reload(damaged).unwrap_err();
        assert!(refused.contains("clients.pem"), "{refused}");
        assert_eq!(outcomes(&lost), [Outcome::Refused; 2]);
        assert_eq!(outcomes(&kept), [Outcome::IsUser; 2]);
    }
    // An authority of the same name cannot sign the list of another one: every certificate that needs the list is
    // refused.
    reload(&Authority::new("clients").revoke(&[], 2100)).unwrap();
    assert_eq!(outcomes(&kept), [Outcome::Refused; 2]);
    reload("").unwrap();
    assert_eq!(outcomes(&lost), [Outcome::IsUser; 2]);
}

#[test]
fn a_useless_bundle_keeps_the_old_one_and_refuses_a_start() {
    let served = Certified::start(CertificateState::Mandatory);
    let (ada, file) = (served.ada(), served.client_ca());
    let expired = Authority::until("clients", 2001).pem();
    let whole = served.authority.pem();
    let damaged = whole.replacen('M', "%", 1);
    let cut = &whole[..whole.len() / 2];
    for (content, why) in [
        (&*expired, "expired on"),
        ("", "holds no certificate"),
        (&damaged, "clients.pem"),
        (cut, "clients.pem"),
        (
            "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n",
            "damaged",
        ),
    ] {
        std::fs::write(&file, content).unwrap();
        let refused = served.node.reload_certificate().unwrap_err();
        assert!(
            refused.contains(why) && refused.contains("clients.pem"),
            "{refused}"
        );
        assert_eq!(served.outcome(Some(&ada)), Outcome::IsUser, "{why}");
    }
    served.node.shutdown().unwrap();
    let again = settings(served.place.path(), Some(CertificateState::Mandatory));
    let refused = Node::start(again).err().unwrap();
    assert!(matches!(refused, StartError::Certificate(_)), "{refused}");
    // An expired authority is ignored beside valid ones.
    std::fs::write(&file, format!("{expired}{}", served.authority.pem())).unwrap();
    let again = settings(served.place.path(), Some(CertificateState::Mandatory));
    let node = started(&again, Waits::default());
    assert_eq!(outcome(&node, trusting(&node, Some(&ada))), Outcome::IsUser);
    node.shutdown().unwrap();
}

#[test]
fn a_certificate_that_expired_does_not_replace_one_that_is_served() {
    let place = tempfile::tempdir().unwrap();
    let authority = Authority::new("nodes");
    let files = tls::CertificateFiles {
        chain: place.path().join("chain.pem"),
        key: place.path().join("key.pem"),
    };
    let write = |to: i32| {
        let made = authority.sign(|params| {
            params.subject_alt_names = vec![SanType::DnsName("localhost".try_into().unwrap())];
            params.not_before = rcgen::date_time_ymd(2000, 1, 1);
            params.not_after = rcgen::date_time_ymd(to, 1, 1);
            params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ServerAuth];
        });
        std::fs::write(&files.chain, made.pem()).unwrap();
        std::fs::write(&files.key, made.key.serialize_pem()).unwrap();
    };
    write(2100);
    let given = NodeConfig {
        certificate: Some(files.clone()),
        client_ca: None,
        client_cert: Some(CertificateState::Enable),
        ..settings(place.path(), None)
    };
    // The authority of a configured server certificate signs no client.
    let refused = Node::start(given.clone()).err().unwrap().to_string();
    assert!(refused.contains("--client-ca"), "{refused}");
    let given = NodeConfig {
        client_cert: None,
        ..given
    };
    let node = started(&given, Waits::default());
    let before = node.authority();
    write(2001);
    let refused = node.reload_certificate().unwrap_err();
    assert!(
        refused.contains("chain.pem") && refused.contains("expired on"),
        "{refused}"
    );
    assert_eq!(node.authority(), before);
    write(2090);
    node.reload_certificate().unwrap();
    node.shutdown().unwrap();
}

#[test]
fn management_settings_survive_restarts_and_yield_to_flags() {
    let served = Certified::start(CertificateState::Disable);
    let rules = json!([{ "path": "san.email", "prefix": "", "delimiter": "@" }]);
    served.set(&json!({ "state": "mandatory", "prefixes": rules }));
    served.node.shutdown().unwrap();
    let place = served.place.path();
    for (flag, expected) in [
        (None, CertificateState::Mandatory),
        (Some(CertificateState::Enable), CertificateState::Enable),
        (None, CertificateState::Mandatory),
    ] {
        let node = started(&settings(place, flag), Waits::default());
        let kept = node.state.identity.certificates();
        assert_eq!(kept.state, expected);
        assert_eq!(json!(kept.prefixes), rules);
        let without = outcome(&node, trusting(&node, None));
        let refused = expected == CertificateState::Mandatory;
        assert_eq!(without == Outcome::Refused, refused);
        node.shutdown().unwrap();
    }
    let lost = NodeConfig {
        client_ca: None,
        certificate: None,
        ..settings(place, None)
    };
    // The node has its own authority, which has signed none of the clients.
    let node = started(&lost, Waits::default());
    let ada = served.authority.sign(|params| {
        params.subject_alt_names = vec![SanType::Rfc822Name("ada@b.org".try_into().unwrap())];
    });
    assert_eq!(
        outcome(&node, trusting(&node, Some(&ada))),
        Outcome::Refused
    );
    node.shutdown().unwrap();
}

/// The authority that the node makes signs client certificates, too.
#[test]
fn the_authority_of_the_node_signs_clients() {
    let place = tempfile::tempdir().unwrap();
    let given = NodeConfig {
        client_ca: None,
        ..settings(place.path(), Some(CertificateState::Mandatory))
    };
    let node = started(&given, Waits::default());
    let file = |name: &str| std::fs::read_to_string(place.path().join("data/tls").join(name));
    let own = Authority::of_pem(&file("ca.pem").unwrap(), &file("ca-key.pem").unwrap());
    let administrator = own.sign(|params| {
        let name = super::client::USER;
        params.distinguished_name.push(DnType::CommonName, name);
    });
    assert_eq!(
        outcome(&node, trusting(&node, Some(&administrator))),
        Outcome::IsUser
    );
    node.shutdown().unwrap();
}
