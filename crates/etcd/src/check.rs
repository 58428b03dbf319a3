//! Check that the named members are an etcd that answers, for commands and for the start of a node.

use std::fmt;

use cluster::agreed::name_key;
use cluster::coord::{Range, Request};
use serde::Deserialize;
use serde_json::Value;

use crate::etcd::{Etcd, runtime};
use crate::members::Members;
use crate::messages::{Call, Headed, read};
use crate::options::Options;
use crate::problem::{Problem, ProblemKind};
use crate::refusal::{Refusal, one_line};

/// Oldest supported version of etcd.
const OLDEST: (u32, u32) = (3, 4);

/// Version of an etcd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtcdVersion(String);

impl fmt::Display for EtcdVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Etcd {
    /// Checks that at least one member answers, that all answering members are of one etcd, that it has a
    /// leader, and that the login is correct. Blocks for some seconds at most per member; not for threads of
    /// a runtime.
    ///
    /// # Errors
    /// The most informative problem.
    pub fn check(options: &Options) -> Result<EtcdVersion, Problem> {
        let broken = |error: std::io::Error| {
            Problem::new(ProblemKind::Refused, one_line(&error.to_string()))
        };
        let members = Members::new(options.clone()).map_err(broken)?;
        let runtime = runtime().map_err(broken)?;
        let checked = runtime.block_on(check(&members));
        runtime.shutdown_background();
        checked.map_err(Problem::from)
    }
}

async fn check(members: &Members) -> Result<EtcdVersion, Refusal> {
    let (mut version, mut well, mut problem) = (None, Vec::new(), None);
    for at in 0..members.len() {
        match version_of(members, at).await {
            Ok(answer) => {
                version.get_or_insert(answer);
                well.push(at);
            }
            Err(refusal) => problem = Some(telling(problem, refusal)),
        }
    }
    let Some(version) = version else {
        return Err(problem.expect("there is a member, and none is well"));
    };
    let directory = Request::Get(Range::Prefix(name_key("")));
    let agreed = members.call(&Call::of(&directory), read::<Headed>).await;
    agreed.map_err(|refusal| match refusal {
        Refusal::Problem(problem)
            if matches!(
                problem.kind(),
                ProblemKind::Unreachable | ProblemKind::NoQuorum
            ) =>
        {
            let sentence = format!(
                "etcd at {} has no leader: most of its members are away ({problem})",
                members.endpoint(well[0])
            );
            Problem::new(ProblemKind::NoQuorum, sentence).into()
        }
        other => other,
    })?;
    one_etcd(members, &well).await?;
    Ok(version)
}

/// Returns the more informative refusal: a problem other than an unreachable member wins.
fn telling(before: Option<Refusal>, next: Refusal) -> Refusal {
    match before {
        Some(Refusal::Problem(before)) if before.kind() != ProblemKind::Unreachable => {
            before.into()
        }
        Some(Refusal::Problem(before)) if matches!(&next, Refusal::Problem(next) if next.kind() == before.kind()) => {
            before.into()
        }
        _ => next,
    }
}

async fn version_of(members: &Members, at: usize) -> Result<EtcdVersion, Refusal> {
    #[derive(Deserialize)]
    struct VersionAnswer {
        etcdserver: String,
    }
    let answer = members.version_at(at).await?;
    let not_etcd = |why: String| {
        let problem = Problem::new(ProblemKind::NotEtcd, why);
        Err(problem.at(members.endpoint(at)).into())
    };
    let Ok(VersionAnswer { etcdserver }) = serde_json::from_slice(&answer) else {
        return not_etcd("it answers, but not as etcd would".to_owned());
    };
    let etcdserver = one_line(&etcdserver);
    let mut parts = etcdserver.split('.').map(str::parse::<u32>);
    let (Some(Ok(major)), Some(Ok(minor))) = (parts.next(), parts.next()) else {
        return not_etcd(format!(
            "its version is `{etcdserver}`, which is not one of etcd"
        ));
    };
    if (major, minor) < OLDEST {
        return not_etcd(format!(
            "etcd {etcdserver} is too old: 3.4 or newer is needed"
        ));
    }
    Ok(EtcdVersion(etcdserver))
}

/// Checks that members are of one etcd: writes to two would make two clusters of one name.
async fn one_etcd(members: &Members, well: &[usize]) -> Result<(), Refusal> {
    let mut first: Option<(usize, Value)> = None;
    for at in well.iter().copied() {
        let call = Call::of_member(&name_key(""));
        let Ok(Headed { header }) = members.call_at(at, &call, read).await else {
            continue;
        };
        match &first {
            None => first = Some((at, header.cluster_id)),
            Some((other, id)) if *id != header.cluster_id => {
                let (one, other) = (members.endpoint(*other), members.endpoint(at));
                let sentence = format!("{one} and {other} are members of different etcds");
                return Err(Problem::new(ProblemKind::NotEtcd, sentence).into());
            }
            Some(_) => {}
        }
    }
    Ok(())
}
