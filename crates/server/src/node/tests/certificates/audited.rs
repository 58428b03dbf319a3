//! Tests of audit events about certificates.

use super::super::audit::recorded;
use super::http::https;
use super::*;

#[test]
fn logins_and_refusals_by_certificate_are_recorded() {
    let served = Certified::start(CertificateState::Mandatory);
    let log = served.place.path().join("log");
    std::fs::create_dir(&log).unwrap();
    let mut audit = served.node.state.audit().settings().as_ref().clone();
    audit.enabled = true;
    audit.log_path.clone_from(&log);
    audit.states.insert(20485, true);
    served.node.state.change_audit(audit).unwrap();
    let named = |name: &'static str| {
        move |params: &mut rcgen::CertificateParams| {
            params.distinguished_name.push(DnType::CommonName, name);
        }
    };
    let bob = served.authority.sign(named("bob"));
    let stranger = Authority::new("clients").sign(named(USER));
    assert_eq!(served.outcome(Some(&served.ada())), Outcome::IsUser);
    for made in [None, Some(&bob), Some(&stranger)] {
        assert_eq!(served.outcome(made), Outcome::Refused);
        assert_eq!(https(&served, made, "GET / HTTP/1.1\r\n\r\n"), None);
    }
    served.node.shutdown().unwrap();
    let mut events = recorded(&log);
    events.retain(|event| [20485, 20495].map(Some).contains(&event["id"].as_u64()));
    // The node handles connections in parallel: a client may see its end before the event is recorded.
    let user_of = |event: &serde_json::Value| event["real_userid"]["user"] == USER;
    assert_eq!(events.iter().filter(|event| user_of(event)).count(), 1);
    let told = |text: &str| {
        let reasons = events.iter().filter_map(|event| event["reason"].as_str());
        reasons.filter(|reason| reason.contains(text)).count()
    };
    for reason in [
        "no certificates",
        "the certificate is for no user",
        "invalid peer certificate",
    ] {
        assert_eq!(told(reason), 2, "{reason}: {events:?}");
    }
    assert_eq!(events.len(), 7);
}
