//! The directory of clusters by name: `/settee/names/<NAME>`.

use std::time::Duration;

use cluster::agreed::{ClusterId, ClusterName, name_key};
use cluster::coord::Range;

use crate::etcd::Etcd;
use crate::problem::{Problem, ProblemKind};

/// Longest wait of [`find`].
const PATIENCE: Duration = Duration::from_secs(10);

/// Finds the cluster with this name.
///
/// # Errors
/// etcd cannot be read, or has no such cluster.
pub fn find(etcd: &Etcd, name: &str) -> Result<ClusterId, Problem> {
    let (_, found) = etcd.read(Range::Prefix(name_key("")), PATIENCE)?;
    let refused = |sentence| Problem::new(ProblemKind::Refused, sentence);
    let (directory, key) = (name_key(""), name_key(name));
    let Some(entry) = found.iter().find(|kv| kv.key == key) else {
        let others: Vec<&str> = found
            .iter()
            .filter_map(|kv| kv.key.strip_prefix(&directory))
            .take(8)
            .collect();
        let others = match &*others.join(", ") {
            "" => "it holds none".to_owned(),
            some => format!("it holds {some}"),
        };
        let how = "`settee cluster init` makes one";
        return Err(refused(format!(
            "etcd holds no cluster named {name} ({others}); {how}"
        )));
    };
    let read: Option<ClusterName> = serde_json::from_str(&entry.value).ok();
    let uuid = read.and_then(|entry| u128::from_str_radix(&entry.uuid, 16).ok());
    uuid.map(ClusterId)
        .ok_or_else(|| refused(format!("{key} in etcd is not what this version writes")))
}
