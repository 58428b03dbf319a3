//! Tests of manifests and system events.

use model::{CollectionId, ManifestUid, ScopeId};

use super::*;

fn collection(id: u32, name: &str) -> Collection {
    Collection {
        id: CollectionId(id),
        name: name.into(),
        settings: CollectionSettings::default(),
    }
}

fn scope(id: u32, name: &str, collections: Vec<Collection>) -> Scope {
    Scope {
        id: ScopeId(id),
        name: name.into(),
        collections,
    }
}

fn manifest(uid: u64, scopes: Vec<Scope>) -> Result<Manifest, ManifestError> {
    Manifest::new(ManifestUid(uid), scopes)
}

fn with(uid: u64, collections: &[(u32, &str)]) -> Manifest {
    let default = [(0, "_default")];
    let all = default.iter().chain(collections);
    let all = all.map(|(id, name)| collection(*id, name)).collect();
    manifest(uid, vec![scope(0, "_default", all)]).expect("it is valid")
}

#[test]
fn new_refuses_inconsistent_manifests() {
    let default = || scope(0, "_default", Vec::new());
    let long = "n".repeat(NAME_BYTES_MAX + 1);
    let many = (0..=COLLECTIONS_MAX as u32).map(|id| collection(id + 8, &format!("c{id}")));
    let table = [
        ("no default scope", vec![scope(8, "s", Vec::new())]),
        (
            "a scope twice",
            vec![default(), scope(8, "s", vec![]), scope(9, "s", vec![])],
        ),
        (
            "a number twice",
            vec![default(), scope(8, "s", vec![]), scope(8, "t", vec![])],
        ),
        ("a reserved number", vec![default(), scope(7, "s", vec![])]),
        ("a name of nothing", vec![default(), scope(8, "", vec![])]),
        ("a long name", vec![default(), scope(8, &long, vec![])]),
        (
            "a name with a dot",
            vec![default(), scope(8, "a.b", vec![])],
        ),
        ("a name with %", vec![default(), scope(8, "%b", vec![])]),
        (
            "another default",
            vec![default(), scope(8, "_default", vec![])],
        ),
        (
            "a collection twice",
            vec![scope(
                0,
                "_default",
                vec![collection(8, "a"), collection(9, "a")],
            )],
        ),
        (
            "a collection in two scopes",
            vec![
                scope(0, "_default", vec![collection(8, "a")]),
                scope(8, "s", vec![collection(8, "a")]),
            ],
        ),
        (
            "the default elsewhere",
            vec![default(), scope(8, "s", vec![collection(0, "_default")])],
        ),
        ("too many", vec![scope(0, "_default", many.collect())]),
    ];
    for (what, scopes) in table {
        let made = manifest(1, scopes);
        assert!(matches!(made, Err(ManifestError::Invalid(_))), "{what}");
    }
    let longest = "n".repeat(NAME_BYTES_MAX);
    assert!(
        manifest(
            1,
            vec![default(), scope(8, &longest, vec![collection(9, "a%-_Z9")])]
        )
        .is_ok()
    );
}

#[test]
fn check_successor_accepts_only_later_manifests() {
    let current = with(5, &[(8, "a"), (9, "b")]);
    let follows = |next: &Manifest| current.check_successor(next).ok();
    assert_eq!(follows(&current), Some(false));
    assert_eq!(follows(&with(6, &[])), Some(true));
    assert_eq!(follows(&with(6, &[(8, "a"), (12, "b")])), Some(true));
    assert_eq!(follows(&with(4, &[(8, "a"), (9, "b")])), None);
    assert_eq!(follows(&with(5, &[(8, "a")])), None);
    assert_eq!(follows(&with(6, &[(8, "c")])), None, "renamed");
    let without = manifest(6, vec![scope(0, "_default", Vec::new())]).unwrap();
    assert_eq!(follows(&without), Some(true));
    assert!(
        without.check_successor(&with(7, &[])).is_err(),
        "it does not come back"
    );
}

#[test]
fn ids_are_not_reused() {
    let mut now = Manifest::default();
    let mut seen = Vec::new();
    for round in 0..5 {
        now = now.with_scope("s").unwrap();
        now = now
            .with_collection("s", "c", CollectionSettings::default())
            .unwrap();
        let scope = now.scope_named("s").unwrap();
        let ids = [scope.id.0, scope.collections[0].id.0];
        assert!(
            ids.iter().all(|id| *id >= 8 && !seen.contains(id)),
            "{round}: {ids:?}"
        );
        seen.extend(ids);
        now = now.without_collection("s", "c").unwrap();
        now = now.without_scope("s").unwrap();
    }
    assert_eq!(now.uid(), ManifestUid(20));
}

#[test]
fn ids_assigned_elsewhere_are_not_reused() {
    let given = |manifest: &Manifest| {
        let made = manifest.with_collection("_default", "new", CollectionSettings::default());
        let made = made.expect("it is new");
        made.scope_named("_default")
            .expect("it is there")
            .collections[1]
            .id
    };
    let mut now = with(5, &[(0x1000, "c")])
        .without_collection("_default", "c")
        .expect("it is there");
    for _ in 0..3 {
        let id = given(&now);
        assert!(id.0 > 0x1000, "{id:?}");
        now = now
            .with_scope("s")
            .and_then(|now| now.without_scope("s"))
            .expect("it is new");
        assert!(given(&now) > id);
    }
    let highest = with(5, &[(u32::MAX, "c")]);
    assert!(
        highest.with_scope("s").is_ok(),
        "scopes have numbers of their own"
    );
    let made = highest.with_collection("_default", "d", CollectionSettings::default());
    assert!(made.is_err(), "no number is left");
}

fn events() -> Vec<SystemEvent<'static>> {
    let (scope, id) = (ScopeId(9), CollectionId(0x1234));
    let settings = CollectionSettings {
        max_ttl_s: Some(0),
        history: true,
    };
    let name = "name";
    let changes = [
        CollectionChange::ScopeBegun { scope, name },
        CollectionChange::Begun(CollectionInfo {
            scope,
            id,
            name,
            settings,
        }),
        CollectionChange::Modified(CollectionInfo {
            scope,
            id,
            name,
            settings: CollectionSettings::default(),
        }),
        CollectionChange::Ended { scope, id },
        CollectionChange::ScopeEnded { scope },
    ];
    let numbered = changes.into_iter().zip(3..);
    let event = |(change, uid)| SystemEvent {
        manifest: ManifestUid(uid),
        change,
    };
    numbered.map(event).collect()
}

#[test]
fn events_are_read_as_they_were_written() {
    for event in events() {
        let (key, value) = (event.key(), event.value());
        assert!(SystemEvent::is_key(&key));
        assert_eq!(SystemEvent::parse(&key, event.kind(), &value), Some(event));
        for length in 0..13 {
            // A shortened value cannot be parsed, or has a shorter name.
            let cut = SystemEvent::parse(&key, event.kind(), &value[..length]);
            assert_eq!(cut, None, "{event:?} {length}");
        }
    }
    assert_eq!(
        SystemEvent::parse(b"\0key", model::Kind::Mutation, b"value"),
        None
    );
}

#[test]
fn a_manifest_is_learned_from_events() {
    let mut now = Manifest::default();
    let mut told = Vec::new();
    for event in events() {
        let next = now.learned(&event).expect("it is new");
        assert_eq!(next.uid(), event.manifest);
        assert_eq!(next.learned(&event), None, "it is known");
        now = next;
        told.push((now.scopes().len(), now.collections().count()));
    }
    assert_eq!(told, [(2, 1), (2, 2), (2, 2), (2, 1), (1, 1)]);
    assert_eq!(now.learned(&events()[0]), None, "it is old");
}

#[test]
fn reused_name_ends_its_previous_owner() {
    // The end events were purged.
    let begun = |uid, scope, id, name| SystemEvent {
        manifest: ManifestUid(uid),
        change: CollectionChange::Begun(CollectionInfo {
            scope: ScopeId(scope),
            id: CollectionId(id),
            name,
            settings: CollectionSettings::default(),
        }),
    };
    let scope = |uid, id| SystemEvent {
        manifest: ManifestUid(uid),
        change: CollectionChange::ScopeBegun {
            scope: ScopeId(id),
            name: "s",
        },
    };
    let told = [
        begun(1, 0, 8, "c"),
        scope(2, 9),
        begun(3, 9, 10, "c"),
        begun(5, 0, 12, "c"),
        scope(7, 14),
    ];
    let mut now = Manifest::default();
    for event in &told {
        now = now.learned(event).expect("it is new");
    }
    let ids: Vec<u32> = now.collections().map(|(_, one)| one.id.0).collect();
    assert_eq!(ids, [0, 12]);
    assert_eq!(
        now.scope_named("s").map(|scope| scope.id),
        Some(ScopeId(14))
    );
}

/// Whatever was before, new scopes and collections get new ids; existing names keep their ids.
#[test]
fn a_whole_manifest_is_one_step() {
    let wanted = |scopes: &[(&str, &[&str])]| -> Vec<WantedScope> {
        let scope = |(name, collections): &(&str, &[&str])| WantedScope {
            name: (*name).into(),
            collections: collections
                .iter()
                .map(|name| WantedCollection {
                    name: (*name).into(),
                    max_ttl_s: None,
                    history: None,
                })
                .collect(),
        };
        scopes.iter().map(scope).collect()
    };
    let new = CollectionSettings::default();
    let start = Manifest::default();
    let default: (&str, &[&str]) = ("_default", &["_default"]);
    let steps = [
        wanted(&[("a", &["x", "y"]), default, ("b", &["x"])]),
        wanted(&[default, ("b", &["x", "z"])]),
        wanted(&[default, ("a", &["x"]), ("b", &["z"])]),
        wanted(&[("_default", &["x"])]),
    ];
    let mut seen = std::collections::BTreeSet::from([CollectionId::DEFAULT]);
    let mut now = start;
    for step in steps {
        let next = now.with_scopes(&step, new).unwrap();
        assert_eq!(now.check_successor(&next), Ok(true));
        assert_eq!(next.with_scopes(&step, new).unwrap(), next, "nothing to do");
        for (_, collection) in next.collections() {
            let kept = now.collection(collection.id).is_some();
            assert_ne!(seen.insert(collection.id), kept, "{collection:?}");
        }
        now = next;
    }
    let again = now.with_scopes(&wanted(&[default]), new);
    assert!(matches!(again, Err(ManifestError::Invalid(_))));
}

/// Users cannot create, change or drop it, and it does not count against their limits.
#[test]
fn system_scope_is_added_and_kept() {
    let settings = CollectionSettings::default();
    let invalid = |made| matches!(made, Err(ManifestError::Invalid(_)));
    let bare = Manifest::default();
    assert!(invalid(bare.with_scope("_system")));
    let made = bare.with_system_scope().unwrap().expect("it was missing");
    assert_eq!(made.uid(), ManifestUid(1));
    let names = made.scope_named("_system").map(|scope| {
        let names = scope.collections.iter();
        let names = names.map(|one| (one.id.0, one.name.to_string()));
        (scope.id.0, names.collect::<Vec<_>>())
    });
    let expected = vec![(8, "_mobile".to_owned()), (9, "_query".to_owned())];
    assert_eq!(names, Some((8, expected)));
    assert_eq!(made.with_system_scope(), Ok(None));

    assert!(invalid(made.without_scope("_system")));
    assert!(invalid(made.without_collection("_system", "_query")));
    assert!(invalid(made.with_collection("_system", "mine", settings)));
    assert!(invalid(made.with_settings("_system", "_query", |_| {})));
    let default = [WantedScope {
        name: "_default".into(),
        collections: Vec::new(),
    }];
    let whole = made.with_scopes(&default, settings).unwrap();
    assert_eq!(whole.scope_named("_system"), made.scope_named("_system"));

    // Ids in use by users are not reused.
    let used = bare.with_scope("a").unwrap();
    let used = used.with_collection("a", "x", settings).unwrap();
    let late = used.with_system_scope().unwrap().expect("it was missing");
    assert_eq!(used.check_successor(&late), Ok(true));
    assert_eq!(late.scope_named("_system").unwrap().id.0, 10);

    let mut full = made;
    for number in 1..COLLECTIONS_MAX {
        let name = number.to_string();
        full = full.with_collection("_default", &name, settings).unwrap();
    }
    assert!(invalid(full.with_collection("_default", "more", settings)));
}
