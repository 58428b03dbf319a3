//! Collects settings from three origins: a flag has priority over the environment, and the environment over the file.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::Value;
use toml::Value as TomlValue;

use self::SettingKind::{Plain, Secret, Switch, Text};
use super::args::ServeArgs;
use crate::connect::first_line;
use crate::exit::Sysexit;

/// Form of a setting's value in the file.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum SettingKind {
    /// A text or a whole number.
    Plain,
    /// True or false.
    Switch,
    /// A text even if it looks like a number.
    Text,
    /// A text that no message shows.
    Secret,
}

/// All settings, sorted. `config` names the file itself, so it is not a key of it.
pub(super) const SETTINGS: [(&str, SettingKind); 50] = [
    ("advertise", Plain),
    ("advertise-outside", Plain),
    ("bucket", Text),
    ("buckets-max", Plain),
    ("client-ca", Plain),
    ("client-cert", Plain),
    ("cluster", Plain),
    ("data-dir", Plain),
    ("demote", Switch),
    ("encryption-key-file", Plain),
    ("encryption-keys", Secret),
    ("etcd-ca", Plain),
    ("etcd-cert", Plain),
    ("etcd-insecure", Switch),
    ("etcd-key", Plain),
    ("etcd-password", Secret),
    ("etcd-password-file", Plain),
    ("etcd-username", Text),
    ("http-port", Plain),
    ("https-port", Plain),
    ("journal", Plain),
    ("kv-port", Plain),
    ("kv-tls-port", Plain),
    ("listen", Plain),
    ("log-format", Plain),
    ("log-level", Plain),
    ("memcached-bucket", Text),
    ("memcached-open", Switch),
    ("memcached-port", Plain),
    ("memcached-sasl", Switch),
    ("memory", Switch),
    ("node-name", Text),
    ("password", Secret),
    ("peer-ca", Plain),
    ("peer-cert", Plain),
    ("peer-insecure", Switch),
    ("peer-key", Plain),
    ("peer-password", Secret),
    ("peer-password-file", Plain),
    ("ports-file", Plain),
    ("provisionable", Switch),
    ("purge-age", Plain),
    ("query-port", Plain),
    ("replica-of", Secret),
    ("search-port", Plain),
    ("threads", Plain),
    ("tls-cert", Plain),
    ("tls-key", Plain),
    ("username", Text),
    ("zone", Plain),
];

fn kind_of(key: &str) -> SettingKind {
    let known = SETTINGS.into_iter().find(|(name, _)| *name == key);
    known.map_or(Plain, |(_, kind)| kind)
}

/// Whether the value of a setting must not be shown.
pub(super) fn is_secret(key: &str) -> bool {
    kind_of(key) == Secret
}

/// A mistake in the configuration: one line with the key, the value and the allowed values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ConfigError {
    pub(super) code: Sysexit,
    pub(super) line: String,
}

impl ConfigError {
    pub(super) fn new(code: Sysexit, line: impl fmt::Display) -> Self {
        // Values come from files of unknown origin; the reason must stay one line.
        let line = line.to_string().replace(['\n', '\r'], " ");
        Self { code, line }
    }
}

/// Origin of a value; the greater one has priority.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ValueOrigin {
    File(PathBuf),
    Environment,
    Flag,
}

/// The values of one key, all from the origin with the highest priority. Never empty; only `bucket` has several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct GivenSetting {
    pub(super) origin: ValueOrigin,
    pub(super) values: Vec<String>,
}

impl GivenSetting {
    /// The key as written by the user.
    pub(super) fn written(&self, key: &str) -> String {
        match &self.origin {
            ValueOrigin::Flag => format!("--{key}"),
            ValueOrigin::Environment => environment_name(key),
            ValueOrigin::File(path) => format!("{}: {key}", path.display()),
        }
    }

    /// Returns the exit code for a mistake at this origin.
    pub(super) fn exit_code(&self) -> Sysexit {
        match self.origin {
            ValueOrigin::Flag => Sysexit::Usage,
            ValueOrigin::Environment | ValueOrigin::File(_) => Sysexit::Config,
        }
    }
}

/// Given settings, by key.
pub(super) type Settings = BTreeMap<&'static str, GivenSetting>;

type Environment<'a> = &'a dyn Fn(&str) -> Option<OsString>;
type ReadFile<'a> = &'a dyn Fn(&Path) -> io::Result<String>;

/// Collects the settings. Environment and file system are parameters; `read_keys` reads a file of keys.
///
/// # Errors
/// The file cannot be read, is not TOML or has an unknown key; a variable is not UTF-8.
pub(super) fn gather(
    args: &ServeArgs,
    environment: Environment<'_>,
    read_file: ReadFile<'_>,
    read_keys: ReadFile<'_>,
) -> Result<Settings, ConfigError> {
    let mut settings = match config_path(args, environment)? {
        Some((path, written)) => from_file(&path, &written, read_file)?,
        None => Settings::new(),
    };
    for (key, _) in SETTINGS {
        if let Some(value) = variable(&environment_name(key), environment)? {
            let values = match key {
                "bucket" => value
                    .split(',')
                    .map(|part| part.trim().to_owned())
                    .collect(),
                _ => vec![value],
            };
            let origin = ValueOrigin::Environment;
            settings.insert(key, GivenSetting { origin, values });
        }
    }
    settings.extend(from_flags(args));
    for files in [
        ("peer-password-file", "peer-password"),
        ("etcd-password-file", "etcd-password"),
    ] {
        read_secret(&mut settings, files, &|path| {
            read_file(path).map(|text| first_line(&text).to_owned())
        })?;
    }
    let keys = ("encryption-key-file", "encryption-keys");
    read_secret(&mut settings, keys, read_keys)?;
    Ok(settings)
}

/// Returns the given flags; their names are those of the settings.
fn from_flags(args: &ServeArgs) -> Settings {
    let flags = serde_json::to_value(args).expect("flags are texts, lists of texts and switches");
    let mut settings = Settings::new();
    for (key, _) in SETTINGS {
        let values = match &flags[key] {
            Value::Bool(true) => vec!["true".to_owned()],
            Value::String(text) => vec![text.clone()],
            Value::Array(texts) if !texts.is_empty() => {
                let texts = texts.iter().filter_map(Value::as_str);
                texts.map(str::to_owned).collect()
            }
            _ => continue,
        };
        let origin = ValueOrigin::Flag;
        settings.insert(key, GivenSetting { origin, values });
    }
    settings
}

/// Replaces the name of a secret's file by its content, with the same origin.
fn read_secret(
    settings: &mut Settings,
    (file, key): (&'static str, &'static str),
    read: ReadFile<'_>,
) -> Result<(), ConfigError> {
    let Some(given) = settings.get(file).cloned() else {
        return Ok(());
    };
    let written = given.written(file);
    if let Some(other) = settings.get(key) {
        let other = other.written(key);
        let line = format!("{written}: must be left out where {other} is given");
        return Err(ConfigError::new(given.exit_code(), line));
    }
    let path = &given.values[0];
    let text = read(Path::new(path)).map_err(|error| {
        let line = format!("{written} {path}: must be a readable file: {error}");
        ConfigError::new(Sysexit::NoInput, line)
    })?;
    let secret = GivenSetting {
        values: vec![text],
        ..given
    };
    settings.insert(key, secret);
    Ok(())
}

fn environment_name(key: &str) -> String {
    format!("SETTEE_{}", key.replace('-', "_").to_ascii_uppercase())
}

/// Returns a variable. An empty one counts as not set, since shells and service files leave them behind.
fn variable(name: &str, environment: Environment<'_>) -> Result<Option<String>, ConfigError> {
    let Some(value) = environment(name).filter(|value| !value.is_empty()) else {
        return Ok(None);
    };
    let text = value.into_string().map_err(|value| {
        let value = value.to_string_lossy().into_owned();
        ConfigError::new(Sysexit::Config, format!("{name} {value:?}: must be UTF-8"))
    });
    text.map(Some)
}

fn config_path(
    args: &ServeArgs,
    environment: Environment<'_>,
) -> Result<Option<(PathBuf, String)>, ConfigError> {
    if let Some(path) = &args.config {
        return Ok(Some((path.clone(), "--config".into())));
    }
    let name = environment_name("config");
    Ok(variable(&name, environment)?.map(|path| (path.into(), name)))
}

fn from_file(path: &Path, written: &str, read_file: ReadFile<'_>) -> Result<Settings, ConfigError> {
    let shown = path.display();
    let text = read_file(path).map_err(|error| {
        let line = format!("{written} {shown}: must be a readable TOML file: {error}");
        ConfigError::new(Sysexit::NoInput, line)
    })?;
    let table: toml::Table = text.parse().map_err(|error: toml::de::Error| {
        let before = error
            .span()
            .and_then(|span| text.get(..span.start))
            .unwrap_or_default();
        let line_number = before.split('\n').count();
        let line = format!(
            "{shown}: line {line_number}: is no TOML: {}",
            error.message()
        );
        ConfigError::new(Sysexit::Config, line)
    })?;
    let mut settings = Settings::new();
    for (name, value) in table {
        let Some((key, kind)) = SETTINGS.into_iter().find(|(key, _)| *key == name) else {
            return Err(ConfigError::new(Sysexit::Config, unknown_key(path, &name)));
        };
        let origin = ValueOrigin::File(path.to_owned());
        let values = texts(key, kind, &value).ok_or_else(|| wrong_type(path, key, &value))?;
        settings.insert(key, GivenSetting { origin, values });
    }
    Ok(settings)
}

/// Returns the value in the form of a flag; `None` if its type is wrong for the key.
fn texts(key: &str, kind: SettingKind, value: &TomlValue) -> Option<Vec<String>> {
    match value {
        TomlValue::Array(items) if key == "bucket" && !items.is_empty() => items
            .iter()
            .map(|item| item.as_str().map(str::to_owned))
            .collect(),
        TomlValue::String(text) => Some(vec![text.clone()]),
        TomlValue::Boolean(on) if kind == Switch => Some(vec![on.to_string()]),
        TomlValue::Integer(number) if kind == Plain => Some(vec![number.to_string()]),
        _ => None,
    }
}

fn wrong_type(path: &Path, key: &str, value: &TomlValue) -> ConfigError {
    let allowed = match kind_of(key) {
        _ if key == "bucket" => "a text or a list of texts such as \"default:256:couchbase\"",
        Switch => "true or false",
        Text | Secret => "a text",
        Plain => "a text or a whole number",
    };
    let value = if is_secret(key) {
        "***".to_owned()
    } else {
        value.to_string()
    };
    let line = format!("{}: {key} {value}: must be {allowed}", path.display());
    ConfigError::new(Sysexit::Config, line)
}

fn unknown_key(path: &Path, name: &str) -> String {
    let plain = name.replace('_', "-").to_ascii_lowercase();
    let nearest = SETTINGS
        .into_iter()
        .map(|(key, _)| (strsim::levenshtein(&plain, key), key))
        .min()
        .filter(|(distance, key)| *distance <= key.len() / 3);
    let path = path.display();
    match nearest {
        Some((_, key)) => format!("{path}: {name}: is no setting; did you mean {key}?"),
        None => format!(
            "{path}: {name}: is no setting; there are {}",
            SETTINGS.map(|(key, _)| key).join(", ")
        ),
    }
}

#[cfg(test)]
pub(super) mod tests;
