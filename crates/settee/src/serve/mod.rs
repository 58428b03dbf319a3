//! `settee serve`: converts flags, environment and file to a configuration, and runs the node.

mod args;
mod config;
mod log;
mod ports_file;
mod settings;
mod signals;

use std::net::SocketAddr;
use std::path::Path;
use std::pin::pin;
use std::process::ExitCode;

use etcd::Endpoints;
use rustix::fs::Mode;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit, umask};
use tokio::runtime;

pub(crate) use args::{EtcdArgs, ServeArgs};
pub(crate) use signals::{Signal, Signals, watch as watch_signals};

use crate::encryption::read_keys;
use crate::exit::{Failure, Sysexit};
use crate::output;
use config::ServeConfig;
use log::Logging;
use server::{Node, Ports, StartError};

/// Runs a node until a signal ends it.
///
/// Exit codes: 0 after a signal and a complete flush; otherwise a code of `sysexits`, with one line on standard
/// error that names the remedy.
#[expect(
    clippy::needless_pass_by_value,
    reason = "they are the caller's last word"
)]
pub(crate) fn run(args: ServeArgs) -> ExitCode {
    match serve(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

fn serve(args: &ServeArgs) -> Result<(), Failure> {
    let config = resolve(args)?;
    let logging = Logging::start(config.log_level, config.log_format);
    keep_files_private();
    raise_descriptors();
    // Signals are watched before the slow steps, so that none is lost during start-up.
    let mut signals = signals::watch()?;
    let waiting = runtime::Builder::new_current_thread()
        .build()
        .map_err(|error| Failure::new(Sysexit::Os, error.to_string()))?;
    let node = Node::start(config.node.clone()).map_err(|error| refusal(&error))?;
    let served = waiting.block_on(attend(&node, &config, &mut signals, |running| {
        reload(args, &node, running, &logging);
    }));
    tracing::info!("stopping: draining connections and flushing");
    let stopped = node
        .shutdown()
        .map_err(|error| Failure::new(Sysexit::Os, error));
    served.and(stopped)
}

/// Makes all later files of this process private to its user: documents, certificates, keys.
pub(crate) fn keep_files_private() {
    let others = Mode::RWXG | Mode::RWXO;
    umask(others);
}

/// Raises the number of file descriptors to the hard limit of the process. The soft limit is for programs that
/// may use `select`.
fn raise_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        ..limit
    };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::warn!(%error, "cannot raise the limit of descriptors");
    }
}

/// Announces the node and waits for the signal that ends it.
///
/// The ports file and the ready line are written once data is served, so that a client that waits for them meets
/// no warmup. Probes that watch the warmup need a fixed port.
async fn attend(
    node: &Node,
    config: &ServeConfig,
    signals: &mut Signals,
    reload: impl Fn(&ServeConfig),
) -> Result<(), Failure> {
    let ports = node.ports();
    let mut warming = pin!(node.warmed_up());
    let mut warm = false;
    loop {
        tokio::select! {
            warmed = warming.as_mut(), if !warm => {
                warmed.map_err(|reason| Failure::new(Sysexit::Data, reason))?;
                node.complete_collections();
                if let Some(path) = &config.ports_file {
                    write_ports_file(path, ports)?;
                }
                // A standard output that is closed, or on a full disk, does not stop the node.
                if let Err(error) = output::print(ready_line(config, ports).as_bytes()) {
                    tracing::warn!(%error, "the ready line cannot be written");
                }
                warm = true;
            }
            signal = signals.next() => match signal {
                Signal::Reload => reload(config),
                Signal::Terminate => return Ok(()),
            },
        }
    }
}

fn write_ports_file(path: &Path, ports: Ports) -> Result<(), Failure> {
    ports_file::write(path, ports).map_err(|error| {
        let line = format!("--ports-file {}: {error}", path.display());
        Failure::new(Sysexit::CantCreate, line)
    })
}

fn resolve(args: &ServeArgs) -> Result<ServeConfig, Failure> {
    let config = gather(args).and_then(|settings| ServeConfig::from_settings(&settings));
    config.map_err(|error| Failure::new(error.code, error.line))
}

fn gather(args: &ServeArgs) -> Result<settings::Settings, settings::ConfigError> {
    let environment = |name: &str| std::env::var_os(name);
    let read = |path: &Path| std::fs::read_to_string(path);
    settings::gather(args, &environment, &read, &read_keys)
}

/// Returns the options for etcd, for a command that asks etcd; uses the settings of `serve`.
///
/// # Errors
/// The settings are wrong.
pub(crate) fn etcd_options(etcd: &EtcdArgs, at: &Endpoints) -> Result<etcd::Options, Failure> {
    let args = ServeArgs {
        etcd: etcd.clone(),
        ..ServeArgs::default()
    };
    let options = gather(&args).and_then(|settings| config::etcd_options(&settings, at.clone()));
    options.map_err(|error| Failure::new(error.code, error.line))
}

fn refusal(error: &StartError) -> Failure {
    let code = match error {
        StartError::Listen { .. } | StartError::DataInUse(_) => Sysexit::Unavailable,
        StartError::Etcd(problem) => return problem.clone().into(),
        StartError::NotReplica { .. }
        | StartError::Cluster(_)
        | StartError::Incomplete(_)
        | StartError::Certificate(_)
        | StartError::DataKey(_) => Sysexit::Config,
        StartError::DataAccess(_) | StartError::NoSpace(_) => Sysexit::CantCreate,
        StartError::DataFormat(_) => Sysexit::Data,
        StartError::System(_) => Sysexit::Os,
    };
    Failure::new(code, error.to_string())
}

/// Output for which Testcontainers modules wait.
const AWAITED: &str = "settee stands in where tools wait for: Starting Couchbase Server -- Web UI available at \
                       http://<ip>:8091 and logs available in this output\n";

/// Returns the line on standard output that reports readiness.
fn ready_line(config: &ServeConfig, ports: Ports) -> String {
    use std::fmt::Write;
    let at = |port| SocketAddr::new(config.node.listen, port);
    let mut line = format!(
        "settee ready kv={} http=http://{}",
        at(ports.kv),
        at(ports.http)
    );
    let others = [
        ("kv-tls=", ports.kv_tls),
        ("https=https://", ports.https),
        ("memcached=", ports.memcached),
        ("query=http://", ports.query),
        ("search=http://", ports.search),
    ];
    for (name, port) in others {
        if let Some(port) = port {
            write!(line, " {name}{}", at(port)).expect("writing to a string does not fail");
        }
    }
    let data = match &config.node.data_dir {
        Some(path) => path.display().to_string(),
        None => "memory".to_owned(),
    };
    let names: Vec<_> = config
        .node
        .buckets
        .iter()
        .map(|bucket| &*bucket.name)
        .collect();
    let serves = match &config.node.cluster {
        Some(cluster) => format!("cluster={}", cluster.name),
        None if names.is_empty() => "bucket=none".to_owned(),
        None => format!("bucket={}", names.join(",")),
    };
    writeln!(line, " {serves} data={data}").expect("writing to a string does not fail");
    if config.node.provisionable.is_some() {
        line.push_str(AWAITED);
    }
    line
}

/// Reloads configuration, certificates and the login of etcd. The log level changes at once too; other settings need a
/// restart.
fn reload(args: &ServeArgs, node: &Node, running: &ServeConfig, logging: &Logging) {
    if let Err(reason) = node.reload_certificate() {
        tracing::error!(reason, "certificate not reloaded");
    }
    let fresh = match resolve(args) {
        Ok(fresh) => fresh,
        Err(failure) => {
            tracing::error!(reason = %failure, "configuration not reloaded");
            return;
        }
    };
    logging.set_level(fresh.log_level);
    let mut same = running.clone();
    same.log_level = fresh.log_level;
    if let (Some(cluster), Some(fresh)) = (&mut same.node.cluster, &fresh.node.cluster) {
        if let Err(reason) = node.renew_etcd(&fresh.etcd) {
            tracing::error!(reason, "certificates of etcd not reloaded");
        }
        cluster.etcd.login.clone_from(&fresh.etcd.login);
    }
    let same = same == fresh;
    if same {
        tracing::info!(
            level = fresh.log_level.to_string(),
            "configuration reloaded"
        );
    } else {
        tracing::warn!(
            level = fresh.log_level.to_string(),
            "configuration reloaded; settings other than log-level changed and need a restart"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{IpAddr, Ipv6Addr};

    fn config(given: &[(&str, &str)]) -> ServeConfig {
        let settings = settings::tests::from_flags(given);
        ServeConfig::from_settings(&settings).unwrap()
    }

    #[test]
    fn the_ready_line_is_the_documented_one() {
        let ports = Ports {
            kv: 11210,
            http: 8091,
            memcached: None,
            kv_tls: None,
            https: None,
            query: None,
            search: None,
        };
        let line = ready_line(&config(&[]), ports);
        let expected = "settee ready kv=127.0.0.1:11210 http=http://127.0.0.1:8091 \
                        bucket=default data=./settee-data\n";
        assert_eq!(line, expected);
    }

    #[test]
    fn ready_line_names_unusual_settings() {
        let mut config = config(&[("memory", "true"), ("bucket", "a"), ("bucket", "b")]);
        config.node.listen = IpAddr::V6(Ipv6Addr::LOCALHOST);
        let ports = Ports {
            kv: 1,
            http: 2,
            memcached: Some(3),
            kv_tls: Some(4),
            https: Some(5),
            query: None,
            search: None,
        };
        let expected = "settee ready kv=[::1]:1 http=http://[::1]:2 kv-tls=[::1]:4 https=https://[::1]:5 \
             memcached=[::1]:3 bucket=a,b data=memory\n";
        assert_eq!(ready_line(&config, ports), expected);
    }

    #[test]
    fn ready_line_of_a_member_names_its_cluster() {
        let config = config(&[
            ("cluster", "etcd://e/shop"),
            ("node-name", "a"),
            ("advertise", "a.example"),
            ("data-dir", "/d"),
        ]);
        let line = ready_line(&config, Ports::default());
        assert!(line.ends_with(" cluster=shop data=/d\n"), "{line}");
    }

    #[test]
    fn each_refusal_has_its_exit_code() {
        let taken = StartError::Listen {
            purpose: "kv",
            address: "127.0.0.1:11210".parse().unwrap(),
            source: std::io::Error::from(std::io::ErrorKind::AddrInUse),
        };
        let failure = refusal(&taken);
        assert_eq!(failure.code(), Sysexit::Unavailable);
        let line = failure.to_string();
        assert!(
            line.starts_with("cannot listen on 127.0.0.1:11210 for kv:"),
            "{line}"
        );
        let damaged = refusal(&StartError::DataFormat("./d: damaged".into()));
        assert_eq!(
            (damaged.code(), damaged.to_string().as_str()),
            (Sysexit::Data, "./d: damaged")
        );
    }
}
