//! Tests of HTTP with client certificates, and of the call that configures them.

use super::*;

/// Returns status and body of the answer to a request over HTTPS; `None` if the connection is refused.
pub(super) fn https(
    served: &Certified,
    made: Option<&Made>,
    request: &str,
) -> Option<(u16, String)> {
    let name = "127.0.0.1".try_into().unwrap();
    let tls = trusting(&served.node, made);
    let mut tls = rustls::ClientConnection::new(tls.into(), name).unwrap();
    let mut socket = TcpStream::connect(("127.0.0.1", served.node.ports().https.unwrap())).unwrap();
    socket
        .set_read_timeout(Some(std::time::Duration::from_secs(30)))
        .unwrap();
    let mut stream = rustls::Stream::new(&mut tls, &mut socket);
    let mut answer = String::new();
    let sent = write!(stream, "{request}");
    // An end without the TLS notice is an error of its own.
    let read = sent.and_then(|()| stream.read_to_string(&mut answer).map(drop));
    if answer.is_empty() {
        let error = read.err().map(|error| error.kind());
        assert_ne!(error, Some(std::io::ErrorKind::WouldBlock), "not closed");
        return None;
    }
    Some(parsed(&answer))
}

pub(super) fn parsed(answer: &str) -> (u16, String) {
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, body.to_owned())
}

const ADMIN: &str = "Authorization: Basic QWRtaW5pc3RyYXRvcjpzZWNyZXQgd29yZA==\r\n";

pub(super) fn get(path: &str, more: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{more}\r\n")
}

/// Sends a request about client certificates as the administrator, without TLS. Returns the answer.
fn settings_call(served: &Certified, method: &str, body: &str) -> (u16, Value) {
    let mut stream = TcpStream::connect(("127.0.0.1", served.node.ports().http)).unwrap();
    write!(
        stream,
        "{method} /settings/clientCertAuth HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{ADMIN}\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (status, body) = parsed(&answer);
    let value = serde_json::from_str(&body).unwrap_or(Value::Null);
    (status, value)
}

#[test]
fn https_knows_the_user_of_a_certificate() {
    let served = Certified::start(CertificateState::Enable);
    let ada = served.ada();
    let whoami = get("/whoami", "");
    let (status, body) = https(&served, Some(&ada), &whoami).unwrap();
    let told: Value = serde_json::from_str(&body).unwrap();
    assert_eq!((status, told["id"].as_str()), (200, Some(USER)));
    // The roles are those of the user, whatever else the request contains.
    let users = get("/settings/rbac/users", ADMIN);
    assert_eq!(https(&served, Some(&ada), &users).unwrap().0, 403);
    let pools = https(&served, Some(&ada), &get("/pools", "")).unwrap();
    assert!(pools.1.contains("\"default\""), "{pools:?}");
    // Without a certificate callers log in.
    assert_eq!(https(&served, None, &whoami).unwrap().0, 401);
    assert_eq!(https(&served, None, &users).unwrap().0, 200);
    let bob = served.authority.sign(|params| {
        params.distinguished_name.push(DnType::CommonName, "bob");
    });
    assert_eq!(https(&served, Some(&bob), &whoami).unwrap().0, 401);
    assert_eq!(https(&served, Some(&bob), &users).unwrap().0, 200);
    let stranger = Authority::new("clients").sign(|params| {
        params.distinguished_name.push(DnType::CommonName, USER);
    });
    assert_eq!(https(&served, Some(&stranger), &users), None);
    // A removed user is unknown from the next request on.
    served.change_users(|directory| directory.users = identity::Users::default());
    assert_eq!(https(&served, Some(&ada), &whoami).unwrap().0, 401);

    served.make_user("ro_admin");
    served.set(&json!({ "state": "mandatory", "prefixes": whole_name() }));
    assert_eq!(https(&served, None, &users), None);
    assert_eq!(https(&served, Some(&bob), &users), None);
    assert_eq!(https(&served, Some(&ada), &whoami).unwrap().0, 200);
    served.node.shutdown().unwrap();
}

#[test]
fn the_call_changes_the_settings_of_new_connections() {
    let served = Certified::start(CertificateState::Disable);
    let ada = served.ada();
    let (status, now) = settings_call(&served, "GET", "");
    let off = json!({ "state": "disable", "prefixes": [] });
    assert_eq!((status, now), (200, off));
    let mut open = served.connect(None);
    open.log_in().ok();
    for (state, expected) in [
        ("enable", [Outcome::MayLogIn, Outcome::IsUser]),
        ("mandatory", [Outcome::Refused, Outcome::IsUser]),
        ("disable", [Outcome::MayLogIn; 2]),
    ] {
        let wanted = json!({ "state": state, "prefixes": whole_name() });
        let (status, answer) = settings_call(&served, "POST", &wanted.to_string());
        assert_eq!((status, answer), (200, Value::Null));
        assert_eq!(settings_call(&served, "GET", ""), (200, wanted));
        let came = [None, Some(&ada)].map(|made| served.outcome(made));
        assert_eq!(came, expected, "{state}");
        open.call(&Request::new(Opcode::NOOP)).ok();
    }
    served.node.shutdown().unwrap();
}

#[test]
fn the_call_reports_the_error_of_each_field() {
    let served = Certified::start(CertificateState::Enable);
    let rule = |path: Value| json!({ "path": path, "prefix": "", "delimiter": "" });
    let one = rule(json!("subject.cn"));
    let many: Vec<Value> = (0..11)
        .map(|n| json!({ "path": "san.dns", "prefix": n.to_string(), "delimiter": "" }))
        .collect();
    let long = "x".repeat(257);
    for (body, fields) in [
        (json!([]), &["_"][..]),
        (json!({}), &["state"]),
        (json!({ "state": "on", "prefixes": [one] }), &["state"]),
        (
            json!({ "state": 1, "prefixes": {} }),
            &["prefixes", "state"],
        ),
        (json!({ "state": "enable" }), &["prefixes"]),
        (json!({ "state": "enable", "prefixes": [] }), &["prefixes"]),
        (
            json!({ "state": "enable", "prefixes": many }),
            &["prefixes"],
        ),
        (
            json!({ "state": "enable", "prefixes": [one, one] }),
            &["prefixes"],
        ),
        (
            json!({ "state": "enable", "prefixes": [one, rule(json!("san.ip"))] }),
            &["prefixes[1].path"],
        ),
        (
            json!({ "state": "enable", "prefixes": ["x", { "path": "san.dns" }] }),
            &["prefixes[0]", "prefixes[1].delimiter", "prefixes[1].prefix"],
        ),
        (
            json!({ "state": "enable", "more": 1, "prefixes": [
                { "path": "san.dns", "prefix": long, "delimiter": "\u{0}", "odd": "" }
            ] }),
            &[
                "more",
                "prefixes[0].delimiter",
                "prefixes[0].odd",
                "prefixes[0].prefix",
            ],
        ),
    ] {
        let (status, answer) = settings_call(&served, "POST", &body.to_string());
        assert_eq!(status, 400, "{body} {answer}");
        let named: Vec<&str> = answer["errors"]
            .as_object()
            .unwrap()
            .keys()
            .map(|key| &**key)
            .collect();
        assert_eq!(named, fields, "{answer}");
    }
    for body in ["", "state=enable", "{\"state\":\"enable\""] {
        assert_eq!(settings_call(&served, "POST", body).0, 400);
    }
    let (_, now) = settings_call(&served, "GET", "");
    assert_eq!(now, json!({ "state": "enable", "prefixes": whole_name() }));
    served.node.shutdown().unwrap();
}
