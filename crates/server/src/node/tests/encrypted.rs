//! Tests of ports with TLS, by a client that trusts the authority of the node.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::thread;

use client::{Answer, set};
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConnection, SupportedProtocolVersion};
use tls::CertificateFiles;
use wire::Opcode;

use super::*;

/// Starts a node with all its ports, and this time limit of handshakes.
fn with_tls(data_dir: Option<&Path>, handshake: Duration) -> Node {
    let waits = Waits {
        handshake,
        ..Waits::default()
    };
    started(&tls_config(data_dir), waits)
}

fn tls_config(data_dir: Option<&Path>) -> NodeConfig {
    NodeConfig {
        kv_tls_port: Some(0),
        https_port: Some(0),
        threads: 2,
        ..config(data_dir, vec![bucket("default")])
    }
}

const LONG: Duration = Duration::from_secs(30);

fn authority(node: &Node) -> String {
    node.state.tls.as_ref().unwrap().authority().to_string()
}

fn connection(pem: &str, versions: &[&'static SupportedProtocolVersion]) -> ClientConnection {
    let name = "127.0.0.1".try_into().unwrap();
    ClientConnection::new(Arc::new(client::trusting(pem, versions)), name).unwrap()
}

fn sealed(node: &Node, version: &'static SupportedProtocolVersion) -> Client {
    let tls = connection(&authority(node), &[version]);
    let mut client = Client::sealed(node.ports().kv_tls.unwrap(), tls);
    client.hello(&SDK).ok();
    client.log_in().ok();
    client.select("default").ok();
    client
}

/// Opens a TCP connection to the KV port with TLS.
fn raw(node: &Node) -> TcpStream {
    let stream = TcpStream::connect(("127.0.0.1", node.ports().kv_tls.unwrap())).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    stream
}

/// Reads until the node closes the connection. The close itself is the check.
fn until_the_end(mut stream: TcpStream) -> Vec<u8> {
    let mut read = Vec::new();
    match stream.read_to_end(&mut read) {
        Err(error) if error.kind() != std::io::ErrorKind::ConnectionReset => panic!("{error}"),
        _ => read,
    }
}

fn get(key: &str) -> Request {
    Request::of(Opcode::GET, key)
}

/// Waits until no connection is left.
fn all_are_gone(node: &Node) {
    let begun = Instant::now();
    while node.state.connections.open() > 0 {
        assert!(begun.elapsed() < LONG, "connections stay");
        thread::yield_now();
    }
}

#[test]
fn documents_come_and_go_over_tls() {
    let node = with_tls(None, LONG);
    for version in [&TLS12, &TLS13] {
        let mut client = sealed(&node, version);
        for size in [0, 1, 100, 16 << 10, (16 << 10) + 1, 100_000, 3 << 20] {
            let value: Vec<u8> = (0..size).map(|n: usize| (n % 251) as u8).collect();
            client.set("k", &value).ok();
            assert!(client.get("k").ok().value == value, "{size}");
        }
        let many: Vec<Request> = (0..2000).map(|n| set(&format!("k{n}"), [7; 300])).collect();
        client.pipeline(&many);
        client.answers(many.len()).into_iter().for_each(|answer| {
            answer.ok();
        });
        let many: Vec<Request> = (0..2000).map(|n| get(&format!("k{n}"))).collect();
        client.pipeline(&many);
        let answers = client.answers(many.len());
        assert!(answers.iter().all(|answer| answer.value == [7; 300]));
    }
}

#[test]
fn concurrent_clients_all_get_answers() {
    let node = with_tls(None, LONG);
    let mut clients: Vec<Client> = (0..24).map(|_| sealed(&node, &TLS13)).collect();
    for round in 0..20 {
        for (number, client) in clients.iter_mut().enumerate() {
            let value = vec![number as u8; round * 1000];
            client.pipeline(&[set(&format!("{number}"), value), get(&format!("{number}"))]);
        }
        for (number, client) in clients.iter_mut().enumerate() {
            client.answer().ok();
            let Answer { value, .. } = client.answer().ok();
            assert!(value == vec![number as u8; round * 1000]);
        }
    }
}

#[test]
fn maps_and_statistics_show_tls() {
    let node = with_tls(None, LONG);
    let mut client = sealed(&node, &TLS13);
    let map = client.call(&Request::new(Opcode::GET_CLUSTER_CONFIG)).ok();
    let services = &map.json()["nodesExt"][0]["services"];
    assert_eq!(services["kvSSL"], node.ports().kv_tls.unwrap());
    assert_eq!(services["mgmtSSL"], node.ports().https.unwrap());
    let about = |client: &mut Client| {
        let request = Request::new(Opcode::STAT).key("connections self");
        let row = client.call(&request).ok().json();
        assert!(client.answer().value.is_empty());
        row["tls"].clone()
    };
    assert_eq!(about(&mut client), true);
    assert_eq!(about(&mut Client::ready(node.ports().kv)), false);

    let plain = start();
    let mut client = Client::ready(plain.ports().kv);
    let map = client.call(&Request::new(Opcode::GET_CLUSTER_CONFIG)).ok();
    let services = map.json()["nodesExt"][0]["services"].clone();
    assert_eq!(services.as_object().unwrap().len(), 2, "{services}");
}

/// An idle connection holds nothing but its keys.
#[test]
fn an_idle_connection_holds_no_buffers() {
    let node = with_tls(None, LONG);
    let mut client = sealed(&node, &TLS13);
    client.set("k", vec![7; 3 << 20]).ok();
    client.get("k").ok();
    client.expect_silence();
    let [info] = &node.state.connections.all()[..] else {
        panic!("one is connected");
    };
    let held = || (info.held(), node.state.buffers.held());
    let begun = Instant::now();
    while held() != (0, 0) {
        assert!(begun.elapsed() < LONG, "{:?}", held());
        thread::yield_now();
    }
}

#[test]
fn bytes_that_are_no_handshake_end_the_connection() {
    let node = with_tls(None, LONG);
    let hello = Request::new(Opcode::NOOP).bytes();
    let mut claims_much = vec![0x16, 3, 1, 0x40, 0, 1, 0, 0xff, 0xff];
    claims_much.resize(5 + 0x4000, 0);
    claims_much.extend([0x16, 3, 3, 0x40, 0]);
    claims_much.resize(2 * (5 + 0x4000), 0);
    let oversized = [&[0x16, 3, 1, 0xff, 0xff][..], &vec![0; 70_000]].concat();
    for nonsense in [
        hello,
        vec![0xff; 100],
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec(),
        vec![0x17, 3, 3, 0, 1, 0],
        [0x14, 3, 3, 0, 1, 1].repeat(1000),
        [0x15, 3, 3, 0, 2, 1, 90].repeat(1000),
        claims_much,
        oversized,
    ] {
        let mut stream = raw(&node);
        let written = stream.write_all(&nonsense);
        // The node may have closed it before all was written.
        drop(written);
        let answer = until_the_end(stream);
        let alert = answer.first().is_none_or(|kind| *kind == 0x15);
        assert!(alert && answer.len() <= 7, "{answer:?}");
    }
    all_are_gone(&node);

    // And the other way round: TLS on the plain port.
    let mut client = connection(&authority(&node), &[&TLS13]);
    let mut stream = TcpStream::connect(("127.0.0.1", node.ports().kv)).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    client.write_tls(&mut stream).unwrap();
    assert!(until_the_end(stream).is_empty());
    all_are_gone(&node);
    sealed(&node, &TLS13).get("k");
}

#[test]
fn an_unfinished_handshake_ends_the_connection() {
    let node = with_tls(None, Duration::from_millis(300));
    let silent = raw(&node);
    let mut half = raw(&node);
    let mut client = connection(&authority(&node), &[&TLS13]);
    client.write_tls(&mut half).unwrap();
    let mut slow = raw(&node);
    slow.write_all(&[0x16, 3, 1]).unwrap();
    assert!(until_the_end(silent).is_empty());
    assert!(until_the_end(half).len() > 500, "the node's part of it");
    assert!(until_the_end(slow).is_empty());
    all_are_gone(&node);
}

/// A record may arrive in any pieces, also the last one of the handshake together with the first request.
#[test]
fn bytes_may_come_one_by_one() {
    let node = with_tls(None, LONG);
    for version in [&TLS12, &TLS13] {
        let mut tls = connection(&authority(&node), &[version]);
        let mut stream = raw(&node);
        stream.set_nodelay(true).unwrap();
        tls.writer()
            .write_all(&Request::new(Opcode::NOOP).bytes())
            .unwrap();
        let mut answer = Vec::new();
        while answer.len() < 24 {
            while tls.wants_write() {
                let mut piece = Vec::new();
                tls.write_tls(&mut piece).unwrap();
                for byte in piece {
                    stream.write_all(&[byte]).unwrap();
                }
            }
            tls.read_tls(&mut stream).unwrap();
            let news = tls.process_new_packets().unwrap().plaintext_bytes_to_read();
            let before = answer.len();
            answer.resize(before + news, 0);
            tls.reader().read_exact(&mut answer[before..]).unwrap();
        }
        assert_eq!(answer[..2], [0x81, Opcode::NOOP.0]);
        // Both sides send the TLS notice of their end.
        tls.send_close_notify();
        tls.write_tls(&mut stream).unwrap();
        until_the_end(stream);
    }
    all_are_gone(&node);
}

/// A record that was changed on its way ends the connection.
#[test]
fn a_damaged_record_ends_the_connection() {
    let node = with_tls(None, LONG);
    let mut tls = connection(&authority(&node), &[&TLS13]);
    let mut stream = raw(&node);
    while tls.is_handshaking() {
        tls.complete_io(&mut stream).unwrap();
    }
    tls.writer()
        .write_all(&Request::new(Opcode::NOOP).bytes())
        .unwrap();
    let mut record = Vec::new();
    tls.write_tls(&mut record).unwrap();
    *record.last_mut().unwrap() ^= 1;
    stream.write_all(&record).unwrap();
    let end = loop {
        match tls.read_tls(&mut stream) {
            Ok(0) => break None,
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => break None,
            Err(error) => panic!("{error}"),
        }
        if let Err(error) = tls.process_new_packets() {
            break Some(error);
        }
    };
    let told = end.is_none_or(|end| matches!(end, rustls::Error::AlertReceived(_)));
    assert!(told, "nothing was answered");
    all_are_gone(&node);
}

fn https(node: &Node, request: &str) -> String {
    let mut tls = connection(&authority(node), &[&TLS13]);
    let mut stream = TcpStream::connect(("127.0.0.1", node.ports().https.unwrap())).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    let mut stream = rustls::Stream::new(&mut tls, &mut stream);
    write!(
        stream,
        "{request} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
         Authorization: Basic QWRtaW5pc3RyYXRvcjpzZWNyZXQgd29yZA==\r\n\r\n"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn management_is_served_over_tls() {
    let node = with_tls(None, LONG);
    let pem = https(&node, "GET /pools/default/certificate");
    assert!(pem.ends_with(&authority(&node)), "{pem}");
    let services = https(&node, "GET /pools/default/nodeServices");
    let expected = format!("\"mgmtSSL\":{}", node.ports().https.unwrap());
    assert!(services.contains(&expected), "{services}");
    let reload = https(&node, "POST /node/controller/reloadCertificate");
    assert!(reload.starts_with("HTTP/1.1 204 "), "{reload}");

    let mut plain = TcpStream::connect(("127.0.0.1", node.ports().https.unwrap())).unwrap();
    plain.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    let answer = until_the_end(plain);
    assert!(!answer.starts_with(b"HTTP"), "{answer:?}");
}

#[test]
fn the_authority_stays_and_the_certificate_is_read_again() {
    use std::os::unix::fs::PermissionsExt as _;

    let place = tempfile::tempdir().unwrap();
    let node = with_tls(Some(place.path()), LONG);
    let pem = authority(&node);
    let old = node.state.tls.as_ref().unwrap().config.clone();
    node.reload_certificate().unwrap();
    assert!(Arc::ptr_eq(&old, &node.state.tls.as_ref().unwrap().config));
    sealed(&node, &TLS13);
    node.shutdown().unwrap();
    drop(node);
    let key = place.path().join("tls/ca-key.pem");
    let mode = std::fs::metadata(&key).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);

    let node = with_tls(Some(place.path()), LONG);
    assert_eq!(authority(&node), pem);
    sealed(&node, &TLS13);
    node.shutdown().unwrap();
    drop(node);

    std::fs::write(&key, "damaged").unwrap();
    let refused = Node::start(tls_config(Some(place.path()))).err().unwrap();
    assert!(refused.to_string().contains("ca-key.pem"), "{refused}");
    // The certificate without its key: clients that trust this authority would not trust a new one.
    std::fs::remove_file(&key).unwrap();
    let refused = Node::start(tls_config(Some(place.path()))).err().unwrap();
    assert!(
        refused.to_string().contains("ca-key.pem: is missing"),
        "{refused}"
    );
    std::fs::remove_file(place.path().join("tls/ca.pem")).unwrap();
    let node = with_tls(Some(place.path()), LONG);
    assert_ne!(authority(&node), pem);
}

#[test]
fn a_damaged_authority_is_refused_and_a_lost_certificate_is_made_again() {
    let place = tempfile::tempdir().unwrap();
    let start = || Node::start(tls_config(Some(place.path())));
    drop(start().map(|node| node.shutdown()).unwrap());
    let [key, certificate] = ["tls/ca-key.pem", "tls/ca.pem"].map(|name| place.path().join(name));
    let whole = [&key, &certificate].map(|file| std::fs::read(file).unwrap());
    for (file, whole) in [&key, &certificate].into_iter().zip(&whole) {
        for at in (0..whole.len()).step_by(97).chain([whole.len() - 2]) {
            let mut damaged = whole.clone();
            damaged[at] ^= 1;
            std::fs::write(file, damaged).unwrap();
            let refused = start().err().map(|error| error.to_string());
            let refused = refused.unwrap_or_else(|| panic!("byte {at} of {}", file.display()));
            assert!(refused.contains(&*file.to_string_lossy()), "{refused}");
        }
        std::fs::write(file, whole).unwrap();
    }
    // A key of an earlier release has no checksum, and gets one.
    let text = String::from_utf8(whole[0].clone()).unwrap();
    std::fs::write(&key, text.split('#').next().unwrap()).unwrap();
    drop(start().map(|node| node.shutdown()).unwrap());
    assert_eq!(std::fs::read(&key).unwrap(), whole[0]);
    std::fs::remove_file(&certificate).unwrap();
    drop(start().map(|node| node.shutdown()).unwrap());
    assert!(certificate.exists());
}

#[test]
fn given_files_are_served_and_checked() {
    let place = tempfile::tempdir().unwrap();
    let files = CertificateFiles {
        chain: place.path().join("chain.pem"),
        key: place.path().join("key.pem"),
    };
    let write = || {
        let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        std::fs::write(&files.chain, made.cert.pem()).unwrap();
        std::fs::write(&files.key, made.signing_key.serialize_pem()).unwrap();
        made.cert.der().clone()
    };
    write();
    let given = NodeConfig {
        certificate: Some(files.clone()),
        ..tls_config(None)
    };
    let node = started(&given, Waits::default());
    let mut before = sealed(&node, &TLS13);
    let first = authority(&node);
    write();
    node.reload_certificate().unwrap();
    assert_ne!(authority(&node), first);
    sealed(&node, &TLS13).expect_silence();
    before.expect_silence();

    let pkcs8 = b"-----BEGIN ENCRYPTED PRIVATE KEY-----\n";
    let pkcs1 = b"-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n";
    let other = rcgen::KeyPair::generate().unwrap().serialize_pem();
    let chain = std::fs::read(&files.chain).unwrap();
    let half = |file| {
        let whole = std::fs::read(file).unwrap();
        whole[..whole.len() / 2].to_vec()
    };
    let (half_key, half_chain) = (half(&files.key), half(&files.chain));
    for (path, content, wrong) in [
        (
            &files.key,
            other.as_bytes(),
            "key.pem: the key is not that of the certificate in ",
        ),
        (&files.key, &half_key, "key.pem is cut off: "),
        (&files.chain, &half_chain, "chain.pem is cut off: "),
        (&files.key, &b"no key"[..], "key.pem holds no key"),
        (
            &files.key,
            &pkcs8[..],
            "key.pem holds an encrypted key, which is not",
        ),
        (
            &files.key,
            &pkcs1[..],
            "key.pem holds an encrypted key, which is not",
        ),
        (&files.chain, &b""[..], "chain.pem holds no certificate"),
    ] {
        std::fs::write(&files.chain, &chain).unwrap();
        std::fs::write(path, content).unwrap();
        let refused = node.reload_certificate().unwrap_err();
        assert!(refused.contains(wrong), "{refused}");
        let start = Node::start(given.clone()).err().unwrap().to_string();
        assert!(start.contains(wrong), "{start}");
    }
    sealed(&node, &TLS13).expect_silence();
}
