use proptest::prelude::*;

use super::*;

fn place(number: u64) -> Place {
    Place::at(number, 7)
}

#[derive(Clone, Debug)]
enum Step {
    Insert(u64, u64),
    Remove(u64),
    Append(Vec<u64>),
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0..2000_u64, any::<u32>()).prop_map(|(seqno, at)| Step::Insert(seqno, at.into())),
        (0..2000_u64).prop_map(Step::Remove),
        (0..2000_u64, 1..600_u64)
            .prop_map(|(from, count)| Step::Append((from..from + count).collect())),
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
                Step::Append(seqnos) => {
                    let mut more = Rows::default();
                    for seqno in seqnos {
                        more.insert(Seqno(seqno), place(seqno));
                        model.insert(Seqno(seqno), place(seqno));
                    }
                    rows.append(more);
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

/// A row that the tables have, that went, and that was written anew under the same seqno (after a
/// rollback), must not come back from the tables when it goes again.
#[test]
fn what_the_tables_have_stays_hidden() {
    let mut front = VbFront::default();
    let mut change = |entry| {
        for (_, staged) in Staged::of_group([entry]) {
            staged.apply(&mut front);
        }
        (
            front.rows.get(Seqno(5)).is_some(),
            front.gone.contains(&Seqno(5)),
        )
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
    let vb = VbId(1);
    let group = [
        Entry::Put(vb, Seqno(1), place(1)),
        Entry::Remove(vb, Seqno(1)),
        Entry::Remove(vb, Seqno(2)),
        Entry::Put(vb, Seqno(2), place(2)),
        Entry::Remove(vb, RECORD),
        Entry::Put(vb, RECORD, place(3)),
    ];
    let mut front = VbFront::default();
    for (_, staged) in Staged::of_group(group) {
        staged.apply(&mut front);
    }
    let rows: Vec<_> = front.rows.from(Seqno::ZERO).collect();
    assert_eq!(rows, [(Seqno(2), place(2))]);
    assert_eq!(front.record, RecordAt::Journal(place(3)));
}
