//! Cases to explore: small clusters with few faults.

use crate::bugs::Bug;
use crate::model::{KEPT, MAPS_GROW, ONE_SERVES};
use crate::setup::Cluster;
use crate::setup::Level::{Majority, PersistToMajority};
use crate::state::Budget;

const NOTHING: Budget = Budget {
    writes: 0,
    crashes: 0,
    failovers: 0,
    moves: 0,
    controllers: 0,
    damages: 0,
    stops: 0,
};

/// One vBucket of three copies, without any events.
const THREE_COPIES: Cluster = Cluster {
    bug: None,
    chains: [&[0, 1, 2], &[]],
    to: [&[], &[]],
    levels: [PersistToMajority, Majority, PersistToMajority],
    clocks: false,
    budget: NOTHING,
};

/// A crash, and failovers of the present active copy.
const FAILOVER: Cluster = Cluster {
    budget: Budget {
        writes: 1,
        crashes: 1,
        failovers: 2,
        ..NOTHING
    },
    ..THREE_COPIES
};

/// Writes of both levels, with a crash.
const LEVELS: Cluster = Cluster {
    budget: Budget {
        writes: 2,
        crashes: 1,
        failovers: 1,
        ..NOTHING
    },
    ..THREE_COPIES
};

/// Histories that diverge and merge again, without crashes.
const BRANCHES: Cluster = Cluster {
    levels: [Majority; 3],
    budget: Budget {
        writes: 3,
        failovers: 2,
        ..NOTHING
    },
    ..THREE_COPIES
};

/// A third failover: the active copy of an earlier term is active again.
const ACTIVE_AGAIN: Cluster = Cluster {
    budget: Budget {
        writes: 2,
        failovers: 3,
        ..NOTHING
    },
    ..BRANCHES
};

/// One of two copies moves, with a crash and a failover at any moment.
const MOVE: Cluster = Cluster {
    chains: [&[], &[0, 1]],
    to: [&[], &[2, 1]],
    budget: Budget {
        writes: 1,
        crashes: 1,
        failovers: 1,
        moves: 1,
        controllers: 0,
        damages: 0,
        stops: 0,
    },
    ..THREE_COPIES
};

/// Another one of three copies becomes active by a move, with a crash at any moment.
const MOVE_ACTIVE: Cluster = Cluster {
    chains: [&[0, 1, 2], &[]],
    to: [&[1, 0, 2], &[]],
    levels: [Majority; 3],
    budget: Budget {
        writes: 1,
        crashes: 1,
        moves: 1,
        ..NOTHING
    },
    ..THREE_COPIES
};

/// One copy becomes two on other nodes, then one of them is lost. The controller changes.
const GROW: Cluster = Cluster {
    chains: [&[], &[0]],
    to: [&[], &[2, 1]],
    budget: Budget {
        writes: 1,
        crashes: 0,
        failovers: 1,
        moves: 1,
        controllers: 1,
        damages: 0,
        stops: 0,
    },
    ..THREE_COPIES
};

/// One copy becomes three.
const GROW_TO_THREE: Cluster = Cluster {
    to: [&[], &[2, 1, 0]],
    ..GROW
};

/// Leases and confirmations, with a crash and two failovers.
const LEASES: Cluster = Cluster {
    clocks: true,
    budget: Budget {
        crashes: 1,
        failovers: 2,
        ..NOTHING
    },
    ..THREE_COPIES
};

/// The controller is replaced in a failover.
const OLD_CONTROLLER: Cluster = Cluster {
    budget: Budget {
        writes: 1,
        failovers: 2,
        controllers: 1,
        ..NOTHING
    },
    ..THREE_COPIES
};

/// Two vBuckets on the same nodes: one loses its active copy while the other one moves.
const TWO_VBUCKETS: Cluster = Cluster {
    chains: [&[0, 1, 2], &[0, 1]],
    to: [&[], &[2, 1]],
    levels: [Majority; 3],
    clocks: true,
    budget: Budget {
        writes: 1,
        failovers: 1,
        moves: 1,
        ..NOTHING
    },
    ..THREE_COPIES
};

/// One of three copies becomes unreadable, another one restarts, and the present active copy is failed over.
const DAMAGE: Cluster = Cluster {
    budget: Budget {
        writes: 1,
        crashes: 1,
        failovers: 2,
        damages: 1,
        ..NOTHING
    },
    ..THREE_COPIES
};

/// Like `DAMAGE` in memory, with a write that the crash of one node must not lose.
const DAMAGE_IN_MEMORY: Cluster = Cluster {
    levels: [Majority; 3],
    ..DAMAGE
};

/// One of two copies becomes unreadable and is renewed, with a crash and a failover at any moment.
const RENEWAL: Cluster = Cluster {
    chains: [&[], &[0, 1]],
    budget: Budget {
        writes: 1,
        crashes: 1,
        failovers: 1,
        moves: 2,
        controllers: 0,
        damages: 1,
        stops: 0,
    },
    ..THREE_COPIES
};

/// Leases and confirmations, with an active copy that becomes unreadable.
const DAMAGED_LEASES: Cluster = Cluster {
    clocks: true,
    budget: Budget {
        failovers: 2,
        damages: 1,
        ..NOTHING
    },
    ..THREE_COPIES
};

/// A node stops, another one crashes, and active copies are replaced, or go on alone.
const STOP: Cluster = Cluster {
    levels: [Majority; 3],
    budget: Budget {
        writes: 1,
        crashes: 1,
        failovers: 1,
        stops: 1,
        ..NOTHING
    },
    ..THREE_COPIES
};

/// Leases and confirmations, with a node that stops.
const STOP_LEASES: Cluster = Cluster {
    clocks: true,
    budget: Budget {
        failovers: 2,
        stops: 1,
        ..NOTHING
    },
    ..THREE_COPIES
};

/// A node stops while its active copy moves.
const STOP_MOVE: Cluster = Cluster {
    budget: Budget {
        writes: 1,
        failovers: 1,
        moves: 1,
        stops: 1,
        ..NOTHING
    },
    ..MOVE_ACTIVE
};

/// Cases of a test run.
pub(crate) const CASES: [(&str, Cluster); 17] = [
    ("failover", FAILOVER),
    ("levels", LEVELS),
    ("branches", BRANCHES),
    ("move", MOVE),
    ("move of the active copy", MOVE_ACTIVE),
    ("grow", GROW),
    ("grow to three", GROW_TO_THREE),
    ("leases", LEASES),
    ("old controller", OLD_CONTROLLER),
    ("two vBuckets", TWO_VBUCKETS),
    ("damage", DAMAGE),
    ("damage, in memory", DAMAGE_IN_MEMORY),
    ("renewal", RENEWAL),
    ("damage and leases", DAMAGED_LEASES),
    ("stop", STOP),
    ("stop and leases", STOP_LEASES),
    ("stop in a move", STOP_MOVE),
];

/// Two vBuckets, and one event of each kind: write, crash, failover, move. Durability needs no clock.
pub(crate) const LARGEST: Cluster = Cluster {
    levels: [PersistToMajority, Majority, Majority],
    clocks: false,
    budget: Budget {
        writes: 1,
        crashes: 1,
        failovers: 1,
        moves: 1,
        controllers: 0,
        damages: 0,
        stops: 0,
    },
    ..TWO_VBUCKETS
};

/// Returns the case that finds a planted bug, and the rule that it breaks.
pub(crate) const fn case_for(bug: Bug) -> (Cluster, &'static str) {
    match bug {
        Bug::SealForgotten
        | Bug::LowerPreparedChosen
        | Bug::OneSealTooFew
        | Bug::AcknowledgedFromMemory
        | Bug::RestartedActiveServes
        | Bug::RestartedCandidateActivates => (FAILOVER, KEPT),
        Bug::OldActiveLeftOut => (LEVELS, KEPT),
        Bug::BranchIgnored | Bug::ZombieStreamAccepted => (BRANCHES, KEPT),
        Bug::FailoverEntryNotAwaited => (ACTIVE_AGAIN, KEPT),
        Bug::LeaseTrustedTooLong | Bug::ConfirmationTrustedTooLong | Bug::FailedNodeRenewsLease => {
            (LEASES, ONE_SERVES)
        }
        Bug::TwoChainsForgotten | Bug::CatchUpSkipped | Bug::MoveResumedFromWrongPhase => {
            (GROW, KEPT)
        }
        Bug::RestartedActiveDrained => (MOVE_ACTIVE, KEPT),
        Bug::TakeoverUndrained => (GROW_TO_THREE, KEPT),
        Bug::OldControllerWrites => (OLD_CONTROLLER, MAPS_GROW),
        Bug::MapGoesBack => (FAILOVER, MAPS_GROW),
        Bug::UnreadableSealed | Bug::RenewedInPlace => (DAMAGE, KEPT),
        Bug::OldActiveCounts => (DAMAGE_IN_MEMORY, KEPT),
        Bug::CrashCountsAsStop => (STOP, KEPT),
    }
}
