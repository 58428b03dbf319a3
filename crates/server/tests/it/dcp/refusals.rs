//! Tests of messages that a consumer must not send, and of the answers to them.

use wire::{Feature, Opcode, Status};

use super::consumer::{Ask, Consumer, Message, PRODUCER, XATTRS, control, open};
use crate::client::{Client, Request, sdk_without, set};
use crate::place::{own, set_vbucket, shared};

#[test]
fn a_connection_is_opened_once_and_with_valid_flags() {
    let mut client = Client::ready(shared());
    let invalid = [
        open("", PRODUCER),
        open(&"n".repeat(201), PRODUCER),
        open("flags", PRODUCER | 2),
        open("flags", PRODUCER | 0x10),
        open("flags", PRODUCER | 0x80),
        open("flags", PRODUCER | 0x400),
        open("json", PRODUCER).value("["),
        open("json", PRODUCER).value("1"),
    ];
    for request in invalid {
        client.call(&request).is(Status::EINVAL);
    }
    let mut old = Client::with(shared(), &sdk_without(Feature::COLLECTIONS));
    old.call(&open("consumer", 0)).is(Status::NOT_SUPPORTED);
    let named = open(&"n".repeat(200), PRODUCER).value(r#"{"consumer_name":"me"}"#);
    client.call(&named).ok();
    client.call(&open("again", PRODUCER)).is(Status::EINVAL);
    client.select("other").is(Status::NOT_SUPPORTED);
    // Ordinary commands still work.
    client.set("refusals-open", "v").ok();
}

#[test]
fn the_protocol_is_refused_on_other_connections() {
    let mut client = Client::ready(shared());
    let ack = super::consumer::buffer_ack(1);
    let close = Request::new(Opcode::DCP_CLOSE_STREAM);
    let noop = Request::new(Opcode::DCP_NOOP);
    let settings = control("enable_noop", "true");
    for request in [Ask::all(0).request(), ack, close, noop, settings] {
        client.call(&request).is(Status::EINVAL);
    }
    client
        .call(&Request::new(Opcode::DCP_GET_FAILOVER_LOG))
        .ok();
    let mut stranger = Client::logged_in(shared(), &[Feature::XERROR, Feature::SELECT_BUCKET]);
    stranger.call(&open("x", PRODUCER)).is(Status::NO_BUCKET);
}

#[test]
fn messages_for_consumers_are_refused_from_them() {
    let node = own();
    let mut consumer = Consumer::open(node.ports().kv, "producer", PRODUCER);
    let extras = |opcode, length: usize| Request::new(opcode).extras(&vec![0; length]);
    let keyed = |opcode, length: usize| extras(opcode, length).key("k");
    let messages = [
        extras(Opcode::DCP_ADD_STREAM, 4),
        extras(Opcode::DCP_STREAM_END, 4),
        extras(Opcode::DCP_SNAPSHOT_MARKER, 20),
        keyed(Opcode::DCP_MUTATION, 31),
        keyed(Opcode::DCP_DELETION, 18),
        keyed(Opcode::DCP_EXPIRATION, 20),
        extras(Opcode::DCP_SET_VBUCKET_STATE, 1),
        extras(Opcode::DCP_SYSTEM_EVENT, 13),
        keyed(Opcode::DCP_PREPARE, 31),
        keyed(Opcode::DCP_COMMIT, 16),
        keyed(Opcode::DCP_ABORT, 16),
        extras(Opcode::DCP_SEQNO_ADVANCED, 8),
        extras(Opcode::DCP_OSO_SNAPSHOT, 4),
    ];
    consumer.stream(&Ask::all(1));
    for message in messages {
        let status = consumer.client.call(&message).status;
        assert!(
            [Status::NOT_SUPPORTED, Status::EINVAL].contains(&status),
            "{message:?}: {status:?}"
        );
    }
    // The stream is unharmed.
    let mut writer = Client::ready(node.ports().kv);
    writer.call(&set("k", "v").vbucket(1)).ok();
    assert_eq!(consumer.messages(2)[1], Message::mutation(1, "k", "v"));
}

#[test]
fn invalid_controls_are_refused() {
    let mut consumer = Consumer::open(shared(), "controls", PRODUCER);
    let invalid = [
        ("no_such_control", "1"),
        ("enable_noop", "yes"),
        ("set_noop_interval", "0"),
        ("set_noop_interval", "-1"),
        ("set_noop_interval", "often"),
        ("connection_buffer_size", "4294967296"),
        ("connection_buffer_size", "-1"),
        ("connection_buffer_size", ""),
        ("set_priority", "urgent"),
        ("force_value_compression", "true"),
        ("send_stream_end_on_client_close_stream", "false"),
        ("enable_expiry_opcode", "sometimes"),
        ("max_marker_version", "3"),
        ("backfill_order", "random"),
        ("set_noop_interval", "0.05"),
        ("set_noop_interval", "NaN"),
        ("enable_stream_id", "false"),
        ("enable_sync_writes", "false"),
        ("include_deleted_user_xattrs", "1"),
        ("v7_dcp_status_codes", ""),
        ("supports_hifi_MFU", "maybe"),
        ("supports_cursor_dropping", "2"),
        ("enable_out_of_order_snapshots", "sometimes"),
        ("change_streams", "false"),
        // The UUID of another bucket with this name.
        ("settee_bucket_uuid", "00000000000000000000000000000000"),
    ];
    for (name, value) in invalid {
        consumer.control(name, value).is(Status::EINVAL);
    }
    // Features of stores with caches to hand over.
    for name in ["stream_buffer_size", "cache_transfer"] {
        consumer.control(name, "true").is(Status::NOT_SUPPORTED);
    }
    let valid = [
        ("flatbuffers_system_events", "true"),
        ("set_noop_interval", "180"),
        ("enable_noop", "true"),
        ("connection_buffer_size", "0"),
        ("set_priority", "high"),
        ("supports_cursor_dropping", "true"),
        ("supports_cursor_dropping_vulcan", "true"),
        ("send_stream_end_on_client_close_stream", "true"),
        ("set_priority", "low"),
        ("set_priority", "medium"),
        ("enable_expiry_opcode", "true"),
        ("enable_expiry_opcode", "false"),
        ("backfill_order", "round-robin"),
        ("enable_out_of_order_snapshots", "true_with_seqno_advanced"),
        ("enable_out_of_order_snapshots", "false"),
        ("consumer_name", "me"),
        ("change_streams", "true"),
        ("supports_hifi_MFU", "true"),
        ("max_marker_version", "2.2"),
        ("backfill_order", "sequential"),
        ("enable_out_of_order_snapshots", "true"),
        ("v7_dcp_status_codes", "true"),
        ("include_deleted_user_xattrs", "true"),
        ("enable_stream_id", "true"),
    ];
    for (name, value) in valid {
        consumer.control(name, value).ok();
    }
    consumer
        .control("enable_sync_writes", "true")
        .is(Status::EINVAL);
}

/// Settings of a running bucket: accepted, refused for invalid values, and effective.
#[test]
fn settings_of_streams_and_vbuckets_are_changed_while_the_node_runs() {
    let node = own();
    let port = node.ports().kv;
    let mut client = Client::ready(port);
    let mut param = |family: u32, vb: u16, name: &str, value: &str| {
        let request = Request::new(Opcode::SET_PARAM).extras(&family.to_be_bytes());
        let request = request.vbucket(vb).key(name).value(value);
        client.call(&request).status
    };
    let taken = [
        ("dcp_oso_backfill", "disabled"),
        ("dcp_backfill_byte_limit", "1048576"),
        ("dcp_backfill_in_progress_per_connection_limit", "8"),
        ("dcp_consumer_buffer_ratio", "0.1"),
        ("dcp_flow_control_buffer_size", "2097152"),
        ("dcp_idle_timeout", "300"),
        ("dcp_noop_mandatory_for_v5_features", "false"),
    ];
    for (name, value) in taken {
        assert_eq!(param(4, 0, name, value), Status::SUCCESS, "{name}");
        assert_eq!(param(4, 0, name, "x"), Status::EINVAL, "{name}");
        assert_eq!(param(1, 0, name, value), Status::EINVAL, "another family");
        assert_eq!(param(6, 0, name, value), Status::SUCCESS, "any family");
    }
    let told = Client::ready(port).stats("config");
    for (name, value) in taken {
        assert_eq!(told[&format!("ep_{name}")], value);
    }
    assert_eq!(param(4, 0, "dcp_idle_timeout", "0"), Status::EINVAL);
    assert_eq!(
        param(4, 0, "dcp_consumer_buffer_ratio", "2"),
        Status::EINVAL
    );
    assert_eq!(param(5, 3, "max_cas", "-1"), Status::EINVAL);
    assert_eq!(
        param(5, 3, "max_cas", &u64::MAX.to_string()),
        Status::EINVAL
    );
    assert_eq!(param(5, 2000, "max_cas", "1"), Status::EINVAL);
    // The CAS of the vBucket continues above the given one; other vBuckets keep theirs.
    let far = 5_000_000_000_000_000_000_u64;
    assert_eq!(param(5, 3, "max_cas", &far.to_string()), Status::SUCCESS);
    assert!(client.call(&set("k", "v").vbucket(3)).ok().cas > far);
    assert!(client.call(&set("k", "v").vbucket(4)).ok().cas < far);
    // Streams about collections need no noops with this setting.
    let mut consumer = Client::ready(port);
    consumer.call(&open("noops", PRODUCER)).ok();
    consumer.call(&Ask::all(3).request()).ok();
    let mut producer = super::producer::Producer::open(port, "p");
    producer.expect_silence();
    let window = ("connection_buffer_size".to_owned(), "2097152".to_owned());
    while !producer.controls.contains(&window) {
        let asked = producer.controls.len();
        producer.expect_silence();
        assert!(asked < 30, "{:?}", producer.controls);
    }
}

#[test]
fn invalid_stream_requests_are_refused() {
    let node = own();
    let port = node.ports().kv;
    let mut writer = Client::ready(port);
    for number in 0..5 {
        writer
            .call(&set(&format!("k{number}"), "v").vbucket(4))
            .ok();
    }
    let mut consumer = Consumer::open(port, "requests", PRODUCER);
    let uuid = consumer.stream(&Ask::all(5))[0].0;
    let own_uuid = {
        let log = consumer.stream(&Ask::all(4).flags(0x4));
        consumer.until_end();
        log[0].0
    };
    consumer.refused(&Ask::all(1030), Status::NOT_MY_VBUCKET);
    consumer.refused(&Ask::all(5), Status::KEY_EEXISTS);
    let out_of_range = [
        Ask::after(4, own_uuid, 5).until(3),
        Ask {
            snapshot: (4, 5),
            ..Ask::after(4, own_uuid, 3)
        },
        Ask {
            snapshot: (1, 2),
            ..Ask::after(4, own_uuid, 3)
        },
    ];
    for ask in out_of_range {
        consumer.refused(&ask, Status::ERANGE);
    }
    for value in ["[", "1", r#"{"uid":7}"#, r#"{"collections":[]}"#] {
        consumer.refused(&Ask::all(4).value(value), Status::EINVAL);
    }
    let unknown = Ask::all(4).value(r#"{"collections":["8"]}"#);
    consumer.refused(&unknown, Status::UNKNOWN_COLLECTION);
    let unknown = Ask::all(4).value(r#"{"scope":"8"}"#);
    consumer.refused(&unknown, Status::UNKNOWN_SCOPE);
    consumer.refused(
        &Ask::all(4).value(r#"{"sid":1}"#),
        Status::DCP_STREAM_ID_INVALID,
    );
    consumer.refused(&Ask::all(4).flags(0x8), Status::EINVAL);
    // Wrong histories: that of another vBucket, and one that is ahead.
    let rollback = consumer.client.call(&Ask::after(4, uuid, 3).request());
    assert_eq!(rollback.status, Status::ROLLBACK);
    assert_eq!(rollback.value, 0_u64.to_be_bytes());
    let rollback = consumer.client.call(&Ask::after(4, own_uuid, 9).request());
    assert_eq!(rollback.status, Status::ROLLBACK);
    assert_eq!(rollback.value, 5_u64.to_be_bytes());
    set_vbucket(&mut writer, 4, 2);
    consumer.refused(&Ask::all(4).flags(0x10), Status::NOT_MY_VBUCKET);
    consumer.stream(&Ask::all(4).value(r#"{"uid":"0"}"#));
}

#[test]
fn newer_features_need_noops() {
    let port = shared();
    let mut client = Client::ready(port);
    client.call(&open("no-noop", PRODUCER)).ok();
    client
        .call(&Ask::all(0).request())
        .is(Status::NOT_SUPPORTED);
    // A missing vBucket is reported first: the client needs another map, not other settings.
    client
        .call(&Ask::all(1030).request())
        .is(Status::NOT_MY_VBUCKET);
    let old = sdk_without(Feature::COLLECTIONS);
    let mut client = Client::with(port, &old);
    client.call(&open("no-noop-xattrs", PRODUCER | XATTRS)).ok();
    client
        .call(&Ask::all(0).request())
        .is(Status::NOT_SUPPORTED);
    let mut client = Client::with(port, &old);
    client.call(&open("no-noop-old", PRODUCER)).ok();
    client.call(&Ask::all(0).until(0).request()).ok();
}

#[test]
fn a_name_belongs_to_its_newest_connection() {
    let node = own();
    let port = node.ports().kv;
    let mut old = Consumer::open(port, "same", PRODUCER);
    old.stream(&Ask::all(1));
    let mut new = Consumer::open(port, "same", PRODUCER);
    old.client.expect_end();
    new.stream(&Ask::all(1));
    let mut writer = Client::ready(port);
    writer.call(&set("k", "v").vbucket(1)).ok();
    assert_eq!(new.messages(2)[1], Message::mutation(1, "k", "v"));
}

#[test]
fn no_stream_answers_end_the_stream_and_others_the_connection() {
    let node = own();
    let port = node.ports().kv;
    let mut writer = Client::ready(port);
    let mut consumer = Consumer::open(port, "answers", PRODUCER);
    consumer.stream(&Ask::all(1));
    consumer.stream(&Ask::all(2));
    writer.call(&set("a", "v").vbucket(1)).ok();
    let frame = consumer.frame();
    consumer.message();
    let mut answer = Request::new(Opcode::DCP_SNAPSHOT_MARKER).bytes();
    answer[0] = 0x81;
    answer[7] = 0x0a;
    answer[12..16].copy_from_slice(&frame.opaque.to_be_bytes());
    consumer.client.send(&answer);
    consumer.expect_silence();
    writer.call(&set("a", "w").vbucket(1)).ok();
    writer.call(&set("b", "v").vbucket(2)).ok();
    assert_eq!(consumer.messages(2)[1], Message::mutation(1, "b", "v"));
    answer[7] = 0x04;
    consumer.client.send(&answer);
    consumer.client.expect_end();
}
