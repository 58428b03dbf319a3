//! The file with the ports of a node.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process;

use server::Ports;

/// Writes `{"kv":N,"http":N}`, and the ports in use of `"memcached"`, `"kv_tls"`, `"https"`, `"query"` and
/// `"search"`. The text is written to a temporary file, which is then renamed, so that a reader sees the whole
/// text or no file.
pub(super) fn write(path: &Path, ports: Ports) -> io::Result<()> {
    let name = path
        .file_name()
        .ok_or_else(|| io::Error::other("names no file"))?;
    let mut beside = name.to_owned();
    beside.push(format!(".{}.tmp", process::id()));
    let beside = path.with_file_name(beside);
    // The file is for other users too, although the node's own files are private.
    let readable = || fs::set_permissions(&beside, fs::Permissions::from_mode(0o644));
    let done = fs::write(&beside, text(ports)?)
        .and_then(|()| readable())
        .and_then(|()| fs::rename(&beside, path));
    if done.is_err() {
        // The reason of the failure matters; the removal is optional.
        drop(fs::remove_file(&beside));
    }
    done
}

fn text(ports: Ports) -> io::Result<String> {
    Ok(serde_json::to_string(&ports)? + "\n")
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
    fn ports_file_replaces_older_file_and_leaves_no_other() {
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
    fn ports_file_has_other_ports_if_served() {
        let ports = Ports {
            memcached: Some(40003),
            https: Some(40005),
            ..PORTS
        };
        assert_eq!(
            text(ports).unwrap(),
            "{\"kv\":40001,\"http\":40002,\"memcached\":40003,\"https\":40005}\n"
        );
    }

    #[test]
    fn ports_file_needs_existing_directory_and_file_name() {
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
