//! Tests of the client against a small fake server.

use wire::{Opcode, Status};

use crate::testing::{FakeServer, Fault, options};
use crate::{Client, ClientError, Request, SaltedCache};

fn connect(text: &str) -> Result<Client, ClientError> {
    Client::connect(&options(text), &mut SaltedCache::default())
}

fn status(result: Result<impl Sized, ClientError>) -> Status {
    match result.err().unwrap() {
        ClientError::Refused { status, .. } => status,
        error => panic!("not refused: {error}"),
    }
}

#[test]
fn documents_are_written_read_and_deleted() {
    for login in [true, false] {
        let server = FakeServer::start(login, Fault::None);
        let mut client = connect(&server.connect_string()).unwrap();
        assert_eq!(client.key_form().collections, login);
        assert_eq!(client.key_form().vbuckets, login.then_some(64));

        let extras = [1, 2, 3, 4, 0, 0, 0, 0];
        let value = vec![b'v'; 300_000];
        let set = Request {
            extras: &extras,
            ..Request::with(Opcode::SET, b"key", &value)
        };
        let cas = client.document_request(&set).unwrap().cas;
        let get = Request::with(Opcode::GET, b"key", b"");
        let found = client.document_request(&get).unwrap();
        assert_eq!((found.cas, found.extras.as_slice()), (cas, &extras[..4]));
        assert!(found.value == value);

        let wrong_cas = Request {
            cas: model::Cas(cas.0 + 1),
            ..set
        };
        assert_eq!(
            status(client.document_request(&wrong_cas)),
            Status::KEY_EEXISTS
        );
        client
            .document_request(&Request::with(Opcode::DELETE, b"key", b""))
            .unwrap();
        assert_eq!(status(client.document_request(&get)), Status::KEY_ENOENT);
        assert_eq!(server.documents(), 0);
    }
}

#[test]
fn statistics_are_streamed() {
    let server = FakeServer::start(true, Fault::None);
    let mut client = connect(&server.connect_string()).unwrap();
    let mut rows = Vec::new();
    let mut collect = |name: &[u8], value: &[u8]| {
        rows.push((name.to_vec(), value.to_vec()));
        Ok(())
    };
    client.stat("vbucket 3", &mut collect).unwrap();
    assert_eq!(status(client.stat("bad", &mut collect)), Status::KEY_ENOENT);
    client
        .stat("again", |_, _| Ok::<_, ClientError>(()))
        .unwrap();
    let mut numbers = Vec::new();
    let mut note = |name: &[u8], number| numbers.push((name.to_vec(), number));
    client.stat_numbers("again", &mut note).unwrap();
    assert_eq!(numbers, [(b"count".to_vec(), 7)]);
    let expected: [(&[u8], &[u8]); 3] = [(b"group", b"vbucket 3"), (b"", b"{}"), (b"count", b"7")];
    assert_eq!(
        rows,
        expected.map(|(name, value)| (name.to_vec(), value.to_vec()))
    );
}

#[test]
fn refused_login_returns_status_and_reason() {
    let server = FakeServer::start(true, Fault::None);
    let good = server.connect_string();
    assert_eq!(
        status(connect(&good.replace("word@", "wrong@"))),
        Status::AUTH_ERROR
    );
    let wrong_bucket = connect(&good.replace("travel", "other"));
    let message = wrong_bucket.as_ref().err().unwrap().to_string();
    assert!(
        message.contains("no such bucket") && !message.contains("word"),
        "{message}"
    );
    assert_eq!(status(wrong_bucket), Status::EACCESS);
    let plain = FakeServer::start(false, Fault::None);
    let memcached = plain.connect_string();
    assert_eq!(
        status(connect(&format!("couchbase://{memcached}"))),
        Status::UNKNOWN_COMMAND
    );
}

#[test]
fn protocol_violation_and_closed_connection_are_errors() {
    let get = Request::with(Opcode::GET, b"key", b"");
    let liar = FakeServer::start(false, Fault::WrongOpaque);
    let mut client = connect(&liar.connect_string()).unwrap();
    let error = client.document_request(&get).unwrap_err();
    assert!(matches!(error, ClientError::Protocol { .. }), "{error}");
    let closer = FakeServer::start(false, Fault::Close);
    let mut client = connect(&closer.connect_string()).unwrap();
    assert!(client.document_request(&get).unwrap_err().is_lost());
}

#[test]
fn a_key_longer_than_a_frame_can_carry_is_refused_here() {
    let server = FakeServer::start(false, Fault::None);
    let mut client = connect(&server.connect_string()).unwrap();
    let key = vec![b'k'; 70_000];
    let get = Request::with(Opcode::GET, &key, b"");
    let error = client.document_request(&get).unwrap_err();
    assert!(matches!(error, ClientError::TooLong(_)), "{error}");
}
