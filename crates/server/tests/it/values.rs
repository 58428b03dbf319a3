//! Tests of values: JSON detection, Snappy in both directions, and changes of compressed values.

use wire::{Feature, Opcode, Status};

use crate::client::{Client, Request, count, sdk_and, sdk_without, set, store};
use crate::durable::until_replicated;
use crate::place::{on_both, own, replica_of, shared};

const JSON: u8 = 1;
const SNAPPY: u8 = 2;

fn packed(text: &[u8]) -> Vec<u8> {
    snap::raw::Encoder::new().compress_vec(text).unwrap()
}

fn unpacked(bytes: &[u8]) -> Vec<u8> {
    snap::raw::Decoder::new().decompress_vec(bytes).unwrap()
}

/// Returns a text that compresses well.
fn long_json(letter: &str) -> String {
    format!("{{\"a\":\"{}\"}}", letter.repeat(2000))
}

fn snappy_client(port: u16) -> Client {
    Client::with(port, &sdk_and(&[Feature::SNAPPY]))
}

#[test]
fn the_node_detects_json_whatever_the_client_claims() {
    let mut client = Client::ready(shared());
    let mut no_json = Client::with(shared(), &sdk_without(Feature::JSON));
    for (value, datatype) in [
        ("{}", 1),
        ("[1", 0),
        ("5", 1),
        ("\"x\"", 1),
        ("text", 0),
        ("", 0),
    ] {
        for said in [0, JSON] {
            client.call(&set("json", value).datatype(said)).ok();
            assert_eq!(
                client.get("json").ok().datatype,
                datatype,
                "{value} said {said}"
            );
            assert_eq!(no_json.get("json").ok().datatype, 0);
        }
        no_json.call(&set("json", value)).ok();
        assert_eq!(client.get("json").ok().datatype, datatype);
    }
}

#[test]
fn large_values_are_stored_as_they_were_sent() {
    const LARGE: usize = 1 << 20;
    on_both(|port| {
        let mut with_prefixes = Client::ready(port);
        let mut without = Client::with(port, &sdk_without(Feature::COLLECTIONS));
        for (client, key) in [(&mut with_prefixes, "\0large"), (&mut without, "large")] {
            let of_key = |request: Request| request.key(key);
            let json = format!("\"{}\"", "j".repeat(LARGE));
            let raw: Vec<u8> = (0..LARGE).map(|at| (at >> 8) as u8).collect();
            let add = store(Opcode::ADD, "large", &raw, 0, 0);
            let replace = store(Opcode::REPLACE, "large", &raw, 7, 0);
            let get = Request::of(Opcode::GET, "large");
            let delete = Request::of(Opcode::DELETE, "large");
            let requests = [set("large", &json), get.clone(), add, replace, get, delete];
            client.pipeline(&requests.map(of_key));
            let answers = client.answers(6);
            let statuses: Vec<Status> = answers.iter().map(|answer| answer.status).collect();
            let (ok, exists) = (Status::SUCCESS, Status::KEY_EEXISTS);
            assert_eq!(statuses, [ok, ok, exists, ok, ok, ok]);
            assert!(answers[1].value == json.as_bytes() && answers[4].value == raw);
            assert_eq!((answers[1].datatype, answers[4].datatype), (JSON, 0));
            assert_eq!(
                (&answers[1].extras[..], &answers[4].extras[..]),
                (&[0; 4][..], &[0, 0, 0, 7][..])
            );
        }
    });
}

#[test]
fn datatype_bits_need_their_feature() {
    let mut client = Client::with(shared(), &[Feature::XERROR, Feature::COLLECTIONS]);
    for bits in [JSON, SNAPPY, JSON | SNAPPY, 4] {
        client
            .call(&set("bits", "{}").datatype(bits))
            .is(Status::EINVAL);
    }
    for bits in [8, 0x80] {
        let answer = client
            .call(&set("bits", "{}").datatype(bits))
            .is(Status::EINVAL);
        assert!(answer.context().contains("datatype"));
    }
    let mut client = snappy_client(shared());
    client
        .call(&Request::of(Opcode::GET, "bits").datatype(JSON))
        .is(Status::EINVAL);
    client
        .call(&set("bits", "{}").datatype(4))
        .is(Status::EINVAL);
}

#[test]
fn compressed_in_and_out() {
    on_both(|port| {
        let text = long_json("x");
        let mut snappy = snappy_client(port);
        let mut everywhere = Client::with(port, &sdk_and(&[Feature::SNAPPY_EVERYWHERE]));
        let mut plain = Client::ready(port);
        let mut bare = Client::with(port, &sdk_without(Feature::JSON));
        let request = set("packed", packed(text.as_bytes())).datatype(SNAPPY | JSON);
        for writer in [&mut snappy, &mut everywhere] {
            writer.call(&request).ok();
        }
        for reader in [&mut snappy, &mut everywhere] {
            for opcode in [Opcode::GET, Opcode::GETK] {
                let got = reader.call(&Request::of(opcode, "packed")).ok();
                assert_eq!(got.datatype, SNAPPY | JSON, "kept as it came");
                assert_eq!(unpacked(&got.value), text.as_bytes());
            }
        }
        let got = plain.get("packed").ok();
        assert_eq!((got.datatype, got.text()), (JSON, text.clone()));
        let got = bare.get("packed").ok();
        assert_eq!((got.datatype, got.text()), (0, text.clone()));
        let meta = plain
            .call(&Request::of(Opcode::GET_META, "packed").extras(&[2]))
            .ok();
        assert_eq!(meta.extras[20] & JSON, JSON);
        // A value that is stored plain is sent plain to all clients.
        plain.set("packed", &text).ok();
        assert_eq!(snappy.get("packed").ok().text(), text);
    });
}

#[test]
fn compressed_values_are_compressed_in_replicas_too() {
    let active = own();
    let replica = replica_of(active.ports().kv, None);
    let text = long_json("x");
    let request = set("packed", packed(text.as_bytes())).datatype(SNAPPY | JSON);
    snappy_client(active.ports().kv).call(&request).ok();
    until_replicated(&mut Client::ready(replica.ports().kv), "packed", &text);
    let got = snappy_client(replica.ports().kv)
        .call(&Request::of(Opcode::GET_REPLICA, "packed"))
        .ok();
    assert_eq!(got.datatype, SNAPPY | JSON);
    assert_eq!(unpacked(&got.value), text.as_bytes());
}

#[test]
fn compression_that_gains_little_is_undone() {
    let mut client = snappy_client(shared());
    client
        .call(&set("small", packed(b"{}")).datatype(SNAPPY))
        .ok();
    let got = client.get("small").ok();
    assert_eq!((got.datatype, got.value.as_slice()), (JSON, &b"{}"[..]));
    client
        .call(&set("small", packed(b"")).datatype(SNAPPY))
        .ok();
    assert_eq!(client.get("small").ok().value, b"");
}

#[test]
fn damaged_snappy_and_bombs() {
    let mut client = snappy_client(shared());
    client.set("bomb", "before").ok();
    let too_big = packed(&vec![0; (20 << 20) + 1]);
    let claims: [&[u8]; 4] = [
        b"",
        b"\xff\xff",
        b"\xff\xff\xff\xff\x0f",
        b"\xff\xff\xff\xff\x0f\0\0\0",
    ];
    for opcode in [Opcode::SET, Opcode::APPEND] {
        let with = |value: &[u8]| {
            let request = match opcode {
                Opcode::SET => set("bomb", value),
                _ => Request::of(opcode, "bomb").value(value),
            };
            request.datatype(SNAPPY)
        };
        for claim in claims {
            let answer = client.call(&with(claim));
            assert_eq!(answer.status, Status::EINVAL, "{opcode:?} {claim:?}");
        }
        client.call(&with(&too_big)).is(Status::E2BIG);
    }
    assert_eq!(client.get("bomb").value, b"before");
    let exact = packed(&vec![0; 20 << 20]);
    client.call(&set("bomb", exact).datatype(SNAPPY)).ok();
    assert_eq!(
        Client::ready(shared()).get("bomb").ok().value.len(),
        20 << 20
    );
    client.call(&Request::of(Opcode::DELETE, "bomb")).ok();
}

#[test]
fn joining_compressed_values() {
    on_both(|port| {
        let mut snappy = snappy_client(port);
        let mut plain = Client::ready(port);
        let (stored, added) = ("a".repeat(2000), "b".repeat(2000));
        for packed_store in [false, true] {
            for packed_part in [false, true] {
                let put = |text: &str, pack: bool| {
                    if pack {
                        (packed(text.as_bytes()), SNAPPY)
                    } else {
                        (text.as_bytes().to_vec(), 0)
                    }
                };
                let (value, datatype) = put(&stored, packed_store);
                snappy.call(&set("mix", value).datatype(datatype)).ok();
                let (value, datatype) = put(&added, packed_part);
                for opcode in [Opcode::APPEND, Opcode::PREPEND] {
                    let part = Request::of(opcode, "mix").value(&value).datatype(datatype);
                    snappy.call(&part).ok();
                }
                let expected = format!("{added}{stored}{added}");
                assert_eq!(plain.get("mix").ok().text(), expected);
                let got = snappy.get("mix").ok();
                let value = match got.datatype & SNAPPY {
                    0 => got.value,
                    _ => unpacked(&got.value),
                };
                assert_eq!(value, expected.as_bytes());
            }
        }
    });
}

#[test]
fn counting_in_compressed_values() {
    let mut client = snappy_client(shared());
    let text = format!("{}41", " ".repeat(500));
    client
        .call(&set("cnt", packed(text.as_bytes())).datatype(SNAPPY))
        .ok();
    assert_eq!(client.get("cnt").ok().datatype & SNAPPY, SNAPPY);
    let answer = client.call(&count(Opcode::INCREMENT, "cnt", 1, 0, 0)).ok();
    assert_eq!(
        (answer.value.as_slice(), answer.datatype),
        (&42_u64.to_be_bytes()[..], 0)
    );
    let got = client.get("cnt").ok();
    assert_eq!((got.value.as_slice(), got.datatype), (&b"42"[..], JSON));
}

#[test]
fn nothing_but_documents_is_compressed() {
    for feature in [Feature::SNAPPY, Feature::SNAPPY_EVERYWHERE] {
        let mut client = Client::with(shared(), &sdk_and(&[feature]));
        for request in [
            Request::of(Opcode::GET, "k").vbucket(5000),
            Request::new(Opcode::GET_CLUSTER_CONFIG),
            Request::new(Opcode::COLLECTIONS_GET_MANIFEST),
            Request::new(Opcode::GET).key(b"\x42k"),
        ] {
            let answer = client.call(&request);
            assert_eq!(answer.datatype, JSON, "{request:?}");
            answer.json();
        }
    }
}
