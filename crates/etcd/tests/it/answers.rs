//! Answers to requests, and failures.

use std::time::Duration;

use cluster::coord::{Answer, Compare, KeyValue, LeaseId, Op, Range, Request, RequestId, Txn};
use etcd::{Login, Options};

use crate::fake::{Asked, Fake, PATIENCE, Reply, granted};
use crate::{Client, login, options};

type Answering = Box<dyn Fn() -> Reply + Send>;

const HEADER: &str = r#""header":{"cluster_id":"9151734699010623715","member_id":"3153101805118352275","revision":"2","raft_term":"2"}"#;

pub(crate) fn put(key: &str) -> Request {
    let (key, value, lease) = (key.to_owned(), "v".to_owned(), LeaseId(0));
    let compare = vec![Compare::Version(key.clone(), 0)];
    let then = vec![Op::Put { key, value, lease }];
    Request::Txn(Txn { compare, then })
}

/// Answers like an etcd with the key `/a`.
fn recorded(asked: &Asked) -> Reply {
    let no_lease = r#"{"error":"etcdserver: requested lease not found","message":"etcdserver: requested lease not found","code":5}"#;
    let body = match &*asked.path {
        "/v3/kv/range" => {
            r#"{H,"kvs":[{"key":"L2E=","create_revision":"2","mod_revision":"2","version":"1","value":"dg=="}],"count":"1"}"#
        }
        "/v3/kv/txn" if asked.body.contains("L2E=") => "{H}",
        "/v3/kv/txn" if asked.body.contains("L2I=") => return Reply::Whole(404, no_lease.into()),
        "/v3/kv/txn" => {
            r#"{H,"succeeded":true,"responses":[{"response_put":{"header":{"revision":"2"}}}]}"#
        }
        "/v3/lease/grant" => r#"{H,"ID":"7751717593416674054","TTL":"5"}"#,
        "/v3/lease/keepalive" if asked.body.contains("1234") => r#"{"result":{H,"ID":"1234"}}"#,
        "/v3/lease/keepalive" => r#"{"result":{H,"ID":"5","TTL":"5"}}"#,
        "/v3/lease/revoke" if asked.body.contains("1234") => {
            return Reply::Whole(404, no_lease.into());
        }
        _ => "{H}",
    };
    granted(&body.replace('H', HEADER))
}

#[test]
fn every_request_is_answered_once() {
    let fake = Fake::start(recorded);
    let client = Client::of(&[fake.url()]);
    let a = KeyValue {
        key: "/a".to_owned(),
        value: "v".to_owned(),
        create_revision: 2,
        mod_revision: 2,
        version: 1,
        lease: LeaseId(0),
    };
    let (revision, found) = (2, vec![a]);
    let ttl_ms = 4_001;
    for (number, (request, answer)) in [
        (
            Request::Get(Range::Prefix("/".to_owned())),
            Answer::Got { revision, found },
        ),
        (put("/a"), Answer::Refused),
        (put("/b"), Answer::Refused),
        (put("/c"), Answer::Committed(2)),
        (
            Request::Grant { ttl_ms },
            Answer::Granted(LeaseId(7_751_717_593_416_674_054)),
        ),
        (Request::KeepAlive(LeaseId(5)), Answer::KeptAlive(2)),
        (Request::KeepAlive(LeaseId(1234)), Answer::NoLease),
        (Request::Revoke(LeaseId(5)), Answer::Revoked),
        (Request::Revoke(LeaseId(1234)), Answer::NoLease),
    ]
    .into_iter()
    .enumerate()
    {
        let id = RequestId(number as u64);
        client.etcd.request(id, request.clone());
        assert_eq!(client.next(), (id.0, Ok(answer.clone())), "{request:?}");
        assert_eq!(client.etcd.ask(request, PATIENCE), Ok(answer));
    }
    assert!(client.answers.try_recv().is_err());
}

#[test]
fn invalid_or_missing_answer_is_unavailable() {
    let refusal = |message: &str| format!(r#"{{"message":"{message}","code":14,"details":[]}}"#);
    let replies: [(&str, Answering); 9] = [
        ("not one of etcd", Box::new(|| granted("<html></html>"))),
        ("not one of etcd", Box::new(|| granted("{}"))),
        (
            "not one of etcd",
            Box::new(|| granted(r#"{"header":{"revision":"x"}}"#)),
        ),
        (
            "HTTP 404",
            Box::new(|| Reply::Whole(404, "Not Found".into())),
        ),
        (
            "speak HTTP",
            Box::new(|| Reply::Raw(b"SSH-2.0-x\r\n".into())),
        ),
        ("closes", Box::new(|| Reply::Raw(Vec::new()))),
        (
            "broke off",
            Box::new(|| Reply::Raw(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{".into())),
        ),
        (
            "too long",
            Box::new(|| Reply::Raw(b"HTTP/1.1 200 OK\r\nContent-Length: 70000000\r\n\r\n{".into())),
        ),
        (
            "request timed out",
            Box::new(move || Reply::Whole(503, refusal("etcdserver: request timed out"))),
        ),
    ];
    for (why, reply) in replies {
        let fake = Fake::start(move |_| reply());
        let client = Client::of(&[fake.url()]);
        client.etcd.request(RequestId(1), put("/a"));
        let (id, problem) = client.next_problem();
        assert_eq!(id, 1, "{why}");
        assert!(
            problem.contains(why) && problem.contains(&fake.url()),
            "{problem}"
        );
        assert_eq!(fake.asked().len(), 1, "{why}: a transaction is made once");
    }
}

#[test]
fn request_to_a_silent_member_times_out() {
    let fake = Fake::start(|_| Reply::Silence);
    let timeout = Duration::from_millis(100);
    let client = Client::with(Options {
        timeout,
        ..options(&[fake.url()])
    });
    assert!(client.problem(put("/a")).contains("100 ms"));
}

#[test]
fn client_logs_in_again_when_etcd_forgot_the_token() {
    let mut logins = 0;
    let fake = Fake::start(move |asked| {
        if asked.path == "/v3/auth/authenticate" {
            logins += 1;
            let known = asked.body.contains(r#""password":"secret""#);
            assert!(known && asked.token.is_none());
            return granted(&format!(r#"{{{HEADER},"token":"t{logins}"}}"#));
        }
        if asked.token.as_deref() == Some("t2") {
            return recorded(asked);
        }
        Reply::Whole(
            401,
            r#"{"error":"etcdserver: invalid auth token","code":16}"#.into(),
        )
    });
    let client = Client::with(Options {
        login: Some(login()),
        ..options(&[fake.url()])
    });
    for _ in 0..2 {
        assert_eq!(
            client.etcd.ask(put("/c"), PATIENCE),
            Ok(Answer::Committed(2))
        );
    }
    let paths: Vec<String> = fake.asked().into_iter().map(|asked| asked.path).collect();
    let (login, txn) = ("/v3/auth/authenticate", "/v3/kv/txn");
    assert_eq!(paths, [login, txn, login, txn, txn]);
}

#[test]
fn renewed_login_is_used_from_the_next_request_on() {
    let fake = Fake::start(|asked| match &*asked.path {
        "/v3/auth/authenticate" if asked.body.contains(r#""password":"changed""#) => {
            granted(&format!(r#"{{{HEADER},"token":"t"}}"#))
        }
        "/v3/auth/authenticate" => {
            let refusal = r#"{"error":"etcdserver: authentication failed","code":3}"#;
            Reply::Whole(400, refusal.into())
        }
        _ => recorded(asked),
    });
    let mut options = Options {
        login: Some(login()),
        ..options(&[fake.url()])
    };
    let client = Client::with(options.clone());
    assert!(client.problem(put("/c")).contains("authentication failed"));
    options.login = Some(Login {
        password: "changed".to_owned(),
        ..login()
    });
    client.etcd.renew(&options).unwrap();
    assert_eq!(
        client.etcd.ask(put("/c"), PATIENCE),
        Ok(Answer::Committed(2))
    );
}

/// etcd needs a tenth of a second of a processor for each login.
#[test]
fn requests_of_one_moment_need_one_login() {
    for granted_at_all in [true, false] {
        let fake = Fake::start(move |asked| match &*asked.path {
            "/v3/auth/authenticate" if granted_at_all => {
                granted(&format!(r#"{{{HEADER},"token":"t"}}"#))
            }
            "/v3/auth/authenticate" => {
                let refusal = r#"{"error":"etcdserver: authentication failed","code":3}"#;
                Reply::Whole(400, refusal.into())
            }
            _ => recorded(asked),
        });
        let client = Client::with(Options {
            login: Some(login()),
            ..options(&[fake.url()])
        });
        for id in 0..8 {
            client.etcd.request(RequestId(id), put("/c"));
        }
        let done = |(_, answer)| answer == Ok(Answer::Committed(2));
        assert_eq!(
            (0..8).filter(|_| done(client.next())).count(),
            if granted_at_all { 8 } else { 0 }
        );
        let asked = fake.asked().into_iter();
        let logins = asked.filter(|asked| asked.path == "/v3/auth/authenticate");
        // A refused login is tried again after a second, if the requests take so long.
        assert!(logins.count() <= if granted_at_all { 1 } else { 2 });
    }
}

#[test]
fn wrong_or_missing_login_is_reported_as_problem() {
    for (login, path, why) in [
        (
            Some(login()),
            "/v3/auth/authenticate",
            "authentication failed",
        ),
        (None, "/v3/kv/txn", "user and a password"),
    ] {
        let fake = Fake::start(move |asked| {
            assert_eq!(asked.path, path);
            let message = match path {
                "/v3/kv/txn" => "user name is empty",
                _ => "authentication failed, invalid user ID or password",
            };
            Reply::Whole(
                400,
                format!(r#"{{"error":"etcdserver: {message}","code":3}}"#),
            )
        });
        let client = Client::with(Options {
            login,
            ..options(&[fake.url()])
        });
        let problem = client.problem(put("/c"));
        assert!(problem.contains(why), "{problem}");
    }
}
