//! Operations of the model test, with their weights.

use engine::{ConcatPlace, StoreMode};
use proptest::prelude::*;

use super::KEYS;

#[derive(Clone, Copy, Debug)]
pub(super) enum CasChoice {
    Any,
    Current,
    Wrong,
    Lock,
}

#[derive(Clone, Debug)]
pub(super) enum Op {
    Store {
        key: u8,
        mode: StoreMode,
        value: Vec<u8>,
        expiry: u8,
        cas: CasChoice,
        preserve: bool,
    },
    Concat {
        key: u8,
        bytes: Vec<u8>,
        place: ConcatPlace,
        cas: CasChoice,
    },
    Count {
        key: u8,
        delta: u8,
        decrement: bool,
        initial: Option<u8>,
    },
    Delete {
        key: u8,
        cas: CasChoice,
    },
    Touch {
        key: u8,
        expiry: u8,
    },
    Get {
        key: u8,
    },
    Lock {
        key: u8,
        seconds: u8,
    },
    Unlock {
        key: u8,
        cas: CasChoice,
    },
    Clock {
        seconds: u8,
        back: bool,
    },
    ExpireDue,
    FlushBegin {
        items: u8,
    },
    FlushEnd {
        ok: bool,
        written: bool,
    },
    Evict {
        key: u8,
    },
    Restore {
        key: u8,
    },
    Restart {
        unclean: bool,
    },
    Demote,
}

fn cas() -> impl Strategy<Value = CasChoice> {
    prop_oneof![
        5 => Just(CasChoice::Any),
        2 => Just(CasChoice::Current),
        1 => Just(CasChoice::Wrong),
        2 => Just(CasChoice::Lock),
    ]
}

pub(super) fn op() -> impl Strategy<Value = Op> {
    let key = 0..KEYS;
    let mode = prop_oneof![
        6 => Just(StoreMode::Set),
        1 => Just(StoreMode::Add),
        1 => Just(StoreMode::Replace),
    ];
    let value = prop::collection::vec(prop::sample::select(b"x7{".as_slice()), 0..40);
    let place = prop_oneof![Just(ConcatPlace::Append), Just(ConcatPlace::Prepend)];
    let initial = prop::option::of(any::<u8>());
    prop_oneof![
        12 => (key.clone(), mode, value.clone(), 0..9u8, cas(), any::<bool>()).prop_map(
            |(key, mode, value, expiry, cas, preserve)| {
                Op::Store { key, mode, value, expiry, cas, preserve }
            }
        ),
        2 => (key.clone(), value, place, cas())
            .prop_map(|(key, bytes, place, cas)| Op::Concat { key, bytes, place, cas }),
        2 => (key.clone(), any::<u8>(), any::<bool>(), initial).prop_map(
            |(key, delta, decrement, initial)| Op::Count { key, delta, decrement, initial }
        ),
        3 => (key.clone(), cas()).prop_map(|(key, cas)| Op::Delete { key, cas }),
        1 => (key.clone(), 0..9u8).prop_map(|(key, expiry)| Op::Touch { key, expiry }),
        2 => key.clone().prop_map(|key| Op::Get { key }),
        1 => (key.clone(), 0..40u8).prop_map(|(key, seconds)| Op::Lock { key, seconds }),
        1 => (key.clone(), cas()).prop_map(|(key, cas)| Op::Unlock { key, cas }),
        1 => (0..6u8, any::<bool>()).prop_map(|(seconds, back)| Op::Clock { seconds, back }),
        1 => Just(Op::ExpireDue),
        4 => (0..40u8).prop_map(|items| Op::FlushBegin { items }),
        4 => prop_oneof![
            4 => Just(Op::FlushEnd { ok: true, written: true }),
            1 => Just(Op::FlushEnd { ok: false, written: false }),
            1 => Just(Op::FlushEnd { ok: false, written: true }),
        ],
        2 => key.clone().prop_map(|key| Op::Evict { key }),
        1 => key.prop_map(|key| Op::Restore { key }),
        1 => any::<bool>().prop_map(|unclean| Op::Restart { unclean }),
        1 => Just(Op::Demote),
    ]
}
