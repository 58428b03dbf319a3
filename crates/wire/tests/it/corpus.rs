//! Runs the bodies of the fuzz targets on their seed corpus and on random changes of it, so that
//! they run with every test, not only with a fuzzer.

use std::path::Path;

use wire::checks;

const CHANGES_PER_SEED: u32 = 2_000;

/// A small pseudo-random generator (xorshift), the same in every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize
    }

    fn byte(&mut self) -> u8 {
        self.next() as u8
    }

    /// Changes, removes, repeats or adds bytes in up to four places.
    fn change(&mut self, bytes: &mut Vec<u8>) {
        for _ in 0..=self.next() % 4 {
            let at = self.next() % (bytes.len() + 1);
            match self.next() % 5 {
                0 => bytes.truncate(at),
                1 => bytes.insert(at, self.byte()),
                2 => bytes.extend_from_within(at..),
                _ if at < bytes.len() => {
                    let interesting = [0, 1, 0x7f, 0x80, 0xff, self.byte(), bytes[at] ^ 1];
                    bytes[at] = interesting[self.next() % interesting.len()];
                }
                _ => bytes.push(self.byte()),
            }
        }
    }
}

fn run(target: &str, check: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../fuzz/corpus")
        .join(target);
    let mut random = Random(0x5e77_ee00_0000_0001);
    let mut seeds = 0;
    for entry in std::fs::read_dir(&folder).expect("the corpus is there") {
        let path = entry.expect("a readable folder").path();
        let seed = std::fs::read(&path).expect("a readable seed");
        seeds += 1;
        check(&seed);
        for _ in 0..CHANGES_PER_SEED {
            let mut bytes = seed.clone();
            random.change(&mut bytes);
            check(&bytes);
        }
    }
    assert!(seeds > 0, "{target} has no seed");
}

#[test]
fn frame() {
    run("frame", checks::frame);
}

#[test]
fn request_infos() {
    run("request_infos", checks::request_infos);
}

#[test]
fn request() {
    run("request", checks::request);
}

#[test]
fn response() {
    run("response", checks::response);
}

#[test]
fn push() {
    run("push", checks::push);
}

#[test]
fn text() {
    run("text", checks::text);
}
