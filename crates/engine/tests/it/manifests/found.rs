//! Inputs that failed once, in their minimized form.

use super::Op::{
    Delete, DropScope, Erase, FlushBegin, FlushEnd, Prepare, Replicate, Restart, Set, Toggle,
};
use super::{Op, Side, run};

fn toggle(names: &[u8], between: u8) -> Op {
    Toggle {
        names: names.to_vec(),
        ttl: None,
        between,
    }
}

const fn flushed() -> Op {
    FlushEnd {
        on: Side::Active,
        ok: true,
        written: true,
    }
}

/// A backfill brings a document of a dropped collection whose begin event is superseded. The
/// replica erases the document from memory before it is flushed, and before the collection's end
/// arrives.
#[test]
fn a_document_erased_before_its_collection_ends_leaves_the_store_too() {
    let ops = [
        toggle(&[193, 172], 132),
        Set { key: 221, count: 8 },
        Set { key: 17, count: 7 },
        Set { key: 116, count: 7 },
        DropScope(12),
        toggle(&[16, 78], 0),
        Set { key: 139, count: 8 },
        Set { key: 30, count: 7 },
        Prepare {
            key: 130,
            level: 1,
            delete: false,
            patience: 1,
        },
        FlushBegin {
            on: Side::Active,
            items: 1,
        },
        toggle(&[114, 116], 8),
        Delete { key: 0 },
        toggle(&[131], 0),
        flushed(),
        Set { key: 35, count: 4 },
        toggle(&[83], 0),
        FlushBegin {
            on: Side::Active,
            items: u16::MAX,
        },
        flushed(),
        Restart {
            on: Side::Active,
            unclean: false,
        },
        Replicate { steps: 7 },
        Replicate { steps: 38 },
        Erase(Side::Replica),
    ];
    run(1, &ops);
}
