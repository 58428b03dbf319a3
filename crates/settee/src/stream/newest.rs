//! Current position of a bucket: history and high seqno of each vBucket.

use std::collections::BTreeSet;
use std::thread;
use std::time::{Duration, Instant};

use changes::{Position, VbPosition};
use client::{Client, ClientError, Nodes, Request};
use model::{Seqno, VbId};
use wire::response::FailoverEntries;
use wire::{Opcode, Status};

use super::broken::unserved;
use super::link::TICK;
use crate::exit::Failure;

/// Reads history and high seqno of every vBucket. Retries vBuckets that move meanwhile, for at most `patience`.
///
/// # Errors
/// A node refuses, or no node serves a vBucket.
pub(crate) fn newest(nodes: &mut Nodes, patience: Duration) -> Result<Position, Failure> {
    let mut position = Position::beginning(nodes.vbuckets());
    let mut missing: BTreeSet<u16> = (0..nodes.vbuckets()).collect();
    let began = Instant::now();
    loop {
        let mut lost = None;
        let owners = missing.iter().filter_map(|vb| nodes.owner(VbId(*vb)));
        for node in owners.collect::<BTreeSet<_>>() {
            let asked = nodes.open(node);
            match asked.and_then(|mut client| ask(&mut client, &mut position, &mut missing)) {
                Err(error) if error.is_lost() => lost = Some(error),
                asked => asked?,
            }
        }
        let Some(first) = missing.first() else {
            return Ok(position);
        };
        if began.elapsed() >= patience {
            return Err(lost.map_or_else(|| unserved(VbId(*first)), Failure::from));
        }
        thread::sleep(TICK);
        match nodes.refresh() {
            Err(error) if !error.is_lost() => return Err(error.into()),
            _ => {}
        }
    }
}

/// Reads the positions of a node's active vBuckets, and removes them from `missing`.
fn ask(
    client: &mut Client,
    position: &mut Position,
    missing: &mut BTreeSet<u16>,
) -> Result<(), ClientError> {
    let high = client.high_seqnos()?;
    let asked: Vec<Request<'_>> = high
        .iter()
        .map(|(vbucket, _)| Request {
            vbucket: *vbucket,
            ..Request::new(Opcode::GET_FAILOVER_LOG)
        })
        .collect();
    let logs = client.request_all(&asked)?;
    for ((vbucket, seqno), log) in high.into_iter().zip(logs) {
        let known = FailoverEntries::parse(&log.value).ok();
        let known = known.filter(|_| log.status == Status::SUCCESS);
        let newest = known.and_then(|log| log.iter().next());
        let place = position.places.get_mut(usize::from(vbucket.0));
        let (Some(place), Some(newest)) = (place, newest) else {
            continue;
        };
        if seqno > Seqno(0) {
            *place = VbPosition::at(newest.uuid, seqno);
        }
        missing.remove(&vbucket.0);
    }
    Ok(())
}
