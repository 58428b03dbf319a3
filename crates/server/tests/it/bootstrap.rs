//! Tests of the requests of SDKs before their first document, in the same flights.

use identity::{Hash, Proof, SaltedCache, ScramClient};
use wire::{Feature, Opcode, Status};

use crate::client::{Client, PASSWORD, Request, SDK, USER, hello, plain};
use crate::place::{own, shared};

const NONCE: &str = "fyko+d2lbbFgONRv9qkxdawL";

/// The client's side of SCRAM-SHA512.
struct Scram(ScramClient);

impl Scram {
    fn start(user: &str, password: &str) -> (Self, Request) {
        let client = ScramClient::new(Hash::Sha512, user, password, NONCE);
        let request = Request::new(Opcode::SASL_AUTH)
            .key("SCRAM-SHA512")
            .value(client.first_message());
        (Self(client), request)
    }

    fn step(&self, challenge: &str) -> (Proof, Request) {
        let mut cache = SaltedCache::default();
        let proof = self.0.answer(challenge.as_bytes(), &mut cache).unwrap();
        let request = Request::new(Opcode::SASL_STEP)
            .key("SCRAM-SHA512")
            .value(proof.message.clone());
        (proof, request)
    }
}

fn error_map(version: u16) -> Request {
    Request::new(Opcode::GET_ERROR_MAP).value(version.to_be_bytes())
}

#[test]
fn bootstrap_like_the_cxx_core() {
    let mut client = Client::connect(shared());
    let (scram, auth) = Scram::start(USER, PASSWORD);
    let flight = [hello(&SDK), Request::new(Opcode::SASL_LIST_MECHS), auth];
    client.pipeline(&numbered(&flight));
    let answers = client.answers(3);
    assert_order(&answers, &flight);
    assert_eq!(
        answers[1].text(),
        "SCRAM-SHA512 SCRAM-SHA256 SCRAM-SHA1 PLAIN"
    );
    assert_eq!(answers[2].status, Status::AUTH_CONTINUE);
    let (proof, step) = scram.step(&answers[2].text());
    let done = client.call(&step).ok();
    proof.verify(done.text().as_bytes()).unwrap();
    let flight = [
        error_map(2),
        Request::new(Opcode::SELECT_BUCKET).key("default"),
        Request::new(Opcode::GET_CLUSTER_CONFIG),
        Request::of(Opcode::GET, "bootstrap"),
    ];
    client.pipeline(&numbered(&flight));
    let answers = client.answers(4);
    assert_order(&answers, &flight);
    assert_eq!(answers[0].json()["version"], 2);
    assert_eq!(
        (answers[1].status, answers[1].bytes.len()),
        (Status::SUCCESS, 24)
    );
    assert_eq!(answers[2].json()["name"], "default");
    assert_eq!(answers[2].datatype, 1);
    assert_eq!(answers[3].status, Status::KEY_ENOENT);
}

#[test]
fn bootstrap_like_gocbcore_in_one_write() {
    // The SDK asks for the error map before the login. The proof of SCRAM needs the challenge, so PLAIN replaces SCRAM
    // here and all of it is one flight.
    let mut client = Client::connect(shared());
    let flight = [
        hello(&SDK),
        error_map(2),
        Request::new(Opcode::SASL_LIST_MECHS),
        plain(USER, PASSWORD),
        Request::new(Opcode::SELECT_BUCKET).key("default"),
        Request::new(Opcode::GET_CLUSTER_CONFIG),
        Request::new(Opcode::COLLECTIONS_GET_ID).value("_default._default"),
        Request::new(Opcode::NOOP),
    ];
    client.pipeline(&numbered(&flight));
    let answers = client.answers(flight.len());
    assert_order(&answers, &flight);
    for answer in answers {
        answer.ok();
    }
}

fn numbered(flight: &[Request]) -> Vec<Request> {
    let number = |(number, request): (usize, &Request)| request.clone().opaque(number as u32);
    flight.iter().enumerate().map(number).collect()
}

fn assert_order(answers: &[crate::client::Answer], flight: &[Request]) {
    for (number, (answer, request)) in answers.iter().zip(flight).enumerate() {
        assert_eq!(
            (answer.opaque as usize, answer.opcode),
            (number, request.opcode)
        );
    }
}

#[test]
fn wrong_credentials_keep_the_connection() {
    let mut client = Client::connect(shared());
    client.hello(&SDK).ok();
    client.call(&plain(USER, "wrong")).is(Status::AUTH_ERROR);
    client
        .call(&plain("nobody", PASSWORD))
        .is(Status::AUTH_ERROR);
    client.call(&Request::new(Opcode::NOOP)).is(Status::EACCESS);
    for (user, password) in [(USER, "wrong"), ("nobody", PASSWORD)] {
        let (scram, auth) = Scram::start(user, password);
        let challenge = client.call(&auth).is(Status::AUTH_CONTINUE).text();
        client
            .call(&scram.step(&challenge).1)
            .is(Status::AUTH_ERROR);
    }
    client.log_in().ok();
    client.call(&Request::new(Opcode::NOOP)).ok();
    client.call(&plain(USER, "wrong")).is(Status::AUTH_ERROR);
    client.call(&Request::new(Opcode::NOOP)).is(Status::EACCESS);
}

#[test]
fn sasl_steps_out_of_order() {
    let mut client = Client::connect(shared());
    client.hello(&SDK).ok();
    let step = Request::new(Opcode::SASL_STEP)
        .key("SCRAM-SHA512")
        .value("c=biws,r=x,p=eA==");
    client.call(&step).is(Status::EINVAL);
    let (_, auth) = Scram::start(USER, PASSWORD);
    client.call(&auth).is(Status::AUTH_CONTINUE);
    client.call(&auth).is(Status::EINVAL);
    let unknown = Request::new(Opcode::SASL_AUTH).key("CRAM-MD5").value("x");
    client.call(&unknown);
    let empty = Request::new(Opcode::SASL_AUTH).key("PLAIN");
    client.call(&empty).is(Status::EINVAL);
    let mut client = Client::connect(shared());
    client.log_in().ok();
    client.log_in().ok();
}

#[test]
fn few_commands_are_allowed_before_the_login() {
    let mut client = Client::connect(shared());
    client.hello(&[Feature::XERROR]).ok();
    for opcode in 0..=255 {
        let opcode = Opcode(opcode);
        let before_login = [
            Opcode::HELLO,
            Opcode::SASL_LIST_MECHS,
            Opcode::SASL_AUTH,
            Opcode::SASL_STEP,
            Opcode::GET_ERROR_MAP,
        ];
        if !before_login.contains(&opcode) {
            let answer = client.call(&Request::new(opcode)).is(Status::EACCESS);
            assert_eq!(answer.value, b"", "{opcode:?}");
        }
    }
}

#[test]
fn error_maps() {
    let mut client = Client::connect(shared());
    client.call(&error_map(0)).is(Status::KEY_ENOENT);
    for (asked, version) in [(1, 1), (2, 2), (3, 2), (9, 2)] {
        let map = client.call(&error_map(asked)).ok().json();
        assert_eq!(map["version"], version);
        let errors = map["errors"].as_object().unwrap();
        assert!(errors.len() > 60, "{}", errors.len());
        assert_eq!(errors["9"]["attrs"][0], "item-locked");
        assert!(errors.contains_key("d6") && !errors.contains_key("D6"));
    }
}

#[test]
fn buckets() {
    let mut client = Client::logged_in(shared(), &SDK);
    assert_eq!(
        client.call(&Request::new(Opcode::LIST_BUCKETS)).ok().text(),
        "default other"
    );
    client.get("bucketless").is(Status::NO_BUCKET);
    client.select("nope").is(Status::EACCESS);
    client.get("bucketless").is(Status::NO_BUCKET);
    client.select("default").ok();
    client.set("bucketless", "x").ok();
    client.select("nope").is(Status::EACCESS);
    client.get("bucketless").ok();
    client.select("other").ok();
    client.get("bucketless").is(Status::KEY_ENOENT);
    client.select("@no bucket@").ok();
    client.get("bucketless").is(Status::NO_BUCKET);
}

fn config(client: &mut Client, known: Option<(i64, i64)>) -> crate::client::Answer {
    let mut request = Request::new(Opcode::GET_CLUSTER_CONFIG);
    if let Some((epoch, rev)) = known {
        request = request.extras(&[epoch.to_be_bytes(), rev.to_be_bytes()].concat());
    }
    client.call(&request).ok()
}

#[test]
fn cluster_maps() {
    let node = own();
    let mut client = Client::logged_in(node.ports().kv, &SDK);
    let global = config(&mut client, None).json();
    assert!(global.get("name").is_none());
    assert_eq!(global["nodesExt"][0]["services"]["kv"], node.ports().kv);
    assert_eq!(global["nodesExt"][0]["services"]["mgmt"], node.ports().http);
    client.select("default").ok();
    let answer = config(&mut client, None);
    let map = answer.json();
    assert_eq!(
        (map["name"].as_str(), answer.datatype),
        (Some("default"), 1)
    );
    let rows = map["vBucketServerMap"]["vBucketMap"].as_array().unwrap();
    assert_eq!(rows.len(), 1024);
    let (epoch, rev) = (
        map["revEpoch"].as_i64().unwrap(),
        map["rev"].as_i64().unwrap(),
    );
    assert!(epoch >= 1 && rev >= 1);
    for (known, told) in [
        ((epoch, rev), false),
        ((epoch, rev + 1), false),
        ((epoch + 1, 1), false),
        ((epoch, rev - 1), true),
        ((epoch - 1, rev + 5), true),
        ((-1, rev), true),
    ] {
        let answer = config(&mut client, Some(known));
        assert_eq!(!answer.value.is_empty(), told, "{known:?}");
    }
    node.shutdown().unwrap();
}

#[test]
fn wrong_vbuckets_get_the_map() {
    let mut client = Client::ready(shared());
    let get = Request::of(Opcode::GET, "x").vbucket(1024);
    let answer = client.call(&get).is(Status::NOT_MY_VBUCKET);
    assert_eq!(
        (answer.json()["name"].as_str(), answer.datatype),
        (Some("default"), 1)
    );
    let again = client.call(&get).is(Status::NOT_MY_VBUCKET);
    assert_eq!(again.value, b"", "it was told already");
    client.select("default").ok();
    assert!(!client.call(&get).value.is_empty(), "selecting starts anew");
    client.select("default").ok();
    config(&mut client, None);
    assert_eq!(
        client.call(&get).value,
        b"",
        "it knows the map from GET_CLUSTER_CONFIG"
    );
    let mut plain = Client::with(shared(), &[Feature::COLLECTIONS]);
    for _ in 0..2 {
        let answer = plain.call(&get).is(Status::NOT_MY_VBUCKET);
        assert_eq!(
            (answer.json()["name"].as_str(), answer.datatype),
            (Some("default"), 0)
        );
    }
}

/// The Java DCP client connects to the host in the map, without replacing a placeholder.
#[test]
fn the_map_names_the_host_for_clients_that_take_it_literally() {
    let text = |agent: &str| {
        let mut client = Client::connect(shared());
        client.call(&Request::new(Opcode::HELLO).key(agent)).ok();
        client.log_in().ok();
        client.select("default").ok();
        client
            .call(&Request::new(Opcode::GET_CLUSTER_CONFIG))
            .ok()
            .text()
    };
    assert!(text(r#"{"a":"gocbcore/10"}"#).contains("\"$HOST:"));
    let literal = text(r#"{"i":"1/2","a":"kafka/4 java-dcp-client/0.56.0 Java/17"}"#);
    assert!(!literal.contains("$HOST") && literal.contains("\"127.0.0.1:"));
}
