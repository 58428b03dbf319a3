//! Tests of a node that may not know the newest users of its cluster: users wait until it does.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use cluster::agreed::NodeState;
use identity::Administrator;
use registry::cluster::CLUSTER_USER;
use registry::fake_member::FakeMember;

use super::super::client::until;
use super::http::{self, https, parsed};
use super::*;

const SECRET: &str = "of the cluster";
const WHOAMI: &str = "/whoami";

struct Clustered {
    served: Certified,
    member: Arc<FakeMember>,
}

impl Clustered {
    /// Starts a node that requires certificates of users.
    fn start() -> Self {
        let served = Certified::start(CertificateState::Mandatory);
        let member = FakeMember::new(2);
        member.put_node(2, NodeState::Active);
        let registry = &served.node.state.registry;
        assert!(registry.cluster.set(Arc::clone(&member) as _).is_ok());
        Self { served, member }
    }

    /// Changes the users, as the cluster agreed on.
    fn change(&self, edit: impl FnOnce(&mut Directory)) {
        let registry = &self.served.node.state.registry;
        let mut directory = Directory::clone(&registry.identity.directory());
        edit(&mut directory);
        registry.identity.replace_directory(directory);
        registry.users_changed();
    }

    /// Adds a user with this password, or changes its password.
    fn add(&self, name: &str, password: &str) {
        let verifier = self
            .served
            .node
            .state
            .identity
            .verifier(name, password.as_bytes());
        let user = UserRecord {
            roles: ["data_reader[default]", "data_dcp_reader[default]"]
                .map(|role| Grant::parse(role).unwrap())
                .into(),
            password: Some(verifier),
            ..UserRecord::default()
        };
        self.change(|directory| directory.users.insert(name, &user));
    }

    fn remove_all(&self) {
        self.change(|directory| directory.users = identity::Users::default());
    }

    /// Returns the result of `act`, which begins before the node gets the users that `change` makes, and has to wait.
    fn before<T: Send>(&self, change: impl FnOnce(), act: impl FnOnce() -> T + Send) -> T {
        let asks = || self.member.users_asks.load(Ordering::SeqCst);
        self.member.users_are_old.store(true, Ordering::SeqCst);
        let before = asks();
        std::thread::scope(|scope| {
            let acting = scope.spawn(act);
            until("it waits", || asks() > before + 1);
            change();
            self.member.users_are_old.store(false, Ordering::SeqCst);
            acting.join().unwrap()
        })
    }
}

/// A connection over HTTPS that stays open, with the certificate of `ada`.
struct Kept(rustls::StreamOwned<rustls::ClientConnection, TcpStream>);

impl Kept {
    fn open(served: &Certified) -> Self {
        let name = "127.0.0.1".try_into().unwrap();
        let tls = trusting(&served.node, Some(&served.ada()));
        let tls = rustls::ClientConnection::new(tls.into(), name).unwrap();
        let port = served.node.ports().https.unwrap();
        let socket = TcpStream::connect(("127.0.0.1", port)).unwrap();
        Self(rustls::StreamOwned::new(tls, socket))
    }

    /// Returns the status of the answer to a request.
    fn status(&mut self) -> String {
        write!(self.0, "GET {WHOAMI} HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        let mut head = Vec::new();
        let mut byte = [0];
        while !head.ends_with(b"\r\n\r\n") {
            self.0.read_exact(&mut byte).unwrap();
            head.extend(byte);
        }
        let head = String::from_utf8(head).unwrap().to_lowercase();
        let length = head.split("content-length: ").nth(1).unwrap();
        let mut body = vec![0; length.lines().next().unwrap().parse().unwrap()];
        self.0.read_exact(&mut body).unwrap();
        head.split(' ').nth(1).unwrap().to_owned()
    }
}

#[test]
fn logins_wait_for_the_newest_users() {
    let node = Clustered::start();
    let served = &node.served;
    let [eve, bob] = ["eve", "bob"].map(|name| served.of(name));
    let outcome = node.before(|| node.add("eve", "1"), || served.outcome(Some(&eve)));
    assert_eq!(outcome, Outcome::IsUser);
    let mut client = Client::connect(served.node.ports().kv);
    let login = || client.call(&plain("eve", "2")).status;
    assert_eq!(node.before(|| node.add("eve", "2"), login), Status::SUCCESS);

    let by_certificate = || https(served, Some(&bob), &http::get(WHOAMI, ""));
    let answer = node.before(|| node.add("bob", "1"), by_certificate);
    assert_eq!(answer.map(|(status, _)| status), Some(200));
    let credentials = format!("Authorization: Basic {}\r\n", STANDARD.encode("bob:2"));
    let by_password = || {
        let mut stream = TcpStream::connect(("127.0.0.1", served.node.ports().http)).unwrap();
        let request = http::get(WHOAMI, &credentials);
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        parsed(&answer).0
    };
    assert_eq!(node.before(|| node.add("bob", "2"), by_password), 200);
    served.node.shutdown().unwrap();
}

#[test]
fn requests_of_users_wait_for_the_newest_users() {
    let node = Clustered::start();
    let served = &node.served;
    let mut client = served.connect(Some(&served.ada()));
    client.call(&hello(&SDK)).ok();
    client.select("default").ok();
    client.call(&get("a")).is(Status::KEY_ENOENT);
    let mut kept = Kept::open(served);
    assert_eq!(kept.status(), "200");
    let answer = node.before(|| node.remove_all(), || client.call(&get("a")).status);
    assert_eq!(answer, Status::EACCESS);
    node.add(USER, "1");
    let answer = node.before(|| node.remove_all(), || kept.status());
    assert_eq!(answer, "401");
    served.node.shutdown().unwrap();
}

#[test]
fn streams_of_users_wait_for_the_newest_users_and_other_nodes_do_not() {
    let node = Clustered::start();
    let served = &node.served;
    served.node.state.identity.admit_peers(Administrator {
        name: CLUSTER_USER.to_owned(),
        password: SECRET.into(),
    });
    let mut other_node = Client::connect(served.node.ports().kv);
    other_node.call(&hello(&SDK)).ok();
    other_node.call(&plain(CLUSTER_USER, SECRET)).ok();
    other_node.select("default").ok();
    node.add(USER, "1");
    let mut consumer = served.connect(Some(&served.ada()));
    consumer.select("default").ok();
    let open = Request::new(Opcode::DCP_OPEN).key("c");
    consumer.call(&open.extras(&1_u64.to_be_bytes())).ok();
    let mut everything = [0; 48];
    everything[16..24].fill(0xff);
    let stream = Request::new(Opcode::DCP_STREAM_REQ).extras(&everything);
    let vb = model::VbId::of_key(b"a", 1024).0;
    consumer.call(&stream.vbucket(vb)).ok();
    let first = || {
        other_node.set("a", "1").ok();
        let mut answers = std::iter::repeat_with(|| consumer.answer().opcode);
        answers.find(|opcode| [Opcode::DCP_MUTATION, Opcode::DCP_STREAM_END].contains(opcode))
    };
    let first = node.before(|| node.remove_all(), first);
    assert_eq!(first, Some(Opcode::DCP_STREAM_END));
    served.node.shutdown().unwrap();
}
