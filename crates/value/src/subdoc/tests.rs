//! Tests of paths, lookups and changes.

use proptest::prelude::*;
use serde_json::{Value, json};
use wire::Status;

use super::{Component, Edit, EditKind, Path, apply, count, find};

fn path(text: &str) -> Path<'_> {
    Path::parse(text.as_bytes()).unwrap_or_else(|status| panic!("{text}: {status:?}"))
}

fn key(name: &str) -> Component<'_> {
    Component::Key(name.as_bytes().into())
}

#[test]
fn paths_are_parsed() {
    for (text, expected) in [
        ("", vec![]),
        ("a", vec![key("a")]),
        (
            "a.b[3].c",
            vec![key("a"), key("b"), Component::Index(3), key("c")],
        ),
        ("[0][-1]", vec![Component::Index(0), Component::Last]),
        (
            "a.[2].[-1].b",
            vec![key("a"), Component::Index(2), Component::Last, key("b")],
        ),
        ("`a.b[0]`.c", vec![key("a.b[0]"), key("c")]),
        ("`a``b`", vec![key("a`b")]),
        ("a\\\"b", vec![key("a\\\"b")]),
        ("a\\u00e9", vec![key("a\\u00e9")]),
        ("\u{e9}t\u{e9}", vec![key("\u{e9}t\u{e9}")]),
    ] {
        assert_eq!(path(text).components, expected, "{text}");
    }
    for wrong in [
        ".a",
        "a.",
        "a..b",
        "a[",
        "a[]",
        "a[x]",
        "a[-2]",
        "a[1",
        "a]",
        "[0]b",
        ".[0]",
        "a..[0]",
        "a[0].",
        "`a",
        "a`b",
        "\"",
        "a\\",
        "a\\x",
        "a\\u12",
        "`a\\q`",
        "a\\\"\"b",
        "[4294967296]",
        "[+1]",
    ] {
        let refused = Path::parse(wrong.as_bytes());
        assert_eq!(refused, Err(Status::SUBDOC_PATH_EINVAL), "{wrong}");
    }
    let deep = |steps| vec!["a"; steps].join(".");
    assert!(Path::parse(deep(32).as_bytes()).is_ok());
    let refused = Path::parse(deep(33).as_bytes()).map(|_| ());
    assert_eq!(refused, Err(Status::SUBDOC_PATH_E2BIG));
    let refused = Path::parse(&[b'a'; 1025]).map(|_| ());
    assert_eq!(refused, Err(Status::EINVAL));
    let refused = Path::parse(b"\xff").map(|_| ());
    assert_eq!(refused, Err(Status::SUBDOC_PATH_EINVAL));
}

const TEXT: &str =
    r#" {"a": {"b" :[1, "x,]}", {"c":null}] , "e":{}}, "s":"q\"", "a.b":5,"n":-1.5e3 } "#;

#[test]
fn parts_are_found() {
    for (at, part) in [
        ("a.b[0]", "1"),
        ("a.b[1]", "\"x,]}\""),
        ("a.b[-1]", "{\"c\":null}"),
        ("a.b[2].c", "null"),
        ("s", "\"q\\\"\""),
        ("`a.b`", "5"),
        ("n", "-1.5e3"),
        ("a.e", "{}"),
        ("a.b", "[1, \"x,]}\", {\"c\":null}]"),
        ("", TEXT.trim()),
    ] {
        let found = find(TEXT.as_bytes(), &path(at)).map(|span| span.of(TEXT.as_bytes()));
        assert_eq!(found, Ok(part.as_bytes()), "{at}");
    }
    for (at, status) in [
        ("x", Status::SUBDOC_PATH_ENOENT),
        ("a.b[3]", Status::SUBDOC_PATH_ENOENT),
        ("a.e.x", Status::SUBDOC_PATH_ENOENT),
        ("a[0]", Status::SUBDOC_PATH_MISMATCH),
        ("a.b.c", Status::SUBDOC_PATH_MISMATCH),
        ("s.x", Status::SUBDOC_PATH_MISMATCH),
        ("n[0]", Status::SUBDOC_PATH_MISMATCH),
    ] {
        assert_eq!(find(TEXT.as_bytes(), &path(at)), Err(status), "{at}");
    }
    let counted = |at| {
        let span = find(TEXT.as_bytes(), &path(at)).unwrap();
        count(TEXT.as_bytes(), span)
    };
    assert_eq!(
        ["", "a.b", "a.e", "s"].map(counted),
        [Some(4), Some(3), Some(0), None]
    );
}

/// Returns the text after a change, or its status.
fn edited(
    text: &str,
    kind: EditKind,
    at: &str,
    value: &str,
    make_path: bool,
) -> Result<String, Status> {
    let edit = Edit {
        kind,
        path: &path(at),
        value: value.as_bytes(),
        make_path,
    };
    let (changed, _) = apply(text.as_bytes(), &edit)?;
    Ok(String::from_utf8(changed).unwrap())
}

#[test]
fn changes_are_applied() {
    use EditKind::{
        AddUnique, Counter, Delete, DictAdd, DictUpsert, Insert, PushFirst, PushLast, Replace,
    };
    for (text, kind, at, value, after) in [
        ("{}", DictAdd, "a", "1", r#"{"a":1}"#),
        (r#"{ "x":0 }"#, DictAdd, "a", "1", r#"{ "x":0 ,"a":1}"#),
        (r#"{"a":0}"#, DictUpsert, "a", "[1]", r#"{"a":[1]}"#),
        (r#"{"o":{}}"#, DictUpsert, "o.a", "1", r#"{"o":{"a":1}}"#),
        (r#"{"a":1,"b":2}"#, Delete, "a", "", r#"{"b":2}"#),
        (r#"{"a":1 , "b":2}"#, Delete, "b", "", r#"{"a":1 }"#),
        (r#"{"a":1}"#, Delete, "a", "", "{}"),
        ("[1,2,3]", Delete, "[-1]", "", "[1,2]"),
        ("[1,2,3]", Delete, "[1]", "", "[1,3]"),
        ("[1]", Delete, "[0]", "", "[]"),
        (r#"{"a":[1,2]}"#, Replace, "a[1]", "{}", r#"{"a":[1,{}]}"#),
        ("[1]", PushLast, "", "2,{}", "[1,2,{}]"),
        ("[]", PushLast, "", "2", "[2]"),
        ("[ 1]", PushFirst, "", "2", "[ 2,1]"),
        ("[]", PushFirst, "", "2", "[2]"),
        ("[1,2]", Insert, "[1]", "9", "[1,9,2]"),
        ("[1,2]", Insert, "[2]", "9", "[1,2,9]"),
        ("[]", Insert, "[0]", "9", "[9]"),
        (r#"[1,"x"]"#, AddUnique, "", r#""y""#, r#"[1,"x","y"]"#),
        (r#"{"n":41}"#, Counter, "n", "1", r#"{"n":42}"#),
        (r#"{"n":41}"#, Counter, "n", "-42", r#"{"n":-1}"#),
        ("{}", Counter, "n", "7", r#"{"n":7}"#),
    ] {
        let got = edited(text, kind, at, value, false);
        assert_eq!(got.as_deref(), Ok(after), "{text} {kind:?} {at}");
        assert!(serde_json::from_str::<Value>(after).is_ok());
    }
    for (text, kind, at, value, after) in [
        ("{}", DictUpsert, "a.b.c", "1", r#"{"a":{"b":{"c":1}}}"#),
        (
            r#"{"a":{}}"#,
            PushLast,
            "a.l",
            "1,2",
            r#"{"a":{"l":[1,2]}}"#,
        ),
        ("{}", Counter, "a.n", "3", r#"{"a":{"n":3}}"#),
        ("{}", AddUnique, "a", "3", r#"{"a":[3]}"#),
    ] {
        let got = edited(text, kind, at, value, true);
        assert_eq!(got.as_deref(), Ok(after), "{text} {kind:?} {at}");
        let got = edited(text, kind, at, value, false);
        if at.contains('.') || kind != Counter {
            assert_eq!(got, Err(Status::SUBDOC_PATH_ENOENT), "{kind:?} {at}");
        }
    }
}

#[test]
fn invalid_changes_are_refused() {
    use EditKind::{AddUnique, Counter, Delete, DictAdd, DictUpsert, Insert, PushLast, Replace};
    let deep = format!("{}{}", "[".repeat(32), "]".repeat(32));
    for (text, kind, at, value, status) in [
        (r#"{"a":1}"#, DictAdd, "a", "1", Status::SUBDOC_PATH_EEXISTS),
        ("[]", DictAdd, "a", "1", Status::SUBDOC_PATH_MISMATCH),
        ("[1]", DictUpsert, "[0]", "1", Status::SUBDOC_PATH_EINVAL),
        ("{}", DictUpsert, "", "1", Status::SUBDOC_PATH_EINVAL),
        ("{}", DictUpsert, "a", "x", Status::SUBDOC_VALUE_CANTINSERT),
        (
            "{}",
            DictUpsert,
            "a",
            "1,2",
            Status::SUBDOC_VALUE_CANTINSERT,
        ),
        ("{}", DictUpsert, "a", &deep, Status::SUBDOC_VALUE_ETOODEEP),
        ("{}", Replace, "a", "1", Status::SUBDOC_PATH_ENOENT),
        ("{}", Delete, "a", "", Status::SUBDOC_PATH_ENOENT),
        ("{}", PushLast, "", "1", Status::SUBDOC_PATH_MISMATCH),
        ("[]", PushLast, "", "", Status::SUBDOC_VALUE_CANTINSERT),
        ("[]", PushLast, "", "1,", Status::SUBDOC_VALUE_CANTINSERT),
        ("[]", PushLast, "", "1]", Status::SUBDOC_VALUE_CANTINSERT),
        ("[1]", Insert, "[2]", "1", Status::SUBDOC_PATH_ENOENT),
        ("[1]", Insert, "[-1]", "1", Status::SUBDOC_PATH_EINVAL),
        ("{}", Insert, "[0]", "1", Status::SUBDOC_PATH_MISMATCH),
        ("[1]", AddUnique, "", "1", Status::SUBDOC_PATH_EEXISTS),
        ("[{}]", AddUnique, "", "1", Status::SUBDOC_PATH_MISMATCH),
        ("[]", AddUnique, "", "{}", Status::SUBDOC_VALUE_CANTINSERT),
        ("{}", Counter, "n", "0", Status::SUBDOC_DELTA_EINVAL),
        ("{}", Counter, "n", "1.5", Status::SUBDOC_DELTA_EINVAL),
        (
            r#"{"n":1.5}"#,
            Counter,
            "n",
            "1",
            Status::SUBDOC_PATH_MISMATCH,
        ),
        (
            r#"{"n":"1"}"#,
            Counter,
            "n",
            "1",
            Status::SUBDOC_PATH_MISMATCH,
        ),
        (
            r#"{"n":9223372036854775808}"#,
            Counter,
            "n",
            "1",
            Status::SUBDOC_NUM_ERANGE,
        ),
        (
            r#"{"n":9223372036854775807}"#,
            Counter,
            "n",
            "1",
            Status::SUBDOC_VALUE_CANTINSERT,
        ),
    ] {
        assert_eq!(
            edited(text, kind, at, value, false),
            Err(status),
            "{text} {kind:?} {at} {value}"
        );
    }
}

/// Generates JSON no deeper than paths can be.
fn some_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "[a-c\"\\\\ \\[\\]{},:\u{e9}]{0,4}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::btree_map("[a-c]{1,2}", inner, 0..4)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

/// Collects a path to every value of a document.
fn places(value: &Value, at: &str, found: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            for (name, value) in members {
                let dot = if at.is_empty() { "" } else { "." };
                let at = format!("{at}{dot}{name}");
                places(value, &at, found);
                found.push(at);
            }
        }
        Value::Array(elements) => {
            for (index, value) in elements.iter().enumerate() {
                let at = format!("{at}[{index}]");
                places(value, &at, found);
                found.push(at);
            }
        }
        _ => {}
    }
}

/// Converts a path to a JSON pointer of the library that is used for comparison.
fn pointer(at: &str) -> String {
    format!(
        "/{}",
        at.replace('[', "/").replace(']', "").replace('.', "/")
    )
    .replace("//", "/")
}

proptest! {
    #[test]
    fn every_part_is_found_replaced_and_deleted(document in some_json(), pretty: bool, new in some_json()) {
        let text = if pretty {
            serde_json::to_string_pretty(&document).unwrap()
        } else {
            document.to_string()
        };
        let mut all = Vec::new();
        places(&document, "", &mut all);
        for at in all {
            let span = find(text.as_bytes(), &path(&at)).unwrap();
            let part: Value = serde_json::from_slice(span.of(text.as_bytes())).unwrap();
            prop_assert_eq!(Some(&part), document.pointer(&pointer(&at)));
            let replaced = edited(&text, EditKind::Replace, &at, &new.to_string(), false).unwrap();
            let mut expected = document.clone();
            *expected.pointer_mut(&pointer(&at)).unwrap() = new.clone();
            prop_assert_eq!(serde_json::from_str::<Value>(&replaced).unwrap(), expected);
            let deleted = edited(&text, EditKind::Delete, &at, "", false).unwrap();
            let deleted: Value = serde_json::from_str(&deleted).unwrap();
            let mut places_left = Vec::new();
            places(&deleted, "", &mut places_left);
            let size = |value: &Value| { let mut found = Vec::new(); places(value, "", &mut found); found.len() };
            prop_assert_eq!(places_left.len() + size(&part) + 1, size(&document));
        }
    }

    #[test]
    fn nothing_panics_or_hangs(text: Vec<u8>, at: Vec<u8>, value: Vec<u8>, make_path: bool) {
        let text = [b"[{\"a\":", &text[..]].concat();
        if let Ok(at) = Path::parse(&at) {
            let counted = find(&text, &at).map(|span| count(&text, span));
            prop_assert!(counted != Ok(Some(usize::MAX)));
        }
        for kind in [EditKind::DictUpsert, EditKind::Delete, EditKind::Insert, EditKind::AddUnique, EditKind::Counter] {
            let at = path("[0].a[1]");
            let edit = Edit { kind, path: &at, value: &value, make_path };
            drop(apply(&text, &edit));
        }
    }
}

#[test]
fn documents_are_limited_to_the_depth_of_paths() {
    let deep = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
    assert!(super::is_within_depth(deep(32).as_bytes()));
    assert!(!super::is_within_depth(deep(33).as_bytes()));
    assert!(super::is_within_depth(
        json!({ "a": "[".repeat(50) }).to_string().as_bytes()
    ));
}

proptest::proptest! {
    /// Any bytes can be parsed as a section without a panic, and a parsed section is equal after it is written again.
    #[test]
    fn any_bytes_are_a_section_or_none(value: Vec<u8>, length in 0_u8..40) {
        for value in [value.clone(), [&[0, 0, 0, length], value.as_slice()].concat()] {
            let at = model::body_at(&value, model::Datatype::XATTR);
            proptest::prop_assert!(at <= value.len());
            if let Some((attributes, body)) = model::Attributes::split(&value) {
                proptest::prop_assert_eq!(body, &value[at..]);
                let mut again = Vec::new();
                model::encode_attributes(attributes.iter(), &mut again);
                if !attributes.is_empty() {
                    proptest::prop_assert_eq!(&again, &value[..at]);
                }
            }
        }
    }

    /// Attributes that were set are found again, in their order.
    #[test]
    fn attributes_round_trip(
        pairs in proptest::collection::vec(("[a-z_]{1,15}", "[ -~]{0,20}"), 1..8),
        body: Vec<u8>,
    ) {
        let mut value = Vec::new();
        let bytes = pairs.iter().map(|(name, text)| (name.as_bytes(), text.as_bytes()));
        model::encode_attributes(bytes.clone(), &mut value);
        value.extend(&body);
        let (attributes, rest) = model::Attributes::split(&value).unwrap();
        proptest::prop_assert_eq!(rest, &body);
        proptest::prop_assert!(attributes.iter().eq(bytes));
    }
}
