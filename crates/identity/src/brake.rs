//! Slows down logins of addresses from which wrong ones came.
//!
//! Exponential back-off per address: after some wrong logins in a row, those that follow are judged
//! one after the other, at a distance that doubles with each wrong one up to half a second. An early
//! login waits for its turn. One that would wait for too long is refused unjudged and with a delay, so
//! that a repeated attempt costs time. A right login ends it. What is remembered is bounded.
//!
//! Sans I/O: time is a parameter, in monotonic nanoseconds.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use parking_lot::Mutex;

const MS: u64 = 1_000_000;
/// Wrong logins in a row that cost nothing: mistyped passwords, clients that try each mechanism.
const FREE_FAILURES: u32 = 8;
/// Distance of the next two, which doubles with each wrong one.
const SPACING_NS: u64 = 25 * MS;
const SPACING_NS_MAX: u64 = 500 * MS;
/// The longest wait for a turn, and that of a login that is refused unjudged.
const WAIT_NS_MAX: u64 = 2_000 * MS;
/// An address from which nothing wrong came for so long is forgotten.
const FORGET_NS: u64 = 60_000 * MS;
/// Addresses that are remembered; the one that was quiet for longest gives way.
const PEERS_MAX: usize = 4096;
/// Least time between two lines of the log about an address.
const LINE_NS: u64 = 1_000 * MS;

/// Wrong logins after which a connection is closed: more than a client has mechanisms to try.
pub const FAILURES_PER_CONNECTION: u32 = 8;

/// When a login may be judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoginTurn {
    /// Now.
    Now,
    /// After this long.
    After(Duration),
    /// Not at all: too many wait already. It is refused after this long.
    Refused(Duration),
}

/// What is remembered of an address.
#[derive(Clone, Copy, Debug, Default)]
struct Peer {
    /// Wrong logins since the last right one.
    failures: u32,
    last_failure_ns: u64,
    /// When the next login may be judged.
    next_ns: u64,
    /// Wrong logins that no line of the log tells of.
    untold: u32,
    /// When the last line was written.
    told_ns: Option<u64>,
}

impl Peer {
    fn spacing_ns(&self) -> u64 {
        let doublings = self.failures.saturating_sub(FREE_FAILURES).min(16);
        (SPACING_NS << doublings).min(SPACING_NS_MAX)
    }

    fn is_forgotten(&self, now_ns: u64) -> bool {
        self.untold == 0 && now_ns.saturating_sub(self.last_failure_ns) > FORGET_NS
    }

    /// The count that a line of the log is to tell now, if it is time for one.
    fn line(&mut self, now_ns: u64) -> Option<u32> {
        let due = |told: u64| now_ns.saturating_sub(told) >= LINE_NS;
        if self.untold == 0 || !self.told_ns.is_none_or(due) {
            return None;
        }
        self.told_ns = Some(now_ns);
        Some(std::mem::take(&mut self.untold))
    }
}

/// Addresses from which wrong logins came lately.
#[derive(Debug, Default)]
pub struct LoginBrake {
    peers: Mutex<HashMap<IpAddr, Peer>>,
}

impl LoginBrake {
    /// When a login from `address` may be judged. The call reserves that turn.
    pub fn turn(&self, address: IpAddr, now_ns: u64) -> LoginTurn {
        let mut peers = self.peers.lock();
        let Some(peer) = peers.get_mut(&key(address)) else {
            return LoginTurn::Now;
        };
        if peer.failures < FREE_FAILURES || peer.is_forgotten(now_ns) {
            return LoginTurn::Now;
        }
        let at_ns = peer.next_ns.max(now_ns);
        let wait_ns = at_ns - now_ns;
        if wait_ns > WAIT_NS_MAX {
            return LoginTurn::Refused(Duration::from_nanos(WAIT_NS_MAX));
        }
        peer.next_ns = at_ns + peer.spacing_ns();
        match wait_ns {
            0 => LoginTurn::Now,
            _ => LoginTurn::After(Duration::from_nanos(wait_ns)),
        }
    }

    /// Notes a right login.
    pub fn succeeded(&self, address: IpAddr) {
        let mut peers = self.peers.lock();
        if let Some(peer) = peers.get_mut(&key(address)) {
            peer.failures = 0;
            peer.next_ns = 0;
        }
    }

    /// Notes a wrong login, or one that was refused unjudged. Returns the number of those that a line of
    /// the log is to tell of now, if it is time for one.
    pub fn failed(&self, address: IpAddr, now_ns: u64) -> Option<u32> {
        let mut peers = self.peers.lock();
        let key = key(address);
        if !peers.contains_key(&key) && peers.len() >= PEERS_MAX {
            forget_one(&mut peers);
        }
        let peer = peers.entry(key).or_default();
        if peer.is_forgotten(now_ns) {
            peer.failures = 0;
        }
        peer.failures = peer.failures.saturating_add(1);
        peer.untold = peer.untold.saturating_add(1);
        peer.last_failure_ns = now_ns;
        peer.line(now_ns)
    }

    /// Lines of the log that are due, and forgets addresses that were quiet for long.
    pub fn lines_due(&self, now_ns: u64) -> Vec<(IpAddr, u32)> {
        let mut peers = self.peers.lock();
        let mut lines = Vec::new();
        peers.retain(|address, peer| {
            lines.extend(peer.line(now_ns).map(|count| (*address, count)));
            !peer.is_forgotten(now_ns)
        });
        lines
    }
}

/// What counts as one address: of IPv6 the network, since one machine has all of its addresses.
fn key(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from(u128::from(address) >> 64 << 64).into(),
        address @ IpAddr::V4(_) => address,
    }
}

/// Removes the address that was quiet for longest.
fn forget_one(peers: &mut HashMap<IpAddr, Peer>) {
    let oldest = peers.iter().min_by_key(|(_, peer)| peer.last_failure_ns);
    if let Some(address) = oldest.map(|(address, _)| *address) {
        peers.remove(&address);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 7));

    /// Wrong logins that are judged within a second, however often one is tried.
    fn judged_within_a_second(brake: &LoginBrake, from_ns: u64) -> u32 {
        let mut judged = 0;
        for ms in 0..1000 {
            let now_ns = from_ns + ms * MS;
            if brake.turn(PEER, now_ns) == LoginTurn::Now {
                judged += 1;
                brake.failed(PEER, now_ns);
            }
        }
        judged
    }

    #[test]
    fn wrong_logins_come_ever_more_slowly_and_a_right_one_ends_that() {
        let brake = LoginBrake::default();
        for _ in 0..FREE_FAILURES {
            assert_eq!(brake.turn(PEER, 0), LoginTurn::Now, "a typo costs nothing");
            brake.failed(PEER, 0);
        }
        let other = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
        assert!(judged_within_a_second(&brake, 0) < 10);
        assert_eq!(brake.turn(other, 1), LoginTurn::Now);
        let later = 10_000 * MS;
        assert!(judged_within_a_second(&brake, later) <= 2);
        brake.succeeded(PEER);
        assert_eq!(brake.turn(PEER, later + 1000 * MS), LoginTurn::Now);
        assert_eq!(brake.turn(PEER, later + 1000 * MS), LoginTurn::Now);
    }

    #[test]
    fn few_wait_each_for_a_turn_of_its_own_and_for_a_bounded_time() {
        let brake = LoginBrake::default();
        for _ in 0..100 {
            brake.failed(PEER, 0);
        }
        let longest = Duration::from_nanos(WAIT_NS_MAX);
        let mut waits = Vec::new();
        for _ in 0..1000 {
            match brake.turn(PEER, 0) {
                LoginTurn::Now => waits.push(Duration::ZERO),
                LoginTurn::After(wait) => waits.push(wait),
                LoginTurn::Refused(wait) => assert_eq!(wait, longest),
            }
        }
        let spacing = SPACING_NS_MAX;
        let turns: Vec<_> = (0..=WAIT_NS_MAX / spacing)
            .map(|turn| Duration::from_nanos(turn * spacing))
            .collect();
        assert_eq!(waits, turns);
        let quiet = WAIT_NS_MAX + FORGET_NS;
        assert!(
            brake.lines_due(quiet).len() == 1,
            "what was counted is told"
        );
        assert!(brake.lines_due(quiet).is_empty() && brake.peers.lock().is_empty());
    }

    #[test]
    fn there_is_a_line_a_second_that_counts() {
        let brake = LoginBrake::default();
        let mut lines = Vec::new();
        for ms in 0..2500 {
            lines.extend(brake.failed(PEER, ms * MS));
        }
        lines.extend(brake.lines_due(2600 * MS).iter().map(|(_, count)| count));
        assert_eq!(lines, [1, 1000, 1000], "the rest is not due yet");
        let rest = brake.lines_due(3000 * MS);
        assert_eq!(rest, [(PEER, 499)]);
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let brake = LoginBrake::default();
        let address = |n: u32| IpAddr::from(n.to_be_bytes());
        for n in 0..(PEERS_MAX as u32 + 100) {
            brake.failed(address(n), u64::from(n));
        }
        let peers = brake.peers.lock();
        assert_eq!(peers.len(), PEERS_MAX);
        assert!(!peers.contains_key(&address(99)) && peers.contains_key(&address(100)));
    }

    #[test]
    fn a_network_of_ipv6_is_one_address() {
        let brake = LoginBrake::default();
        for n in 0..100_u16 {
            let address = Ipv6Addr::new(0x2001, 0xdb8, 0, 1, 0, 0, 0, n);
            brake.failed(address.into(), 0);
        }
        let same = Ipv6Addr::new(0x2001, 0xdb8, 0, 1, 9, 9, 9, 9);
        let other = Ipv6Addr::new(0x2001, 0xdb8, 0, 2, 0, 0, 0, 1);
        let mapped: Ipv6Addr = "::ffff:192.0.2.7".parse().unwrap();
        brake.turn(same.into(), 0);
        assert_ne!(brake.turn(same.into(), 0), LoginTurn::Now);
        assert_eq!(brake.turn(other.into(), 0), LoginTurn::Now);
        assert_eq!(key(mapped.into()), PEER);
    }
}
