//! The catalogue of audit events.

/// Description of an event.
#[derive(Debug)]
pub struct Descriptor {
    /// The event.
    pub event: Event,
    /// Number of the event.
    pub id: u32,
    /// Name of the event.
    pub name: &'static str,
    /// A sentence about the event.
    pub description: &'static str,
    /// Whether the event can be disabled, for all or some users. Such an event is recorded only once it is
    /// enabled; other events are recorded whenever the audit is on.
    pub filterable: bool,
    /// Beginning of the event's lines.
    pub(crate) head: &'static str,
}

impl Descriptor {
    /// Returns the part of the reference server that has the event.
    pub fn module(&self) -> &'static str {
        match self.id {
            4096..8192 => "auditd",
            8192..12288 => "ns_server",
            _ => "memcached",
        }
    }
}

/// `Name id always|filterable "name" "description";`: the events, by number.
macro_rules! events {
    ($($event:ident $id:literal $kind:ident $name:literal $description:literal;)*) => {
        /// An event that can be recorded.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[expect(missing_docs, reason = "its descriptor describes each")]
        pub enum Event { $($event),* }

        static DESCRIPTORS: &[Descriptor] = &[$(Descriptor {
            event: Event::$event,
            id: $id,
            name: $name,
            description: $description,
            filterable: matches!(Kind::$kind, Kind::filterable),
            head: concat!(
                "{\"id\":", $id, ",\"name\":\"", $name, "\",\"description\":\"", $description,
                "\",\"timestamp\":\""
            ),
        }),*];
    };
}

#[expect(non_camel_case_types, reason = "words of the table below")]
enum Kind {
    always,
    filterable,
}

events! {
    AuditConfigured 4096 always "configured audit daemon" "loaded configuration file for audit daemon";
    AuditStopped 4097 always "shutting down audit daemon" "The audit daemon is being shutdown";
    LoginFailure 8193 always "login failure" "Unsuccessful attempt to login to couchbase cluster";
    UserDeleted 8194 always "delete user" "User was deleted";
    CredentialsChanged 8195 always "user credentials change" "User credentials were changed";
    BucketCreated 8201 always "create bucket" "Bucket was created";
    BucketModified 8202 always "modify bucket" "Bucket was modified";
    BucketDeleted 8203 always "delete bucket" "Bucket was deleted";
    BucketFlushed 8204 always "flush bucket" "Bucket was flushed";
    ClusterSettings 8209 always "change cluster settings" "Cluster settings were changed";
    CertificateReloaded 8230 always "reload node certificate" "Reload node certificate chain and pkey from inbox";
    UserSet 8232 always "set user" "User was added or updated";
    AuditSettings 8240 always "configured audit daemon" "loaded configuration file for audit daemon";
    GroupSet 8244 always "set user group" "User group was added or updated";
    GroupDeleted 8245 always "delete user group" "User group was deleted";
    DcpOpened 20480 always "opened DCP connection" "opened DCP connection";
    AuthFailed 20481 always "authentication failed" "Authentication to the cluster failed";
    ExternalFlush 20482 always "external memcached bucket flush"
        "External user flushed the content of a memcached bucket";
    InvalidPacket 20483 always "invalid packet" "Rejected an invalid packet";
    AccessFailure 20484 always "command access failure" "Access to command is not allowed";
    AuthSucceeded 20485 filterable "authentication succeeded" "Authentication to the cluster succeeded";
    DocumentRead 20488 filterable "document read" "Document was read";
    DocumentLocked 20489 filterable "document locked" "Document was locked";
    DocumentModified 20490 filterable "document modify" "Document was modified";
    DocumentDeleted 20491 filterable "document delete" "Document was deleted";
    BucketSelected 20492 filterable "select bucket" "The specified bucket was selected";
    SessionEnded 20493 filterable "session terminated" "Information about session termination";
    RateLimited 20494 filterable "tenant rate limited" "The given tenant was rate limited";
    CertificateProblem 20495 always "TLS certificate verification problem"
        "The certificate of a client could not be verified";
    CertificateRevoked 20496 always "rejected by CRL" "The certificate of a client is revoked";
}

impl Event {
    /// Returns all events, by number.
    pub fn all() -> &'static [Descriptor] {
        DESCRIPTORS
    }

    /// Returns the description of the event.
    pub fn descriptor(self) -> &'static Descriptor {
        &DESCRIPTORS[self as usize]
    }

    /// Returns the event with this number.
    pub fn of_id(id: u32) -> Option<Self> {
        let found = DESCRIPTORS.binary_search_by_key(&id, |one| one.id).ok()?;
        Some(DESCRIPTORS[found].event)
    }

    /// Returns the bit of the event in a set of events.
    pub(crate) fn bit(self) -> u64 {
        1 << (self as u32)
    }
}

/// A set of events has one bit for each event, and one more.
const _: () = assert!(DESCRIPTORS.len() < 63);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_found_by_number() {
        for (at, one) in Event::all().iter().enumerate() {
            assert_eq!(one.event as usize, at, "{}", one.name);
            assert_eq!(Event::of_id(one.id), Some(one.event));
        }
        assert_eq!(Event::of_id(1), None);
        assert_eq!(Event::DocumentRead.descriptor().module(), "memcached");
    }

    #[test]
    fn document_events_are_off_by_default() {
        let ids = Event::all().iter().filter(|one| one.filterable);
        let ids: Vec<u32> = ids.map(|one| one.id).collect();
        let known = [20485, 20488, 20489, 20490, 20491, 20492, 20493, 20494];
        assert_eq!(ids, known);
    }
}
