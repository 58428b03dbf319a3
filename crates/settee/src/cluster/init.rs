//! `settee cluster init`: creates a cluster in etcd.

use std::time::Duration;

use cluster::agreed::{ClusterId, ClusterName, FEATURE_LEVEL, Key, Meta, name_key};
use cluster::coord::{Answer, Compare, LeaseId, Op, Range, Request, Txn};
use etcd::{ClusterAddress, Endpoints, Etcd, Problem, ProblemKind, check_name};
use serde_json::json;

use crate::exit::{Failure, Sysexit};
use crate::output;
use crate::serve::{EtcdArgs, etcd_options};

/// Feature level of a new cluster without TLS: the lowest that its nodes must support.
const FEATURE_LEVEL_PLAIN: u32 = 1;

/// Longest wait for etcd.
const PATIENCE: Duration = Duration::from_secs(10);

/// Create a cluster in etcd: its name, and the identity by which its nodes recognize each other
///
/// Nodes join it by `settee serve --cluster`. Several clusters may share one etcd. Exit code 65 when a cluster of
/// that name exists.
#[derive(Debug, clap::Args)]
pub(crate) struct InitArgs {
    /// Name of the cluster
    name: String,
    /// Members of etcd: http://HOST:PORT,http://HOST:PORT,... or the same with https://
    #[arg(
        long,
        env = "SETTEE_ETCD",
        value_name = "ADDRESSES",
        default_value = "http://127.0.0.1:2379"
    )]
    etcd: Endpoints,
    #[command(flatten)]
    login: EtcdArgs,
    /// Duration of a node's lease in seconds, 1 to 60; a failover takes some 3 seconds more
    /// [default: 5]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=60))]
    lease: Option<u64>,
    /// Let its nodes connect to each other over TLS: each must be started with --kv-tls-port, a certificate for
    /// its advertised host, and --peer-ca
    #[arg(long)]
    tls: bool,
    /// Print the new cluster as JSON
    #[arg(long, env = "SETTEE_JSON")]
    json: bool,
}

/// Runs the command.
///
/// # Errors
/// etcd cannot be asked, or has a cluster of that name.
pub(super) fn run(args: &InitArgs) -> Result<(), Failure> {
    check_name(&args.name).map_err(Failure::usage)?;
    let options = etcd_options(&args.login, &args.etcd)?;
    let version = Etcd::check(&options)?;
    let address = ClusterAddress {
        endpoints: options.endpoints.clone(),
        name: args.name.clone(),
    };
    let etcd = Etcd::start(options, Box::new(|_, _| {}));
    let etcd = etcd.map_err(|error| Failure::new(Sysexit::Os, error.to_string()))?;
    let cluster = ClusterId(random()?);
    make(&etcd, args, cluster)?;
    let uuid = format!("{:032x}", cluster.0);
    if args.json {
        return output::print_json(&json!({
            "name": args.name,
            "uuid": uuid,
            "address": address.to_string(),
            "etcd": version.to_string(),
        }));
    }
    let text = format!(
        "cluster {} is made in etcd {version}; start each of its nodes by\n  \
         settee serve --cluster {address} --node-name NAME{}\n",
        args.name,
        if args.tls {
            " --kv-tls-port N --peer-ca FILE"
        } else {
            ""
        }
    );
    output::print(text.as_bytes())
}

fn make(etcd: &Etcd, args: &InitArgs, cluster: ClusterId) -> Result<(), Failure> {
    let name = args.name.as_str();
    let uuid = format!("{:032x}", cluster.0);
    let meta = Meta {
        name: name.to_owned(),
        feature_level: if args.tls {
            FEATURE_LEVEL
        } else {
            FEATURE_LEVEL_PLAIN
        },
        tls: args.tls,
        epoch: 1,
        lease_ms: args.lease.map(|seconds| seconds * 1_000),
        secret: format!("{:032x}{:032x}", random()?, random()?),
    };
    let entry = text(&ClusterName { uuid });
    let keys = [name_key(name), Key::Meta.text(cluster)];
    let put = |(key, value)| Op::Put {
        key,
        value,
        lease: LeaseId(0),
    };
    let values = [entry.clone(), text(&meta)];
    let txn = Txn {
        compare: keys
            .iter()
            .map(|key| Compare::Version(key.clone(), 0))
            .collect(),
        then: keys.into_iter().zip(values).map(put).collect(),
    };
    match etcd.ask(Request::Txn(txn), PATIENCE) {
        Ok(Answer::Committed(_)) => Ok(()),
        Ok(_) => Err(Failure::new(
            Sysexit::Data,
            format!("there is a cluster named {name} in this etcd"),
        )),
        Err(_) if was_made(etcd, name, &entry) => Ok(()),
        Err(problem) => Err(problem.into()),
    }
}

fn text(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).expect("its fields are texts and numbers")
}

/// Checks after a missing answer whether the cluster was created.
fn was_made(etcd: &Etcd, name: &str, entry: &str) -> bool {
    let get = Request::Get(Range::Key(name_key(name)));
    let Ok(Answer::Got { found, .. }) = etcd.ask(get, PATIENCE) else {
        return false;
    };
    found.first().is_some_and(|kv| kv.value == entry)
}

fn random() -> Result<u128, Failure> {
    let mut bytes = [0; 16];
    let filled = getrandom::fill(&mut bytes);
    filled.map_err(|error| Failure::new(Sysexit::Os, format!("no random numbers: {error}")))?;
    Ok(u128::from_be_bytes(bytes))
}

impl From<Problem> for Failure {
    fn from(problem: Problem) -> Self {
        let code = match problem.kind() {
            ProblemKind::Unreachable | ProblemKind::Refused => Sysexit::Unavailable,
            ProblemKind::NotEtcd => Sysexit::Protocol,
            ProblemKind::NoQuorum => Sysexit::TempFail,
            ProblemKind::Login => Sysexit::NoPerm,
        };
        Self::new(code, problem.to_string())
    }
}
