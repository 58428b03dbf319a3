//! Tests of untrusted input: bodies without a length, foreign pages, wrong passwords.

use axum::body::Bytes;
use axum::http::header::{CONNECTION, HeaderName, ORIGIN};
use futures_util::stream;

use super::super::peer::Peer;
use super::*;

/// Returns a request whose body arrives in pieces, without a length.
fn in_pieces(pieces: usize) -> Request<Body> {
    let piece = || Ok::<_, io::Error>(Bytes::from_static(&[b'x'; 4096]));
    let mut request = request(Method::POST, "/pools/default/buckets");
    *request.body_mut() = Body::from_stream(stream::iter((0..pieces).map(move |_| piece())));
    request
}

#[tokio::test]
async fn bodies_without_a_length_are_limited_and_given_back() {
    let fixture = Fixture::new();
    for (pieces, expected) in [
        (16, StatusCode::BAD_REQUEST),
        (17, StatusCode::PAYLOAD_TOO_LARGE),
        (1 << 20, StatusCode::PAYLOAD_TOO_LARGE),
    ] {
        let answer = fixture.send(in_pieces(pieces)).await;
        assert_eq!(answer.status(), expected, "{pieces}");
        let closes = answer.headers().get(CONNECTION).is_some();
        assert_eq!(closes, expected == StatusCode::PAYLOAD_TOO_LARGE);
        assert_eq!(*fixture.node.held_bodies.lock(), 0);
    }
}

#[tokio::test]
async fn bodies_are_counted_while_they_come() {
    let fixture = Fixture::new();
    let (sender, receiver) = tokio::sync::mpsc::channel::<Result<Bytes, io::Error>>(1);
    let body = stream::unfold(receiver, async |mut pieces| {
        Some((pieces.recv().await?, pieces))
    });
    let mut request = request(Method::POST, "/pools/default/buckets");
    *request.body_mut() = Body::from_stream(body);
    let answer = tokio::spawn(fixture.app.clone().oneshot(request));
    sender
        .send(Ok(Bytes::from_static(&[b'x'; 100])))
        .await
        .unwrap();
    while *fixture.node.held_bodies.lock() != 100 {
        tokio::task::yield_now().await;
    }
    drop(sender);
    assert_eq!(
        answer.await.unwrap().unwrap().status(),
        StatusCode::BAD_REQUEST
    );
    assert_eq!(*fixture.node.held_bodies.lock(), 0);
}

#[tokio::test]
async fn endless_bodies_end_the_connection() {
    let served = served().await.unwrap();
    let mut stream = TcpStream::connect(served.address).await.unwrap();
    let login = credentials("Administrator:pass:word");
    let head = format!(
        "POST /pools/default/buckets HTTP/1.1\r\nHost: localhost\r\nAuthorization: {login}\r\n\
         Transfer-Encoding: chunked\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let chunk = [b"1000\r\n".as_slice(), &[b'x'; 4096], b"\r\n"].concat();
    let (mut from, mut to) = stream.into_split();
    let flood = async { while to.write_all(&chunk).await.is_ok() {} };
    let read = async {
        let mut answer = Vec::new();
        // The end may be a reset, since the node leaves most of the body unread.
        from.read_to_end(&mut answer).await.unwrap_or_default();
        String::from_utf8_lossy(&answer).into_owned()
    };
    let answer = time::timeout(Duration::from_mins(1), async {
        tokio::join!(flood, read).1
    });
    let answer = answer.await.expect("the node ends the connection");
    assert!(
        answer.is_empty() || answer.starts_with("HTTP/1.1 413"),
        "{answer}"
    );
    served.stop.send_replace(true);
    served.task.await.unwrap();
}

/// Returns the status of a request with these headers, at a port on the loopback or on another address.
async fn status(
    fixture: &Fixture,
    on_loopback: bool,
    (method, path): (Method, &str),
    headers: &[(HeaderName, &str)],
) -> StatusCode {
    let mut request = request(method, path);
    request.headers_mut().remove(HOST);
    for (name, value) in headers {
        request.headers_mut().append(name, value.parse().unwrap());
    }
    let peer = Peer::new([127, 0, 0, 1].into(), on_loopback);
    request.extensions_mut().insert(peer);
    fixture.send(request).await.status()
}

#[tokio::test]
async fn a_loopback_port_answers_under_names_of_the_loopback_only() {
    let fixture = Fixture::new();
    let get = || (Method::GET, "/pools/default");
    for host in [
        "localhost",
        "LocalHost:8091",
        "node1.Localhost:8091",
        "127.0.0.1:1",
        "127.9.9.9",
        "[::1]:8091",
        "[::1]",
    ] {
        let status = status(&fixture, true, get(), &[(HOST, host)]).await;
        assert_eq!(status, StatusCode::OK, "{host}");
    }
    assert_eq!(status(&fixture, true, get(), &[]).await, StatusCode::OK);
    for host in [
        "evil.example:8091",
        "localhost.evil.example",
        "evil-localhost",
        "127.0.0.1.evil.example",
        "192.0.2.1",
        "[::2]:8091",
        "",
    ] {
        for path in ["/pools/default", "/livez", "/pools", "/changes/travel"] {
            let refused = status(&fixture, true, (Method::GET, path), &[(HOST, host)]).await;
            assert_eq!(refused, StatusCode::FORBIDDEN, "{host} {path}");
        }
        let elsewhere = status(&fixture, false, get(), &[(HOST, host)]).await;
        assert_eq!(elsewhere, StatusCode::OK, "{host}");
    }
    let both = [(HOST, "localhost"), (HOST, "evil.example")];
    assert_eq!(
        status(&fixture, true, get(), &both).await,
        StatusCode::FORBIDDEN
    );
}

#[tokio::test]
async fn pages_of_others_change_nothing_and_follow_no_changes() {
    let fixture = Fixture::new();
    let site = || HeaderName::from_static("sec-fetch-site");
    let host = (HOST, "127.0.0.1:8091");
    let foreign = [
        vec![(ORIGIN, "http://evil.example")],
        vec![(ORIGIN, "http://127.0.0.1:3000")],
        vec![(ORIGIN, "null")],
        vec![
            (ORIGIN, "http://127.0.0.1:8091"),
            (ORIGIN, "http://evil.example"),
        ],
        vec![(site(), "cross-site")],
        vec![(site(), "same-site")],
    ];
    let own = [
        vec![],
        vec![(ORIGIN, "http://127.0.0.1:8091")],
        vec![(site(), "same-origin"), (ORIGIN, "http://127.0.0.1:8091")],
        vec![(site(), "none")],
    ];
    let buckets = "/pools/default/buckets";
    for on_loopback in [true, false] {
        for (pages, refused) in [(&foreign[..], true), (&own[..], false)] {
            for headers in pages {
                let headers = [std::slice::from_ref(&host), headers].concat();
                for asked in [
                    (Method::POST, buckets),
                    (Method::DELETE, "/pools/default/buckets/travel"),
                    (Method::OPTIONS, buckets),
                    (Method::GET, "/changes/travel"),
                ] {
                    let status = status(&fixture, on_loopback, asked.clone(), &headers).await;
                    assert_eq!(
                        status == StatusCode::FORBIDDEN,
                        refused,
                        "{asked:?} {headers:?}"
                    );
                }
                let read = status(&fixture, on_loopback, (Method::GET, buckets), &headers).await;
                assert_eq!(
                    read,
                    StatusCode::OK,
                    "browsers keep the answer from the page"
                );
            }
        }
    }
}

#[tokio::test]
async fn some_wrong_passwords_end_the_connection() {
    let fixture = Fixture::new();
    let peer = Peer::new([192, 0, 2, 1].into(), false);
    for number in 1..=FAILURES_PER_CONNECTION {
        let mut request = request(Method::GET, "/pools/default");
        let wrong = credentials("Administrator:wrong").parse().unwrap();
        request.headers_mut().insert(AUTHORIZATION, wrong);
        request.extensions_mut().insert(peer.clone());
        let answer = fixture.send(request).await;
        assert_eq!(answer.status(), StatusCode::UNAUTHORIZED);
        let closes = answer.headers().get(CONNECTION).is_some();
        assert_eq!(closes, number == FAILURES_PER_CONNECTION, "{number}");
    }
}
