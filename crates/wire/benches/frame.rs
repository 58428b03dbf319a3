//! Nanoseconds to decode and to encode the frames that a node spends its life with.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use model::{Cas, Datatype, Seqno, VbId};
use wire::dcp::Mutation;
use wire::request::{Get, Store, StoreMode};
use wire::response::ItemFlags;
use wire::{
    Decoded, Durability, DurabilityLevel, Envelope, Frame, Limits, Message, Opaque, Opcode,
    RequestInfos, Response, Status, decode, encode_server_duration,
};

const KEY: &[u8] = b"\0user::1234567890";
const VALUE: [u8; 256] = [b'v'; 256];

fn envelope() -> Envelope<'static> {
    Envelope {
        vbucket: VbId(115),
        opaque: Opaque([1, 2, 3, 4]),
        ..Envelope::default()
    }
}

fn get_request() -> Vec<u8> {
    let mut out = Vec::new();
    let get = Get {
        key: KEY,
        with_key: false,
        quiet: false,
    };
    get.encode(&envelope(), &mut out).expect("a short key");
    out
}

fn set() -> Store<'static> {
    Store {
        mode: StoreMode::Set,
        quiet: false,
        key: KEY,
        value: &VALUE,
        flags: 6,
        expiry: 0,
    }
}

fn mutation() -> Mutation<'static> {
    Mutation {
        seqno: Seqno(1 << 33),
        rev: 7,
        flags: 6,
        expiry: 0,
        lock_time: 0,
        heat: 4,
        key: KEY,
        value: &VALUE,
    }
}

fn set_request(infos: RequestInfos<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    set()
        .encode(
            &Envelope {
                infos,
                ..envelope()
            },
            &mut out,
        )
        .expect("short parts");
    out
}

fn get_response(flags: &[u8; 4], server_duration: Option<u16>) -> Response<'_> {
    Response {
        cas: Cas(1 << 60),
        datatype: Datatype::RAW,
        server_duration,
        extras: flags,
        value: &VALUE,
        ..Response::new(Opcode::GET, Opaque([1, 2, 3, 4]), Status::SUCCESS)
    }
}

/// Parses a request as its command does.
fn read(frame: &Frame<'_>) -> bool {
    match frame.header.opcode {
        Opcode::GET => black_box(Get::parse(frame)).is_ok(),
        Opcode::SET => black_box(Store::parse(frame)).is_ok(),
        _ => black_box(Mutation::parse(frame)).is_ok(),
    }
}

fn decoding(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("wire/decode");
    group.throughput(Throughput::Elements(1));
    let durability = Durability {
        level: DurabilityLevel::Majority,
        timeout_ms: Some(3000),
    };
    let durable = RequestInfos {
        durability: Some(durability),
        ..RequestInfos::default()
    };
    let mut streamed = Vec::new();
    let encoded = mutation().encode(&envelope(), &mut streamed);
    encoded.expect("short parts");
    let requests = [
        ("dcp_mutation_256", streamed),
        ("get_request", get_request()),
        ("set_request_256", set_request(RequestInfos::default())),
        ("set_request_256_durable", set_request(durable)),
    ];
    for (name, bytes) in &requests {
        group.bench_function(*name, |bencher| {
            bencher.iter(|| {
                let Ok(Decoded::Frame { frame, .. }) =
                    decode(black_box(bytes), Limits::AUTHENTICATED)
                else {
                    panic!("a whole frame");
                };
                black_box((read(&frame), Envelope::parse(&frame))).0
            });
        });
    }
    let flags = ItemFlags(6).to_bytes();
    for (name, duration) in [
        ("get_response_256", None),
        ("get_response_256_traced", Some(21)),
    ] {
        let mut bytes = Vec::new();
        get_response(&flags, duration).encode(&mut bytes);
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                let Ok(Decoded::Frame { frame, .. }) =
                    decode(black_box(&bytes), Limits::AUTHENTICATED)
                else {
                    panic!("a whole frame");
                };
                black_box(Response::parse(&frame)).is_ok()
            });
        });
    }
    group.finish();
}

fn encoding(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("wire/encode");
    group.throughput(Throughput::Elements(1));
    let mut out = Vec::with_capacity(4096);
    group.bench_function("get_request", |bencher| {
        let get = Get {
            key: KEY,
            with_key: false,
            quiet: false,
        };
        let envelope = envelope();
        bencher.iter(|| {
            out.clear();
            black_box(&get)
                .encode(black_box(&envelope), &mut out)
                .is_ok()
        });
    });
    group.bench_function("set_request_256", |bencher| {
        let (set, envelope) = (set(), envelope());
        bencher.iter(|| {
            out.clear();
            black_box(&set)
                .encode(black_box(&envelope), &mut out)
                .is_ok()
        });
    });
    group.bench_function("dcp_mutation_256", |bencher| {
        let (mutation, envelope) = (mutation(), envelope());
        bencher.iter(|| {
            out.clear();
            black_box(&mutation)
                .encode(black_box(&envelope), &mut out)
                .is_ok()
        });
    });
    let flags = ItemFlags(6).to_bytes();
    for (name, duration) in [
        ("get_response_256", None),
        ("get_response_256_traced", Some(21)),
    ] {
        let response = get_response(&flags, duration);
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                out.clear();
                black_box(&response).encode(&mut out);
                out.len()
            });
        });
    }
    group.finish();
}

fn durations(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("wire/server_duration");
    for micros in [12, 1200] {
        group.bench_function(format!("{micros}_us"), |bencher| {
            bencher.iter(|| encode_server_duration(black_box(micros)));
        });
    }
    group.finish();
}

criterion_group! {
    name = benches;
    // Short enough to run all benchmarks of the workspace in one go.
    config = Criterion::default()
        .warm_up_time(std::time::Duration::from_millis(500))
        .measurement_time(std::time::Duration::from_secs(2));
    targets = decoding, encoding, durations
}
criterion_main!(benches);
