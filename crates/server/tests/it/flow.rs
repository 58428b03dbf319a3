//! Tests of byte streams: long pipelines, slow peers, peers that do not read, peers that go away.

use std::io::Write;
use std::net::{Shutdown, TcpStream};
use std::thread;

use wire::{Opcode, Status};

use crate::client::{Client, Request, SDK, hello, set};
use crate::place::{own, shared, with_one_worker};
use crate::subdoc;

/// Returns the bytes that the node has made for the connection of `agent`, sent or not.
fn bytes_made_for(client: &mut Client, agent: &str) -> u64 {
    client.send(&Request::new(Opcode::STAT).key("connections").bytes());
    let mut made = None;
    loop {
        let row = client.answer().ok();
        if row.value.is_empty() {
            return made.expect("a row of that connection");
        }
        let row = row.json();
        if row["agent_name"] == agent {
            made = row["total_send_bytes"].as_u64();
        }
    }
}

#[test]
fn ten_thousand_frames_in_one_write() {
    let mut client = Client::ready(shared());
    let mut requests = Vec::new();
    for number in 0..5_000_u32 {
        let key = format!("pipe-{}", number % 700);
        requests.push(set(&key, number.to_string()).opaque(2 * number));
        requests.push(Request::of(Opcode::GET, &key).opaque(2 * number + 1));
    }
    client.pipeline(&requests);
    for number in 0..5_000_u32 {
        let answers = client.answers(2);
        assert_eq!(
            (answers[0].opaque, answers[0].status),
            (2 * number, Status::SUCCESS)
        );
        assert_eq!(answers[1].opaque, 2 * number + 1);
        assert_eq!(answers[1].value, number.to_string().as_bytes());
    }
    client.expect_silence();
}

#[test]
fn one_byte_at_a_time() {
    let mut client = Client::connect(shared());
    let flight = [
        crate::client::hello(&crate::client::SDK),
        crate::client::plain(crate::client::USER, crate::client::PASSWORD),
        Request::new(Opcode::SELECT_BUCKET).key("default"),
        set("slow", "v"),
        Request::of(Opcode::GET, "slow"),
    ];
    let bytes: Vec<u8> = flight.iter().flat_map(Request::bytes).collect();
    for byte in bytes {
        client.send(&[byte]);
    }
    for answer in client.answers(5) {
        answer.ok();
    }
}

#[test]
fn a_peer_that_does_not_read_costs_little_and_delays_no_other() {
    const DOCUMENT_BYTES: usize = 1 << 20;
    const ASKED: usize = 2_000;
    let node = own();
    let mut client = Client::ready(node.ports().kv);
    client.set("mib", vec![b'x'; DOCUMENT_BYTES]).ok();
    let mut deaf = Client::ready(node.ports().kv);
    deaf.call(&hello(&SDK).key("deaf")).ok();
    deaf.pipeline(&vec![Request::of(Opcode::GET, "mib"); ASKED]);
    while bytes_made_for(&mut client, "deaf") < DOCUMENT_BYTES as u64 / 8 {}
    // Other connections are served, on both workers, while the answers pile up to their limit.
    for round in 0..200 {
        let mut other = Client::ready(node.ports().kv);
        other.set("small", round.to_string()).ok();
        assert_eq!(other.get("small").ok().value, round.to_string().as_bytes());
    }
    // This is little more than the sockets' buffers; the answers are 2 GB.
    let made = bytes_made_for(&mut client, "deaf");
    assert!(made < 24 << 20, "{} KiB", made >> 10);
    for answer in deaf.answers(50) {
        assert_eq!(answer.ok().value.len(), DOCUMENT_BYTES);
    }
    // A node with unread answers can stop.
    node.shutdown().unwrap();
}

#[test]
fn requests_that_take_long_delay_no_other_connection_for_all_of_them() {
    const ASKED: usize = 100;
    let node = with_one_worker();
    let mut client = Client::ready(node.ports().kv);
    let mut busy = Client::ready(node.ports().kv);
    busy.call(&hello(&SDK).key("busy")).ok();
    let list = format!("{{\"list\":[{}1],\"last\":1}}", "1,".repeat(1 << 19));
    busy.set("parsed", list).ok();
    let before = bytes_made_for(&mut client, "busy");
    let request = subdoc::one(subdoc::GET, "parsed", "last", "", &[]);
    busy.pipeline(&vec![request; ASKED]);
    let mut made = before;
    while made == before {
        made = bytes_made_for(&mut client, "busy");
    }
    let first = made - before;
    busy.answers(ASKED);
    let all = bytes_made_for(&mut client, "busy") - before;
    assert!(first < all / 2, "{first} of {all} bytes in one turn");
}

#[test]
fn a_peer_that_reads_late_gets_everything() {
    let mut client = Client::ready(shared());
    client.set("late", vec![b'y'; 100_000]).ok();
    client.pipeline(&vec![Request::of(Opcode::GET, "late"); 300]);
    for answer in client.answers(300) {
        assert_eq!(answer.ok().value.len(), 100_000);
    }
    client.expect_silence();
}

#[test]
fn a_half_closed_connection_gets_its_answers() {
    let mut client = Client::ready(shared());
    client.pipeline(&vec![set("half", "x"); 500]);
    client.end_output();
    for answer in client.answers(500) {
        answer.ok();
    }
    client.expect_end();
}

#[test]
fn peers_that_go_away_in_the_middle() {
    let node = own();
    let port = node.ports().kv;
    let whole = set("middle", vec![b'x'; 5_000]).bytes();
    for cut in [0, 1, 23, 24, 30, 4_000, whole.len() - 1] {
        let mut client = Client::ready(port);
        client.send(&whole[..cut]);
    }
    for answered in [1, 1_000] {
        let mut client = Client::ready(port);
        client.pipeline(&vec![set("gone", vec![b'x'; 10_000]); answered]);
    }
    let stranger = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stranger.shutdown(Shutdown::Both).unwrap();
    let mut client = Client::ready(port);
    client.get("middle").is(Status::KEY_ENOENT);
    client.expect_silence();
    node.shutdown().unwrap();
}

#[test]
fn the_end_of_the_node_ends_every_connection() {
    let node = own();
    let port = node.ports().kv;
    let mut idle = Client::ready(port);
    let mut stranger = Client::connect(port);
    let mut halfway = Client::ready(port);
    halfway.send(&set("half", "value").bytes()[..30]);
    // A connection that sends without pause, until its end.
    let mut busy = Client::ready(port);
    let mut socket = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let flood = thread::spawn(move || {
        let login = crate::client::plain(crate::client::USER, crate::client::PASSWORD).bytes();
        let quiet = Request::new(Opcode::GETQ).key("none").bytes().repeat(1_000);
        let mut sent = socket.write_all(&login);
        while sent.is_ok() {
            sent = socket.write_all(&quiet);
        }
    });
    let stored = busy.set("last", "words").ok();
    assert!(stored.cas > 0);
    node.shutdown().unwrap();
    for client in [&mut idle, &mut stranger, &mut halfway, &mut busy] {
        client.expect_end();
    }
    flood.join().unwrap();
    assert!(
        TcpStream::connect(("127.0.0.1", port)).is_err(),
        "the port is closed"
    );
}

#[test]
fn many_connections_at_once() {
    let mut clients: Vec<Client> = (0..200).map(|_| Client::ready(shared())).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        client.pipeline(&[
            set(&format!("many-{number}"), number.to_string()),
            Request::of(Opcode::GET, &format!("many-{number}")),
        ]);
    }
    for (number, client) in clients.iter_mut().enumerate() {
        assert_eq!(client.answers(2)[1].text(), number.to_string());
    }
}

#[test]
fn statistics_end_with_an_empty_row() {
    let mut client = Client::ready(shared());
    for group in ["", "vbucket", "memory", "connections", "timings", "config"] {
        let request = Request::new(Opcode::STAT).key(group);
        client.pipeline(&[request.opaque(9), Request::new(Opcode::NOOP).opaque(10)]);
        let mut rows = 0;
        loop {
            let row = client.answer().ok();
            assert_eq!((row.opcode, row.opaque), (Opcode::STAT, 9), "{group}");
            if row.key.is_empty() && row.value.is_empty() {
                break;
            }
            // A row without a key is a JSON text.
            assert_eq!(row.datatype == 1, row.key.is_empty(), "{group}");
            rows += 1;
        }
        assert!(rows > 0, "{group}");
        assert_eq!(client.answer().opaque, 10);
    }
    client
        .call(&Request::new(Opcode::STAT).key("no-such-group"))
        .is(Status::KEY_ENOENT);
    let timer = Request::new(Opcode::GET_CMD_TIMER).extras(&[Opcode::GET.0]);
    client.call(&timer).ok().json();
}
