//! Property test: two sites write the same document and exchange versions in any order; they
//! converge.

use std::collections::BTreeMap;

use model::{Cas, ConflictResolution, Draft, Kind, Meta, Now, Seqno};
use proptest::prelude::*;

use super::tests::{KEY, NOW, vbucket_of, write};
use crate::error::OpError;
use crate::types::{Outcome, StoreMode, VbConfig, WithMeta, Write};
use crate::vbucket::VBucket;

/// Time of two steps: so one step at each site may have the same time, and the same CAS.
const TICK_NS: u64 = 1 << 17;

#[derive(Clone, Copy, Debug)]
enum Step {
    /// A client writes at a site.
    Set(usize),
    /// A client deletes at a site.
    Delete(usize),
    /// A site offers its version to the other site; with `adds`, as an add where possible.
    Offer { from: usize, adds: bool },
    /// An earlier offer arrives again, late.
    Late {
        to: usize,
        back: prop::sample::Index,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let site = 0..2_usize;
    prop_oneof![
        4 => site.clone().prop_map(Step::Set),
        2 => site.clone().prop_map(Step::Delete),
        3 => (site.clone(), any::<bool>()).prop_map(|(from, adds)| Step::Offer { from, adds }),
        2 => (site, any::<prop::sample::Index>()).prop_map(|(to, back)| Step::Late { to, back }),
    ]
}

/// Both sites, and each value that existed, by its CAS and flags.
struct Sites {
    both: [VBucket; 2],
    values: BTreeMap<(Cas, u32), Vec<u8>>,
    offered: Vec<Meta>,
    steps: u64,
}

impl Sites {
    fn new(conflicts: ConflictResolution) -> Self {
        let site = || {
            vbucket_of(VbConfig {
                conflicts,
                ..VbConfig::default()
            })
        };
        Self {
            both: [site(), site()],
            values: BTreeMap::new(),
            offered: Vec::new(),
            steps: 0,
        }
    }

    fn now(&mut self) -> Now {
        self.steps += 1;
        let unix_ns = NOW.unix_ns + self.steps / 2 * TICK_NS;
        Now { unix_ns, ..NOW }
    }

    fn set(&mut self, site: usize) {
        let now = self.now();
        let value = format!("{site} wrote {}", self.steps).into_bytes();
        let flags = self.steps as u32;
        let meta = Meta {
            flags,
            ..Meta::default()
        };
        let mut write = Write {
            mode: StoreMode::Set,
            draft: Some(Draft::new(KEY, &value, &meta)),
            cas: Cas::ANY,
            preserve_expiry: false,
            durability: None,
        };
        match self.both[site].store(&mut write, now) {
            Ok(Outcome::Done(mutated)) => self.values.insert((mutated.cas, flags), value),
            other => panic!("{other:?}"),
        };
    }

    fn delete(&mut self, site: usize) {
        let now = self.now();
        match self.both[site].delete(KEY, Cas::ANY, None, now) {
            Ok(_) | Err(OpError::KeyNotFound) => {}
            Err(error) => panic!("{error:?}"),
        }
    }

    /// Returns a site's version, without its seqno.
    fn version(&mut self, site: usize) -> Option<Meta> {
        match self.both[site].get_meta(KEY, NOW) {
            Ok(Outcome::Done(found)) => Some(Meta {
                seqno: Seqno::ZERO,
                ..found.meta
            }),
            Err(OpError::KeyNotFound) => None,
            other => panic!("{other:?}"),
        }
    }

    fn value(&mut self, site: usize) -> Option<Vec<u8>> {
        match self.both[site].get(KEY, NOW) {
            Ok(Outcome::Done(got)) => Some(got.document.value().to_vec()),
            Err(OpError::KeyNotFound) => None,
            other => panic!("{other:?}"),
        }
    }

    fn offer(&mut self, from: usize, adds: bool) {
        if let Some(version) = self.version(from) {
            self.offered.push(version);
            self.take(1 - from, &version, adds);
        }
    }

    fn take(&mut self, to: usize, version: &Meta, adds: bool) {
        let gone = version.kind.is_tombstone();
        let value = self
            .values
            .get(&(version.cas, version.flags))
            .filter(|_| !gone);
        let offered = |adds| WithMeta {
            draft: Some(Draft::new(KEY, value.map_or(b"", Vec::as_slice), version)),
            adds,
            cas: Cas::ANY,
            resolves: true,
            regenerates_cas: false,
        };
        // If an add fails because the document exists, the version is set.
        let added = adds && !gone && write(&mut self.both[to], offered(true)).is_ok();
        if !added {
            let set = write(&mut self.both[to], offered(false));
            assert!(matches!(set, Ok(_) | Err(OpError::KeyExists)), "{set:?}");
        }
    }

    fn run(&mut self, step: Step) {
        match step {
            Step::Set(site) => self.set(site),
            Step::Delete(site) => self.delete(site),
            Step::Offer { from, adds } => self.offer(from, adds),
            Step::Late { to, back } => {
                if !self.offered.is_empty() {
                    let version = *back.get(&self.offered);
                    self.take(to, &version, false);
                }
            }
        }
    }
}

fn check(conflicts: ConflictResolution, steps: &[Step]) {
    let mut sites = Sites::new(conflicts);
    for step in steps {
        sites.run(*step);
    }
    let before = [sites.version(0), sites.version(1)];
    for from in [0, 1] {
        sites.offer(from, false);
    }
    let after = [sites.version(0), sites.version(1)];
    assert_eq!(after[0], after[1], "of {before:?}");
    assert_eq!(sites.value(0), sites.value(1));
    assert!(before.contains(&after[0]), "a version of neither site");
    // Once the sites agree, repeated offers change nothing.
    for version in sites.offered.clone() {
        sites.take(0, &version, false);
    }
    assert_eq!(sites.version(0), after[0]);
    let newest = |of: fn(&Meta) -> u64| before.iter().flatten().map(of).max();
    let kept = after[0];
    match conflicts {
        ConflictResolution::Revision => assert_eq!(kept.map(|one| one.rev), newest(|one| one.rev)),
        ConflictResolution::LastWrite => {
            assert_eq!(kept.map(|one| one.cas.0), newest(|one| one.cas.0));
        }
    }
    let deleted = kept.is_some_and(|one| one.kind != Kind::Mutation);
    assert_eq!(sites.value(0).is_none(), deleted || kept.is_none());
}

proptest! {
    #[test]
    fn two_sites_converge_by_revision(steps in prop::collection::vec(step(), 0..40)) {
        check(ConflictResolution::Revision, &steps);
    }

    #[test]
    fn two_sites_converge_by_the_last_write(steps in prop::collection::vec(step(), 0..40)) {
        check(ConflictResolution::LastWrite, &steps);
    }
}
