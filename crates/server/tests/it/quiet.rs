//! Tests of quiet commands: no answer unless there is something to report; NOOP is the fence.

use wire::{Opcode, Status};

use crate::client::{Client, Request, count, set, store};
use crate::place::shared;

#[test]
fn quiet_writes_are_silent_when_they_succeed() {
    let mut client = Client::ready(shared());
    client.pipeline(&[
        store(Opcode::SETQ, "q1", "1", 0, 0),
        store(Opcode::ADDQ, "q2", "b", 0, 0),
        store(Opcode::REPLACEQ, "q1", "2", 0, 0),
        Request::of(Opcode::APPENDQ, "q1").value("0"),
        Request::of(Opcode::PREPENDQ, "q1").value("1"),
        count(Opcode::INCREMENTQ, "q1", 5, 0, 0),
        count(Opcode::DECREMENTQ, "q1", 1, 0, 0),
        Request::of(Opcode::DELETEQ, "q2"),
        Request::new(Opcode::NOOP).opaque(77),
    ]);
    let fence = client.answer();
    assert_eq!((fence.opcode, fence.opaque), (Opcode::NOOP, 77));
    assert_eq!(client.get("q1").ok().value, b"124");
    client.get("q2").is(Status::KEY_ENOENT);
}

#[test]
fn every_error_of_a_quiet_command_is_answered() {
    let mut client = Client::ready(shared());
    client.set("qe", "text").ok();
    let failing = [
        (
            store(Opcode::SETQ, "qe", "", 0, 0).cas(1),
            Status::KEY_EEXISTS,
        ),
        (store(Opcode::ADDQ, "qe", "", 0, 0), Status::KEY_EEXISTS),
        (
            store(Opcode::REPLACEQ, "qe-no", "", 0, 0),
            Status::KEY_ENOENT,
        ),
        (Request::of(Opcode::DELETEQ, "qe-no"), Status::KEY_ENOENT),
        (Request::of(Opcode::APPENDQ, "qe-no"), Status::NOT_STORED),
        (Request::of(Opcode::PREPENDQ, "qe-no"), Status::NOT_STORED),
        (
            count(Opcode::INCREMENTQ, "qe", 1, 0, 0),
            Status::DELTA_BADVAL,
        ),
        (
            count(Opcode::DECREMENTQ, "qe-no", 1, 0, u32::MAX),
            Status::KEY_ENOENT,
        ),
        (
            Request::of(Opcode::GETQ, "qe").vbucket(1024),
            Status::NOT_MY_VBUCKET,
        ),
    ];
    let requests: Vec<Request> = failing
        .iter()
        .enumerate()
        .map(|(number, (request, _))| request.clone().opaque(number as u32))
        .collect();
    client.pipeline(&requests);
    for (number, (request, status)) in failing.iter().enumerate() {
        let answer = client.answer();
        assert_eq!(answer.opaque as usize, number);
        assert_eq!((answer.opcode, answer.status), (request.opcode, *status));
    }
    client.expect_silence();
}

#[test]
fn quiet_reads_answer_hits_only() {
    let mut client = Client::ready(shared());
    client.set("qr", "x").ok();
    let gat = |key| Request::of(Opcode::GATQ, key).extras(&[0; 4]);
    client.pipeline(&[
        Request::of(Opcode::GETQ, "qr-no"),
        Request::of(Opcode::GETQ, "qr").opaque(1),
        Request::of(Opcode::GETKQ, "qr-no"),
        Request::of(Opcode::GETKQ, "qr").opaque(2),
        gat("qr-no"),
        gat("qr").opaque(3),
        Request::of(Opcode::GETQ_META, "qr-no"),
        Request::of(Opcode::GETQ_META, "qr").opaque(4),
        Request::new(Opcode::NOOP).opaque(5),
    ]);
    let answers = client.answers(5);
    let opaques: Vec<u32> = answers.iter().map(|answer| answer.opaque).collect();
    assert_eq!(opaques, [1, 2, 3, 4, 5]);
    assert_eq!(
        (answers[0].value.as_slice(), answers[0].key.len()),
        (&b"x"[..], 0)
    );
    assert_eq!(answers[1].key, b"\0qr");
    assert_eq!(answers[2].value, b"x");
    assert_eq!(answers[3].extras.len(), 20);
}

#[test]
fn a_pipeline_sees_its_own_writes() {
    let mut client = Client::ready(shared());
    client.pipeline(&[
        set("own", "1"),
        Request::of(Opcode::GET, "own"),
        set("own", "2"),
        Request::of(Opcode::GET, "own"),
        Request::of(Opcode::DELETE, "own"),
        Request::of(Opcode::GET, "own"),
    ]);
    let answers = client.answers(6);
    assert_eq!(
        (answers[1].value.as_slice(), answers[3].value.as_slice()),
        (&b"1"[..], &b"2"[..])
    );
    assert_eq!(answers[5].status, Status::KEY_ENOENT);
}

#[test]
fn quit_is_answered_and_quitq_is_not() {
    for (opcode, answers) in [(Opcode::QUIT, 1), (Opcode::QUITQ, 0)] {
        let mut client = Client::ready(shared());
        // Later requests do not run, and do not keep the peer from reading the answers.
        let mut requests = vec![Request::of(Opcode::GET, "quit"), Request::new(opcode)];
        requests.resize(20_000, set("quit", "never"));
        client.pipeline(&requests);
        assert_eq!(client.answer().status, Status::KEY_ENOENT);
        for answer in client.answers(answers) {
            assert_eq!(answer.ok().opcode, opcode);
        }
        client.expect_end();
    }
    Client::ready(shared()).get("quit").is(Status::KEY_ENOENT);
}
