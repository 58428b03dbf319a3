//! Tests of the progress of changes: OBSERVE, `OBSERVE_SEQNO`, `SEQNO_PERSISTENCE`, all seqnos.

use model::VbId;
use wire::{Feature, Opcode, Status};

use crate::client::{Answer, Client, Request, sdk_without, set};
use crate::place::{on_both, on_disk, own, shared};

const NOT_FOUND: u8 = 0x80;
const DELETED: u8 = 0x81;
const PERSISTED: u8 = 1;

fn observe(client: &mut Client, keys: &[&str]) -> Vec<(u8, u64)> {
    let mut value = Vec::new();
    for key in keys {
        value.extend(VbId::of_key(key.as_bytes(), 1024).0.to_be_bytes());
        value.extend((key.len() as u16 + 1).to_be_bytes());
        value.extend([&[0], key.as_bytes()].concat());
    }
    let answer = client
        .call(&Request::new(Opcode::OBSERVE).value(&value))
        .ok();
    let mut states = Vec::new();
    let (mut rest, mut asked) = (answer.value.as_slice(), value.as_slice());
    for key in keys {
        let echoed = key.len() + 5;
        assert_eq!(rest[..echoed], asked[..echoed], "vBucket and key as sent");
        let cas = u64::from_be_bytes(rest[echoed + 1..echoed + 9].try_into().unwrap());
        states.push((rest[echoed], cas));
        (rest, asked) = (&rest[echoed + 9..], &asked[echoed..]);
    }
    assert!(rest.is_empty());
    states
}

/// Waits until everything of `key`'s vBucket up to `seqno` is durable.
fn await_durable(client: &mut Client, key: &str, seqno: u64) {
    let request =
        Request::new(Opcode::SEQNO_PERSISTENCE).vbucket(VbId::of_key(key.as_bytes(), 1024).0);
    client.call(&request.extras(&seqno.to_be_bytes())).ok();
}

fn observe_seqno(client: &mut Client, vbucket: u16, uuid: u64) -> Answer {
    let request = Request::new(Opcode::OBSERVE_SEQNO).vbucket(vbucket);
    client.call(&request.value(uuid.to_be_bytes()))
}

#[test]
fn keys_are_observed_until_they_are_durable() {
    on_both(|port| {
        let mut client = Client::ready(port);
        let set = client.set("obs", "x").ok();
        let states = observe(&mut client, &["obs", "obs-no"]);
        assert!(states[0].0 <= PERSISTED);
        assert_eq!((states[0].1, states[1]), (set.cas, (NOT_FOUND, 0)));
        await_durable(&mut client, "obs", set.seqno());
        assert_eq!(observe(&mut client, &["obs"]), [(PERSISTED, set.cas)]);
        let deleted = client.call(&Request::of(Opcode::DELETE, "obs")).ok();
        let state = observe(&mut client, &["obs"])[0].0;
        assert!([DELETED, NOT_FOUND].contains(&state), "{state}");
        await_durable(&mut client, "obs", deleted.seqno());
        let state = observe(&mut client, &["obs"])[0].0;
        assert!([DELETED, NOT_FOUND].contains(&state), "{state}");
    });
}

#[test]
fn malformed_observes() {
    let mut client = Client::ready(shared());
    for value in [
        &b""[..],
        b"\0",
        b"\0\0\0",
        b"\0\0\0\x05\0k",
        b"\0\0\0\0",
        b"\0\0\0\x01\0",
    ] {
        client
            .call(&Request::new(Opcode::OBSERVE).value(value))
            .is(Status::EINVAL);
    }
    let wrong = [4, 0, 0, 2, 0, b'k'];
    let answer = client.call(&Request::new(Opcode::OBSERVE).value(wrong));
    assert_eq!(answer.is(Status::NOT_MY_VBUCKET).json()["name"], "default");
    for value in [&b""[..], &[0; 7], &[0; 9]] {
        client
            .call(&Request::new(Opcode::OBSERVE_SEQNO).value(value))
            .is(Status::EINVAL);
    }
}

#[test]
fn seqnos_are_observed() {
    on_both(|port| {
        let mut client = Client::ready(port);
        let set = client.set("obs-seq", "x").ok();
        let vbucket = VbId::of_key(b"obs-seq", 1024).0;
        await_durable(&mut client, "obs-seq", set.seqno());
        let answer = observe_seqno(&mut client, vbucket, set.uuid()).ok();
        let seqno = set.seqno().to_be_bytes();
        let expected = [
            &[0][..],
            &vbucket.to_be_bytes(),
            &set.uuid().to_be_bytes(),
            &seqno,
            &seqno,
        ]
        .concat();
        assert_eq!(answer.value, expected);
        observe_seqno(&mut client, vbucket, set.uuid() + 1).is(Status::KEY_ENOENT);
        observe_seqno(&mut client, 1024, set.uuid()).is(Status::NOT_MY_VBUCKET);
    });
}

#[test]
fn a_waiter_is_woken_by_a_later_write() {
    let place = tempfile::tempdir().unwrap();
    let node = on_disk(place.path());
    let mut waiting = Client::ready(node.ports().kv);
    let mut writer = Client::ready(node.ports().kv);
    let first = writer.set("wait", "1").ok();
    let vbucket = VbId::of_key(b"wait", 1024).0;
    let wanted = first.seqno() + 3;
    let wait = Request::new(Opcode::SEQNO_PERSISTENCE).vbucket(vbucket);
    waiting.pipeline_and_wait(&[
        wait.extras(&wanted.to_be_bytes()).opaque(1),
        Request::of(Opcode::GET, "wait").opaque(2),
    ]);
    for value in ["2", "3", "4"] {
        writer.set("wait", value).ok();
    }
    let answers = waiting.answers(2);
    assert_eq!((answers[0].opaque, answers[0].status), (1, Status::SUCCESS));
    assert_eq!(
        answers[1].clone().ok().value,
        b"4",
        "what follows waited too"
    );
    let observed = observe_seqno(&mut writer, vbucket, first.uuid()).ok();
    assert!(u64::from_be_bytes(observed.value[11..19].try_into().unwrap()) >= wanted);
    node.shutdown().unwrap();
}

#[test]
fn a_waiter_that_goes_away_harms_no_other() {
    let node = own();
    let mut waiting = Client::ready(node.ports().kv);
    let wait = Request::new(Opcode::SEQNO_PERSISTENCE).extras(&1000_u64.to_be_bytes());
    waiting.pipeline_and_wait(std::slice::from_ref(&wait));
    drop(waiting);
    let mut client = Client::ready(node.ports().kv);
    let set = client.set("away", "x").ok();
    await_durable(&mut client, "away", set.seqno());
    let mut waiting = Client::ready(node.ports().kv);
    waiting.pipeline_and_wait(std::slice::from_ref(&wait));
    // Waiting requests do not delay the end of the node.
    node.shutdown().unwrap();
    waiting.expect_end();
}

#[test]
fn all_seqnos() {
    let node = own();
    let mut client = Client::ready(node.ports().kv);
    let set_vbucket = |client: &mut Client, vb, state| crate::place::set_vbucket(client, vb, state);
    let stored = client.call(&set("seqnos", "x")).ok();
    let vbucket = VbId::of_key(b"seqnos", 1024).0;
    let all = |client: &mut Client, extras: &[u8]| -> Vec<(u16, u64)> {
        let answer = client
            .call(&Request::new(Opcode::GET_ALL_VB_SEQNOS).extras(extras))
            .ok();
        let row = |row: &[u8]| {
            let vb = u16::from_be_bytes(row[..2].try_into().unwrap());
            (vb, u64::from_be_bytes(row[2..].try_into().unwrap()))
        };
        answer.value.chunks(10).map(row).collect()
    };
    let rows = all(&mut client, &[]);
    assert_eq!(rows.len(), 1024);
    assert_eq!(rows[usize::from(vbucket)], (vbucket, stored.seqno()));
    let (a, b, c) = (
        (vbucket + 1) % 1024,
        (vbucket + 2) % 1024,
        (vbucket + 3) % 1024,
    );
    set_vbucket(&mut client, a, 2);
    set_vbucket(&mut client, b, 3);
    set_vbucket(&mut client, c, 4);
    assert_eq!(all(&mut client, &[]).len(), 1023, "dead ones are left out");
    assert_eq!(all(&mut client, &[0, 0, 0, 0]).len(), 1023);
    assert_eq!(all(&mut client, &[0, 0, 0, 1]).len(), 1021);
    assert_eq!(all(&mut client, &[0, 0, 0, 2]), [(a, 0)]);
    assert_eq!(all(&mut client, &[0, 0, 0, 3]), [(b, 0)]);
    assert_eq!(all(&mut client, &[0, 0, 0, 4]), [(c, 0)]);
    assert_eq!(all(&mut client, &[0, 0, 0, 1, 0, 0, 0, 0]).len(), 1021);
    let wrong = Request::new(Opcode::GET_ALL_VB_SEQNOS).extras(&[0, 0, 0, 5]);
    client.call(&wrong).is(Status::EINVAL);
    let mut bare = Client::with(node.ports().kv, &sdk_without(Feature::COLLECTIONS));
    assert_eq!(all(&mut bare, &[]).len(), 1023);
    node.shutdown().unwrap();
}
