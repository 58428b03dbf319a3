use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

fn place(number: u64) -> ValuePosition {
    ValuePosition::at(number, 7)
}

#[derive(Clone, Debug)]
enum Step {
    Insert(u64, u64),
    Remove(u64),
    InsertMany(u64, u64),
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0..2000_u64, any::<u32>()).prop_map(|(seqno, at)| Step::Insert(seqno, at.into())),
        (0..2000_u64).prop_map(Step::Remove),
        // Most come in order, in a block's worth.
        (0..2000_u64, 1..600_u64).prop_map(|(from, count)| Step::InsertMany(from, count)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn rows_are_a_sorted_map(steps in proptest::collection::vec(any_step(), 1..40)) {
        let mut rows = Rows::default();
        let mut model = BTreeMap::new();
        for step in steps {
            match step {
                Step::Insert(seqno, at) => {
                    rows.insert(Seqno(seqno), place(at));
                    model.insert(Seqno(seqno), place(at));
                }
                Step::Remove(seqno) => {
                    let was = model.remove(&Seqno(seqno)).is_some();
                    prop_assert_eq!(rows.remove(Seqno(seqno)), was);
                }
                Step::InsertMany(from, count) => {
                    for seqno in from..from + count {
                        rows.insert(Seqno(seqno), place(seqno));
                        model.insert(Seqno(seqno), place(seqno));
                    }
                }
            }
            prop_assert!(rows.blocks.iter().all(|block| !block.is_empty() && block.len() <= BLOCK));
        }
        for from in [0, 1, 700, 2600] {
            let seen: Vec<_> = rows.from(Seqno(from)).collect();
            let expected: Vec<_> = model.range(Seqno(from)..).map(|(seqno, at)| (*seqno, *at)).collect();
            prop_assert_eq!(seen, expected);
        }
        for seqno in (0..2600).map(Seqno) {
            prop_assert_eq!(rows.get(seqno), model.get(&seqno).copied());
        }
    }
}

/// What a journal and the tables below it have: a map, whether changes are sorted in or not.
#[derive(Clone, Debug)]
enum Change {
    Put(u64),
    Remove(u64),
    Settle,
}

fn any_change() -> impl Strategy<Value = Change> {
    prop_oneof![
        4 => (0..60_u64).prop_map(Change::Put),
        4 => (0..60_u64).prop_map(Change::Remove),
        1 => Just(Change::Settle),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_journal_over_tables_is_a_map(
        below in proptest::collection::btree_set(0..60_u64, 0..40),
        changes in proptest::collection::vec(any_change(), 0..200),
    ) {
        let vb = VbId(0);
        let mut index = VbIndex::default();
        // What is there, with its place in the journal if it is there and not in the tables.
        let mut model: BTreeMap<u64, Option<ValuePosition>> =
            below.iter().map(|seqno| (*seqno, None)).collect();
        for (number, change) in (1..).zip(changes) {
            match change {
                Change::Put(seqno) => {
                    // A row that the tables have is never written again before it went.
                    if model.get(&seqno) == Some(&None) {
                        index.apply(Entry::Remove(vb, Seqno(seqno)));
                    }
                    index.apply(Entry::Put(vb, Seqno(seqno), place(number)));
                    model.insert(seqno, Some(place(number)));
                }
                Change::Remove(seqno) => {
                    index.apply(Entry::Remove(vb, Seqno(seqno)));
                    model.remove(&seqno);
                }
                Change::Settle => index.settle(),
            }
            for seqno in 0..60 {
                let found = index.find(Seqno(seqno));
                let seen = match found {
                    RowAt::Journal(place) => Some(Some(place)),
                    RowAt::Nowhere => None,
                    RowAt::Below => below.contains(&seqno).then_some(None),
                };
                prop_assert_eq!(seen, model.get(&seqno).copied());
            }
        }
        let settled = index.settled();
        let rows: Vec<_> = settled.rows_from(Seqno::ZERO).collect();
        let written = model.iter().filter_map(|(seqno, place)| Some((Seqno(*seqno), (*place)?)));
        prop_assert_eq!(rows, written.collect::<Vec<_>>());
        let stay: Vec<u64> = model.iter().filter(|(_, place)| place.is_none()).map(|row| *row.0).collect();
        let seen: Vec<u64> = below.iter().copied().filter(|seqno| !settled.hides(Seqno(*seqno))).collect();
        prop_assert_eq!(seen, stay);
    }
}

/// A row that the tables have, that went, and that was written anew under the same seqno (after a
/// rollback), must not come back from the tables when it goes again.
#[test]
fn what_the_tables_have_stays_hidden() {
    let mut index = VbIndex::default();
    let mut change = |entry| {
        index.apply(entry);
        let settled = index.clone().settled();
        let gone = settled.gone().any(|seqno| seqno == Seqno(5));
        (settled.has(Seqno(5)), gone)
    };
    assert_eq!(change(Entry::Remove(VbId(0), Seqno(5))), (false, true));
    assert_eq!(
        change(Entry::Put(VbId(0), Seqno(5), place(1))),
        (true, true)
    );
    assert_eq!(change(Entry::Remove(VbId(0), Seqno(5))), (false, true));
}

#[test]
fn the_changes_of_a_group_count_in_their_order() {
    let (vb, other) = (VbId(1), VbId(2));
    let group = [
        Entry::Put(vb, Seqno(1), place(1)),
        Entry::Remove(vb, Seqno(1)),
        Entry::Remove(vb, Seqno(2)),
        Entry::Put(other, RECORD, place(4)),
        Entry::Put(vb, Seqno(2), place(2)),
        Entry::Remove(vb, RECORD),
        Entry::Put(vb, RECORD, place(3)),
        Entry::Remove(other, RECORD),
    ];
    let mut staged = Staged::default();
    for entry in group {
        staged.push(entry);
    }
    let mut vbs = PerVb::default();
    staged.apply(&mut vbs);
    let index = vbs.remove(vb).expect("it has changes").settled();
    let rows: Vec<_> = index.rows_from(Seqno::ZERO).collect();
    assert_eq!(rows, [(Seqno(2), place(2))]);
    assert_eq!(index.record, RowAt::Journal(place(3)));
    assert_eq!(
        vbs.get(other).map(|index| index.record),
        Some(RowAt::Nowhere)
    );
    assert_eq!(vbs.keys().collect::<Vec<_>>(), [other]);
}

/// A large group is more than one block.
#[test]
fn a_large_group_is_applied_whole() {
    let mut staged = Staged::default();
    let seqnos = 1..=3 * STAGED_AT_ONCE as u64 + 1;
    for seqno in seqnos.clone() {
        staged.push(Entry::Put(VbId(0), Seqno(seqno), place(seqno)));
    }
    let mut vbs = PerVb::default();
    staged.apply(&mut vbs);
    let index = vbs.remove(VbId(0)).expect("it has changes").settled();
    assert!(
        index
            .rows_from(Seqno::ZERO)
            .map(|(seqno, _)| seqno.0)
            .eq(seqnos)
    );
}
