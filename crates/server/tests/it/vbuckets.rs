//! Tests of whole vBuckets: their states, and document commands in each state.

use model::VbId;
use wire::{Opcode, Status};

use crate::client::{Client, Request, count, set};
use crate::place::{on_disk, own, set_vbucket, shared};

const ACTIVE: u8 = 1;
const REPLICA: u8 = 2;
const PENDING: u8 = 3;
const DEAD: u8 = 4;

fn vbucket(key: &str) -> u16 {
    VbId::of_key(key.as_bytes(), 1024).0
}

fn state(client: &mut Client, vbucket: u16) -> u32 {
    let answer = client
        .call(&Request::new(Opcode::GET_VBUCKET).vbucket(vbucket))
        .ok();
    u32::from_be_bytes(answer.value.try_into().unwrap())
}

fn documents_commands(key: &str) -> Vec<Request> {
    vec![
        Request::of(Opcode::GET, key),
        Request::of(Opcode::GETK, key),
        set(key, "x"),
        Request::of(Opcode::DELETE, key),
        Request::of(Opcode::APPEND, key).value("x"),
        count(Opcode::INCREMENT, key, 1, 0, 0),
        Request::of(Opcode::TOUCH, key).extras(&[0; 4]),
        Request::of(Opcode::GAT, key).extras(&[0; 4]),
        Request::of(Opcode::GET_LOCKED, key),
        Request::of(Opcode::UNLOCK_KEY, key).cas(1),
        Request::of(Opcode::GET_META, key),
    ]
}

#[test]
fn an_active_vbucket_is_no_replica() {
    let mut client = Client::ready(shared());
    client.set("rep", "x").ok();
    let answer = client.call(&Request::of(Opcode::GET_REPLICA, "rep"));
    assert_eq!(answer.is(Status::NOT_MY_VBUCKET).json()["name"], "default");
    client.get("rep").ok();
}

#[test]
fn a_replica_answers_get_replica_only() {
    let node = own();
    let mut client = Client::ready(node.ports().kv);
    let stored = client.set("rep", "x").ok();
    set_vbucket(&mut client, vbucket("rep"), REPLICA);
    assert_eq!(state(&mut client, vbucket("rep")), u32::from(REPLICA));
    let got = client.call(&Request::of(Opcode::GET_REPLICA, "rep")).ok();
    assert_eq!((got.value.as_slice(), got.cas), (&b"x"[..], stored.cas));
    client
        .call(&Request::of(Opcode::GET_REPLICA, "rep").cas(1))
        .is(Status::EINVAL);
    for state in [REPLICA, DEAD] {
        set_vbucket(&mut client, vbucket("rep"), state);
        for request in documents_commands("rep") {
            let answer = client.call(&request);
            assert_eq!(answer.status, Status::NOT_MY_VBUCKET, "{state} {request:?}");
        }
    }
    client
        .call(&Request::of(Opcode::GET_REPLICA, "rep"))
        .is(Status::NOT_MY_VBUCKET);
    set_vbucket(&mut client, vbucket("rep"), ACTIVE);
    assert_eq!(client.get("rep").ok().cas, stored.cas);
    node.shutdown().unwrap();
}

#[test]
fn requests_to_a_pending_vbucket_wait() {
    let node = own();
    let port = node.ports().kv;
    let mut operator = Client::ready(port);
    operator.set("pend", "x").ok();
    set_vbucket(&mut operator, vbucket("pend"), PENDING);
    let mut waiting: Vec<(Client, Request)> = documents_commands("pend")
        .into_iter()
        .map(|request| (Client::ready(port), request))
        .collect();
    for (client, request) in &mut waiting {
        client.pipeline_and_wait(&[
            request.clone().opaque(1),
            Request::new(Opcode::NOOP).opaque(2),
        ]);
    }
    // A connection that does not use it is served; no waiting connection got an answer meanwhile.
    operator.set("pend-2", "y").ok();
    set_vbucket(&mut operator, vbucket("pend"), ACTIVE);
    for (client, request) in &mut waiting {
        let answers = client.answers(2);
        assert_eq!((answers[0].opaque, answers[1].opaque), (1, 2));
        let refused = [Status::NOT_MY_VBUCKET, Status::ETMPFAIL].contains(&answers[0].status);
        // GET_LOCKED and UNLOCK of the other connections interact here, so any status of an active vBucket is right; a
        // lock shows as LOCKED with XERROR.
        assert!(!refused, "{request:?} {:?}", answers[0]);
    }
    node.shutdown().unwrap();
}

#[test]
fn a_pending_vbucket_that_dies_answers_too() {
    let node = own();
    let mut operator = Client::ready(node.ports().kv);
    set_vbucket(&mut operator, vbucket("die"), PENDING);
    for remove in [false, true] {
        let mut waiting = Client::ready(node.ports().kv);
        waiting.pipeline_and_wait(&[Request::of(Opcode::GET, "die")]);
        if remove {
            let delete = Request::new(Opcode::DEL_VBUCKET).vbucket(vbucket("die"));
            operator.call(&delete).ok();
        } else {
            set_vbucket(&mut operator, vbucket("die"), DEAD);
        }
        assert_eq!(waiting.answer().status, Status::NOT_MY_VBUCKET);
        if !remove {
            set_vbucket(&mut operator, vbucket("die"), PENDING);
        }
    }
    // A request that waits for ever does not delay the end of the node.
    set_vbucket(&mut operator, vbucket("wait"), PENDING);
    let mut waiting = Client::ready(node.ports().kv);
    waiting.pipeline_and_wait(&[Request::of(Opcode::GET, "wait")]);
    node.shutdown().unwrap();
    waiting.expect_end();
}

#[test]
fn vbuckets_are_deleted_and_created_again() {
    let place = tempfile::tempdir().unwrap();
    let node = on_disk(place.path());
    let mut client = Client::ready(node.ports().kv);
    let stored = client.set("gone", "x").ok();
    let id = vbucket("gone");
    let delete = Request::new(Opcode::DEL_VBUCKET).vbucket(id);
    client.call(&delete).ok();
    client.get("gone").is(Status::NOT_MY_VBUCKET);
    client.call(&delete).is(Status::NOT_MY_VBUCKET);
    let get_state = Request::new(Opcode::GET_VBUCKET).vbucket(id);
    client.call(&get_state).is(Status::NOT_MY_VBUCKET);
    set_vbucket(&mut client, id, ACTIVE);
    client.get("gone").is(Status::KEY_ENOENT);
    let again = client.set("gone", "y").ok();
    assert_eq!(again.seqno(), 1, "a history of its own");
    assert_ne!(again.uuid(), stored.uuid());
    node.shutdown().unwrap();
}

#[test]
fn failover_logs() {
    let mut client = Client::ready(shared());
    let stored = client.set("log", "x").ok();
    let request = Request::new(Opcode::GET_FAILOVER_LOG).vbucket(vbucket("log"));
    let log = client.call(&request).ok().value;
    assert_eq!(log, [stored.uuid().to_be_bytes(), [0; 8]].concat());
    assert!(stored.uuid() != 0 && stored.uuid() >> 48 == 0);
    client
        .call(&request.vbucket(1024))
        .is(Status::NOT_MY_VBUCKET);
}

#[test]
fn states_that_are_refused() {
    let node = own();
    let mut client = Client::ready(node.ports().kv);
    let with = |extras: &[u8], value: &str| {
        Request::new(Opcode::SET_VBUCKET)
            .vbucket(5)
            .extras(extras)
            .value(value)
    };
    for extras in [&[0][..], &[5], &[], &[1, 1], &[0, 0, 0, 9]] {
        client.call(&with(extras, "")).is(Status::EINVAL);
    }
    for value in ["x", "[]", r#"{"topology":5}"#, r#"{"topology":[1,2,3]}"#] {
        let request = with(&[ACTIVE], value).datatype(1);
        assert_eq!(client.call(&request).status, Status::EINVAL, "{value}");
    }
    let replica = with(&[REPLICA], r#"{"topology":[["a"]]}"#).datatype(1);
    client.call(&replica).is(Status::EINVAL);
    let chain = with(&[ACTIVE], r#"{"topology":[["a",null]]}"#).datatype(1);
    client.call(&chain).ok();
    client.call(&with(&[0, 0, 0, REPLICA], "")).ok();
    assert_eq!(state(&mut client, 5), u32::from(REPLICA));
    let far = Request::new(Opcode::SET_VBUCKET)
        .vbucket(1024)
        .extras(&[ACTIVE]);
    assert_ne!(client.call(&far).status, Status::SUCCESS);
    node.shutdown().unwrap();
}
