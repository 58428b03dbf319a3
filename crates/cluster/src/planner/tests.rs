use proptest::prelude::*;

use super::*;
use crate::map::NodeId;

fn members(zones: &[u16]) -> Vec<Member> {
    let member = |(number, zone): (usize, &u16)| Member {
        node: NodeId(number as u16),
        zone: *zone,
    };
    zones.iter().enumerate().map(member).collect()
}

fn empty(vbuckets: usize, copies: usize) -> BucketChains {
    BucketChains {
        chains: vec![Chain::new(&[]).unwrap(); vbuckets],
        copies,
    }
}

fn planned(members: &[Member], buckets: &[BucketChains]) -> Vec<BucketChains> {
    let maps = plan(members, buckets).into_iter().zip(buckets);
    let bucket = |(chains, bucket): (Vec<Chain>, &BucketChains)| BucketChains {
        chains,
        copies: bucket.copies,
    };
    maps.map(bucket).collect()
}

/// Returns the copies and the active copies of each member.
fn counts(members: &[Member], buckets: &[BucketChains]) -> (Vec<usize>, Vec<usize>) {
    let chains = || buckets.iter().flat_map(|bucket| &bucket.chains);
    let copies = |member: &Member| chains().filter(|chain| chain.holds(member.node)).count();
    let active = |member: &Member| {
        let active = chains().filter(|chain| chain.active() == Some(member.node));
        active.count()
    };
    (
        members.iter().map(copies).collect(),
        members.iter().map(active).collect(),
    )
}

fn spread(counts: &[usize]) -> usize {
    counts.iter().max().unwrap() - counts.iter().min().unwrap()
}

/// Returns the largest deviation of a member from the mean, in thousandths of the mean.
fn imbalance(counts: &[usize]) -> usize {
    let sum: usize = counts.iter().sum();
    let off = counts
        .iter()
        .map(|count| (count * counts.len()).abs_diff(sum));
    (off.max().unwrap() * 1000).div_ceil(sum)
}

/// Work from one map to another.
#[derive(Debug, Default, PartialEq)]
struct Work {
    /// Copies to be built on nodes that have none of the vBucket.
    builds: usize,
    /// vBuckets whose active copy changes.
    takeovers: usize,
}

fn work(present: &[BucketChains], wanted: &[BucketChains]) -> Work {
    let mut work = Work::default();
    let chains = |maps: &[BucketChains]| {
        maps.iter()
            .flat_map(|map| map.chains.clone())
            .collect::<Vec<_>>()
    };
    for (present, wanted) in chains(present).iter().zip(chains(wanted)) {
        let built = wanted.nodes().iter().filter(|node| !present.holds(**node));
        work.builds += built.count();
        work.takeovers += usize::from(present.active() != wanted.active());
    }
    work
}

/// Returns a lower bound of any plan: copies that vBuckets lack, or copies that members lack for an equal share.
fn least_builds(members: &[Member], bucket: &BucketChains) -> usize {
    let stays = |node: &&NodeId| members.iter().any(|member| member.node == **node);
    let copies = bucket.copies.min(members.len());
    let lacks = |chain: &Chain| copies.saturating_sub(chain.nodes().iter().filter(stays).count());
    let lost: usize = bucket.chains.iter().map(lacks).sum();
    let share = bucket.chains.len() * copies / members.len();
    let (counts, _) = counts(members, std::slice::from_ref(bucket));
    let short = counts
        .iter()
        .map(|count| share.saturating_sub(*count))
        .sum();
    lost.max(short)
}

/// 100 nodes in 4 zones, 30 buckets of 1,024 vBuckets with 2 replicas.
fn large() -> (Vec<Member>, Vec<BucketChains>) {
    let zones: Vec<u16> = (0..100).map(|number| number % 4).collect();
    let members = members(&zones);
    let buckets = planned(&members, &vec![empty(1024, 3); 30]);
    (members, buckets)
}

/// Checks that the builds are within some per cent of the bound.
fn check_large(
    members: &[Member],
    before: &[BucketChains],
    after: &[BucketChains],
    per_cent: usize,
) {
    let (copies, active) = counts(members, after);
    assert!(imbalance(&copies) <= 10, "copies {}", imbalance(&copies));
    assert!(imbalance(&active) <= 10, "active {}", imbalance(&active));
    let least: usize = before.iter().map(|one| least_builds(members, one)).sum();
    let builds = work(before, after).builds;
    assert!(
        builds * 100 <= least * (100 + per_cent),
        "{builds} builds, {least} at least"
    );
}

#[test]
fn a_large_cluster_is_balanced() {
    let (members, buckets) = large();
    let (copies, active) = counts(&members, &buckets);
    assert!(imbalance(&copies) <= 10, "copies {}", imbalance(&copies));
    assert!(imbalance(&active) <= 10, "active {}", imbalance(&active));
    for chain in buckets.iter().flat_map(|bucket| &bucket.chains) {
        let mut zones: Vec<u16> = chain.nodes().iter().map(|node| node.0 % 4).collect();
        zones.sort_unstable();
        zones.dedup();
        assert_eq!(zones.len(), 3, "{chain:?}");
    }
}

#[test]
fn a_node_that_leaves_costs_its_copies() {
    let (mut members, before) = large();
    members.remove(17);
    let after = planned(&members, &before);
    check_large(&members, &before, &after, 2);
}

#[test]
fn a_node_that_joins_costs_its_share() {
    let (mut members, before) = large();
    members.push(Member {
        node: NodeId(100),
        zone: 0,
    });
    let after = planned(&members, &before);
    check_large(&members, &before, &after, 2);
}

#[test]
fn a_node_that_is_replaced_costs_its_copies() {
    let (mut members, before) = large();
    members[17].node = NodeId(200);
    let after = planned(&members, &before);
    check_large(&members, &before, &after, 2);
}

/// The bound ignores zones, so later plans may be a little further from it.
#[test]
fn balance_lasts_through_changes() {
    let (mut members, mut before) = large();
    for (leaves, joins) in [(3, 101), (50, 102), (70, 103), (9, 104), (33, 105)] {
        members.remove(leaves);
        let after = planned(&members, &before);
        check_large(&members, &before, &after, 3);
        members.push(Member {
            node: NodeId(joins),
            zone: joins % 4,
        });
        before = planned(&members, &after);
        check_large(&members, &after, &before, 3);
    }
}

#[test]
fn the_load_of_a_node_that_fails_is_spread() {
    let members = members(&[0; 30]);
    let buckets = planned(&members, &[empty(1024, 2)]);
    for member in &members {
        let active = buckets[0].chains.iter();
        let active = active.filter(|chain| chain.active() == Some(member.node));
        let mut heirs: Vec<NodeId> = active.map(|chain| chain.nodes()[1]).collect();
        heirs.sort_unstable();
        heirs.dedup();
        assert!(heirs.len() >= 15, "{} heirs of {member:?}", heirs.len());
    }
}

#[test]
fn few_nodes_divide_the_load_of_one_that_fails() {
    for (count, copies) in [(3, 2), (3, 3), (4, 2), (4, 3), (5, 2), (5, 3)] {
        let mut nodes = members(&vec![0; count]);
        let mut buckets = planned(&nodes, &[empty(1024, copies)]);
        assert!(uneven_heirs(&nodes, &buckets[0]) <= 3, "fresh, {count}");
        nodes.remove(1);
        buckets = planned(&nodes, &buckets);
        assert!(uneven_heirs(&nodes, &buckets[0]) <= 1024 / (count - 1) / 3);
        nodes.push(Member {
            node: NodeId(9),
            zone: 0,
        });
        buckets = planned(&nodes, &buckets);
        assert!(uneven_heirs(&nodes, &buckets[0]) <= 1024 / count / 3);
    }
}

/// Returns the largest difference of what two members take over if a third one fails.
fn uneven_heirs(members: &[Member], bucket: &BucketChains) -> usize {
    let shares = |failed: &Member| {
        let chains = || bucket.chains.iter();
        let of = |heir: &Member| {
            let is = |chain: &&Chain| chain.nodes().starts_with(&[failed.node, heir.node]);
            chains().filter(is).count()
        };
        let others = members.iter().filter(|member| member.node != failed.node);
        spread(&others.map(of).collect::<Vec<_>>())
    };
    members.iter().map(shares).max().unwrap()
}

#[test]
fn two_zones_have_copies_of_each_vbucket() {
    let members = members(&[0, 0, 0, 1]);
    let buckets = planned(&members, &[empty(64, 2)]);
    let both = |chain: &Chain| chain.nodes().contains(&NodeId(3));
    assert!(buckets[0].chains.iter().all(both));
}

#[test]
fn fewer_members_than_copies_have_one_each() {
    let members = members(&[0, 0]);
    let buckets = planned(&members, &[empty(16, 4)]);
    assert!(
        buckets[0]
            .chains
            .iter()
            .all(|chain| chain.nodes().len() == 2)
    );
    assert_eq!(plan(&[], &buckets)[0], buckets[0].chains);
}

#[test]
fn fewer_copies_drop_the_last_replicas() {
    let members = members(&[0, 1, 2]);
    let mut before = planned(&members, &[empty(64, 3)]);
    before[0].copies = 2;
    let after = planned(&members, &before);
    assert_eq!(work(&before, &after), Work::default());
    let (copies, active) = counts(&members, &after);
    assert!(spread(&copies) <= 1 && spread(&active) <= 1);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Whatever members come and go: copies are on different nodes, separated by zones, and balanced where
    /// zones permit. A plan of a planned map changes nothing.
    #[test]
    fn plans_are_valid_balanced_and_stable(
        zones in prop::collection::vec(0..4_u16, 1..12),
        leave in prop::collection::vec(any::<prop::sample::Index>(), 0..4),
        join in prop::collection::vec(0..4_u16, 0..4),
        copies in 1..=4_usize,
        vbuckets in prop::sample::select(vec![16_usize, 64, 128]),
    ) {
        let mut nodes = members(&zones);
        let mut buckets = planned(&nodes, &[empty(vbuckets, copies), empty(vbuckets, copies)]);
        check(&nodes, &buckets);
        for index in leave {
            if nodes.len() > 1 {
                nodes.remove(index.index(nodes.len()));
            }
        }
        for (number, zone) in join.into_iter().enumerate() {
            let node = NodeId(100 + number as u16);
            nodes.push(Member { node, zone });
        }
        buckets = planned(&nodes, &buckets);
        check(&nodes, &buckets);
        let again = planned(&nodes, &buckets);
        prop_assert_eq!(work(&buckets, &again), Work::default());
    }
}

fn check(members: &[Member], buckets: &[BucketChains]) {
    let mut zones: Vec<u16> = members.iter().map(|member| member.zone).collect();
    zones.sort_unstable();
    let mut sizes: Vec<usize> = zones.chunk_by(|a, b| a == b).map(<[u16]>::len).collect();
    sizes.sort_unstable();
    for bucket in buckets {
        let copies = bucket.copies.min(members.len());
        let room = |most: usize| sizes.iter().map(|size| most.min(*size)).sum::<usize>();
        let most = (1..=copies).find(|most| room(*most) >= copies).unwrap();
        for chain in &bucket.chains {
            assert_eq!(chain.nodes().len(), copies);
            let zone = |node: &NodeId| members.iter().find(|m| m.node == *node).unwrap().zone;
            let mut zones: Vec<u16> = chain.nodes().iter().map(zone).collect();
            zones.sort_unstable();
            let together = zones.chunk_by(|a, b| a == b).map(<[u16]>::len).max();
            assert!(together.unwrap() <= most, "{chain:?} of {members:?}");
        }
        let (counts, active) = counts(members, std::slice::from_ref(bucket));
        if sizes.first() == sizes.last() {
            assert!(spread(&counts) <= 1, "{counts:?}");
            assert!(spread(&active) <= 1, "active {active:?}");
        }
    }
}
