use super::*;
use clap::Parser;

/// Returns settings as if each pair was given as a flag.
pub(in crate::serve) fn from_flags(given: &[(&str, &str)]) -> Settings {
    let mut settings = Settings::new();
    for (name, value) in given {
        let (key, _) = SETTINGS.into_iter().find(|(key, _)| key == name).unwrap();
        let given = settings.entry(key);
        let given = given.or_insert(GivenSetting {
            origin: ValueOrigin::Flag,
            values: vec![],
        });
        given.values.push((*value).to_owned());
    }
    settings
}

/// An existing file.
const SECRET_FILE: &str = "true";

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    args: ServeArgs,
}

/// The three origins: flags, environment, and the text of `settee.toml`.
#[derive(Default)]
struct Places<'a> {
    flags: &'a [&'a str],
    environment: &'a [(&'a str, &'a str)],
    file: Option<&'a str>,
}

impl Places<'_> {
    fn gather(&self) -> Result<Settings, ConfigError> {
        let line = std::iter::once(&"serve").chain(self.flags);
        let args = Line::try_parse_from(line).unwrap().args;
        let environment = |name: &str| {
            let found = self.environment.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| OsString::from(value))
        };
        let read_file = |path: &Path| match self.file {
            Some(text) if path == Path::new("settee.toml") => Ok(text.to_owned()),
            _ if path == Path::new(SECRET_FILE) => Ok("open-sesame\nmore\n".to_owned()),
            _ => Err(io::Error::from(io::ErrorKind::NotFound)),
        };
        gather(&args, &environment, &read_file, &read_file)
    }

    fn values(&self, key: &str) -> Vec<String> {
        self.gather()
            .unwrap()
            .remove(key)
            .map(|given| given.values)
            .unwrap_or_default()
    }
}

/// Returns the reason why a file is refused.
fn file_error(text: &str) -> String {
    let places = Places {
        flags: &["--config", "settee.toml"],
        file: Some(text),
        ..Places::default()
    };
    let error = places.gather().unwrap_err();
    assert_eq!(error.code, Sysexit::Config);
    assert!(!error.line.contains('\n'), "{}", error.line);
    error.line
}

#[test]
fn no_settings_are_gathered_if_none_are_given() {
    assert_eq!(Places::default().gather().unwrap(), Settings::new());
}

#[test]
fn flag_over_environment_over_file() {
    let file = Some("kv-port = 3\nhttp-port = 3\nthreads = 3");
    let environment = &[
        ("SETTEE_CONFIG", "settee.toml"),
        ("SETTEE_KV_PORT", "2"),
        ("SETTEE_HTTP_PORT", "2"),
    ];
    let places = Places {
        flags: &["--kv-port", "1"],
        environment,
        file,
    };
    assert_eq!(places.values("kv-port"), ["1"]);
    assert_eq!(places.values("http-port"), ["2"]);
    assert_eq!(places.values("threads"), ["3"]);
    let settings = places.gather().unwrap();
    assert_eq!(settings["kv-port"].written("kv-port"), "--kv-port");
    assert_eq!(
        settings["http-port"].written("http-port"),
        "SETTEE_HTTP_PORT"
    );
    assert_eq!(
        settings["threads"].written("threads"),
        "settee.toml: threads"
    );
}

#[test]
fn file_named_by_flag_is_read() {
    let environment = &[("SETTEE_CONFIG", "other.toml")];
    let flags = &["--config", "settee.toml"];
    let places = Places {
        flags,
        environment,
        file: Some("threads = 3"),
    };
    assert_eq!(places.values("threads"), ["3"]);
}

#[test]
fn every_key_is_a_flag_a_variable_and_a_key_of_the_file() {
    for (key, kind) in SETTINGS {
        let (flag, variable) = (format!("--{key}"), environment_name(key));
        let flags: &[&str] = match key {
            _ if kind == Switch => &[&flag],
            // Flags are visible in process lists.
            "peer-password" | "etcd-password" | "encryption-keys" => &["--config", "settee.toml"],
            _ => &[&flag, "true"],
        };
        assert_eq!(
            Places {
                flags,
                file: match key {
                    "peer-password" => Some("peer-password = \"true\""),
                    "etcd-password" => Some("etcd-password = \"true\""),
                    "encryption-keys" => Some("encryption-keys = \"true\""),
                    _ => None,
                },
                ..Places::default()
            }
            .values(key),
            ["true"],
            "{key}"
        );
        let environment: &[_] = &[(variable.as_str(), "true")];
        assert_eq!(
            Places {
                environment,
                ..Places::default()
            }
            .values(key),
            ["true"],
            "{key}"
        );
        let file = format!("{key} = \"true\"");
        let flags: &[_] = &["--config", "settee.toml"];
        let places = Places {
            flags,
            file: Some(&file),
            ..Places::default()
        };
        assert_eq!(places.values(key), ["true"], "{key}");
    }
}

#[test]
fn the_password_of_a_peer_comes_from_one_place() {
    let places = Places {
        flags: &["--peer-password-file", SECRET_FILE],
        ..Places::default()
    };
    assert_eq!(places.values("peer-password"), ["open-sesame"]);
    let places = Places {
        flags: &["--peer-password-file", "nowhere"],
        ..Places::default()
    };
    assert_eq!(places.gather().unwrap_err().code, Sysexit::NoInput);
    let places = Places {
        flags: &["--peer-password-file", SECRET_FILE],
        environment: &[("SETTEE_PEER_PASSWORD", "hush")],
        ..Places::default()
    };
    let error = places.gather().unwrap_err();
    assert!(
        error.line.contains("SETTEE_PEER_PASSWORD"),
        "{}",
        error.line
    );
    assert!(!error.line.contains("hush"), "{}", error.line);
}

#[test]
fn buckets_are_repeated_listed_or_separated_by_commas() {
    let expected = ["a", "b:64:ephemeral"];
    let flags = &["--bucket", "a", "--bucket", "b:64:ephemeral"];
    assert_eq!(
        Places {
            flags,
            ..Places::default()
        }
        .values("bucket"),
        expected
    );
    let environment = &[("SETTEE_BUCKET", "a, b:64:ephemeral")];
    assert_eq!(
        Places {
            environment,
            ..Places::default()
        }
        .values("bucket"),
        expected
    );
    let file = Some("bucket = [\"a\", \"b:64:ephemeral\"]");
    let places = Places {
        environment: &[("SETTEE_CONFIG", "settee.toml")],
        file,
        flags: &[],
    };
    assert_eq!(places.values("bucket"), expected);
    // A list replaces a list: buckets of two origins are not mixed.
    let places = Places {
        flags: &["--bucket", "c"],
        environment,
        file: None,
    };
    assert_eq!(places.values("bucket"), ["c"]);
}

#[test]
fn an_empty_variable_counts_as_absent() {
    let environment = &[("SETTEE_KV_PORT", ""), ("SETTEE_CONFIG", "")];
    assert_eq!(
        Places {
            environment,
            ..Places::default()
        }
        .gather()
        .unwrap(),
        Settings::new()
    );
}

#[cfg(unix)]
#[test]
fn variable_without_utf8_is_named() {
    use std::os::unix::ffi::OsStringExt;
    let environment =
        |name: &str| (name == "SETTEE_LISTEN").then(|| OsString::from_vec(b"\xff".to_vec()));
    let read_file = |_: &Path| Err(io::Error::from(io::ErrorKind::NotFound));
    let error = gather(&ServeArgs::default(), &environment, &read_file, &read_file).unwrap_err();
    assert_eq!(error.line, "SETTEE_LISTEN \"\u{fffd}\": must be UTF-8");
}

#[test]
fn a_file_that_cannot_be_read_is_named_with_its_flag() {
    let error = Places {
        flags: &["--config", "no.toml"],
        ..Places::default()
    }
    .gather()
    .unwrap_err();
    assert_eq!(error.code, Sysexit::NoInput);
    let start = "--config no.toml: must be a readable TOML file: ";
    assert!(error.line.starts_with(start), "{}", error.line);
    let environment = &[("SETTEE_CONFIG", "no.toml")];
    let error = Places {
        environment,
        ..Places::default()
    }
    .gather()
    .unwrap_err();
    assert!(
        error.line.starts_with("SETTEE_CONFIG no.toml: "),
        "{}",
        error.line
    );
}

#[test]
fn invalid_toml_is_reported_with_its_line() {
    let line = file_error("threads = 2\nkv-port = = 3\n");
    assert!(
        line.starts_with("settee.toml: line 2: is no TOML: "),
        "{line}"
    );
}

#[test]
fn unknown_key_suggests_nearest_key() {
    for (wrong, meant) in [
        ("kv_port", "kv-port"),
        ("kvport", "kv-port"),
        ("KV-Port", "kv-port"),
        ("buckets", "bucket"),
        ("data_dri", "data-dir"),
        ("user-name", "username"),
        ("log-levle", "log-level"),
    ] {
        let expected = format!("settee.toml: {wrong}: is no setting; did you mean {meant}?");
        assert_eq!(file_error(&format!("{wrong} = 1")), expected);
    }
    let line = file_error("colour = 1");
    assert!(
        line.starts_with("settee.toml: colour: is no setting; there are advertise, "),
        "{line}"
    );
    assert!(file_error("config = \"x\"").contains("config: is no setting"));
    assert!(file_error("[server]\nthreads = 1").contains("server: is no setting"));
}

#[test]
fn values_of_the_wrong_type_are_named_with_what_is_allowed() {
    for (text, expected) in [
        (
            "kv-port = 1.5",
            "settee.toml: kv-port 1.5: must be a text or a whole number",
        ),
        ("memory = 1", "settee.toml: memory 1: must be true or false"),
        (
            "password = 12345",
            "settee.toml: password ***: must be a text",
        ),
        (
            "listen = [\"a\"]",
            "settee.toml: listen [\"a\"]: must be a text or a whole number",
        ),
    ] {
        assert_eq!(file_error(text), expected);
    }
    for text in [
        "bucket = []",
        "bucket = [1]",
        "bucket = 1",
        "bucket = {a = 1}",
    ] {
        let line = file_error(text);
        assert!(line.contains("must be a text or a list of texts"), "{line}");
    }
}
