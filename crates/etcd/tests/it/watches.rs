//! Watches.

use std::sync::mpsc::{Receiver, Sender, channel};

use cluster::coord::{Answer, KeyChange, LeaseId, Request, RequestId};
use etcd::AnswerResult;

use crate::Client;
use crate::answers::put;
use crate::fake::{Asked, Fake, PATIENCE, Reply, granted};

const CREATED: &str = r#"{"result":{"header":{"revision":"9"},"created":true}}"#;
const CHANGED: &str = r#"{"result":{"header":{"revision":"9"},"events":[{"kv":{"key":"L2E=","create_revision":"2","mod_revision":"4","version":"2","value":"dg=="}},{"type":"DELETE","kv":{"key":"L2I=","mod_revision":"5"}}]}}"#;
const PROGRESS: &str = r#"{"result":{"header":{"revision":"9"}}}"#;

fn watch(from: u64) -> Request {
    let prefix = "/".to_owned();
    Request::Watch { prefix, from }
}

/// A body that a test writes in pieces.
fn body() -> (Sender<Vec<u8>>, Receiver<Vec<u8>>) {
    channel()
}

fn send(body: &Sender<Vec<u8>>, message: &str) {
    body.send(format!("{message}\n").into_bytes()).unwrap();
}

/// Serves watches with these bodies, one after the other, and everything else with `others`.
fn serving(
    bodies: Vec<Receiver<Vec<u8>>>,
    mut others: impl FnMut(&Asked) -> Reply + Send + 'static,
) -> Fake {
    let mut bodies = bodies.into_iter();
    Fake::start(move |asked| match &*asked.path {
        "/v3/watch" => Reply::Pieces(bodies.next().expect("a watch more than are served")),
        _ => others(asked),
    })
}

fn told((id, answer): (u64, AnswerResult)) -> (u64, u64, Vec<(String, u64)>) {
    let Ok(Answer::Changes { revision, changes }) = answer else {
        panic!("{answer:?}");
    };
    let of = |change: &KeyChange| (change.key().to_owned(), change.revision());
    (id, revision, changes.iter().map(of).collect())
}

#[test]
fn watch_does_not_depend_on_chunks_of_its_stream() {
    let text = format!("{CREATED}\n{CHANGED}\n{PROGRESS}\n");
    for size in [1, 7, 64, text.len()] {
        let (pieces, watched) = body();
        let fake = serving(vec![watched], |_| granted("{}"));
        let client = Client::of(&[fake.url()]);
        client.etcd.request(RequestId(1), watch(3));
        for piece in text.as_bytes().chunks(size) {
            pieces.send(piece.to_vec()).unwrap();
        }
        let changes = vec![("/a".to_owned(), 4), ("/b".to_owned(), 5)];
        assert_eq!(told(client.next()), (1, 5, changes));
        assert_eq!(told(client.next()), (1, 9, vec![]));
        drop(pieces);
        let broken = format!("{}: a watch broke off", fake.url());
        assert_eq!(client.next_problem(), (1, broken));
        assert!(client.answers.try_recv().is_err());
        assert!(fake.asked()[0].body.contains(r#""start_revision":"3""#));
    }
}

#[test]
fn watch_ends_with_the_reason_of_etcd() {
    for (message, reason) in [
        (
            r#"{"result":{"header":{"revision":"9"},"canceled":true,"compact_revision":"7"}}"#,
            None,
        ),
        (
            r#"{"result":{"header":{"revision":"9"},"canceled":true,"cancel_reason":"etcdserver: no leader"}}"#,
            Some("no leader"),
        ),
        (
            r#"{"error":{"grpc_code":14,"http_code":503,"message":"etcdserver: server stopped"}}"#,
            Some("server stopped"),
        ),
        ("<html>", Some("not one of etcd")),
    ] {
        let (pieces, watched) = body();
        let fake = serving(vec![watched], |_| granted("{}"));
        let client = Client::of(&[fake.url()]);
        client.etcd.request(RequestId(1), watch(3));
        send(&pieces, CREATED);
        send(&pieces, message);
        match (client.next(), reason) {
            ((1, Ok(Answer::Compacted)), None) => {}
            ((1, Err(problem)), Some(reason)) => {
                assert!(problem.to_string().contains(reason), "{problem}");
            }
            other => panic!("{message}: {other:?}"),
        }
        drop(pieces);
        fake.wait_for_an_end();
    }
}

#[test]
fn new_watch_ends_the_old_one_and_tries_another_member() {
    let (first, of_first) = body();
    let (second, of_second) = body();
    let one = serving(vec![of_first], |_| granted("{}"));
    let other = serving(vec![of_second], |_| granted("{}"));
    let client = Client::of(&[one.url(), other.url()]);
    client.etcd.request(RequestId(1), watch(3));
    send(&first, CHANGED);
    assert_eq!(told(client.next()).1, 5);
    client.etcd.request(RequestId(2), watch(6));
    let lagged = format!("{}: a watch lagged behind", one.url());
    let (id, ended) = client.next();
    let problem = ended.unwrap_err();
    assert_eq!((id, problem.to_string()), (1, lagged));
    assert!(problem.watch_is_late(), "etcd carries out requests");
    send(&second, PROGRESS);
    assert_eq!(told(client.next()), (2, 9, vec![]));
}

#[test]
fn watch_with_reported_changes_is_not_moved_to_another_member() {
    let (pieces, watched) = body();
    let one = serving(vec![watched], |_| granted("{}"));
    let other = serving(Vec::new(), |_| granted("{}"));
    let client = Client::of(&[one.url(), other.url()]);
    client.etcd.request(RequestId(1), watch(3));
    send(&pieces, CHANGED);
    assert_eq!(told(client.next()).1, 5);
    send(
        &pieces,
        r#"{"error":{"grpc_code":14,"message":"etcdserver: no leader"}}"#,
    );
    assert!(client.next_problem().1.contains("no leader"));
    assert!(other.asked().is_empty());
}

#[test]
fn watches_of_a_failed_member_end_with_the_problem_of_the_request_that_failed() {
    let (pieces, watched) = body();
    let fake = serving(vec![watched], |_| Reply::Raw(Vec::new()));
    let client = Client::of(&[fake.url()]);
    client.etcd.request(RequestId(1), watch(3));
    send(&pieces, CHANGED);
    assert_eq!(told(client.next()).1, 5);
    let problem = client.etcd.ask(put("/a"), PATIENCE).unwrap_err();
    assert_eq!(client.next_problem().1, problem.to_string());
}

#[test]
fn unchanged_watch_reports_the_revision_of_a_renewal() {
    let kept = r#"{"result":{"header":{"revision":"20"},"ID":"5","TTL":"5"}}"#;
    for changed in [false, true] {
        let (pieces, watched) = body();
        let fake = serving(vec![watched], move |asked| match &*asked.path {
            "/v3/kv/txn" => {
                assert!(
                    asked.body.contains(r#""min_mod_revision":"6""#),
                    "{}",
                    asked.body
                );
                let kvs = if changed {
                    r#""kvs":[{"key":"L2E="}],"#
                } else {
                    ""
                };
                let count = r#""count":"2""#;
                granted(&format!(
                    r#"{{"header":{{"revision":"21"}},"succeeded":true,"responses":[
                    {{"response_range":{{{kvs}{count}}}}},{{"response_range":{{{count}}}}},{{"response_range":{{{count}}}}}]}}"#
                ))
            }
            _ => granted(kept),
        });
        let client = Client::of(&[fake.url()]);
        client.etcd.request(RequestId(1), watch(3));
        send(&pieces, CHANGED);
        assert_eq!(told(client.next()).1, 5);
        let keep_alive = Request::KeepAlive(LeaseId(5));
        let kept = client.etcd.ask(keep_alive, PATIENCE);
        assert_eq!(kept, Ok(Answer::KeptAlive(20)));
        if changed {
            // The watch itself reports the changes.
            send(&pieces, PROGRESS);
            assert_eq!(told(client.next()), (1, 9, vec![]));
        } else {
            assert_eq!(told(client.next()), (1, 21, vec![]));
        }
    }
}

#[test]
fn connections_end_with_the_client() {
    let (pieces, watched) = body();
    let fake = serving(vec![watched], |_| granted("{}"));
    let client = Client::of(&[fake.url()]);
    client.etcd.request(RequestId(1), watch(3));
    send(&pieces, CHANGED);
    assert_eq!(told(client.next()).1, 5);
    drop(client);
    drop(pieces);
    fake.wait_for_an_end();
}
