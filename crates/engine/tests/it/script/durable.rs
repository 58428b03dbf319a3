//! Script verbs of durable writes.

use std::collections::BTreeMap;

use engine::{Applied, Decision, OpError, ReplicaError, Requirement, VBucket};
use model::{DurabilityLevel, FailoverEntry, Now, Seqno, VbUuid};

type Options<'a> = BTreeMap<&'a str, &'a str>;

/// Returns the durability level of an option.
pub(crate) fn level(options: &Options<'_>, name: &str) -> Option<DurabilityLevel> {
    Some(match *options.get(name)? {
        "majority" => DurabilityLevel::Majority,
        "active" => DurabilityLevel::MajorityAndPersistOnActive,
        "persist" => DurabilityLevel::PersistToMajority,
        other => panic!("no such level: {other}"),
    })
}

/// Returns the requirement given by `level=` and `timeout=`.
pub(crate) fn requirement(options: &Options<'_>, now: Now) -> Option<Requirement> {
    let seconds: u64 = options
        .get("timeout")
        .map_or(30, |text| text.parse().expect("seconds"));
    Some(Requirement {
        level: level(options, "level")?,
        deadline_ns: now.mono_ns + seconds * 1_000_000_000,
    })
}

fn number(words: &[&str], index: usize) -> Seqno {
    Seqno(words[index].parse().expect("a seqno"))
}

/// Shows the decisions since the last call.
fn decided(vbucket: &mut VBucket) -> String {
    let decided = vbucket.take_outbox().decided;
    let parts: Vec<String> = decided
        .iter()
        .map(|one| match one.decision {
            Decision::Committed(mutated) => format!("{} committed {}", one.prepare, mutated.seqno),
            Decision::Ambiguous => format!("{} ambiguous", one.prepare),
        })
        .collect();
    if parts.is_empty() {
        return "nothing".into();
    }
    parts.join("; ")
}

fn applied(result: Result<Applied, ReplicaError>) -> String {
    match result {
        Ok(applied) if applied.snapshot_ended => "taken; snapshot ended".into(),
        Ok(_) => "taken".into(),
        Err(error) => error.to_string(),
    }
}

/// Runs the verb if it is one of this module.
pub(crate) fn run(
    vbucket: &mut VBucket,
    words: &[&str],
    now: Now,
) -> Option<Result<String, OpError>> {
    Some(Ok(match words[0] {
        "decided" => decided(vbucket),
        "overdue" => {
            vbucket.abort_overdue(now);
            decided(vbucket)
        }
        // ack NODE SEQNO
        "ack" => match vbucket.seqno_acknowledged(words[1], number(words, 2)) {
            Ok(()) => decided(vbucket),
            Err(error) => return Some(Err(error)),
        },
        "alarm" => {
            let at = vbucket.take_outbox().deadline_ns;
            at.map_or("none".into(), |at| {
                let seconds = (at - now.mono_ns) / 1_000_000_000;
                format!("in {seconds}")
            })
        }
        "prepares" => {
            let stats = vbucket.durability_stats();
            format!(
                "{} wait, prepared {}, completed {}",
                stats.tracked, stats.high_prepared, stats.high_completed
            )
        }
        "prepared-until" => vbucket.prepared_until().to_string(),
        "visible" => vbucket.visible_seqno().to_string(),
        // apply-commit KEY PREPARE SEQNO, apply-abort KEY PREPARE SEQNO
        "apply-commit" => applied(vbucket.apply_commit(
            &super::stored_key(words[1]),
            number(words, 2),
            number(words, 3),
        )),
        "apply-abort" => applied(vbucket.apply_abort(
            &super::stored_key(words[1]),
            number(words, 2),
            number(words, 3),
        )),
        "acknowledges" => vbucket.acknowledges().to_string(),
        // begun UUID SEQNO: the active node began this history.
        "begun" => {
            let uuid = VbUuid(words[1].parse().expect("a number"));
            let mut log = vbucket.failover_log().clone();
            let seqno = number(words, 2);
            log.begin(FailoverEntry { uuid, seqno });
            assert!(vbucket.adopt_failover_log(log));
            "taken".into()
        }
        "acknowledge" => {
            let seqno = vbucket.take_outbox().high_prepared;
            seqno.map_or("nothing".into(), |seqno| seqno.to_string())
        }
        _ => return None,
    }))
}
