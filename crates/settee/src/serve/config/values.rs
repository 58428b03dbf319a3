//! Parses the value of one setting, or refuses it in one line.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;

use server::{Advertised, CertificateFiles, Trust};

use crate::serve::settings::{ConfigError, GivenSetting, Settings, is_secret};

const PASSWORD_BYTES_MAX: usize = 1024;

/// Returns the error for a wrong value; `allowed` describes the allowed ones. Secrets are not shown.
pub(super) fn mistake(
    key: &str,
    given: &GivenSetting,
    value: &str,
    allowed: impl Display,
) -> ConfigError {
    let value = if is_secret(key) { "***" } else { value };
    let written = given.written(key);
    ConfigError::new(given.exit_code(), format!("{written} {value:?}: {allowed}"))
}

/// Refuses the first value of a key, if it is given.
pub(super) fn refuse(
    settings: &Settings,
    key: &'static str,
    allowed: impl Display,
) -> Result<(), ConfigError> {
    match settings.get(key) {
        Some(given) => Err(mistake(key, given, &given.values[0], allowed)),
        None => Ok(()),
    }
}

/// Returns the value of a key, if given; `understand` returns `None` for a value that is not allowed.
pub(super) fn parse<T>(
    settings: &Settings,
    key: &'static str,
    allowed: &str,
    understand: impl Fn(&str) -> Option<T>,
) -> Result<Option<T>, ConfigError> {
    let Some(given) = settings.get(key) else {
        return Ok(None);
    };
    let value = &given.values[0];
    match understand(value) {
        Some(understood) => Ok(Some(understood)),
        None => Err(mistake(key, given, value, allowed)),
    }
}

/// Returns a port; 0 means a free one.
pub(super) fn port(settings: &Settings, key: &'static str) -> Result<Option<u16>, ConfigError> {
    let allowed = "must be a port number from 0 to 65535, 0 for a free one";
    number(settings, key, allowed, 0..=u16::MAX)
}

/// Returns a number in a range.
pub(super) fn number<T: FromStr + PartialOrd>(
    settings: &Settings,
    key: &'static str,
    allowed: &str,
    range: RangeInclusive<T>,
) -> Result<Option<T>, ConfigError> {
    parse(settings, key, allowed, |value| {
        value.parse().ok().filter(|number| range.contains(number))
    })
}

/// Returns an address to advertise.
pub(super) fn advertised(
    settings: &Settings,
    key: &'static str,
) -> Result<Option<Advertised>, ConfigError> {
    let Some(given) = settings.get(key) else {
        return Ok(None);
    };
    let value = &given.values[0];
    let read = value.parse();
    read.map(Some)
        .map_err(|allowed: &str| mistake(key, given, value, allowed))
}

/// Returns a path.
pub(super) fn path(value: &str) -> Option<PathBuf> {
    (!value.is_empty() && !value.contains('\0')).then(|| value.into())
}

/// Returns a switch: true or false.
pub(super) fn switch(settings: &Settings, key: &'static str) -> Result<Option<bool>, ConfigError> {
    let allowed = "must be true or false";
    parse(settings, key, allowed, |value| match value {
        "true" | "1" => Some(true),
        "false" | "0" => Some(false),
        _ => None,
    })
}

/// Returns a password.
pub(super) fn password(
    settings: &Settings,
    key: &'static str,
) -> Result<Option<String>, ConfigError> {
    let allowed = "must be 1 to 1024 bytes without control characters";
    parse(settings, key, allowed, |value| {
        let fits = (1..=PASSWORD_BYTES_MAX).contains(&value.len());
        (fits && !value.contains(char::is_control)).then(|| value.to_owned())
    })
}

/// Returns the files of a certificate and its key; both or neither must be given.
pub(super) fn certificate(
    settings: &Settings,
    chain_key: &'static str,
    key_key: &'static str,
) -> Result<Option<CertificateFiles>, ConfigError> {
    let chain = parse(settings, chain_key, "must be a path", path)?;
    let key = parse(settings, key_key, "must be a path", path)?;
    match (chain, key) {
        (Some(chain), Some(key)) => return Ok(Some(CertificateFiles { chain, key })),
        (None, None) => {}
        (Some(_), None) => refuse(settings, chain_key, format_args!("needs --{key_key} too"))?,
        (None, Some(_)) => refuse(settings, key_key, format_args!("needs --{chain_key} too"))?,
    }
    Ok(None)
}

/// Returns the trusted certificates of other nodes, and the own certificate for them.
pub(super) fn peer_trust(settings: &Settings) -> Result<Trust, ConfigError> {
    let ca = parse(settings, "peer-ca", "must be a path", path)?;
    let insecure = switch(settings, "peer-insecure")?.unwrap_or(false);
    let own = certificate(settings, "peer-cert", "peer-key")?;
    if insecure {
        let allowed = "must be left out where --peer-insecure is given";
        refuse(settings, "peer-ca", allowed)?;
    }
    Ok(Trust { ca, insecure, own })
}
