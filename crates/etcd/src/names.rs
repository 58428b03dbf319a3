//! The directory of clusters by name: `/settee/names/<NAME>`.

use std::time::Duration;

use cluster::agreed::{ClusterId, ClusterName, name_key};
use cluster::coord::{Answer, Range, Request};

use crate::etcd::Etcd;

/// Longest wait of [`find`].
const PATIENCE: Duration = Duration::from_secs(10);

/// Finds the cluster with this name.
pub fn find(etcd: &Etcd, name: &str) -> Result<ClusterId, String> {
    let range = Range::Prefix(name_key(""));
    let answer = etcd.ask(Request::Get(range), PATIENCE);
    let Answer::Got { found, .. } = answer.map_err(|problem| problem.to_string())? else {
        return Err("etcd gave no answer to a question".to_owned());
    };
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
        return Err(format!(
            "etcd holds no cluster named {name} ({others}); {how}"
        ));
    };
    let read: Option<ClusterName> = serde_json::from_str(&entry.value).ok();
    let uuid = read.and_then(|entry| u128::from_str_radix(&entry.uuid, 16).ok());
    uuid.map(ClusterId)
        .ok_or_else(|| format!("{key} in etcd is not what this version writes"))
}
