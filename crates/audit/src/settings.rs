//! The configuration of the audit, and its file.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::event::Event;

/// The supported version of the file.
const VERSION: u32 = 2;
const ROTATE_INTERVAL_S: u64 = 900;
const ROTATE_SIZE_BYTES: u64 = 20 << 20;

/// Domains of users.
pub const DOMAINS: [&str; 4] = ["local", "external", "builtin", "unknown"];

/// A user in a list of users.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct UserId {
    /// One of [`DOMAINS`].
    pub domain: String,
    /// Name of the user.
    pub user: String,
}

/// The configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Id of this configuration.
    pub uuid: String,
    /// Whether the audit is on.
    pub enabled: bool,
    /// Directory of the files.
    pub log_path: PathBuf,
    /// Age in seconds at which a file is closed; 0 for never.
    pub rotate_interval_s: u64,
    /// Size in bytes at which a file is closed; 0 for never.
    pub rotate_size: u64,
    /// Age in seconds at which a closed file is removed; 0 for never.
    pub prune_age_s: u64,
    /// Whether events may be gathered for a moment, to write them together.
    pub buffered: bool,
    /// Whether the lists of users apply.
    pub filtering: bool,
    /// Users whose filterable events are not recorded.
    pub disabled_users: Option<BTreeSet<UserId>>,
    /// If set, only the filterable events of these users are recorded.
    pub enabled_users: Option<BTreeSet<UserId>>,
    /// Events that are enabled or disabled against the default, by number.
    pub states: BTreeMap<u32, bool>,
}

/// The file. Unknown keys are refused.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    version: u32,
    uuid: String,
    auditd_enabled: bool,
    log_path: PathBuf,
    rotate_interval: Option<u64>,
    rotate_size: Option<u64>,
    prune_age: Option<u64>,
    buffered: Option<bool>,
    compression_enabled: Option<bool>,
    filtering_enabled: Option<bool>,
    disabled_userids: Option<BTreeSet<UserId>>,
    enabled_userids: Option<BTreeSet<UserId>>,
    event_states: Option<BTreeMap<String, String>>,
    disabled: Option<BTreeSet<u32>>,
    /// Events that must be written before their requests are answered. This is not supported: the list must be empty.
    sync: Option<BTreeSet<u32>>,
    #[serde(rename = "descriptors_path")]
    _descriptors_path: Option<Value>,
}

impl Settings {
    /// Returns the default configuration: the audit is off.
    pub fn new(log_path: PathBuf) -> Self {
        Self {
            uuid: String::new(),
            enabled: false,
            log_path,
            rotate_interval_s: ROTATE_INTERVAL_S,
            rotate_size: ROTATE_SIZE_BYTES,
            prune_age_s: 0,
            buffered: true,
            filtering: false,
            disabled_users: None,
            enabled_users: None,
            states: BTreeMap::new(),
        }
    }

    /// Parses the file.
    ///
    /// # Errors
    /// The file is not valid; the reason, in one line.
    pub fn parse(text: &[u8]) -> Result<Self, String> {
        let file: File = serde_json::from_slice(text).map_err(|error| error.to_string())?;
        if file.version != VERSION {
            let found = file.version;
            return Err(format!(
                "version {found} is not supported; it must be {VERSION}"
            ));
        }
        if file.log_path.as_os_str().is_empty() {
            return Err("log_path is empty".into());
        }
        if file.compression_enabled == Some(true) {
            return Err("compression_enabled: closed files are not compressed".into());
        }
        if file.sync.is_some_and(|events| !events.is_empty()) {
            return Err("sync: no event can be written before its request is answered".into());
        }
        if file.disabled_userids.is_some() && file.enabled_userids.is_some() {
            return Err("disabled_userids and enabled_userids exclude each other".into());
        }
        for users in [&file.disabled_userids, &file.enabled_userids] {
            check_domains(users.iter().flatten())?;
        }
        let mut states = BTreeMap::new();
        for (id, state) in file.event_states.unwrap_or_default() {
            let (id, enabled) = read_state(&id, &state)?;
            states.insert(id, enabled);
        }
        states.extend(
            file.disabled
                .unwrap_or_default()
                .into_iter()
                .map(|id| (id, false)),
        );
        let default = Self::new(file.log_path);
        Ok(Self {
            uuid: file.uuid,
            enabled: file.auditd_enabled,
            rotate_interval_s: file.rotate_interval.unwrap_or(default.rotate_interval_s),
            rotate_size: file.rotate_size.unwrap_or(default.rotate_size),
            prune_age_s: file.prune_age.unwrap_or(0),
            buffered: file.buffered.unwrap_or(true),
            filtering: file.filtering_enabled.unwrap_or(false),
            disabled_users: file.disabled_userids,
            enabled_users: file.enabled_userids,
            states,
            ..default
        })
    }

    /// Returns the text of the file.
    pub fn to_file(&self) -> String {
        let state = |on: &bool| if *on { "enabled" } else { "disabled" };
        let states: BTreeMap<String, &str> = self
            .states
            .iter()
            .map(|(id, on)| (id.to_string(), state(on)))
            .collect();
        let mut value = self.about();
        value["event_states"] = json!(states);
        for (name, users) in [
            ("disabled_userids", &self.disabled_users),
            ("enabled_userids", &self.enabled_users),
        ] {
            if let Some(users) = users {
                value[name] = json!(users);
            }
        }
        format!("{value:#}\n")
    }

    /// Returns the fields of an event about the configuration.
    pub(crate) fn about(&self) -> Value {
        json!({
            "version": VERSION,
            "uuid": self.uuid,
            "auditd_enabled": self.enabled,
            "log_path": self.log_path,
            "rotate_interval": self.rotate_interval_s,
            "rotate_size": self.rotate_size,
            "prune_age": self.prune_age_s,
            "buffered": self.buffered,
            "filtering_enabled": self.filtering,
        })
    }

    /// Whether an event is recorded while the audit is on.
    pub fn records(&self, event: Event) -> bool {
        let about = event.descriptor();
        let chosen = self.states.get(&about.id).copied();
        chosen.unwrap_or(!about.filterable)
    }

    /// Whether filterable events of a user are not recorded.
    pub fn leaves_out(&self, user: &UserId) -> bool {
        let listed = |users: &BTreeSet<UserId>| {
            // The administrator has one domain in management and another one in data requests.
            let same = |domain: &str| if domain == "builtin" { "local" } else { domain }.to_owned();
            let is =
                |one: &UserId| one.user == user.user && same(&one.domain) == same(&user.domain);
            users.iter().any(is)
        };
        let left_out = self.disabled_users.as_ref().is_some_and(listed);
        let others = self.enabled_users.as_ref();
        self.filtering && (left_out || others.is_some_and(|users| !listed(users)))
    }

    /// Whether the user of an event must be checked.
    pub(crate) fn looks_at_users(&self) -> bool {
        let disabled = self.disabled_users.as_ref();
        let enabled = self.enabled_users.is_some();
        self.filtering && (enabled || disabled.is_some_and(|users| !users.is_empty()))
    }
}

fn check_domains<'a>(mut users: impl Iterator<Item = &'a UserId>) -> Result<(), String> {
    let odd = users.find(|user| !DOMAINS.contains(&&*user.domain));
    odd.map_or(Ok(()), |user| {
        Err(format!("there is no domain {:?} of users", user.domain))
    })
}

fn read_state(id: &str, state: &str) -> Result<(u32, bool), String> {
    let number = id.parse::<u32>();
    let number = number.map_err(|_| format!("event_states: {id:?} is no number of an event"))?;
    match state {
        "enabled" => Ok((number, true)),
        "disabled" => Ok((number, false)),
        other => Err(format!(
            "event_states: {other:?} is neither enabled nor disabled"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file() -> Value {
        json!({
            "version": 2, "uuid": "u", "auditd_enabled": true, "log_path": "/var/log",
            "rotate_interval": 0, "rotate_size": 7, "prune_age": 8, "buffered": false,
            "compression_enabled": false, "filtering_enabled": true, "sync": [], "disabled": [20481],
            "descriptors_path": "/x", "event_states": { "20488": "enabled", "4711": "enabled" },
            "disabled_userids": [{ "domain": "local", "user": "bob" }],
        })
    }

    fn parsed(value: &Value) -> Result<Settings, String> {
        Settings::parse(value.to_string().as_bytes())
    }

    fn user(domain: &str, user: &str) -> UserId {
        UserId {
            domain: domain.into(),
            user: user.into(),
        }
    }

    #[test]
    fn the_file_is_read_and_written() {
        let settings = parsed(&file()).unwrap();
        assert!(settings.enabled && settings.filtering && !settings.buffered);
        let numbers = (
            settings.rotate_interval_s,
            settings.rotate_size,
            settings.prune_age_s,
        );
        assert_eq!(numbers, (0, 7, 8));
        assert_eq!(Settings::parse(settings.to_file().as_bytes()), Ok(settings));
        let least = json!({ "version": 2, "uuid": "", "auditd_enabled": false, "log_path": "/l" });
        assert_eq!(parsed(&least), Ok(Settings::new("/l".into())));
    }

    #[test]
    fn settings_parser_refuses_invalid_files() {
        for (key, value, why) in [
            ("version", json!(1), "version 1"),
            ("version", json!(null), "invalid type"),
            ("odd", json!(1), "unknown field `odd`"),
            ("log_path", json!(""), "log_path"),
            ("rotate_size", json!(-1), "invalid value"),
            ("compression_enabled", json!(true), "compression"),
            ("sync", json!([20480]), "sync"),
            ("enabled_userids", json!([]), "exclude"),
            (
                "disabled_userids",
                json!([{ "domain": "x", "user": "y" }]),
                "domain",
            ),
            (
                "disabled_userids",
                json!([{ "user": "y" }]),
                "missing field `domain`",
            ),
            (
                "event_states",
                json!({ "x": "enabled" }),
                "number of an event",
            ),
            ("event_states", json!({ "1": "on" }), "neither"),
        ] {
            let mut file = file();
            file[key] = value;
            let error = parsed(&file).unwrap_err();
            assert!(error.contains(why), "{key}: {error}");
        }
        for key in ["version", "uuid", "auditd_enabled", "log_path"] {
            let mut file = file();
            file.as_object_mut().unwrap().remove(key);
            let error = parsed(&file).unwrap_err();
            assert!(error.contains(&format!("missing field `{key}`")), "{error}");
        }
        assert!(Settings::parse(b"{").is_err());
    }

    #[test]
    fn events_are_recorded_by_state_or_by_default() {
        let settings = parsed(&file()).unwrap();
        assert!(settings.records(Event::DocumentRead));
        assert!(!settings.records(Event::DocumentModified), "by default");
        assert!(settings.records(Event::AccessFailure), "by default");
        assert!(!settings.records(Event::AuthFailed), "disabled by hand");
    }

    #[test]
    fn users_are_left_out_by_name_and_domain() {
        let mut settings = parsed(&file()).unwrap();
        let bob = user("local", "bob");
        assert!(settings.looks_at_users() && settings.leaves_out(&bob));
        assert!(settings.leaves_out(&user("builtin", "bob")));
        assert!(!settings.leaves_out(&user("external", "bob")));
        assert!(!settings.leaves_out(&user("local", "ada")));
        settings.enabled_users = settings.disabled_users.take();
        assert!(!settings.leaves_out(&bob) && settings.leaves_out(&user("local", "ada")));
        settings.filtering = false;
        assert!(!settings.looks_at_users() && !settings.leaves_out(&user("local", "ada")));
    }
}
