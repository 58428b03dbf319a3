//! The file that tells which ports a node took.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process;

use server::Ports;

/// Writes `{"kv":N,"http":N}`, and those of `"memcached"`, `"kv_tls"`, `"https"`, `"query"` and `"search"` that are served, so that a reader sees the whole
/// text or no file: it is written next to its place and moved there.
pub(super) fn write(path: &Path, ports: Ports) -> io::Result<()> {
    let name = path
        .file_name()
        .ok_or_else(|| io::Error::other("names no file"))?;
    let mut beside = name.to_owned();
    beside.push(format!(".{}.tmp", process::id()));
    let beside = path.with_file_name(beside);
    // It is for other users, too, however private the node's own files are.
    let readable = || fs::set_permissions(&beside, fs::Permissions::from_mode(0o644));
    let done = fs::write(&beside, text(ports))
        .and_then(|()| readable())
        .and_then(|()| fs::rename(&beside, path));
    if done.is_err() {
        // What counts is why it failed; that nothing is left behind is a courtesy.
        drop(fs::remove_file(&beside));
    }
    done
}

fn text(ports: Ports) -> String {
    let others = [
        ("memcached", ports.memcached),
        ("kv_tls", ports.kv_tls),
        ("https", ports.https),
        ("query", ports.query),
        ("search", ports.search),
    ];
    let others: String = others
        .iter()
        .filter_map(|(name, port)| Some(format!(",\"{name}\":{}", (*port)?)))
        .collect();
    format!("{{\"kv\":{},\"http\":{}{others}}}\n", ports.kv, ports.http)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const PORTS: Ports = Ports {
        kv: 40001,
        http: 40002,
        memcached: None,
        kv_tls: None,
        https: None,
        query: None,
        search: None,
    };

    #[test]
    fn the_file_replaces_an_older_one_and_leaves_nothing_else() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ports.json");
        fs::write(&path, "older and much longer than what is to come").unwrap();
        write(&path, PORTS).unwrap();
        let value: serde_json::Value =
            serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
        assert_eq!(value, json!({ "kv": 40001, "http": 40002 }));
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn other_ports_are_there_if_served() {
        let ports = Ports {
            memcached: Some(40003),
            https: Some(40005),
            ..PORTS
        };
        assert_eq!(
            text(ports),
            "{\"kv\":40001,\"http\":40002,\"memcached\":40003,\"https\":40005}\n"
        );
    }

    #[test]
    fn a_directory_that_is_not_there_is_an_error_and_so_is_a_path_without_a_name() {
        let directory = tempfile::tempdir().unwrap();
        assert!(write(&directory.path().join("no/ports.json"), PORTS).is_err());
        assert!(write(Path::new("/"), PORTS).is_err());
        assert!(
            write(directory.path(), PORTS).is_err(),
            "a directory is no file"
        );
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }
}
