//! Messages of a reference daemon to consumers of one vBucket, request by request. Answers and messages are compared
//! byte by byte, except for parts that differ per run (CAS, UUID, times) and differences that the test explains.

use wire::{Feature, Opcode, Status};

use crate::client::{Answer, Client, Request, hex, store};
use crate::place::own;

const VB: u16 = 549;

/// Features of the observed connections, without extended attributes.
const FEATURES: [Feature; 5] = [
    Feature::MUTATION_SEQNO,
    Feature::XERROR,
    Feature::SELECT_BUCKET,
    Feature::JSON,
    Feature::COLLECTIONS,
];

/// Offsets in a frame of parts that differ per run.
const CAS: std::ops::Range<usize> = 16..24;

/// A connection that was opened like the observed one.
struct Replay {
    client: Client,
    uuid: u64,
}

impl Replay {
    fn open(port: u16, uuid: u64, flags: u32) -> Self {
        let mut client = Client::with(port, &FEATURES);
        let open = format!(
            "8050000808000000000000100000000400000000000000000000000000{flags:06x}676f6c642d313031"
        );
        client.send(&hex(&open));
        let opened = "815000000000000000000000000000040000000000000000";
        assert_eq!(client.answer().bytes, hex(opened));
        let mut replay = Self { client, uuid };
        replay.exact(
            "805e001100000000000000140000000500000000000000007365745f6e6f6f705f696e74657276616c313230",
            "815e00000000000000000000000000050000000000000000",
        );
        replay
    }

    fn noop(&mut self) {
        self.exact(
            "805e000b000000000000000f000000060000000000000000656e61626c655f6e6f6f7074727565",
            "815e00000000000000000000000000060000000000000000",
        );
    }

    #[track_caller]
    fn exact(&mut self, request: &str, answer: &str) {
        self.client.send(&hex(request));
        assert_eq!(self.client.answer().bytes, hex(answer));
    }

    /// Sends a stream request with this node's UUID in place of the observed one.
    fn stream(&mut self, request: &str) -> Answer {
        let mut bytes = hex(request);
        let observed = hex("0000f8429394668a");
        if bytes[48..56] == observed[..] {
            bytes[48..56].copy_from_slice(&self.uuid.to_be_bytes());
        }
        self.client.send(&bytes);
        self.client.answer()
    }

    /// Checks that the stream is granted with the observed failover log.
    #[track_caller]
    fn granted(&mut self, request: &str, answer: &str) {
        let mut seen = hex(answer);
        seen[24..32].copy_from_slice(&self.uuid.to_be_bytes());
        assert_eq!(self.stream(request).bytes, seen);
    }

    /// Checks that the next message is the observed one, except for the CAS and the bytes of `free`.
    #[track_caller]
    fn message(&mut self, seen: &str, free: &[std::ops::Range<usize>]) {
        let (mut ours, mut seen) = (self.client.answer().bytes, hex(seen));
        assert_eq!(ours.len(), seen.len(), "{ours:02x?}");
        for range in free.iter().cloned() {
            ours[range.clone()].fill(0);
            seen[range].fill(0);
        }
        if seen[CAS] != [0; 8] {
            assert_ne!(ours[CAS], [0; 8]);
            ours[CAS].fill(0);
            seen[CAS].fill(0);
        }
        assert_eq!(ours, seen, "\n{ours:02x?}\n{seen:02x?}");
    }

    /// Runs all steps, and checks the marker and the message of each one.
    #[track_caller]
    fn live(&mut self, writer: &mut Client, life: &[(&str, &str)]) {
        for (number, (marker, message)) in life.iter().enumerate() {
            step(writer, number);
            self.marker(marker);
            let free: &[std::ops::Range<usize>] = match hex(message)[1] {
                0x57 => &[EXPIRY, USE],
                0x58 if message.len() == 2 * (24 + 18 + 9) => &[],
                _ => &[TIME],
            };
            self.message(message, free);
        }
    }

    /// Checks a marker, except for the checkpoint flag: each node chooses where checkpoints begin.
    #[track_caller]
    fn marker(&mut self, seen: &str) {
        let ours = self.client.answer().bytes;
        let mut seen = hex(seen);
        assert_eq!(
            (ours.len(), ours[43] & !4),
            (44, seen[43] & !4),
            "{ours:02x?}"
        );
        seen[43] = ours[43];
        assert_eq!(ours, seen);
    }
}

/// Runs one step: set, delete, set with an expiry that has passed, read.
fn step(writer: &mut Client, number: usize) {
    let flags = 0x0200_0006;
    let key = "gold-dcp";
    let request = match number {
        0 => store(Opcode::SET, key, "{\"a\":1}", flags, 0),
        1 => Request::of(Opcode::DELETE, key),
        2 => store(Opcode::SET, key, "{\"e\":1}", flags, 1_000_000_000),
        _ => Request::of(Opcode::GET, key),
    };
    let answer = writer.call(&request.vbucket(VB));
    let expected = if number < 3 {
        Status::SUCCESS
    } else {
        Status::KEY_ENOENT
    };
    answer.is(expected);
}

/// Returns a node whose vBucket is at seqno 4, and its UUID.
fn at_four() -> (server::Node, Client, u64) {
    let node = own();
    let mut writer = Client::ready(node.ports().kv);
    let mut uuid = 0;
    for _ in 0..4 {
        let set = store(Opcode::SET, "gold-before", "x", 0, 0).vbucket(VB);
        uuid = writer.call(&set).ok().uuid();
    }
    (node, writer, uuid)
}

/// Offsets of the expiry and the use of a mutation; the observed use counts from 2.
const EXPIRY: std::ops::Range<usize> = 44..48;
const USE: std::ops::Range<usize> = 54..55;
/// Offset of the time of a deletion or an expiration.
const TIME: std::ops::Range<usize> = 40..44;

#[test]
fn messages_match_those_of_a_reference_daemon() {
    let (node, mut writer, uuid) = at_four();
    let mut replay = Replay::open(node.ports().kv, uuid, 0x25);
    replay.noop();
    replay.exact(
        "805e00140000000000000018000000070000000000000000656e61626c655f6578706972795f6f70636f6465\
         74727565",
        "815e00000000000000000000000000070000000000000000",
    );
    replay.granted(
        "80530000300002250000003000000008000000000000000000000000000000000000000000000004ffffffff\
         ffffffff0000f8429394668a00000000000000040000000000000004",
        "8153000000000000000000100000000800000000000000000000f8429394668a0000000000000000",
    );
    let life = [
        (
            "8056000014000225000000140000000800000000000000000000000000000004000000000000000500000005",
            "805700091f0102250000002f0000000818e9efe27fec0000000000000000000500000000000000010200000600\
             0000000000000000000200676f6c642d6463707b2261223a317d",
        ),
        (
            "8056000014000225000000140000000800000000000000000000000000000006000000000000000600000005",
            "80580009150002250000001e0000000818e9efe28be10000000000000000000600000000000000026b0107f100\
             00676f6c642d646370",
        ),
        (
            "8056000014000225000000140000000800000000000000000000000000000007000000000000000700000001",
            "805700091f0102250000002f0000000818e9efe297d6000000000000000000070000000000000003020000066b\
             0107f30000000000000200676f6c642d6463707b2265223a317d",
        ),
        (
            "8056000014000225000000140000000800000000000000000000000000000008000000000000000800000001",
            "80590009140002250000001d0000000818e9efe31b010000000000000000000800000000000000046b0107f400\
             676f6c642d646370",
        ),
    ];
    replay.live(&mut writer, &life);
    drop(replay);
    without_times(&node, &mut writer, uuid);
    from_nothing(&node, &mut writer, uuid);
}

/// A consumer that asks for neither times of deletions nor expirations. The observed revisions were one higher: that
/// daemon counts one more for a document that is created again after its expiry.
fn without_times(node: &server::Node, writer: &mut Client, uuid: u64) {
    let mut replay = Replay::open(node.ports().kv, uuid, 1);
    replay.noop();
    replay.granted(
        "80530000300002250000003000000007000000000000000000000000000000000000000000000008ffffffff\
         ffffffff0000f8429394668a00000000000000080000000000000008",
        "8153000000000000000000100000000700000000000000000000f8429394668a0000000000000000",
    );
    let life = [
        (
            "8056000014000225000000140000000700000000000000000000000000000008000000000000000900000005",
            "805700091f0102250000002f0000000718e9efe392840000000000000000000900000000000000050200000600\
             0000000000000000000200676f6c642d6463707b2261223a317d",
        ),
        (
            "805600001400022500000014000000070000000000000000000000000000000a000000000000000a00000001",
            "80580009120002250000001b0000000718e9efe39e780000000000000000000a00000000000000060000006\
             76f6c642d646370",
        ),
        (
            "805600001400022500000014000000070000000000000000000000000000000b000000000000000b00000001",
            "805700091f0102250000002f0000000718e9efe3aa6f0000000000000000000b0000000000000007020000066b\
             0107f70000000000000200676f6c642d6463707b2265223a317d",
        ),
        (
            "805600001400022500000014000000070000000000000000000000000000000c000000000000000c00000001",
            "80580009120002250000001b0000000718e9efe42d9a0000000000000000000c000000000000000800000067\
             6f6c642d646370",
        ),
    ];
    replay.live(writer, &life);
}

/// Everything up to the newest change, from the store: without duplicates.
fn from_nothing(node: &server::Node, writer: &mut Client, uuid: u64) {
    let wait = Request::new(Opcode::SEQNO_PERSISTENCE).vbucket(VB);
    writer.call(&wait.extras(&12_u64.to_be_bytes())).ok();
    let mut replay = Replay::open(node.ports().kv, uuid, 1);
    replay.noop();
    replay.granted(
        "8053000030000225000000300000000700000000000000000000000000000000000000000000000000000000\
         0000000c000000000000000000000000000000000000000000000000",
        "8153000000000000000000100000000700000000000000000000f8429394668a0000000000000000",
    );
    replay.marker(
        "8056000014000225000000140000000700000000000000000000000000000000000000000000000c00000006",
    );
    // The daemon sent two collections that were created; this node sends the earlier document.
    assert_eq!(replay.client.answer().opcode, Opcode::DCP_MUTATION);
    replay.message(
        "80580009120002250000001b0000000718e9efe42d9a0000000000000000000c0000000000000008000000676f\
         6c642d646370",
        &[],
    );
    replay.message(
        "80550000040002250000000400000007000000000000000000000000",
        &[],
    );
    let asked = |request: &str, status: Status| {
        let mut replay = Replay::open(node.ports().kv, uuid, 1);
        replay.noop();
        let answer = replay.stream(request);
        assert_eq!(answer.opaque, 7);
        answer.is(status)
    };
    let rollback = asked(
        "8053000030000225000000300000000700000000000000000000000000000000000000000000000cffffffff\
         ffffffff0000f842939466df000000000000000c000000000000000c",
        Status::ROLLBACK,
    );
    let seen = "8153000000000023000000080000000700000000000000000000000000000000";
    assert_eq!(rollback.bytes, hex(seen));
    // The daemon sent no bodies; this node sends reasons.
    asked(
        "8053000030000225000000300000000700000000000000000000000000000000000000000000000500000000\
         00000003000000000000000000000000000000050000000000000005",
        Status::ERANGE,
    );
    let elsewhere = asked(
        "80530000300004060000003000000007000000000000000000000000000000000000000000000000ffffffff\
         ffffffff000000000000000000000000000000000000000000000000",
        Status::NOT_MY_VBUCKET,
    );
    assert_eq!(elsewhere.json()["name"], "default");
    let mut silent = Replay::open(node.ports().kv, uuid, 1);
    let request = "80530000300002250000003000000005000000000000000000000000000000000000000000000000\
                   ffffffffffffffff000000000000000000000000000000000000000000000000";
    silent.stream(request).is(Status::NOT_SUPPORTED);
    let control =
        "805e000f00000000000000100000000600000000000000006e6f5f737563685f636f6e74726f6c31";
    silent.client.send(&hex(control));
    silent.client.answer().is(Status::EINVAL);
}
