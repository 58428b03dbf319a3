use engine::MemoryDelta;

use super::*;

const QUOTA: u64 = 100_000;
/// Limit of the buffers of all connections.
const BUFFERS: usize = 64 << 20;

const FIRST: Purpose = Purpose::Request { first: true };
const BEHIND: Purpose = Purpose::Request { first: false };

const PURPOSES: [Purpose; 15] = [
    Purpose::Write,
    Purpose::LargeWrite,
    Purpose::Removal,
    Purpose::Expiry,
    Purpose::Fetch,
    Purpose::Restore,
    Purpose::Replication,
    FIRST,
    BEHIND,
    Purpose::Frame { first: true },
    Purpose::LargeAnswer,
    Purpose::Answer,
    Purpose::Stream,
    Purpose::Body,
    Purpose::Reader,
];

/// A pressure: its name, and the memory in use.
#[derive(Clone, Copy, Default)]
struct Pressed {
    name: &'static str,
    used: i64,
    checkpoints: i64,
    /// Counted, but not booked.
    overhead: u64,
    excess: u64,
    lent: usize,
    transit: usize,
    buffers: usize,
    bodies: usize,
}

const PRESSURES: [Pressed; 12] = {
    const NONE: Pressed = Pressed {
        name: "none",
        used: 0,
        checkpoints: 0,
        overhead: 0,
        excess: 0,
        lent: 0,
        transit: 0,
        buffers: 0,
        bodies: 0,
    };
    macro_rules! pressed {
        ($name:literal $(, $field:ident: $value:expr)*) => {
            Pressed { name: $name, $($field: $value,)* ..NONE }
        };
    }
    [
        pressed!("high", used: 85_001),
        pressed!("writes", used: 93_000),
        pressed!("reads", used: 96_000),
        pressed!("quota", used: 100_000),
        pressed!("process", overhead: 100_000),
        pressed!("queue", used: 20_000, checkpoints: 20_000),
        pressed!("transit", overhead: 100_000, transit: 2_000),
        pressed!("buffers", buffers: BUFFERS),
        pressed!("twice", buffers: 2 * BUFFERS),
        pressed!("bodies", bodies: BUFFERS / 4),
        pressed!("readers", lent: 12_500),
        pressed!("excess", excess: 100_000),
    ]
};

/// Returns the answer to a request for one byte under a pressure.
fn answer(pressed: Pressed, purpose: Purpose, waited: Duration) -> Reservation {
    let (memory, buffers) = (Memory::new(QUOTA), Buffers::default());
    memory.add(MemoryDelta {
        bytes: pressed.used,
        checkpoint_bytes: pressed.checkpoints,
    });
    memory.set_overhead(pressed.overhead);
    memory.set_excess(pressed.excess);
    memory.change_lent(0, pressed.lent);
    memory.change_transit(0, pressed.transit);
    buffers.change(0, pressed.buffers);
    buffers.hold_body(pressed.bodies);
    accounts(&memory, &buffers).reserve(purpose, 1, waited)
}

fn accounts<'a>(memory: &'a Memory, buffers: &'a Buffers) -> Accounts<'a> {
    Accounts {
        buffers,
        memory: Some(memory),
        evicts: true,
        evictable: true,
        is_storing: &|| false,
    }
}

/// Returns a cell as one word: the longest wait in milliseconds, and the decision after it.
fn cell(pressed: Pressed, purpose: Purpose) -> String {
    const WAITS: [u64; 4] = [10, 50, 1_500, 5_000];
    if answer(pressed, purpose, Duration::ZERO).is_granted() {
        return ".".into();
    }
    let ms = Duration::from_millis;
    let waits = |waited| matches!(answer(pressed, purpose, waited), Reservation::Wait { .. });
    let patience = WAITS
        .into_iter()
        .find(|&wait| !waits(ms(wait)))
        .inspect(|&wait| {
            assert!(waits(ms(wait - 1)), "a wait of another length");
        });
    let Some(patience) = patience else {
        return "waits".into();
    };
    match answer(pressed, purpose, ms(patience)) {
        Reservation::Granted => format!("{patience}:granted"),
        Reservation::Refused { shortage, .. } => format!("{patience}:{:?}", shortage.limit),
        Reservation::Wait { .. } => unreachable!("it has waited"),
    }
}

#[test]
fn table_of_purposes_and_pressures() {
    #[rustfmt::skip]
    let expected = [
        "Write:        . 10:Mutation 10:Mutation 10:Quota 10:Mutation 10:Checkpoints 10:Mutation . . . . 10:Mutation",
        "LargeWrite:   . 1500:LargeMutation 1500:LargeMutation 1500:Quota 1500:LargeMutation 1500:Checkpoints 1500:LargeMutation . . . . .",
        "Removal:      . . . . . 10:Checkpoints . . . . . .",
        "Expiry:       . . . . . waits . . . . . .",
        "Fetch:        . . 1500:Backfill 1500:Quota 50:granted . 50:granted . . . . 50:granted",
        "Restore:      . . waits waits . . . . . . . .",
        "Replication:  . waits waits waits waits waits waits . . . . waits",
        "Request(1st): . 1500:LargeMutation 1500:LargeMutation 1500:Quota 1500:LargeMutation 1500:Checkpoints 5000:Congestion 5000:Congestion 5000:Congestion . . .",
        "Request(2nd): 1500:Queue 1500:LargeMutation 1500:LargeMutation 1500:Quota 1500:LargeMutation 1500:Checkpoints 5000:Congestion 5000:Congestion 5000:Congestion 1500:Queue 1500:Queue 1500:Queue",
        "Frame(1st):   . 1500:granted 1500:granted 1500:granted 1500:granted 1500:granted waits waits waits . . .",
        "LargeAnswer:  . . . . . . 5000:Congestion 5000:Congestion 5000:Congestion . . .",
        "Answer:       . . . . . . . . waits . . .",
        "Stream:       . . . . . . waits waits waits . . .",
        "Body:         . . . . . . waits waits waits waits . .",
        "Reader:       . . . . . . . . . . waits .",
    ];
    for (purpose, row) in PURPOSES.into_iter().zip(expected) {
        let (name, cells) = row.split_once(':').unwrap();
        let cells: Vec<&str> = cells.split_whitespace().collect();
        assert_eq!(cells.len(), PRESSURES.len(), "{name}");
        for (pressed, expected) in PRESSURES.into_iter().zip(cells) {
            let found = cell(pressed, purpose);
            assert_eq!(found, expected, "{name} at {}", pressed.name);
        }
    }
}

#[test]
fn write_waits_longer_and_pauses_shorter_while_store_commits() {
    let (memory, buffers) = (Memory::new(QUOTA), Buffers::default());
    memory.set_overhead(QUOTA);
    let calm = accounts(&memory, &buffers);
    let storing = Accounts {
        is_storing: &|| true,
        ..accounts(&memory, &buffers)
    };
    let after = |accounts: &Accounts<'_>, waited| {
        let waited = Duration::from_millis(waited);
        match accounts.reserve(Purpose::Write, 1, waited) {
            Reservation::Refused { pause, .. } => Some(pause),
            _ => None,
        }
    };
    assert_eq!(after(&calm, 10), Some(WRITE_PAUSE));
    assert_eq!((after(&storing, 10), after(&storing, 249)), (None, None));
    assert_eq!(after(&storing, 250), Some(WRITE_PAUSE_STORING));
}

#[test]
fn write_above_the_limit_is_refused_at_once() {
    let (memory, buffers) = (Memory::new(QUOTA), Buffers::default());
    let refused = |bytes| {
        let accounts = accounts(&memory, &buffers);
        match accounts.reserve(Purpose::Write, bytes, Duration::ZERO) {
            Reservation::Refused { shortage, .. } => Some(shortage),
            _ => None,
        }
    };
    let shortage = refused(93_001).unwrap();
    assert_eq!(shortage.error(), OpError::OutOfMemory);
    assert_eq!(
        shortage.to_string(),
        "the write takes more than the limit for all of them: 93001 of 93000 bytes \
         (ep_mutation_mem_ratio)"
    );
    assert_eq!(refused(93_000), None);
    assert!(refused(usize::MAX).is_some());
    memory.set_overhead(QUOTA);
    assert_eq!(refused(93_001), Some(shortage), "also at the quota");
}

#[test]
fn large_request_is_granted_if_eviction_cannot_help() {
    let (memory, buffers) = (Memory::new(QUOTA), Buffers::default());
    memory.set_overhead(QUOTA);
    let mut accounts = accounts(&memory, &buffers);
    let granted = |accounts: &Accounts<'_>, bytes| {
        accounts.reserve(FIRST, bytes, Duration::ZERO).is_granted()
    };
    assert!(!granted(&accounts, 75_000));
    // Its write is refused after it is read, with the reason.
    assert!(granted(&accounts, 75_001), "more than the low mark");
    accounts.evicts = false;
    assert!(granted(&accounts, 75_000));
}

#[test]
fn shortage_names_its_limit() {
    let context =
        |pressed: usize, purpose| match answer(PRESSURES[pressed], purpose, Duration::from_secs(5))
        {
            Reservation::Refused { shortage, .. } => shortage.to_string(),
            other => panic!("{other:?}"),
        };
    let writes =
        "memory is above the limit for writes: 93000 of 93000 bytes (ep_mutation_mem_ratio)";
    assert_eq!(context(1, Purpose::Write), writes);
    assert_eq!(context(1, BEHIND), writes);
    assert_eq!(
        context(0, BEHIND),
        "others have waited longer for room for large requests"
    );
    assert_eq!(
        context(7, FIRST),
        "connections hold too much for a request of this size"
    );
    assert_eq!(
        context(7, Purpose::LargeAnswer),
        "connections hold too many answers that are not read"
    );
}

#[test]
fn request_bodies_have_a_share_of_the_limit() {
    let buffers = Buffers::default();
    let most = BUFFERS / 4;
    let granted = |bytes| {
        let reservation = buffers.reserve(Purpose::Body, bytes, Duration::ZERO);
        reservation.is_granted()
    };
    buffers.hold_body(most - 1);
    assert!(!granted(2) && granted(1));
    buffers.release_body(most - 1);
    assert_eq!(buffers.held(), 0);
    buffers.change(0, BUFFERS);
    assert!(!granted(1), "there is no memory at all");
}
