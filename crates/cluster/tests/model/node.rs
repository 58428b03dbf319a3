//! Steps of a node: each function returns whether the step is possible.

use cluster::{Phase, majority};

use crate::bugs::Bug;
use crate::setup::{Cluster, Level};
use crate::state::{
    Acknowledged, Chain, Copy, CopyState, Log, NODES, Position, Promise, Row, State, VBUCKETS,
    VBucket,
};

/// Prepares the next durable write and sends it.
pub(crate) fn write(budget: u8, state: &mut State, node: usize, vb: usize) -> bool {
    let vb = &mut state.vbs[vb];
    let copy = &mut vb.copies[node];
    if state.left.writes == 0 || !copy.is_active() {
        return false;
    }
    let number = budget - state.left.writes + 1;
    state.left.writes -= 1;
    copy.log.push(number);
    let term = usize::from(copy.term);
    vb.sent[term] = copy.log;
    vb.acknowledged[term][node].memory = copy.log.len;
    true
}

/// Opens the stream of `term`, or takes its next change.
pub(crate) fn replicate(cluster: &Cluster, vb: &mut VBucket, node: usize, term: usize) -> bool {
    let copy = &mut vb.copies[node];
    let sent = &vb.sent[term];
    let sends = usize::from(vb.sender[term]) == node;
    if sent.is_empty() || sends || !vb.row.has_copy(node) || copy.unreadable {
        return false;
    }
    let stale = term < usize::from(copy.term);
    if stale && !cluster.has(Bug::ZombieStreamAccepted) {
        return false;
    }
    if term > usize::from(copy.term) {
        copy.step_down();
        copy.term = term as u8;
    }
    if stale {
        // The stream that the seal should have ended continues.
        if copy.is_active() || !sent.writes().starts_with(copy.log.writes()) {
            return false;
        }
    }
    if !copy.streams && !stale {
        copy.log.roll_back_to(sent);
        copy.persisted = copy.persisted.min(copy.log.len);
        copy.streams = true;
        (copy.sealed, copy.complete) = (false, false);
        copy.stored_term = copy.term;
    } else if copy.log.len < sent.len {
        copy.log.follow(sent);
    } else {
        return false;
    }
    let acknowledged = &mut vb.acknowledged[term][node];
    acknowledged.memory = acknowledged.memory.max(copy.log.len);
    acknowledged.disk = acknowledged.disk.max(copy.persisted);
    true
}

/// Writes the log to disk, and acknowledges it if a stream of the copy's term is open.
pub(crate) fn persist(vb: &mut VBucket, node: usize) -> bool {
    let copy = &mut vb.copies[node];
    if copy.persisted == copy.log.len {
        return false;
    }
    copy.persisted = copy.log.len;
    if copy.streams || copy.is_active() {
        let acknowledged = &mut vb.acknowledged[usize::from(copy.term)][node];
        acknowledged.disk = acknowledged.disk.max(copy.persisted);
    }
    true
}

/// Writes all copies to disk.
pub(crate) fn persist_all(vb: &mut VBucket) {
    for node in 0..NODES {
        persist(vb, node);
    }
}

/// Whether a majority of `chain` acknowledged `seqno` at `term`.
fn is_durable(
    vb: &VBucket,
    chain: Chain,
    term: u8,
    acknowledged: impl Fn(Acknowledged) -> bool,
) -> bool {
    let by = &vb.acknowledged[usize::from(term)];
    let count = chain.nodes().filter(|node| acknowledged(by[*node])).count();
    count >= majority(chain.len())
}

/// Whether a majority of `chain` has `seqno` on disk.
pub(crate) fn is_on_disk(vb: &VBucket, chain: Chain, term: u8, seqno: u8) -> bool {
    is_durable(vb, chain, term, |acknowledged| acknowledged.disk >= seqno)
}

/// Acknowledges a durable write to its client.
pub(crate) fn acknowledge(
    cluster: &Cluster,
    state: &mut State,
    node: usize,
    vb_id: usize,
    seqno: u8,
) -> bool {
    let vb = &state.vbs[vb_id];
    let copy = &vb.copies[node];
    let number = usize::from(copy.log.writes()[usize::from(seqno) - 1]) - 1;
    if state.promises[number].term > 0 {
        return false;
    }
    let mut needed = seqno;
    if !cluster.has(Bug::FailoverEntryNotAwaited) {
        needed = needed.max(copy.log.failover_seqno(copy.term));
    }
    let from_memory =
        cluster.levels[number] == Level::Majority || cluster.has(Bug::AcknowledgedFromMemory);
    let has = |by: Acknowledged| needed <= if from_memory { by.memory } else { by.disk };
    let change = copy
        .row
        .change
        .filter(|change| change.phase >= Phase::TwoChains && !cluster.has(Bug::TwoChainsForgotten));
    let durable = is_durable(vb, copy.row.chain, copy.term, has)
        && change.is_none_or(|change| is_durable(vb, change.to, copy.term, has));
    if durable {
        state.promises[number] = Promise {
            vb: vb_id as u8,
            term: copy.term,
        };
    }
    durable
}

/// Seals the copy at `term`, which is an intent of the controller.
pub(crate) fn seal(cluster: &Cluster, vb: &mut VBucket, node: usize, term: usize) -> bool {
    let copy = &mut vb.copies[node];
    let sent = term <= usize::from(vb.row.highest_term()) && vb.row.has_copy(node);
    if !sent || term <= usize::from(copy.term) {
        return false;
    }
    if copy.unreadable {
        vb.stopped[term][node] = true;
        if cluster.has(Bug::UnreadableSealed) {
            let (branch, seqno) = (1, 0);
            vb.answers[term][node] = Position { branch, seqno };
        }
        return true;
    }
    copy.complete |= copy.is_active();
    copy.step_down();
    copy.term = term as u8;
    copy.sealed = true;
    if !cluster.has(Bug::SealForgotten) {
        copy.stored_term = copy.term;
    }
    vb.answers[term][node] = copy.log.position();
    vb.complete[term][node] = copy.complete;
    true
}

/// Delivers a row to the node: the newest, or the previous one.
pub(crate) fn apply(
    cluster: &Cluster,
    state: &mut State,
    on: (usize, usize),
    previous: bool,
) -> bool {
    let (node, vb) = on;
    let vb = &state.vbs[vb];
    let row = if previous { vb.previous } else { vb.row };
    let concerned = vb.copies[node].is_active() || row.chain.active() == node;
    concerned && apply_row(cluster, state, on, row)
}

/// Applies a row if it is newer than the applied one.
fn apply_row(cluster: &Cluster, state: &mut State, (node, vb): (usize, usize), row: Row) -> bool {
    let vb = &mut state.vbs[vb];
    let copy = &mut vb.copies[node];
    if row.revision < copy.revision && cluster.has(Bug::MapGoesBack) {
        state.went_back = true;
    } else if row.revision <= copy.revision {
        return false;
    }
    copy.revision = row.revision;
    if copy.is_active() && row.term > copy.term {
        copy.step_down();
    } else if copy.is_active() {
        copy.row = row;
    } else if copy.sealed && row.term == copy.term && row.chain.active() == node {
        activate(vb, node, row);
    }
    true
}

/// Makes the sealed copy active, with a failover entry.
fn activate(vb: &mut VBucket, node: usize, row: Row) {
    let copy = &mut vb.copies[node];
    let term = usize::from(copy.term);
    copy.state = CopyState::Active;
    (copy.sealed, copy.complete) = (false, false);
    copy.stored_term = copy.term;
    copy.row = row;
    copy.log.add_failover_entry(copy.term);
    vb.sent[term] = copy.log;
    vb.sender[term] = node as u8;
    vb.acknowledged[term][node] = Acknowledged {
        memory: copy.log.len,
        disk: copy.persisted,
    };
}

/// W - 1 replicas answer that they are at the term of the active copy.
pub(crate) fn confirm(vb: &mut VBucket, node: usize) -> bool {
    let copy = vb.copies[node];
    let chain = copy.row.chain;
    let agree = chain
        .nodes()
        .filter(|other| *other != node && vb.copies[*other].term == copy.term);
    vb.copies[node].confirmed = agree.count() >= majority(chain.len()) - 1;
    vb.copies[node].confirmed
}

/// Takes a lease. A node that was marked as failed reads the map first.
pub(crate) fn renew_lease(cluster: &Cluster, state: &mut State, node: usize) -> bool {
    if state.leases[node] {
        return false;
    }
    if state.failed[node] && !cluster.has(Bug::FailedNodeRenewsLease) {
        for vb in 0..VBUCKETS {
            let row = state.vbs[vb].row;
            apply_row(cluster, state, (node, vb), row);
        }
        state.failed[node] = false;
    }
    state.leases[node] = true;
    true
}

/// Crashes and restarts the node: data that is not on disk is lost.
pub(crate) fn crash(cluster: &Cluster, state: &mut State, node: usize) -> bool {
    if state.left.crashes == 0 {
        return false;
    }
    state.left.crashes -= 1;
    restart(cluster, state, node);
    true
}

/// Stops and restarts the node. Nothing is lost: what was active has all that it acknowledged.
pub(crate) fn stop(cluster: &Cluster, state: &mut State, node: usize) -> bool {
    if state.left.stops == 0 {
        return false;
    }
    state.left.stops -= 1;
    let complete = |vb: &VBucket| vb.copies[node].complete || vb.copies[node].is_active();
    let (complete, lost) = (state.vbs.map(|vb| complete(&vb)), state.lost);
    for vb in &mut state.vbs {
        persist(vb, node);
    }
    restart(cluster, state, node);
    state.lost = lost;
    for (vb, complete) in state.vbs.iter_mut().zip(complete) {
        vb.copies[node].complete = complete;
    }
    true
}

/// Crashes the node; at its start, its copy of a vBucket cannot be read.
pub(crate) fn damage(cluster: &Cluster, state: &mut State, (node, vb): (usize, usize)) -> bool {
    if state.left.damages == 0 || !state.vbs[vb].row.has_copy(node) {
        return false;
    }
    state.left.damages -= 1;
    restart(cluster, state, node);
    let copy = &mut state.vbs[vb].copies[node];
    (copy.log, copy.persisted) = (Log::default(), 0);
    copy.unreadable = !cluster.has(Bug::RenewedInPlace);
    true
}

/// Removes a copy that is in no chain.
pub(crate) fn remove(cluster: &Cluster, vb: &mut VBucket, node: usize) -> bool {
    // In cases without damages no copy comes back.
    let goes = cluster.budget.damages > 0 && !vb.row.has_copy(node);
    if goes {
        let (term, revision) = (vb.row.term, vb.copies[node].revision);
        vb.copies[node] = Copy {
            term,
            stored_term: term,
            revision,
            ..Copy::default()
        };
    }
    goes
}

fn restart(cluster: &Cluster, state: &mut State, node: usize) {
    state.lost[node] = true;
    state.leases[node] = false;
    for vb in &mut state.vbs {
        let copy = &mut vb.copies[node];
        copy.log.truncate(copy.persisted);
        copy.term = copy.stored_term;
        copy.complete = copy.is_active() && cluster.has(Bug::CrashCountsAsStop);
        copy.sealed &= cluster.has(Bug::RestartedCandidateActivates);
        if copy.is_active() && cluster.has(Bug::RestartedActiveServes) {
            vb.sent[usize::from(copy.term)] = copy.log;
        } else {
            copy.step_down();
        }
    }
}
