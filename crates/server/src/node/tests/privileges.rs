//! Tests of commands and privileges: the matrix of protocol section 8, independent of the command table.

use std::collections::BTreeMap;

use identity::Privilege::{
    Administrator, Audit, DcpConsumer, DcpProducer, Delete, Insert, MetaWrite, NodeSupervisor,
    RangeScan, Read, Settings, Upsert,
};
use identity::{CertificateState, Grant, Privilege, PrivilegeSet, Reach, Role, UserRecord};
use registry::{BucketConfig, BucketKind};
use wire::{Opcode, OpcodeInfo, Presence, Status};

use super::certificates::Certified;
use super::client::{Answer, Client, Request, SDK, hello, plain};
use super::{Waits, bucket, config, start, started};
use crate::node::Node;

/// Place in which the privileges of a command are needed.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Need {
    /// In the collection of the document.
    Document,
    /// In a collection of the bucket.
    Anywhere,
    /// In a collection of the bucket, and in the named one.
    ClusterName,
    /// In the whole bucket.
    Bucket,
    /// Nowhere; any privilege in the bucket is enough.
    Member,
    /// Nowhere.
    Nothing,
}

/// Scope of a grant: bucket, scope, collection. The document is in `default:s:c`.
type Place = (&'static str, Option<&'static str>, Option<&'static str>);

const PLACES: [Place; 5] = [
    ("default", None, None),
    ("default", Some("s"), None),
    ("default", Some("s"), Some("c")),
    ("default", Some("s"), Some("d")),
    ("other", None, None),
];
const MANIFEST: &str = r#"{"uid":"1","scopes":[{"name":"_default","uid":"0","collections":
    [{"name":"_default","uid":"0"}]},{"name":"s","uid":"8","collections":
    [{"name":"c","uid":"8"},{"name":"d","uid":"9"},{"name":"_sys","uid":"a"}]}]}"#;

#[derive(Debug, PartialEq)]
enum Checked {
    Granted,
    Missing,
    Unknown,
}

/// Returns the needed privileges by protocol section 8.
fn needed(opcode: Opcode) -> (Need, &'static [Privilege]) {
    use Need::{Anywhere, Bucket, ClusterName, Document, Member, Nothing};
    let name = opcode.name();
    match name {
        "GET_RANDOM_KEY" | "OBSERVE" => (ClusterName, &[Read]),
        "RANGE_SCAN_CREATE" | "RANGE_SCAN_CONTINUE" | "RANGE_SCAN_CANCEL" => {
            (Anywhere, &[RangeScan])
        }
        "OBSERVE_SEQNO" | "GET_FAILOVER_LOG" | "GET_ALL_VB_SEQNOS" => (Anywhere, &[Read]),
        "ADD" | "ADDQ" => (Document, &[Insert]),
        "DELETE" | "DELETEQ" => (Document, &[Delete]),
        name if name.ends_with("_WITH_META") || name == "RETURN_META" => (Document, &[MetaWrite]),
        "INCREMENT" | "INCREMENTQ" | "DECREMENT" | "DECREMENTQ" | "GAT" | "GATQ"
        | "SUBDOC_COUNTER" => (Document, &[Read, Upsert]),
        "SET"
        | "SETQ"
        | "REPLACE"
        | "REPLACEQ"
        | "APPEND"
        | "APPENDQ"
        | "PREPEND"
        | "PREPENDQ"
        | "TOUCH"
        | "SUBDOC_DICT_ADD"
        | "SUBDOC_DICT_UPSERT"
        | "SUBDOC_DELETE"
        | "SUBDOC_REPLACE"
        | "SUBDOC_MULTI_MUTATION"
        | "SUBDOC_REPLACE_BODY_WITH_XATTR" => (Document, &[Upsert]),
        "SUBDOC_GET"
        | "SUBDOC_EXISTS"
        | "SUBDOC_GET_COUNT"
        | "SUBDOC_MULTI_LOOKUP"
        | "UNLOCK_KEY" => (Document, &[Read]),
        name if name.starts_with("SUBDOC_ARRAY") => (Document, &[Upsert]),
        "FLUSH" | "FLUSHQ" => (Bucket, &[Delete]),
        "SEQNO_PERSISTENCE"
        | "COMPACT_DB"
        | "SET_VBUCKET"
        | "DEL_VBUCKET"
        | "COLLECTIONS_SET_MANIFEST"
        | "ENABLE_TRAFFIC"
        | "ISASL_REFRESH"
        | "RBAC_REFRESH"
        | "AUDIT_CONFIG_RELOAD" => (Bucket, &[NodeSupervisor]),
        "EVICT_KEY" => (Document, &[Administrator]),
        "AUDIT_PUT" => (Bucket, &[Audit]),
        "SET_PARAM" | "IOCTL_SET" | "VERBOSITY" | "STOP_PERSISTENCE" | "START_PERSISTENCE" => {
            (Bucket, &[Administrator])
        }
        "DCP_OPEN"
        | "DCP_CONTROL"
        | "DCP_STREAM_REQ"
        | "DCP_GET_FAILOVER_LOG"
        | "DCP_BUFFER_ACK"
        | "DCP_SEQNO_ACKNOWLEDGED" => (Anywhere, &[DcpProducer]),
        "DCP_CLOSE_STREAM"
        | "DCP_NOOP"
        | "GET_VBUCKET"
        | "COLLECTIONS_GET_MANIFEST"
        | "GET_CLUSTER_CONFIG" => (Member, &[]),
        name if name.starts_with("DCP_") => (Bucket, &[DcpConsumer]),
        "HELLO" | "SASL_LIST_MECHS" | "SASL_AUTH" | "SASL_STEP" | "NOOP" | "QUIT" | "QUITQ"
        | "VERSION" | "GET_ERROR_MAP" | "LIST_BUCKETS" | "GET_CMD_TIMER" | "DROP_PRIVILEGE" => {
            (Nothing, &[])
        }
        name if name.starts_with("GET") => (Document, &[Read]),
        name => panic!("{name} is in no row of the matrix"),
    }
}

/// Commands whose refusals other tests check.
const LEFT_OUT: [&str; 4] = [
    "STAT",
    "SELECT_BUCKET",
    "COLLECTIONS_GET_ID",
    "COLLECTIONS_GET_SCOPE_ID",
];

/// Returns a frame that passes all checks before the check of privileges.
fn frame(opcode: Opcode) -> Request {
    let info = opcode.info().unwrap();
    let mut request = Request::new(opcode).extras(&vec![0; info.extras[0].into()]);
    if info.key != Presence::Forbidden {
        request = request.key(if info.keyed { &b"\x08k"[..] } else { b"key" });
    }
    let path = |request: Request| request.extras(&[0, 1, 0]).value("a1");
    let spec = |op: u8, rest: &[u8]| [&[op, 0, 0, 1][..], rest].concat();
    match opcode.name() {
        "SUBDOC_GET" | "SUBDOC_EXISTS" | "SUBDOC_GET_COUNT" | "SUBDOC_DELETE" => {
            request.extras(&[0, 1, 0]).value("a")
        }
        "AUDIT_PUT" => request.value("{}"),
        "SUBDOC_MULTI_LOOKUP" => request.value(spec(0xc5, b"a")),
        "SUBDOC_MULTI_MUTATION" => request.value(spec(0xc8, b"\0\0\0\x01a1")),
        "SUBDOC_REPLACE_BODY_WITH_XATTR" => request.extras(&[0, 1, 4]).value("a"),
        name if name.starts_with("SUBDOC_") => path(request),
        "UNLOCK_KEY" => request.cas(1),
        "OBSERVE" => request.value(b"\0\0\0\x02\x08k"),
        "OBSERVE_SEQNO" => request.value([0; 8]),
        "GET_RANDOM_KEY" => request.extras(&[0, 0, 0, 8]),
        "RANGE_SCAN_CREATE" => request.datatype(1).value(r#"{"collection":"8"}"#),
        "COLLECTIONS_SET_MANIFEST" => request.value(MANIFEST),
        "SET_VBUCKET" => request.vbucket(9).extras(&[1]),
        "DEL_VBUCKET" => request.vbucket(9),
        "DCP_OPEN" => request.extras(&[0, 0, 0, 0, 0, 0, 0, 1]),
        "GET_ERROR_MAP" => request.value([0, 2]),
        "HELLO" => hello(&SDK),
        "SASL_AUTH" => plain("u", "pw"),
        "DROP_PRIVILEGE" => request.key("Audit"),
        "RETURN_META" => request.extras(&[0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]),
        "MUTATE_WITH_META" => {
            let json = r#"{"command":"set","cas":1,"rev_seqno":1}"#;
            request
                .extras(&(json.len() as u32).to_be_bytes())
                .value(json)
        }
        "SET_PARAM" | "IOCTL_SET" | "DCP_CONTROL" | "SASL_STEP" | "APPEND" | "APPENDQ"
        | "PREPEND" | "PREPENDQ" => request.value("x"),
        _ => request,
    }
}

fn expected(
    (need, privileges): (Need, &[Privilege]),
    place: Place,
    given: PrivilegeSet,
) -> Checked {
    let given = if given.has(Upsert) {
        given.with(PrivilegeSet::of(&[Insert]))
    } else {
        given
    };
    let (bucket, scope, collection) = place;
    let inside = bucket == "default" && !given.is_empty();
    let of_document = inside && collection != Some("d");
    let enough = given.contains(PrivilegeSet::of(privileges));
    let granted = |yes: bool| {
        if yes {
            Checked::Granted
        } else {
            Checked::Missing
        }
    };
    match need {
        Need::Document if inside && !of_document => Checked::Unknown,
        Need::ClusterName if inside && enough && !of_document => Checked::Unknown,
        Need::Document | Need::Anywhere | Need::ClusterName => granted(inside && enough),
        Need::Bucket => granted(inside && enough && scope.is_none()),
        Need::Member => granted(inside),
        Need::Nothing => Checked::Granted,
    }
}

/// Returns a role with these privileges, which clients cannot name.
fn role(data: PrivilegeSet) -> &'static Role {
    Box::leak(Box::new(Role {
        name: "test",
        title: "",
        description: "",
        reach: Reach::Collection,
        node: PrivilegeSet::EMPTY,
        data,
    }))
}

/// Makes `u` a user with exactly these privileges in these places.
fn grant(node: &Node, grants: &[(Place, PrivilegeSet)]) {
    let identity = &node.state.registry.identity;
    let mut directory = (*identity.directory()).clone();
    let known = directory
        .users
        .remove("u")
        .and_then(|user| user.record().password);
    let roles = grants.iter().map(|&((bucket, scope, collection), given)| {
        Grant::on(role(given), [Some(bucket), scope, collection])
    });
    let record = UserRecord {
        roles: roles.collect(),
        password: known.or_else(|| Some(identity.verifier("u", b"pw"))),
        ..UserRecord::default()
    };
    directory.users.insert("u", &record);
    identity.replace_directory(directory);
}

/// Logs in as `u` and selects `default`; later grants may be narrower.
fn user(node: &Node) -> Client {
    of_user(node, &|| {
        let mut client = Client::connect(node.ports().kv);
        client.call(&plain("u", "pw")).ok();
        client
    })
}

/// Selects `default` on a connection that is logged in as the user already.
fn of_user(node: &Node, connect: &dyn Fn() -> Client) -> Client {
    grant(node, &[(PLACES[0], PrivilegeSet::of(&[Settings]))]);
    let mut client = connect();
    client.hello(&SDK).ok();
    client.select("default").ok();
    client
}

/// Starts a node with collections and the document `k`; returns it with its administrator.
fn prepared() -> (Node, Client) {
    let node = start();
    let admin = with_collections(&node);
    (node, admin)
}

/// Creates the collections and the document `k`.
fn with_collections(node: &Node) -> Client {
    let mut admin = Client::ready(node.ports().kv);
    let manifest = Request::new(Opcode::COLLECTIONS_SET_MANIFEST).value(MANIFEST);
    admin.call(&manifest).ok();
    admin.call(&put(8)).ok();
    admin
}

fn put(collection: u8) -> Request {
    let request = Request::new(Opcode::SET).extras(&[0; 8]).datatype(1);
    request.key([collection, b'k']).value(r#"{"a":1}"#)
}

fn seqnos(admin: &mut Client) -> Vec<u8> {
    admin
        .call(&Request::new(Opcode::GET_ALL_VB_SEQNOS))
        .ok()
        .value
}

/// Returns the answer to a request, if it has one; the connection may end instead.
fn ask(client: &mut Client, request: &Request) -> Option<Answer> {
    let noop = Request::new(Opcode::NOOP).opaque(2);
    client.pipeline(&[request.clone().opaque(1), noop]);
    let mut first = None;
    while let Some(answer) = client.next() {
        if answer.opaque == 2 {
            break;
        }
        first = first.or(Some(answer));
    }
    first
}

fn outcome(answer: Option<&Answer>) -> Checked {
    match answer.map(|answer| answer.status) {
        Some(Status::EACCESS) => Checked::Missing,
        Some(Status::UNKNOWN_COLLECTION) => Checked::Unknown,
        _ => Checked::Granted,
    }
}

/// Returns grants that show whether a command needs exactly these privileges.
fn grants_for(privileges: &[Privilege]) -> Vec<(Place, PrivilegeSet)> {
    let needed = PrivilegeSet::of(privileges);
    let mut sets = vec![
        needed.with(PrivilegeSet::of(&[Settings])),
        PrivilegeSet::ALL,
    ];
    for one in privileges {
        sets.push(PrivilegeSet::ALL.without(PrivilegeSet::of(&[*one, Upsert])));
        sets.push(PrivilegeSet::ALL.without(PrivilegeSet::of(&[*one])));
    }
    let at = |place| {
        sets.iter()
            .map(move |given| (place, *given))
            .collect::<Vec<_>>()
    };
    let mut grants: Vec<(Place, PrivilegeSet)> = PLACES.into_iter().flat_map(at).collect();
    let alone = Privilege::ALL.into_iter();
    let alone = alone.filter(|one| !needed.is_empty() || *one == Settings);
    grants.extend(alone.map(|one| (PLACES[0], PrivilegeSet::of(&[one]))));
    grants.push((PLACES[0], PrivilegeSet::EMPTY));
    grants
}

/// Names of the commands that `docs/opcodes.md` lists as served.
fn served() -> Vec<Opcode> {
    let page = session::opcodes_page();
    let rows = page.lines().filter(|line| line.starts_with("| 0x"));
    let names: Vec<&str> = rows
        .filter(|line| {
            line.split('|')
                .nth(3)
                .is_some_and(|cell| cell.trim() == "yes")
        })
        .filter_map(|line| line.split('|').nth(2))
        .map(str::trim)
        .collect();
    let infos = OpcodeInfo::all().iter();
    infos
        .filter(|info| names.contains(&info.name) && !LEFT_OUT.contains(&info.name))
        .map(|info| info.opcode)
        .collect()
}

#[test]
fn each_command_asks_for_its_privileges_where_it_needs_them() {
    let (node, mut admin) = prepared();
    check_each_command(&node, &mut admin, &|| user(&node));
    node.shutdown().unwrap();
}

/// The same over TLS, for a user of a certificate.
#[test]
fn each_command_asks_the_user_of_a_certificate_for_its_privileges() {
    let served = Certified::start(CertificateState::Mandatory);
    let mut admin = with_collections(&served.node);
    let made = served.of("u");
    let connect = || served.connect(Some(&made));
    check_each_command(&served.node, &mut admin, &|| {
        of_user(&served.node, &connect)
    });
    served.node.shutdown().unwrap();
}

/// Sends each command as `u`, with each privilege in each place; `user` connects.
fn check_each_command(node: &Node, admin: &mut Client, user: &dyn Fn() -> Client) {
    let mut wrong = BTreeMap::new();
    for opcode in served() {
        let (need, privileges) = needed(opcode);
        let cases = grants_for(privileges);
        let (allowed, refused): (Vec<_>, Vec<_>) =
            cases.into_iter().partition(|&(place, given)| {
                expected((need, privileges), place, given) == Checked::Granted
            });
        let before = seqnos(admin);
        let mut client = user();
        for (place, given) in refused {
            grant(node, &[(place, given)]);
            let answer = ask(&mut client, &frame(opcode));
            let found = outcome(answer.as_ref());
            if found != expected((need, privileges), place, given) {
                wrong.insert(format!("{} {place:?} {given:?}", opcode.name()), found);
                client = user();
            }
        }
        assert_eq!(seqnos(admin), before, "{} changed something", opcode.name());
        for (place, given) in allowed {
            let mut client = user();
            grant(node, &[(place, given)]);
            let answer = ask(&mut client, &frame(opcode));
            if outcome(answer.as_ref()) != Checked::Granted {
                let found = outcome(answer.as_ref());
                wrong.insert(format!("{} {place:?} {given:?}", opcode.name()), found);
            }
        }
    }
    assert!(wrong.is_empty(), "{} wrong: {wrong:#?}", wrong.len());
}

#[test]
fn a_system_collection_needs_privileges_of_its_own() {
    let (node, _admin) = prepared();
    let mut client = user(&node);
    let get = Request::new(Opcode::GET).key(b"\x0ak");
    let steps: [(&[Privilege], Status, Status); 3] = [
        (&[Read, Upsert], Status::EACCESS, Status::EACCESS),
        (
            &[Read, Upsert, Privilege::SystemCollectionLookup],
            Status::KEY_ENOENT,
            Status::EACCESS,
        ),
        (
            &[Read, Upsert, Privilege::SystemCollectionMutation],
            Status::EACCESS,
            Status::SUCCESS,
        ),
    ];
    for (given, read, written) in steps {
        let given = PrivilegeSet::of(given).with(PrivilegeSet::of(&[Settings]));
        grant(&node, &[(PLACES[0], given)]);
        client.call(&get).is(read);
        client.call(&put(10)).is(written);
        client.call(&put(8)).ok();
    }
    node.shutdown().unwrap();
}

#[test]
fn a_dropped_privilege_is_gone_until_the_next_login() {
    let (node, _admin) = prepared();
    let mut client = user(&node);
    grant(&node, &[(PLACES[0], PrivilegeSet::of(&[Read, Upsert]))]);
    let drop = |name: &str| Request::new(Opcode::DROP_PRIVILEGE).key(name);
    client.call(&drop("read")).is(Status::EINVAL);
    client.call(&put(8)).ok();
    client.call(&drop("Upsert")).ok();
    let refused = client.call(&put(8)).is(Status::EACCESS);
    assert!(
        refused.context().contains("Upsert"),
        "{}",
        refused.context()
    );
    client.call(&Request::new(Opcode::GET).key(b"\x08k")).ok();
    grant(&node, &[(PLACES[1], PrivilegeSet::ALL)]);
    client.call(&put(8)).is(Status::EACCESS);
    client.select("default").ok();
    client.call(&put(8)).is(Status::EACCESS);
    client.call(&plain("u", "pw")).ok();
    client.call(&put(8)).ok();
    node.shutdown().unwrap();
}

#[test]
fn on_behalf_of_another_user_both_must_be_allowed() {
    let (node, mut admin) = prepared();
    grant(&node, &[(PLACES[2], PrivilegeSet::of(&[Read]))]);
    let of = |request: Request, infos: &[u8]| request.infos(infos);
    let get = Request::new(Opcode::GET).key(b"\x08k");
    let (user, unknown, external) = (b"\x41u", b"\x41v", b"\x42^u");
    admin.call(&of(get.clone(), user)).ok();
    admin.call(&of(put(8), user)).is(Status::EACCESS);
    admin.call(&of(put(9), user)).is(Status::UNKNOWN_COLLECTION);
    let extra = [&user[..], b"\x66Upsert"].concat();
    admin.call(&of(put(8), &extra)).ok();
    let nonsense = [&user[..], b"\x66upsert"].concat();
    admin.call(&of(put(8), &nonsense)).is(Status::EINVAL);
    admin.call(&of(get.clone(), unknown)).is(Status::EACCESS);
    admin.call(&of(get.clone(), external)).is(Status::EACCESS);
    admin.call(&put(8)).ok();
    let mut client = Client::connect(node.ports().kv);
    client.hello(&SDK).ok();
    client.call(&plain("u", "pw")).ok();
    client.select("default").ok();
    let other = [&[0x4d][..], super::client::USER.as_bytes()].concat();
    let refused = client.call(&of(get, &other)).is(Status::EACCESS);
    assert!(refused.context().contains("Impersonate"));
    node.shutdown().unwrap();
}

#[test]
fn without_extended_errors_a_missing_privilege_ends_the_connection() {
    let (node, _admin) = prepared();
    drop(user(&node));
    let mut client = Client::connect(node.ports().kv);
    client.hello(&[wire::Feature::COLLECTIONS]).ok();
    client.call(&plain("u", "pw")).ok();
    client.select("default").ok();
    client.pipeline(&[put(8).datatype(0)]);
    client.expect_end();
    node.shutdown().unwrap();
}

#[test]
fn a_role_that_is_taken_away_counts_from_the_next_frame_on() {
    let (node, _admin) = prepared();
    let mut client = user(&node);
    grant(&node, &[(PLACES[2], PrivilegeSet::of(&[Upsert]))]);
    client.call(&put(8)).ok();
    grant(&node, &[(PLACES[2], PrivilegeSet::of(&[Read]))]);
    client.pipeline(&[put(8), put(8)]);
    for answer in client.answers(2) {
        let context = answer.is(Status::EACCESS).context();
        assert!(context.contains("Upsert"), "{context}");
    }
    node.shutdown().unwrap();
}

#[test]
fn statistics_show_only_rows_that_the_user_may_see() {
    let (node, _admin) = prepared();
    let mut client = user(&node);
    let stat = |group: &str| Request::new(Opcode::STAT).key(group);
    let simple = PrivilegeSet::of(&[Privilege::SimpleStats]);
    client.call(&stat("uuid")).is(Status::EACCESS);
    let own = client.call(&stat("connections self")).ok();
    assert_eq!(own.json()["user"]["name"], "u", "{}", own.text());
    assert!(client.answer().ok().value.is_empty());
    grant(&node, &[(PLACES[2], simple)]);
    client.call(&stat("uuid")).is(Status::EACCESS);
    let rows = client.stats("collections");
    let names: Vec<&String> = rows.keys().filter(|key| key.ends_with(":name")).collect();
    assert_eq!(names, ["0x8:0x8:name"]);
    client
        .call(&stat("collections s.d"))
        .is(Status::UNKNOWN_COLLECTION);
    client
        .call(&stat("scopes _default"))
        .is(Status::UNKNOWN_SCOPE);
    client.call(&stat("key k 0 s.c")).is(Status::EACCESS);
    client
        .call(&stat("key k 0 s.d"))
        .is(Status::UNKNOWN_COLLECTION);
    client.call(&stat("key k 0")).is(Status::UNKNOWN_COLLECTION);
    grant(
        &node,
        &[(PLACES[2], simple.with(PrivilegeSet::of(&[Read])))],
    );
    assert!(client.stats("key k 0 s.c").contains_key("key_cas"));
    assert!(client.stats("key-byid k 0 8").contains_key("key_cas"));
    let hidden = client.call(&stat("vkey-byid k 0 9"));
    hidden.is(Status::UNKNOWN_COLLECTION);
    grant(&node, &[(PLACES[0], simple)]);
    assert!(!client.stats("uuid").is_empty());
    grant(&node, &[(PLACES[0], PrivilegeSet::ALL)]);
    for group in [
        "connections",
        "threads",
        "bucket_details",
        "settings",
        "reset",
    ] {
        client.call(&stat(group)).is(Status::EACCESS);
    }
    node.shutdown().unwrap();
}

#[test]
fn a_stream_ends_once_its_privilege_is_lost() {
    let (node, mut admin) = prepared();
    let mut client = user(&node);
    let streams = PrivilegeSet::of(&[DcpProducer, Privilege::DcpStream]);
    grant(&node, &[(PLACES[2], streams)]);
    let open = Request::new(Opcode::DCP_OPEN).key("of-one-collection");
    client.call(&open.extras(&1_u64.to_be_bytes())).ok();
    let noops = Request::new(Opcode::DCP_CONTROL).key("enable_noop");
    client.call(&noops.value("true")).ok();
    let mut from_nothing = [0; 48];
    from_nothing[16..24].fill(0xff);
    let ask = |filter: &str| {
        let request = Request::new(Opcode::DCP_STREAM_REQ).extras(&from_nothing);
        request.value(filter)
    };
    client.call(&ask("")).is(Status::EACCESS);
    let hidden = client.call(&ask(r#"{"collections":["9"]}"#));
    hidden.is(Status::UNKNOWN_COLLECTION);
    client.call(&ask(r#"{"collections":["8"]}"#)).ok();
    let mut next_of = |opcodes: &[Opcode]| {
        std::iter::from_fn(|| client.next()).find(|frame| opcodes.contains(&frame.opcode))
    };
    let change = next_of(&[Opcode::DCP_MUTATION]).unwrap();
    assert_eq!(change.value, br#"{"a":1}"#);
    grant(&node, &[(PLACES[2], PrivilegeSet::of(&[Read]))]);
    admin.call(&put(8)).ok();
    let end = next_of(&[Opcode::DCP_MUTATION, Opcode::DCP_STREAM_END]).unwrap();
    let lost_privileges = &8_u32.to_be_bytes()[..];
    assert_eq!(
        (end.opcode, &*end.extras),
        (Opcode::DCP_STREAM_END, lost_privileges)
    );
    node.shutdown().unwrap();
}

#[test]
fn a_stream_ends_at_a_login_that_may_not_have_it() {
    let (node, _admin) = prepared();
    grant(&node, &[(PLACES[0], PrivilegeSet::of(&[Read]))]);
    for (password, status) in [("pw", Status::SUCCESS), ("wrong", Status::AUTH_ERROR)] {
        let mut client = Client::ready(node.ports().kv);
        let open = Request::new(Opcode::DCP_OPEN).key(password);
        client.call(&open.extras(&1_u64.to_be_bytes())).ok();
        let noops = Request::new(Opcode::DCP_CONTROL).key("enable_noop");
        client.call(&noops.value("true")).ok();
        let mut from_nothing = [0; 48];
        from_nothing[16..24].fill(0xff);
        let stream = Request::new(Opcode::DCP_STREAM_REQ).extras(&from_nothing);
        client.call(&stream).ok();
        client.pipeline(&[plain("u", password)]);
        let mut next_of = |opcode: Opcode| {
            std::iter::from_fn(|| client.next()).find(|frame| frame.opcode == opcode)
        };
        assert_eq!(next_of(Opcode::SASL_AUTH).unwrap().status, status);
        let end = next_of(Opcode::DCP_STREAM_END).unwrap();
        assert_eq!(end.extras, 8_u32.to_be_bytes(), "lost privileges");
    }
    node.shutdown().unwrap();
}

#[test]
fn a_range_scan_is_refused_once_its_privilege_is_lost() {
    let place = tempfile::tempdir().unwrap();
    let on_disk = BucketConfig {
        kind: BucketKind::Couchbase,
        ..bucket("default")
    };
    let node = started(&config(Some(place.path()), vec![on_disk]), Waits::default());
    drop(with_collections(&node));
    let mut client = user(&node);
    let create = Request::new(Opcode::RANGE_SCAN_CREATE).datatype(1);
    let create = create.value(r#"{"collection":"8","range":{"start":"AA==","end":"/w=="}}"#);
    grant(&node, &[(PLACES[2], PrivilegeSet::of(&[Read]))]);
    client.call(&create).is(Status::EACCESS);
    grant(&node, &[(PLACES[2], PrivilegeSet::of(&[RangeScan]))]);
    let id = client.call(&create).ok().value;
    let go_on = Request::new(Opcode::RANGE_SCAN_CONTINUE).extras(&[&id[..], &[0; 12]].concat());
    grant(&node, &[(PLACES[2], PrivilegeSet::of(&[Read]))]);
    client.call(&go_on).is(Status::EACCESS);
    grant(&node, &[(PLACES[2], PrivilegeSet::of(&[RangeScan]))]);
    let complete = client.call(&go_on).status;
    assert_eq!(complete, Status::RANGE_SCAN_COMPLETE);
    node.shutdown().unwrap();
}
