//! The JSON text that explains every status to a client.

use std::fmt::Write as _;

use super::Status;

/// Newest version of the map's format.
const VERSION: u16 = 2;
/// Revision of the map's content; increased with every change of a row.
const REVISION: u16 = 1;

/// Returns the map in the newest version up to `version_asked`; `None` for version 0.
///
/// Shape: one JSON object without white space, about 9 KiB; keys of `errors` are lower-case
/// hexadecimal. Version 1 leaves out additions of version 2.
///
/// Cost: builds the text each time; clients request it once per connection.
///
/// Source: protocol section 6. Test: `status::error_map::tests`.
pub fn error_map(version_asked: u16) -> Option<String> {
    if version_asked == 0 {
        return None;
    }
    let version = version_asked.min(VERSION);
    let mut json = String::with_capacity(12 * 1024);
    json.push_str("{\"version\":");
    push_number(&mut json, version);
    json.push_str(",\"revision\":");
    push_number(&mut json, REVISION);
    json.push_str(",\"errors\":{");
    for (index, status) in Status::all().enumerate() {
        if index > 0 {
            json.push(',');
        }
        push_entry(&mut json, status, version);
    }
    json.push_str("}}");
    Some(json)
}

fn push_entry(json: &mut String, status: Status, version: u16) {
    json.push('"');
    write!(json, "{:x}", status.0).expect("a String can be written to");
    json.push_str("\":{\"name\":\"");
    json.push_str(status.name());
    json.push_str("\",\"desc\":\"");
    json.push_str(status.description());
    json.push_str("\",\"attrs\":[");
    let attributes = status
        .attributes()
        .iter()
        .filter(|one| one.since_version() <= version);
    for (index, attribute) in attributes.enumerate() {
        json.push_str(if index > 0 { ",\"" } else { "\"" });
        json.push_str(attribute.name());
        json.push('"');
    }
    json.push_str("]}");
}

fn push_number(json: &mut String, number: u16) {
    write!(json, "{number}").expect("a String can be written to");
}

#[cfg(test)]
mod tests {
    use super::super::table;
    use super::*;

    fn parsed(version: u16) -> serde_json::Value {
        serde_json::from_str(&error_map(version).unwrap()).unwrap()
    }

    #[test]
    fn rows_ascend_and_need_no_escapes() {
        assert!(
            table::ROWS
                .windows(2)
                .all(|pair| pair[0].status < pair[1].status)
        );
        for row in table::ROWS {
            let plain = |text: &str| text.chars().all(|c| c == ' ' || c.is_ascii_graphic());
            assert!(plain(row.description) && !row.description.contains(['"', '\\']));
        }
    }

    #[test]
    fn version_two_has_every_status() {
        let map = parsed(2);
        assert_eq!(map["version"], 2);
        assert!(map["revision"].is_u64());
        let errors = map["errors"].as_object().unwrap();
        assert_eq!(errors.len(), Status::all().count());
        assert_eq!(errors["9"]["name"], "LOCKED");
        let attributes = serde_json::json!(["item-locked", "item-only", "retry-now"]);
        assert_eq!(errors["9"]["attrs"], attributes);
        assert_eq!(
            errors["d8"]["attrs"],
            serde_json::json!(["subdoc", "item-only"])
        );
        let throttled = serde_json::json!(["temp", "retry-later", "rate-limit"]);
        assert_eq!(errors["c"]["attrs"], throttled);
    }

    #[test]
    fn version_one_drops_what_it_does_not_know() {
        let text = error_map(1).unwrap();
        assert!(!text.contains("rate-limit") && !text.contains("system-constraint"));
        let map = parsed(1);
        assert_eq!(map["version"], 1);
        assert_eq!(
            map["errors"].as_object().unwrap().len(),
            Status::all().count()
        );
        assert_eq!(
            map["errors"]["28"]["attrs"],
            serde_json::json!(["item-only", "no-retry"])
        );
    }

    #[test]
    fn unknown_versions_get_the_newest_or_none() {
        assert_eq!(error_map(0), None);
        assert_eq!(error_map(9), error_map(2));
    }

    #[test]
    fn every_status_has_at_least_one_attribute() {
        for status in Status::all() {
            assert!(!status.attributes().is_empty(), "{status}");
        }
    }
}
