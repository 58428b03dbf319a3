//! Steps of the controller. Every write of a row is a transaction that fails for a replaced controller.

use cluster::{NodeId, Phase, Promotion};

use crate::bugs::Bug;
use crate::node::is_on_disk;
use crate::setup::Cluster;
use crate::state::{Chain, Move, Row, State, TERMS, VBucket};

/// Elects another controller. The former one keeps its old view.
pub(crate) fn replace(state: &mut State) -> bool {
    if state.left.controllers == 0 {
        return false;
    }
    state.left.controllers -= 1;
    state.old_view = Some(state.vbs.map(|vb| vb.row));
    true
}

/// Writes a row of a vBucket.
fn write_row(state: &mut State, vb: usize, row: Row) {
    let vb = &mut state.vbs[vb];
    state.went_back |= row.highest_term() < vb.row.highest_term();
    vb.previous = vb.row;
    vb.row = Row {
        revision: vb.row.revision + 1,
        ..row
    };
}

/// Writes the intent to seal at the next term, and marks the active copy's node as failed.
pub(crate) fn fail_over(state: &mut State, vb: usize) -> bool {
    let row = state.vbs[vb].row;
    let term = row.highest_term() + 1;
    if state.left.failovers == 0 || row.chain.len() == 1 || usize::from(term) >= TERMS {
        return false;
    }
    state.left.failovers -= 1;
    state.failed[row.chain.active()] = true;
    write_row(
        state,
        vb,
        Row {
            intent: term,
            ..row
        },
    );
    true
}

/// Marks a node as failed whatever copies it has, like a node that has only replicas.
pub(crate) fn mark(cluster: &Cluster, state: &mut State, node: usize) -> bool {
    if !cluster.clocks || state.left.failovers == 0 {
        return false;
    }
    state.left.failovers -= 1;
    state.failed[node] = true;
    true
}

/// Whether an active copy may serve: its node's lease is valid, or W - 1 replicas confirmed its term.
pub(crate) fn may_serve(state: &State, node: usize, vb: usize) -> bool {
    state.leases[node] || state.vbs[vb].copies[node].confirmed
}

/// Whether the old active copy confirmed the seal, or cannot serve any longer: the rest of its lease and L
/// are over, its node is still marked as failed so that the lease is not renewed, and too few replicas are
/// left to confirm.
fn old_active_is_over(cluster: &Cluster, state: &State, vb: usize, row: &Row) -> bool {
    let old = row.chain.active();
    let stopped = state.vbs[vb].stopped[usize::from(row.intent)][old];
    if !cluster.clocks || stopped || state.vbs[vb].answer(old, row.intent).is_some() {
        return true;
    }
    let lease = state.leases[old] && !cluster.has(Bug::LeaseTrustedTooLong);
    let confirmed =
        state.vbs[vb].copies[old].confirmed && !cluster.has(Bug::ConfirmationTrustedTooLong);
    state.failed[old] && !lease && !confirmed
}

/// Returns the row after a promotion, as the code under test decides it.
fn promoted(cluster: &Cluster, vb: &VBucket, row: &Row) -> Option<Row> {
    if row.intent == 0 {
        return None;
    }
    let nodes: Vec<NodeId> = row.chain.nodes().map(|node| NodeId(node as u16)).collect();
    let term = u64::from(row.intent);
    let mut promotion = Promotion::new(cluster::Chain::new(&nodes)?, term);
    let mut missing = cluster.has(Bug::OneSealTooFew);
    for (at, node) in row.chain.nodes().enumerate() {
        let mut answer = vb.answer(node, row.intent).map(cluster::Position::from);
        if at == 0 && cluster.has(Bug::OldActiveLeftOut) {
            answer = None;
        }
        if at > 0 && answer.is_none() && std::mem::take(&mut missing) {
            answer = Some(cluster::Position::default());
        }
        if let Some(mut position) = answer {
            if cluster.has(Bug::BranchIgnored) {
                position.branch = 0;
            }
            if cluster.has(Bug::LowerPreparedChosen) {
                position.prepared = u64::MAX - position.prepared;
            }
            promotion.answer(nodes[at], term, position);
        }
        let stopped = vb.stopped[usize::from(row.intent)][node];
        if stopped || cluster.has(Bug::OldActiveCounts) {
            promotion.stopped(nodes[at], term);
        }
    }
    let chain = promotion.chosen().ok()?;
    let chain: Vec<usize> = chain
        .nodes()
        .iter()
        .map(|node| usize::from(node.0))
        .collect();
    Some(Row {
        chain: Chain::new(&chain),
        term: row.intent,
        intent: 0,
        change: None,
        ..*row
    })
}

/// Writes the row with the chosen copy first. This takes a move back.
pub(crate) fn promote(cluster: &Cluster, state: &mut State, vb: usize) -> bool {
    let row = state.vbs[vb].row;
    let Some(new) = promoted(cluster, &state.vbs[vb], &row) else {
        return false;
    };
    if !old_active_is_over(cluster, state, vb, &row) {
        return false;
    }
    let old = row.chain.active();
    if state.vbs[vb].answer(old, row.intent).is_none() {
        state.lost[old] = true;
    }
    write_row(state, vb, new);
    true
}

/// Writes the former row again, if the old active copy was active when it was sealed: it has all that it
/// acknowledged.
pub(crate) fn take_back(state: &mut State, vb: usize) -> bool {
    let row = state.vbs[vb].row;
    let (term, active) = (row.intent, row.chain.active());
    let complete = state.vbs[vb].complete[usize::from(term)][active];
    if term == 0 || !complete || state.vbs[vb].answer(active, term).is_none() {
        return false;
    }
    let (intent, change) = (0, None);
    write_row(
        state,
        vb,
        Row {
            term,
            intent,
            change,
            ..row
        },
    );
    true
}

/// Promotes by a replaced controller, as if transactions compared nothing.
pub(crate) fn old_promote(cluster: &Cluster, state: &mut State, vb: usize) -> bool {
    let row = state.old_view.map(|view| view[vb]);
    let new = row.and_then(|row| promoted(cluster, &state.vbs[vb], &row));
    if let Some(new) = new {
        state.old_view = None;
        write_row(state, vb, new);
    }
    new.is_some()
}

/// Returns the chain of a renewal: without copies that cannot be read, or with those that were removed.
fn renewed(cluster: &Cluster, vb: &VBucket, all: &[usize]) -> Chain {
    let readable = |node: &usize| !vb.copies[*node].unreadable;
    let whole: Vec<usize> = vb.row.chain.nodes().filter(readable).collect();
    if cluster.budget.damages == 0 || whole.len() < vb.row.chain.len() {
        return Chain::new(&whole);
    }
    let out = all
        .iter()
        .copied()
        .filter(|node| !vb.row.chain.holds(*node));
    let back = out.filter(readable);
    Chain::new(&whole.iter().copied().chain(back).collect::<Vec<_>>())
}

/// Begins the move that the case has for the vBucket.
pub(crate) fn start_move(cluster: &Cluster, state: &mut State, vb: usize) -> bool {
    let row = state.vbs[vb].row;
    let to = match cluster.to[vb] {
        [] => renewed(cluster, &state.vbs[vb], cluster.chains[vb]),
        to => Chain::new(to),
    };
    let idle = row.change.is_none() && row.intent == 0;
    if state.left.moves == 0 || to.len() == 0 || to == row.chain || !idle {
        return false;
    }
    state.left.moves -= 1;
    let phase = Phase::Build;
    let change = Some(Move { to, phase });
    write_row(state, vb, Row { change, ..row });
    true
}

/// Advances a move: from the first phase to two chains, and from there to the takeover when a majority of the
/// new chain has all data on disk.
pub(crate) fn advance(cluster: &Cluster, state: &mut State, vb: usize) -> bool {
    let row = state.vbs[vb].row;
    let Some(change) = row.change.filter(|_| row.intent == 0) else {
        return false;
    };
    let resumed = cluster.has(Bug::MoveResumedFromWrongPhase) && state.old_view.is_some();
    if change.phase == Phase::Build && !resumed {
        let phase = Phase::TwoChains;
        let change = Some(Move { phase, ..change });
        write_row(state, vb, Row { change, ..row });
        return true;
    }
    let copy = &state.vbs[vb].copies[row.chain.active()];
    let follows = copy.is_active() && copy.row.is_in(Phase::TwoChains);
    let caught_up = || is_on_disk(&state.vbs[vb], change.to, copy.term, copy.log.len);
    let ready = follows && (cluster.has(Bug::CatchUpSkipped) || caught_up());
    let term = row.highest_term() + 1;
    if !(ready || resumed && change.phase == Phase::Build) || usize::from(term) >= TERMS {
        return false;
    }
    let phase = Phase::TakeOver;
    let change = Some(Move { phase, ..change });
    write_row(
        state,
        vb,
        Row {
            change,
            intent: term,
            ..row
        },
    );
    true
}

/// Writes the new chain when the old active copy is sealed and the new one has all of its data.
pub(crate) fn finish_move(cluster: &Cluster, state: &mut State, vb: usize) -> bool {
    let row = state.vbs[vb].row;
    let Some(change) = row.change.filter(|_| row.is_in(Phase::TakeOver)) else {
        return false;
    };
    let answer = |node| state.vbs[vb].answer(node, row.intent);
    let (Some(old), Some(new)) = (answer(row.chain.active()), answer(change.to.active())) else {
        return false;
    };
    let complete = state.vbs[vb].complete[usize::from(row.intent)][row.chain.active()];
    let all = new >= old && (complete || cluster.has(Bug::RestartedActiveDrained));
    if !all && !cluster.has(Bug::TakeoverUndrained) {
        return false;
    }
    let chain = change.to;
    let term = row.intent;
    write_row(
        state,
        vb,
        Row {
            chain,
            term,
            intent: 0,
            change: None,
            ..row
        },
    );
    true
}
