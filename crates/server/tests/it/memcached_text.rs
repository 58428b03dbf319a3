//! Tests of the text and the meta protocol on the memcached port.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};

use model::VbId;
use wire::Opcode;

use crate::client::{Client, PASSWORD, Request, USER, set};
use crate::place::{asking_for_logins, on_disk, own, set_vbucket, shared, shared_classic};

/// Sends a request; returns all answers until the end of the connection.
fn talk_to(port: u16, request: &[u8]) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.write_all(request).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    String::from_utf8(answer).unwrap()
}

/// Sends requests, each of which ends with `\n` in place of `\r\n`; returns the lines of the answer.
fn talk(request: &str) -> Vec<String> {
    let answer = talk_to(shared_classic(), request.replace('\n', "\r\n").as_bytes());
    answer.split_terminator("\r\n").map(str::to_owned).collect()
}

#[test]
fn storage_commands_and_retrievals() {
    let lines = talk(
        "set t:a 5 0 3\none\nadd t:a 0 0 1\nx\nreplace t:a 6 0 3\ntwo\nappend t:a 0 0 1\n!\nprepend t:a 0 0 1\n>\n\
         get t:a t:none\nreplace t:none 0 0 1\nx\nappend t:none 0 0 1\nx\nset t:q 0 0 1 noreply\ny\nget t:q\n",
    );
    let expected = [
        "STORED",
        "NOT_STORED",
        "STORED",
        "STORED",
        "STORED",
        "VALUE t:a 6 5",
        ">two!",
        "END",
        "NOT_STORED",
        "NOT_STORED",
        "VALUE t:q 0 1",
        "y",
        "END",
    ];
    assert_eq!(lines, expected);
    let mut sdk = Client::ready(shared());
    assert_eq!(sdk.get("t:a").value, b">two!", "the same documents");
    sdk.call(&set("t:kv", "other")).ok();
    assert_eq!(talk("get t:kv\n"), ["VALUE t:kv 0 5", "other", "END"]);
}

#[test]
fn a_cas_is_returned_and_compared() {
    let lines = talk("set t:cas 0 0 1\na\ngets t:cas\n");
    let cas: u64 = lines[1].rsplit(' ').next().unwrap().parse().unwrap();
    let swap =
        format!("cas t:cas 0 0 1 {cas}\nb\ncas t:cas 0 0 1 {cas}\nc\ncas t:cas 0 0 1 0\nd\n");
    assert_eq!(talk(&swap), ["STORED", "EXISTS", "EXISTS"]);
    assert_eq!(
        talk("cas t:no-cas 0 0 1 5\na\nget t:cas\n"),
        ["NOT_FOUND", "VALUE t:cas 0 1", "b", "END"]
    );
}

#[test]
fn counters_wrap_and_stop() {
    let lines = talk(
        "set t:n 0 0 20\n18446744073709551615\nincr t:n 2\ndecr t:n 5\nincr t:none 1\nincr t:n x\n\
         set t:w 0 0 1\nw\nincr t:w 1\n",
    );
    assert_eq!(
        lines,
        [
            "STORED",
            "1",
            "0",
            "NOT_FOUND",
            "CLIENT_ERROR invalid numeric delta argument",
            "STORED",
            "CLIENT_ERROR cannot increment or decrement non-numeric value",
        ]
    );
}

#[test]
fn expiries_are_set_and_touched() {
    let lines = talk(
        "set t:e 0 -1 1\na\nget t:e\nset t:e 0 0 1\nb\ntouch t:e 100\nmg t:e t\ngat 0 t:e\nmg t:e t\n\
         touch t:e -1\nget t:e\ntouch t:e 1\n",
    );
    assert_eq!(&lines[..4], ["STORED", "END", "STORED", "TOUCHED"]);
    assert!(
        lines[4] == "HD t100" || lines[4] == "HD t101",
        "{}",
        lines[4]
    );
    assert_eq!(
        &lines[5..],
        [
            "VALUE t:e 0 1",
            "b",
            "END",
            "HD t-1",
            "TOUCHED",
            "END",
            "NOT_FOUND"
        ]
    );
}

#[test]
fn meta_commands_answer_the_requested_flags() {
    let lines = talk(
        "ms t:m 2 T0 F9\nhi\nmg t:m s v f k Oq7\nmg t:m-none v k\nmg t:m-none v q\nms t:m 1 ME k\nx\n\
         ms t:m 1 q\nz\nms dDpi 1 b\ny\nmg dDpi b k v\nmg t:b v\nmd t:m C1\nmd t:m q\nmd t:m\nmn\n",
    );
    assert_eq!(
        lines,
        [
            "HD",
            "VA 2 s2 f9 kt:m Oq7",
            "hi",
            "EN kt:m-none",
            "NS kt:m",
            "HD",
            "VA 1 kdDpi b",
            "y",
            "VA 1",
            "y",
            "EX",
            "NF",
            "MN",
        ]
    );
    // Times of reads are not recorded; a client that asks for them gets the rest.
    let lines = talk("ms t:mr 2 F9\nhi\nmg t:mr v h l t f\nmg t:mr-none h l\n");
    assert_eq!(lines, ["HD", "VA 2 t-1 f9", "hi", "EN"]);
    let lines = talk(
        "ma t:mc N0 J10 D3 v\nma t:mc D3 v\nma t:mc MD D100 v k\nma t:mc-none\nms t:ma 1 MA\nx\n\
         ms t:ma 1 MA N0 c\nx\nms t:ma 1 MA\ny\nmg t:ma v\n",
    );
    assert!(lines[8].starts_with("HD c"), "{lines:?}");
    assert_eq!(
        &lines[..8],
        ["VA 2", "10", "VA 2", "13", "VA 1 kt:mc", "0", "NF", "NS"]
    );
    assert_eq!(&lines[9..], ["HD", "VA 2", "xy"]);
}

/// Returns the number that follows a flag in a line.
fn flag(line: &str, letter: char) -> u64 {
    let mut words = line.split(' ').skip(1);
    let found = words.find_map(|word| word.strip_prefix(letter));
    found.unwrap().parse().unwrap()
}

#[test]
fn one_client_wins_the_rebuild_of_a_document() {
    let lines = talk("mg t:viv N30 c\nmg t:viv N30 c v\nmg dDp2aXY= b k\nmg t:viv-none R30\n");
    let cas = flag(&lines[0], 'c');
    let expected = [
        format!("HD c{cas} W"),
        format!("VA 0 c{cas} Z"),
        String::new(),
        "HD kdDp2aXY= b Z".to_owned(),
        "EN".to_owned(),
    ];
    assert_eq!(lines, expected);
    let store = format!("ms t:viv 1 C1\nx\nms t:viv 1 C{cas}\ny\nmg t:viv v N30\n");
    assert_eq!(talk(&store), ["EX", "HD", "VA 1", "y"]);

    // A write of an SDK also replaces the document, and a delete removes it.
    let mut sdk = Client::ready(shared());
    let due = "mg t:due R30\nmg t:due R30\n";
    talk("ms t:due 1 T20\nx\n");
    assert_eq!(talk(due), ["HD W", "HD Z"]);
    sdk.call(&set("t:due", "other")).ok();
    assert_eq!(talk(due), ["HD", "HD"], "it never expires");
    sdk.call(&Request::of(Opcode::DELETE, "t:due")).ok();
    assert_eq!(talk("mg t:due N30\nmg t:due\n"), ["HD W", "HD Z"]);
}

/// A client that got no answer would take the next one for it.
#[test]
fn an_append_that_may_create_is_refused_for_another_revision() {
    let lines = talk("ms t:av 1\nx\nms t:av 1 MA N0 C5 c\ny\nmg t:av v\n");
    assert_eq!(lines, ["HD", "EX c0", "VA 1", "x"]);
}

#[test]
fn an_empty_value_ends_the_rebuild_of_a_document() {
    let stored = talk("mg t:em N30\nset t:em 0 0 0\n\nmg t:em v\n");
    assert_eq!(stored, ["HD W", "STORED", "VA 0", ""]);
    let deleted = "mg t:em2 N30\ndelete t:em2\nadd t:em2 0 0 0 noreply\n\nmg t:em2 v\n";
    assert_eq!(talk(deleted), ["HD W", "DELETED", "VA 0", ""]);
}

/// Returns the first line of the answer to `mg KEY v`, behind the size of the value.
fn flags_at(port: u16, key: &str) -> String {
    let answer = talk_to(port, format!("mg {key} v\r\n").as_bytes());
    let line = answer.split("\r\n").next().unwrap();
    line.split(' ').skip(2).collect::<Vec<_>>().join(" ")
}

/// Other clients see the same document, until one of them stores another value.
#[test]
fn a_stale_document_stays_stale_until_its_value_is_replaced() {
    let place = tempfile::tempdir().unwrap();
    let node = on_disk(place.path());
    let classic = node.ports().memcached.unwrap();
    let answers = |request: &str| talk_to(classic, request.replace('\n', "\r\n").as_bytes());
    assert_eq!(
        answers("ms a 1 F5\nx\nms b 1\nx\nmd a I\nmd b I T60\n"),
        "HD\r\n".repeat(4)
    );
    let mut sdk = Client::ready(node.ports().kv);
    let got = sdk.get("a").ok();
    assert_eq!(
        (got.value.as_slice(), got.extras.as_slice()),
        (&b"x"[..], &[0, 0, 0, 5][..])
    );
    sdk.call(&Request::of(Opcode::TOUCH, "a").extras(&100_u32.to_be_bytes()))
        .ok();
    sdk.call(&Request::of(Opcode::APPEND, "a").value("y")).ok();
    assert_eq!(flags_at(classic, "a"), "X W");
    assert_eq!(flags_at(classic, "a"), "Z X");
    drop(sdk);
    node.shutdown().unwrap();

    let node = on_disk(place.path());
    let classic = node.ports().memcached.unwrap();
    let mut sdk = Client::ready(node.ports().kv);
    assert_eq!(
        flags_at(classic, "a"),
        "X W",
        "who won is forgotten, what is stale is not"
    );
    assert_eq!(flags_at(classic, "b"), "X W");
    sdk.set("a", "xy").ok();
    sdk.call(&Request::of(Opcode::REPLACE, "b").extras(&[0; 8]).value("x"))
        .ok();
    for key in ["a", "b"] {
        assert_eq!(flags_at(classic, key), "");
    }
    node.shutdown().unwrap();
}

#[test]
fn a_counter_returns_and_takes_its_revision_and_its_expiry() {
    let lines = talk("ms t:mt 1\n5\nma t:mt c t\nma t:mt T60 t v\nma t:mt c t\n");
    assert_eq!(lines[0], "HD");
    assert!(lines[1].ends_with(" t-1"), "{lines:?}");
    assert_eq!(&lines[2..4], ["VA 1 t60", "7"]);
    let cas = flag(&lines[4], 'c');
    assert_eq!(flag(&lines[4], 't'), 60, "it keeps its expiry");
    let swap = format!("ma t:mt C1\nma t:mt C{cas} v t\nma t:mt C{cas}\nma t:mt-none C{cas}\n");
    assert_eq!(talk(&swap), ["EX", "VA 1 t60", "9", "EX", "NF"]);
}

#[test]
fn an_invalid_request_is_answered_and_the_next_one_runs() {
    let long = "k".repeat(251);
    let cases = [
        ("\n".to_owned(), "ERROR"),
        ("get\n".into(), "ERROR"),
        (
            format!("get {long}\n"),
            "CLIENT_ERROR bad command line format",
        ),
        (
            format!("set {long} 0 0 5\nquit!\n"),
            "CLIENT_ERROR bad command line format",
        ),
        (
            "set t:x 0 0 -1\n".into(),
            "CLIENT_ERROR bad command line format",
        ),
        (
            "set t:x 0 0 3\nabcd\n".replace("abcd\n", "abcde"),
            "CLIENT_ERROR bad data chunk",
        ),
        (
            "ms t:x 4 MZ\nquit\n".into(),
            "CLIENT_ERROR invalid mode for ms M token",
        ),
        ("mg t:x y\n".into(), "CLIENT_ERROR invalid flag"),
        ("mg t:x v v\n".into(), "CLIENT_ERROR duplicate flag"),
        ("mg !!! b\n".into(), "CLIENT_ERROR error decoding key"),
        ("stats no-such-group\n".into(), "ERROR"),
    ];
    for (request, answer) in cases {
        assert_eq!(talk(&format!("{request}mn\n")), [answer, "MN"], "{request}");
    }
    let large = format!("set t:x 0 0 20971521\n{}\nmn\n", "x".repeat(20_971_521));
    let refused = "SERVER_ERROR object too large for cache";
    assert_eq!(talk(&large), [refused, "MN"]);
}

#[test]
fn unreadable_input_ends_the_connection() {
    let line = "x".repeat(3000);
    assert_eq!(talk(&line), ["CLIENT_ERROR line too long"]);
    let key = format!("get {}", "k".repeat(3000));
    assert_eq!(talk(&key), ["CLIENT_ERROR line too long"]);
    let binary = [b"mn\r\n".as_slice(), &Request::new(Opcode::NOOP).bytes()].concat();
    let answer = talk_to(shared_classic(), &binary);
    assert_eq!(
        answer,
        "MN\r\nCLIENT_ERROR a binary request on a text connection\r\n"
    );
}

#[test]
fn a_page_in_a_browser_cannot_send_commands() {
    let post = "POST / HTTP/1.1\nOrigin: http://other\n\nset t:page 0 0 1\n1\nget t:page\n";
    let refused = ["CLIENT_ERROR an HTTP request on a text connection"];
    assert_eq!(talk(post), refused);
    assert_eq!(talk("GET /set%20t:page HTTP/1.0\nmn\n"), refused);
    assert_eq!(talk("get t:page HTTP/1.1\n"), ["END"]);
}

#[test]
fn a_line_of_keys_may_be_longer_than_any_other() {
    let keys: Vec<String> = (0..5000).map(|number| format!("t:many-{number}")).collect();
    talk("set t:many-4999 0 0 1\nz\n");
    let request = format!("get {}\nmn\n", keys.join(" "));
    assert_eq!(talk(&request), ["VALUE t:many-4999 0 1", "z", "END", "MN"]);
}

#[test]
fn a_refused_key_ends_the_answer_to_a_retrieval() {
    let node = own();
    let (gone, there) = ("t:gone", "t:there");
    let mut sdk = Client::ready(node.ports().kv);
    sdk.set(there, "x").ok();
    set_vbucket(&mut sdk, VbId::of_key(gone.as_bytes(), 1024).0, 2);
    let refusal = "SERVER_ERROR the document is not active on this node\r\n";
    let value = "VALUE t:there 0 1\r\nx\r\n";
    let port = node.ports().memcached.unwrap();
    let requests = [
        format!("get {gone}"),
        format!("get {there} {gone} {there} {gone}"),
        format!("gat 0 {gone} {there}"),
        format!("add {there} 0 0 1\r\ny"),
        format!("get t:none {there}"),
    ];
    let answers = format!("{refusal}{value}{refusal}{refusal}NOT_STORED\r\n{value}END\r\n");
    let requests = requests.map(|request| request + "\r\n").concat();
    assert_eq!(talk_to(port, requests.as_bytes()), answers);
}

#[test]
fn requests_that_come_byte_by_byte() {
    let mut stream = TcpStream::connect(("127.0.0.1", shared_classic())).unwrap();
    stream.set_nodelay(true).unwrap();
    for byte in b"set t:slow 0 0 2\r\nab\r\nget t:slow t:slow\r\nquit\r\n" {
        stream.write_all(&[*byte]).unwrap();
    }
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let value = "VALUE t:slow 0 2\r\nab\r\n";
    assert_eq!(answer, format!("STORED\r\n{value}{value}END\r\n"));
}

#[test]
fn a_storage_command_is_the_login_if_one_is_required() {
    let node = asking_for_logins();
    let port = node.ports().memcached.unwrap();
    let login = |password: &str| {
        let value = format!("{USER} {password}");
        format!("set x 0 0 {}\r\n{value}\r\n", value.len())
    };
    let refused = talk_to(port, b"get k\r\nstats items\r\n");
    assert!(
        !refused.contains("END") || refused.starts_with("CLIENT_ERROR"),
        "{refused}"
    );
    let wrong = talk_to(port, login("wrong").as_bytes());
    assert_eq!(wrong, "CLIENT_ERROR authentication failure\r\n");
    let right = format!("{}get k\r\nset k 0 0 1\r\na\r\n", login(PASSWORD));
    assert_eq!(
        talk_to(port, right.as_bytes()),
        "STORED\r\nEND\r\nSTORED\r\n"
    );
    node.shutdown().unwrap();
}
