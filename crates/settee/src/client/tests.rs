//! The client against a server of a few lines.

use super::*;
use crate::exit::{Failure, Sysexit};
use crate::testing::{FakeServer, Fault};

const TIMEOUT: Duration = Duration::from_secs(10);

fn connect(text: &str) -> Result<Client, ClientError> {
    Client::connect(&text.parse().unwrap(), TIMEOUT, &mut SaltedCache::default())
}

fn code(result: Result<impl Sized, ClientError>) -> Sysexit {
    Failure::from(result.err().unwrap()).code()
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
        let set = Message {
            extras: &extras,
            ..Message::with(Opcode::SET, b"key", &value)
        };
        let cas = client.document_request(&set).unwrap().cas;
        let get = Message::with(Opcode::GET, b"key", b"");
        let found = client.document_request(&get).unwrap();
        assert_eq!((found.cas, found.extras.as_slice()), (cas, &extras[..4]));
        assert!(found.value == value);

        let wrong_cas = Message {
            cas: model::Cas(cas.0 + 1),
            ..set
        };
        assert_eq!(code(client.document_request(&wrong_cas)), Sysexit::Data);
        client
            .document_request(&Message::with(Opcode::DELETE, b"key", b""))
            .unwrap();
        assert_eq!(code(client.document_request(&get)), Sysexit::NoInput);
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
    assert_eq!(code(client.stat("bad", &mut collect)), Sysexit::NoInput);
    client
        .stat("again", |_, _| Ok::<_, ClientError>(()))
        .unwrap();
    let expected: [(&[u8], &[u8]); 3] = [(b"group", b"vbucket 3"), (b"", b"{}"), (b"count", b"7")];
    assert_eq!(
        rows,
        expected.map(|(name, value)| (name.to_vec(), value.to_vec()))
    );
}

#[test]
fn a_refused_login_says_why() {
    let server = FakeServer::start(true, Fault::None);
    let good = server.connect_string();
    assert_eq!(
        code(connect(&good.replace("word@", "wrong@"))),
        Sysexit::NoPerm
    );
    let wrong_bucket = connect(&good.replace("travel", "other"));
    let message = wrong_bucket.as_ref().err().unwrap().to_string();
    assert!(
        message.contains("no such bucket") && !message.contains("word"),
        "{message}"
    );
    assert_eq!(code(wrong_bucket), Sysexit::NoPerm);
    let plain = FakeServer::start(false, Fault::None);
    let memcached = plain.connect_string();
    assert_eq!(
        code(connect(&format!("couchbase://{memcached}"))),
        Sysexit::Unavailable
    );
}

#[test]
fn a_server_that_breaks_the_protocol_or_goes_away() {
    let get = Message::with(Opcode::GET, b"key", b"");
    let liar = FakeServer::start(false, Fault::WrongOpaque);
    let mut client = connect(&liar.connect_string()).unwrap();
    assert_eq!(code(client.document_request(&get)), Sysexit::Protocol);
    let closer = FakeServer::start(false, Fault::Close);
    let mut client = connect(&closer.connect_string()).unwrap();
    assert_eq!(code(client.document_request(&get)), Sysexit::Unavailable);
}

#[test]
fn a_key_longer_than_a_frame_can_carry_is_refused_here() {
    let server = FakeServer::start(false, Fault::None);
    let mut client = connect(&server.connect_string()).unwrap();
    let key = vec![b'k'; 70_000];
    let get = Message::with(Opcode::GET, &key, b"");
    assert_eq!(code(client.document_request(&get)), Sysexit::Data);
}
