use model::{Cas, Datatype, Kind, Meta, Seqno};

use super::*;

fn document(key: &[u8], value: &[u8], kind: Kind) -> Document {
    let meta = Meta {
        cas: Cas(1),
        seqno: Seqno(1),
        kind,
        datatype: Datatype::RAW,
        ..Meta::default()
    };
    Document::from_parts(key, value, &meta)
}

fn recount(table: &Table) -> TableCounts {
    let mut counts = TableCounts::default();
    (0..table.slots())
        .filter_map(|slot| table.in_slot(slot))
        .for_each(|found| counts.add(found));
    counts
}

fn put(table: &mut Table, document: Document) -> Option<Document> {
    let place = table.place(document.key());
    table.put(place, document)
}

#[test]
fn finds_what_was_put_through_many_resizes() {
    let mut table = Table::new(42);
    for index in 0..5000u32 {
        assert!(
            put(
                &mut table,
                document(&index.to_be_bytes(), b"v", Kind::Mutation)
            )
            .is_none()
        );
    }
    for index in 0..5000u32 {
        let place = table.place(&index.to_be_bytes());
        assert_eq!(table.at(place).unwrap().key(), index.to_be_bytes());
    }
    assert!(table.at(table.place(b"absent")).is_none());
    assert!(table.resizes() >= 8, "{}", table.resizes());
    assert_eq!(*table.counts(), recount(&table));
}

#[test]
fn counts_follow_replacement_eviction_and_removal() {
    let mut table = Table::new(1);
    put(&mut table, document(b"a", b"1", Kind::Mutation));
    put(&mut table, document(b"b", b"1", Kind::Mutation));
    put(&mut table, document(b"c", b"", Kind::Deletion));
    let old = put(
        &mut table,
        document(b"a", b"longer than before", Kind::Mutation),
    )
    .unwrap();
    assert_eq!(old.value(), b"1");
    let evicted = table.at(table.place(b"b")).unwrap().to_non_resident();
    put(&mut table, evicted);
    let counts = *table.counts();
    assert_eq!(
        (counts.items, counts.tombstones, counts.non_resident),
        (2, 1, 1)
    );
    assert_eq!(counts, recount(&table));
    table.remove(b"b");
    table.remove(b"c");
    assert!(table.remove(b"c").is_none());
    let counts = *table.counts();
    assert_eq!(
        (counts.items, counts.tombstones, counts.non_resident),
        (1, 0, 0)
    );
    assert_eq!(counts, recount(&table));
}

#[test]
fn an_empty_table_allocates_nothing() {
    let table = Table::new(7);
    assert_eq!(table.array_bytes(), 0);
    assert!(table.place_of_slot(0).is_none());
}
