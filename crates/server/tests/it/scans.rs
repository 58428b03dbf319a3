//! Tests of range scans: results, order, limits, refusals, and the end of scans.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use wire::response::{ScanContent, ScanDocument, scan_documents, scan_keys};
use wire::{Feature, Opcode, Status};

use crate::client::{Answer, Client, Request, sdk_and, store};
use crate::place::{on_both, on_disk, own, set_vbucket, shared};
use crate::subdoc::{DICT_UPSERT, XATTR, changes};

const VB: u16 = 12;

/// Stores a document of the default collection in this vBucket, whatever its key.
fn put(client: &mut Client, vb: u16, key: &str, value: &str) -> Answer {
    let request = store(Opcode::SET, key, value, 0xcafe, 0);
    client.call(&request.vbucket(vb).datatype(1)).ok()
}

fn delete(client: &mut Client, vb: u16, key: &str) -> Answer {
    client
        .call(&Request::of(Opcode::DELETE, key).vbucket(vb))
        .ok()
}

fn create(client: &mut Client, vb: u16, json: &Value) -> Answer {
    let request = Request::new(Opcode::RANGE_SCAN_CREATE).vbucket(vb);
    client.call(&request.datatype(1).value(json.to_string()))
}

/// Returns a scan of all keys with this prefix, as of this write.
fn prefix(prefix: &str, since: &Answer) -> Value {
    let end = STANDARD.encode([prefix.as_bytes(), &[0xff]].concat());
    json!({
        "range": { "start": STANDARD.encode(prefix), "end": end },
        "snapshot_requirements": needs(since),
    })
}

fn needs(since: &Answer) -> Value {
    json!({ "vb_uuid": since.uuid().to_string(), "seqno": since.seqno(), "timeout_ms": 30_000 })
}

fn with(mut ask: Value, name: &str, value: impl Into<Value>) -> Value {
    ask[name] = value.into();
    ask
}

fn id(answer: Answer) -> Vec<u8> {
    let id = answer.ok().value;
    assert_eq!(id.len(), 16);
    id
}

fn continue_request(vb: u16, id: &[u8], [items, ms, bytes]: [u32; 3]) -> Request {
    let mut extras = id.to_vec();
    for limit in [items, ms, bytes] {
        extras.extend(limit.to_be_bytes());
    }
    Request::new(Opcode::RANGE_SCAN_CONTINUE)
        .vbucket(vb)
        .extras(&extras)
}

fn cancel(client: &mut Client, vb: u16, id: &[u8]) -> Answer {
    let request = Request::new(Opcode::RANGE_SCAN_CANCEL).vbucket(vb);
    client.call(&request.extras(id))
}

/// Returns the answers to a CONTINUE: those with rows and the last one.
fn go_on(client: &mut Client, vb: u16, id: &[u8], limits: [u32; 3]) -> Vec<Answer> {
    let mut answers = vec![client.call(&continue_request(vb, id, limits))];
    while answers[answers.len() - 1].status == Status::SUCCESS {
        answers.push(client.answer());
    }
    assert!(answers.iter().all(|one| one.opaque == answers[0].opaque));
    answers
}

fn keys_in(answers: &[Answer]) -> Vec<String> {
    let mut keys = Vec::new();
    for answer in answers {
        assert_eq!(ScanContent::parse(&answer.extras), Ok(ScanContent::Keys));
        let found = scan_keys(&answer.value);
        keys.extend(found.map(|key| String::from_utf8(key.unwrap().to_vec()).unwrap()));
    }
    keys
}

fn documents_in(answers: &[Answer]) -> Vec<ScanDocument<'_>> {
    let mut found = Vec::new();
    for answer in answers {
        assert_eq!(
            ScanContent::parse(&answer.extras),
            Ok(ScanContent::Documents)
        );
        found.extend(scan_documents(&answer.value).map(Result::unwrap));
    }
    found
}

/// Returns the keys of a whole scan.
fn all_keys(client: &mut Client, vb: u16, ask: &Value) -> Vec<String> {
    let id = id(create(client, vb, &with(ask.clone(), "key_only", true)));
    let answers = go_on(client, vb, &id, [0; 3]);
    assert_eq!(
        answers.last().unwrap().status,
        Status::RANGE_SCAN_COMPLETE,
        "{}",
        answers.last().unwrap().text()
    );
    keys_in(&answers)
}

/// Returns the keys of a scan without a required change.
fn keys_now(client: &mut Client, vb: u16) -> Vec<String> {
    let range = json!({ "start": "", "end": STANDARD.encode([0xff]) });
    all_keys(client, vb, &json!({ "range": range }))
}

#[test]
fn a_scan_sees_all_writes_acknowledged_before_it() {
    on_both(|port| {
        let [mut writer, mut reader] = [Client::ready(port), Client::ready(port)];
        // Between two commits and right behind one.
        for number in 0..20 {
            let key = format!("fresh-{number:02}");
            put(&mut writer, VB + 3, &key, "{}");
            let seen = keys_now(&mut reader, VB + 3);
            assert_eq!(seen.last(), Some(&key));
            assert_eq!(seen.len(), number + 1);
        }
        delete(&mut writer, VB + 3, "fresh-19");
        assert_eq!(keys_now(&mut reader, VB + 3).len(), 19);
    });
}

#[test]
fn documents_come_by_key_with_metadata_and_value() {
    on_both(|port| {
        let mut client = Client::ready(port);
        let mut written = BTreeMap::new();
        let mut last = None;
        for key in ["scan-c", "scan-a", "scan-b", "scan-aa", "scam", "scao"] {
            let value = format!("{{\"of\":\"{key}\"}}");
            let token = put(&mut client, VB, key, &value);
            written.insert(key, (value, token.cas, token.seqno()));
            last = Some(token);
        }
        let id = id(create(&mut client, VB, &prefix("scan-", &last.unwrap())));
        let answers = go_on(&mut client, VB, &id, [0; 3]);
        assert_eq!(answers.len(), 1, "few rows come with the last answer");
        assert_eq!(answers[0].status, Status::RANGE_SCAN_COMPLETE);
        let found = documents_in(&answers);
        let keys: Vec<&[u8]> = found.iter().map(|one| one.key).collect();
        assert_eq!(keys, [&b"scan-a"[..], b"scan-aa", b"scan-b", b"scan-c"]);
        for one in found {
            let (value, cas, seqno) = &written[std::str::from_utf8(one.key).unwrap()];
            assert_eq!((one.value, one.cas.0), (value.as_bytes(), *cas));
            assert_eq!((one.seqno.0, one.flags, one.expiry), (*seqno, 0xcafe, 0));
            assert_eq!(one.datatype.0, 1);
        }
        go_on(&mut client, VB, &id, [0; 3])
            .pop()
            .unwrap()
            .is(Status::KEY_ENOENT);
    });
}

#[test]
fn either_end_of_a_range_may_be_left_out() {
    let mut client = Client::ready(shared());
    let mut last = None;
    for key in ["ends-1", "ends-2", "ends-3"] {
        last = Some(put(&mut client, 13, key, "1"));
    }
    let needs = needs(&last.unwrap());
    let mut keys = |start: &str, end: &str| {
        let [one, three] = ["ends-1", "ends-3"].map(|key| STANDARD.encode(key));
        let ask = json!({ "range": { start: one, end: three }, "snapshot_requirements": needs });
        all_keys(&mut client, 13, &ask)
    };
    assert_eq!(keys("start", "end"), ["ends-1", "ends-2", "ends-3"]);
    assert_eq!(keys("excl_start", "end"), ["ends-2", "ends-3"]);
    assert_eq!(keys("start", "excl_end"), ["ends-1", "ends-2"]);
    assert_eq!(keys("excl_start", "excl_end"), ["ends-2"]);
}

#[test]
fn missing_documents_are_not_found() {
    let place = tempfile::tempdir().unwrap();
    let node = on_disk(place.path());
    let mut client = Client::ready(node.ports().kv);
    for key in ["gone-1", "gone-2", "gone-3", "other"] {
        put(&mut client, VB, key, "1");
    }
    delete(&mut client, VB, "gone-2");
    let late = store(Opcode::SET, "gone-4", "1", 0, 1);
    client.call(&late.vbucket(VB)).ok();
    let mut last = put(&mut client, VB, "gone-3", "2");
    // Wait until it is expired in the vBucket.
    while client
        .call(&Request::of(Opcode::GET, "gone-4").vbucket(VB))
        .status
        == Status::SUCCESS
    {
        last = put(&mut client, VB, "gone-3", "2");
    }
    let ask = prefix("gone", &last);
    assert_eq!(all_keys(&mut client, VB, &ask), ["gone-1", "gone-3"]);
    let empty = create(&mut client, VB, &prefix("gone-2", &last));
    empty.is(Status::KEY_ENOENT);
    // Another vBucket has none of them.
    let mut ask = prefix("gone", &last);
    ask.as_object_mut().unwrap().remove("snapshot_requirements");
    create(&mut client, VB + 1, &ask).is(Status::KEY_ENOENT);
}

#[test]
fn a_scan_reads_one_snapshot() {
    on_both(|port| {
        let mut client = Client::ready(port);
        let mut last = None;
        for number in 0..50 {
            last = Some(put(&mut client, 14, &format!("moment-{number:02}"), "old"));
        }
        let id = id(create(&mut client, 14, &prefix("moment-", &last.unwrap())));
        let first = go_on(&mut client, 14, &id, [10, 0, 0]);
        assert_eq!(documents_in(&first).len(), 10);
        for number in 0..50 {
            put(&mut client, 14, &format!("moment-{number:02}"), "new");
        }
        put(&mut client, 14, "moment-99", "new");
        let deleted = delete(&mut client, 14, "moment-49");
        // Another scan waits until that is durable, so it is in the store.
        let ask = prefix("moment-", &deleted);
        assert_eq!(all_keys(&mut client, 14, &ask).len(), 50);
        let rest = go_on(&mut client, 14, &id, [0; 3]);
        let rest = documents_in(&rest);
        assert_eq!(rest.len(), 40);
        assert!(rest.iter().all(|one| one.value == b"old"));
        assert_eq!(rest[39].key, b"moment-49");
    });
}

#[test]
fn limits_are_kept_and_nothing_comes_twice() {
    let mut client = Client::ready(shared());
    let mut last = None;
    let value = "v".repeat(1_000);
    for number in 0..100 {
        last = Some(put(&mut client, 15, &format!("limit-{number:03}"), &value));
    }
    let ask = prefix("limit-", &last.unwrap());
    for (limits, each) in [([7, 0, 0], 7), ([0, 0, 3_500], 4), ([9, 60_000, 2_000], 2)] {
        let id = id(create(&mut client, 15, &ask));
        let mut keys = Vec::new();
        loop {
            let answers = go_on(&mut client, 15, &id, limits);
            let found = documents_in(&answers);
            assert!(found.len() <= each, "{limits:?}: {}", found.len());
            keys.extend(found.iter().map(|one| one.key.to_vec()));
            match answers.last().unwrap().status {
                Status::RANGE_SCAN_MORE => assert_eq!(found.len(), each),
                status => {
                    assert_eq!(status, Status::RANGE_SCAN_COMPLETE);
                    break;
                }
            }
        }
        let expected: Vec<Vec<u8>> = (0..100).map(|n| format!("limit-{n:03}").into()).collect();
        assert_eq!(keys, expected, "{limits:?}");
    }
    // Without limits rows come in answers of some 8 KiB.
    let id = id(create(&mut client, 15, &ask));
    let answers = go_on(&mut client, 15, &id, [0; 3]);
    assert!(answers.len() > 10, "{}", answers.len());
    assert!(answers.iter().all(|one| one.value.len() < 10_000));
}

#[test]
fn large_documents_do_not_have_to_fit_together() {
    let place = tempfile::tempdir().unwrap();
    let node = on_disk(place.path());
    let mut client = Client::ready(node.ports().kv);
    let mut last = None;
    for number in 0..12 {
        let value = format!("{number}").repeat(900_000);
        last = Some(put(&mut client, VB, &format!("great-{number:02}"), &value));
    }
    let id = id(create(&mut client, VB, &prefix("great-", &last.unwrap())));
    let answers = go_on(&mut client, VB, &id, [0; 3]);
    let found = documents_in(&answers);
    assert_eq!(found.len(), 12);
    for (number, one) in found.iter().enumerate() {
        assert_eq!(one.key, format!("great-{number:02}").as_bytes());
        assert_eq!(one.value, format!("{number}").repeat(900_000).as_bytes());
    }
}

#[test]
fn samples_have_the_requested_size_and_depend_on_the_seed() {
    // A sample is taken from all documents: no other test may write here.
    let place = tempfile::tempdir().unwrap();
    for node in [own(), on_disk(place.path())] {
        let mut client = Client::ready(node.ports().kv);
        let mut last = None;
        for number in 0..200 {
            last = Some(put(&mut client, 16, &format!("sample-{number:03}"), "1"));
        }
        let needs = needs(&last.unwrap());
        let mut sample = |samples: u64, seed: u64| {
            let sampling = json!({ "samples": samples, "seed": seed });
            let ask = json!({ "sampling": sampling, "snapshot_requirements": needs });
            all_keys(&mut client, 16, &ask)
        };
        let first = sample(20, 7);
        assert_eq!(first.len(), 20);
        assert!(first.is_sorted());
        assert_eq!(sample(20, 7), first);
        assert_ne!(sample(20, 8), first);
        assert_eq!(sample(200, 1).len(), 200);
        assert_eq!(sample(u64::MAX, 1).len(), 200);
    }
}

#[test]
fn attributes_come_on_request() {
    let mut client = Client::with(shared(), &sdk_and(&[Feature::RANGE_SCAN_INCLUDE_XATTR]));
    put(&mut client, 17, "attributed", "{}");
    let change = [(DICT_UPSERT, XATTR, "who", "\"me\"")];
    let token = client
        .call(&changes("attributed", &change).vbucket(17))
        .ok();
    let pair = b"who\0\"me\"\0";
    let mut value = Vec::new();
    value.extend((pair.len() as u32 + 4).to_be_bytes());
    value.extend((pair.len() as u32).to_be_bytes());
    value.extend(pair);
    value.extend(b"{}");
    for (attributes, shown) in [(false, &b"{}"[..]), (true, &value)] {
        let ask = with(prefix("attributed", &token), "include_xattrs", attributes);
        let id = id(create(&mut client, 17, &ask));
        let answers = go_on(&mut client, 17, &id, [0; 3]);
        let found = documents_in(&answers);
        assert_eq!(found[0].value, shown);
        assert_eq!(found[0].datatype.0, if attributes { 5 } else { 1 });
    }
}

#[test]
fn a_scan_checks_its_snapshot_requirements() {
    let node = own();
    let mut client = Client::ready(node.ports().kv);
    let first = put(&mut client, VB, "need-1", "1");
    let second = put(&mut client, VB, "need-2", "1");
    let mut ask = |change: &dyn Fn(&mut Value)| {
        let mut ask = prefix("need-", &second);
        change(&mut ask["snapshot_requirements"]);
        create(&mut client, VB, &ask)
    };
    ask(&|_| ()).ok();
    ask(&|needs| needs["vb_uuid"] = "1".into()).is(Status::VB_UUID_NOT_EQUAL);
    ask(&|needs| {
        needs["seqno"] = 1_000_000.into();
        needs["timeout_ms"] = 1.into();
    })
    .is(Status::ETMPFAIL);
    ask(&|needs| needs["seqno_exists"] = true.into()).ok();
    let third = put(&mut client, VB, "need-1", "2");
    let mut old = prefix("need-", &third);
    old["snapshot_requirements"]["seqno_exists"] = true.into();
    create(&mut client, VB, &old).ok();
    old["snapshot_requirements"]["seqno"] = first.seqno().into();
    create(&mut client, VB, &old).is(Status::NOT_STORED);
}

#[test]
fn invalid_scans_are_refused() {
    let node = own();
    let mut client = Client::ready(node.ports().kv);
    let token = put(&mut client, VB, "refuse", "1");
    let ask = prefix("refuse", &token);
    let raw = Request::new(Opcode::RANGE_SCAN_CREATE).vbucket(VB);
    client.call(&raw.value(ask.to_string())).is(Status::EINVAL);
    for wrong in [json!({}), json!(7), json!({ "sampling": { "samples": 0 } })] {
        let answer = create(&mut client, VB, &wrong).is(Status::EINVAL);
        assert!(!answer.context().is_empty());
    }
    let unknown = create(&mut client, VB, &with(ask.clone(), "collection", "77"));
    let unknown = unknown.is(Status::UNKNOWN_COLLECTION).json();
    assert_eq!(unknown["manifest_uid"], "0");
    go_on(&mut client, VB, &[7; 16], [0; 3])
        .pop()
        .unwrap()
        .is(Status::KEY_ENOENT);
    cancel(&mut client, VB, &[7; 16]).is(Status::KEY_ENOENT);
    let id = id(create(&mut client, VB, &ask));
    go_on(&mut client, VB + 1, &id, [0; 3])
        .pop()
        .unwrap()
        .is(Status::KEY_ENOENT);
    set_vbucket(&mut client, VB, 2);
    for request in [
        continue_request(VB, &id, [0; 3]),
        Request::new(Opcode::RANGE_SCAN_CANCEL)
            .vbucket(VB)
            .extras(&id),
        Request::new(Opcode::RANGE_SCAN_CREATE)
            .vbucket(VB)
            .datatype(1)
            .value(ask.to_string()),
    ] {
        client.call(&request).is(Status::NOT_MY_VBUCKET);
    }
    // When it comes back, it is another vBucket.
    set_vbucket(&mut client, VB, 1);
    go_on(&mut client, VB, &id, [0; 3])
        .pop()
        .unwrap()
        .is(Status::KEY_ENOENT);
}

#[test]
fn a_vbucket_that_leaves_before_its_scan_is_open_is_elsewhere() {
    let node = own();
    let port = node.ports().kv;
    let mut client = Client::ready(port);
    put(&mut client, VB, "leaves", "1");
    let ask =
        json!({ "range": { "start": STANDARD.encode("leaves"), "end": STANDARD.encode("m") } });
    let over = Arc::new(AtomicBool::new(false));
    let toggles = std::thread::spawn({
        let over = Arc::clone(&over);
        move || {
            let mut other = Client::ready(port);
            for _ in 0..500 {
                set_vbucket(&mut other, VB, 2);
                set_vbucket(&mut other, VB, 1);
            }
            over.store(true, Ordering::Relaxed);
        }
    });
    // Both must have been seen.
    let (mut opened, mut elsewhere) = (0, 0);
    while !over.load(Ordering::Relaxed) {
        let answer = create(&mut client, VB, &ask);
        match answer.status {
            Status::SUCCESS => {
                opened += 1;
                // Else there are too many, if the other connection is slow. The scan may have ended.
                cancel(&mut client, VB, &answer.value);
            }
            Status::NOT_MY_VBUCKET => elsewhere += 1,
            other => panic!("{other:?}"),
        }
    }
    toggles.join().unwrap();
    assert!(opened > 0 && elsewhere > 0, "{opened} {elsewhere}");
}

#[test]
fn any_connection_may_use_a_scan_until_it_is_cancelled() {
    let port = shared();
    let (mut one, mut other) = (Client::ready(port), Client::ready(port));
    let mut last = None;
    for number in 0..5 {
        last = Some(put(&mut one, 18, &format!("shared-{number}"), "1"));
    }
    let ask = with(prefix("shared-", &last.unwrap()), "key_only", true);
    let id = id(create(&mut one, 18, &ask));
    assert_eq!(keys_in(&go_on(&mut one, 18, &id, [2, 0, 0])).len(), 2);
    let second = go_on(&mut other, 18, &id, [2, 0, 0]);
    assert_eq!(keys_in(&second), ["shared-2", "shared-3"]);
    // The list of statistics contains this scan only.
    one.send(&Request::new(Opcode::STAT).key("range-scans 18").bytes());
    let mut rows = BTreeMap::new();
    loop {
        let row = one.answer().ok();
        if row.key.is_empty() {
            break;
        }
        rows.insert(String::from_utf8(row.key.clone()).unwrap(), row.text());
    }
    let number = u128::from_be_bytes(id.as_slice().try_into().unwrap());
    let named = format!("{number:032x}");
    assert_eq!(rows[&format!("vb_18:{named}:state")], "Idle");
    assert_eq!(rows[&format!("vb_18:{named}:items")], "4");
    assert_eq!(rows[&format!("vb_18:{named}:type")], "key");
    let shown = rows
        .keys()
        .filter_map(|key| key.strip_prefix(&format!("vb_18:{named}:")));
    let known = "age_ms collection items mem_usage name sampling state type";
    assert!(shown.eq(known.split(' ')));
    cancel(&mut one, 18, &id).ok();
    go_on(&mut other, 18, &id, [2, 0, 0])
        .pop()
        .unwrap()
        .is(Status::KEY_ENOENT);
}

fn param(name: &str, value: &str) -> Request {
    let request = Request::new(Opcode::SET_PARAM).extras(&1_u32.to_be_bytes());
    request.key(name).value(value)
}

#[test]
fn pipelined_scans_are_answered_in_order_before_later_requests() {
    let node = own();
    let port = node.ports().kv;
    let token = put(&mut Client::ready(port), VB, "together", "1");
    // Sixteen scans may be open, including those that turn out to be empty.
    let max_size = param("max_size", "33554432");
    Client::ready(port).call(&max_size).ok();
    let features = [sdk_and(&[]), sdk_and(&[Feature::UNORDERED_EXECUTION])];
    for features in features {
        let mut client = Client::with(port, &features);
        let asks = ["together", "nowhere"].map(|keys| with(prefix(keys, &token), "key_only", true));
        let mut requests = Vec::new();
        for number in 0..100 {
            let ask = &asks[usize::from(number % 10 > 0)];
            let request = Request::new(Opcode::RANGE_SCAN_CREATE).vbucket(VB);
            let request = request.datatype(1).value(ask.to_string());
            requests.push(request.opaque(number));
        }
        let get = Request::of(Opcode::GET, "together").vbucket(VB);
        requests.push(get.opaque(100));
        client.pipeline(&requests);
        let answers = client.answers(101);
        assert!((0..101).eq(answers.iter().map(|answer| answer.opaque)));
        for (number, answer) in answers.into_iter().enumerate() {
            if number % 10 > 0 {
                answer.is(Status::KEY_ENOENT);
            } else if number < 100 {
                let id = id(answer);
                let found = go_on(&mut client, VB, &id, [0; 3]);
                assert_eq!(keys_in(&found), ["together"]);
            } else {
                assert_eq!(answer.ok().value, b"1");
            }
        }
    }
}

#[test]
fn too_many_scans_are_refused_and_old_ones_end() {
    let node = own();
    let mut client = Client::ready(node.ports().kv);
    let token = put(&mut client, VB, "many", "1");
    let ask = with(prefix("many", &token), "key_only", true);
    client.call(&param("max_size", "33554432")).ok();
    let first = id(create(&mut client, VB, &ask));
    for _ in 1..16 {
        id(create(&mut client, VB, &ask));
    }
    create(&mut client, VB, &ask).is(Status::EBUSY);
    cancel(&mut client, VB, &first).ok();
    let last = id(create(&mut client, VB, &ask));
    create(&mut client, VB, &ask).is(Status::EBUSY);
    client.call(&param("range_scan_max_lifetime", "0")).ok();
    // The scanner ends them; until then there are too many.
    while create(&mut client, VB, &ask).status == Status::EBUSY {}
    go_on(&mut client, VB, &last, [0; 3])
        .pop()
        .unwrap()
        .is(Status::KEY_ENOENT);
}

#[test]
fn a_restart_ends_scans_and_keeps_documents() {
    let place = tempfile::tempdir().unwrap();
    let node = on_disk(place.path());
    let mut client = Client::ready(node.ports().kv);
    let mut last = None;
    for number in 0..100 {
        last = Some(put(&mut client, VB, &format!("again-{number:03}"), "1"));
    }
    let ask = prefix("again-", &last.unwrap());
    let id = id(create(&mut client, VB, &ask));
    go_on(&mut client, VB, &id, [10, 0, 0]);
    node.shutdown().expect("everything becomes durable");
    let node = on_disk(place.path());
    let mut client = Client::ready(node.ports().kv);
    go_on(&mut client, VB, &id, [10, 0, 0])
        .pop()
        .unwrap()
        .is(Status::KEY_ENOENT);
    assert_eq!(all_keys(&mut client, VB, &ask).len(), 100);
}
