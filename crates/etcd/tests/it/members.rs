//! Choice of the member.

use std::time::Duration;

use cluster::coord::{Answer, LeaseId, Request, RequestId};
use etcd::{Etcd, Options, ProblemKind};

use crate::answers::put;
use crate::fake::{Fake, PATIENCE, Reply, granted};
use crate::{Client, options};

const COMMITTED: &str = r#"{"header":{"cluster_id":"1","revision":"7"},"succeeded":true}"#;

/// Returns an address without a listener: no other test can get this port.
fn away() -> String {
    "http://127.0.0.1:1".to_owned()
}

#[test]
fn next_member_is_tried_if_the_first_did_nothing() {
    let no_leader = r#"{"error":"etcdserver: no leader","code":14}"#;
    let without = Fake::start(move |_| Reply::Whole(503, no_leader.into()));
    let well = Fake::start(|_| granted(COMMITTED));
    let client = Client::of(&[away(), without.url(), well.url()]);
    for number in 0..3 {
        client.etcd.request(RequestId(number), put("/a"));
        assert_eq!(client.next(), (number, Ok(Answer::Committed(7))));
    }
    // The working member is tried first from then on.
    assert_eq!((without.asked().len(), well.asked().len()), (1, 3));
}

#[test]
fn transaction_with_unknown_result_is_not_repeated() {
    let broken = Fake::start(|_| Reply::Raw(Vec::new()));
    let well = Fake::start(|_| granted(COMMITTED));
    let client = Client::of(&[broken.url(), well.url()]);
    client.etcd.ask(put("/a"), PATIENCE).unwrap_err();
    assert_eq!((broken.asked().len(), well.asked().len()), (1, 0));
    assert_eq!(
        client.etcd.ask(put("/a"), PATIENCE),
        Ok(Answer::Committed(7))
    );
    assert_eq!((broken.asked().len(), well.asked().len()), (1, 1));
}

#[test]
fn a_lease_is_renewed_at_another_member_while_one_hangs() {
    let hangs = Fake::start(|_| Reply::Silence);
    let well =
        Fake::start(|_| granted(r#"{"result":{"header":{"revision":"7"},"ID":"5","TTL":"2"}}"#));
    let client = Client::with(Options {
        timeout: Duration::from_secs(2),
        ..options(&[hangs.url(), well.url()])
    });
    let renewal = Request::KeepAlive(LeaseId(5));
    for _ in 0..2 {
        let answer = client.etcd.ask(renewal.clone(), PATIENCE);
        assert_eq!(answer, Ok(Answer::KeptAlive(7)));
    }
    assert_eq!((hangs.asked().len(), well.asked().len()), (1, 2));
}

#[test]
fn all_members_that_answer_are_of_one_etcd() {
    let of = |id: u8| {
        Fake::start(move |asked| match &*asked.path {
            "/version" => granted(r#"{"etcdserver":"3.5.9","etcdcluster":"3.5.0"}"#),
            _ => granted(&format!(
                r#"{{"header":{{"cluster_id":"{id}","revision":"7"}}}}"#
            )),
        })
    };
    let (one, same, other) = (of(1), of(1), of(2));
    let checked = |members: &[String]| Etcd::check(&options(members));
    let version = checked(&[away(), one.url(), same.url()]).unwrap();
    assert_eq!(version.to_string(), "3.5.9");
    let problem = checked(&[one.url(), other.url()]).unwrap_err();
    assert_eq!(problem.kind(), ProblemKind::NotEtcd);
    assert!(problem.to_string().contains("different etcds"), "{problem}");
    let problem = checked(&[away(), away()]).unwrap_err();
    assert_eq!(problem.kind(), ProblemKind::Unreachable);
}

#[test]
fn too_old_etcd_is_reported() {
    for (version, kind) in [
        ("3.3.27", ProblemKind::NotEtcd),
        ("2.9", ProblemKind::NotEtcd),
        ("new", ProblemKind::NotEtcd),
    ] {
        let fake = Fake::start(move |_| granted(&format!(r#"{{"etcdserver":"{version}"}}"#)));
        let problem = Etcd::check(&options(&[fake.url()])).unwrap_err();
        assert_eq!(problem.kind(), kind);
        assert!(problem.to_string().contains(version), "{problem}");
    }
}
