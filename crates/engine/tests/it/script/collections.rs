//! Script verbs of collections.

use collections::{
    Collection, CollectionChange, CollectionInfo, CollectionSettings, Manifest, ManifestPlanner,
    Scope, SystemEvent,
};
use engine::VBucket;
use model::{CollectionId, Document, ManifestUid, Meta, Now, ScopeId, Seqno};

use crate::store::ModelStore;

/// Runs `manifest UID [ID[@TTL][+] | SCOPE/ID[@TTL][+] | no-default]...` (`+`: with history) or
/// `collections`.
pub(crate) fn run(vbucket: &mut VBucket, words: &[&str], now: Now) -> String {
    if words[0] == "manifest" {
        let manifest = manifest(words);
        let mut steps = 1;
        let mut planner = ManifestPlanner::new(&manifest, 2);
        while !vbucket.apply_manifest(&mut planner, now) {
            steps += 1;
        }
        return format!("seqno {} in {steps}", vbucket.high_seqno());
    }
    let shown = vbucket.collections().into_iter().map(|one| {
        let counts = one.counts;
        format!(
            "{} from {} to {} items {}",
            counts.id.0, one.start_seqno, counts.high_seqno, counts.items
        )
    });
    super::or_nothing(&shown.collect::<Vec<_>>())
}

fn manifest(words: &[&str]) -> Manifest {
    let number = |text: &str| text.parse::<u32>().expect("a number");
    let default = Scope {
        id: ScopeId::DEFAULT,
        name: "_default".into(),
        collections: Vec::new(),
    };
    let mut scopes = vec![default];
    if !words.contains(&"no-default") {
        scopes[0].collections.push(Collection {
            id: CollectionId::DEFAULT,
            name: "_default".into(),
            settings: CollectionSettings::default(),
        });
    }
    for word in words[2..].iter().filter(|word| **word != "no-default") {
        let history = word.ends_with('+');
        let word = word.trim_end_matches('+');
        let (path, ttl) = word.split_once('@').unwrap_or((word, ""));
        let (scope, id) = path.split_once('/').unwrap_or(("0", path));
        let scope = ScopeId(number(scope));
        let at = scopes.iter().position(|one| one.id == scope);
        let at = at.unwrap_or_else(|| {
            scopes.push(Scope {
                id: scope,
                name: format!("s{}", scope.0).into(),
                collections: Vec::new(),
            });
            scopes.len() - 1
        });
        if id.is_empty() {
            continue;
        }
        scopes[at].collections.push(Collection {
            id: CollectionId(number(id)),
            name: format!("c{id}").into(),
            settings: CollectionSettings {
                max_ttl_s: (!ttl.is_empty()).then(|| number(ttl)),
                history,
            },
        });
    }
    let uid = ManifestUid(number(words[1]).into());
    Manifest::new(uid, scopes).expect("a valid manifest")
}

/// Returns the document of `apply begin|begin-historical|end ID SEQNO`: a system event for a
/// replica.
pub(crate) fn event(words: &[&str], seqno: u64) -> Option<Document> {
    let (scope, id) = (ScopeId::DEFAULT, || {
        CollectionId(words[2].parse().expect("an id"))
    });
    let change = match words[1] {
        "begin" | "begin-historical" => CollectionChange::Begun(CollectionInfo {
            scope,
            id: id(),
            name: "c",
            settings: CollectionSettings {
                history: words[1] == "begin-historical",
                ..CollectionSettings::default()
            },
        }),
        "end" => CollectionChange::Ended { scope, id: id() },
        _ => return None,
    };
    let event = SystemEvent {
        manifest: ManifestUid(seqno),
        change,
    };
    let meta = Meta {
        seqno: Seqno(seqno),
        rev: 1,
        kind: event.kind(),
        ..Meta::default()
    };
    Some(Document::from_parts(&event.key(), &event.value(), &meta))
}

/// Erases dead documents from the table, then from the store.
pub(crate) fn erase(vbucket: &mut VBucket, store: &mut ModelStore) -> String {
    let (mut garbage, mut passes) = (Vec::new(), 0);
    while !vbucket.erase_dead(8, &mut garbage).finished {
        passes += 1;
        assert!(passes < 1000, "erasing does not come to an end");
    }
    let Some(living) = vbucket.dead_in_store() else {
        let waits = if vbucket.has_dead() { ", waits" } else { "" };
        return format!("{} from memory{waits}", garbage.len());
    };
    let dead: Vec<Document> = store
        .rows
        .values()
        .filter(|row| living.is_dead(row.key(), row.seqno(), row.kind().is_tombstone()))
        .cloned()
        .collect();
    for row in &dead {
        store.rows.remove(&row.seqno());
    }
    vbucket.finish_erasing(living.up_to());
    assert!(!vbucket.has_dead());
    format!("{} from memory, {} rows", garbage.len(), dead.len())
}
