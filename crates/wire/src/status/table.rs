//! The status table of protocol section 6, ascending by number.

use super::attribute::Attribute::{
    self, Auth, ConnStateInvalidated, Dcp, FetchConfig, Internal, InvalidInput, ItemDeleted,
    ItemLocked, ItemOnly, NoRetry, RateLimit, RetryLater, RetryNow, SpecialHandling, Subdoc,
    Success, Support, SystemConstraint, Temp,
};

/// Status of an answer; any number, known or not.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Status(pub u16);

/// One row of the status table.
pub(super) struct StatusRow {
    pub(super) status: Status,
    pub(super) name: &'static str,
    pub(super) description: &'static str,
    pub(super) attributes: &'static [Attribute],
}

macro_rules! statuses {
    ($($name:ident $number:literal $description:literal [$($attribute:ident),*];)*) => {
        impl Status {
            $(
                #[doc = concat!($description, " (", stringify!($number), ").")]
                pub const $name: Self = Self($number);
            )*
        }

        pub(super) static ROWS: &[StatusRow] = &[$(StatusRow {
            status: Status($number),
            name: stringify!($name),
            description: $description,
            attributes: &[$($attribute),*],
        }),*];
    };
}

statuses! {
    SUCCESS 0x00 "Success" [Success];
    KEY_ENOENT 0x01 "Not found" [ItemOnly];
    KEY_EEXISTS 0x02 "Key exists already, or the CAS does not match" [ItemOnly];
    E2BIG 0x03 "Value is too big" [ItemOnly, InvalidInput];
    EINVAL 0x04 "Invalid arguments" [Internal, InvalidInput];
    NOT_STORED 0x05 "Not stored" [Internal, ItemOnly];
    DELTA_BADVAL 0x06 "Existing document is not a number" [ItemOnly, InvalidInput];
    NOT_MY_VBUCKET 0x07 "vBucket is not served by this node" [FetchConfig, InvalidInput];
    NO_BUCKET 0x08 "No bucket is selected" [ConnStateInvalidated];
    LOCKED 0x09 "Document is locked" [ItemLocked, ItemOnly, RetryNow];
    DCP_STREAM_NOT_FOUND 0x0a "No stream for this request" [ConnStateInvalidated];
    OPAQUE_NO_MATCH 0x0b "Opaque does not match the stream" [ConnStateInvalidated];
    EWOULD_THROTTLE 0x0c "Command would be throttled" [Temp, RetryLater, RateLimit];
    ECONFIG_ONLY 0x0d "Bucket has a configuration only" [FetchConfig, RetryNow];
    NOT_LOCKED 0x0e "Document is not locked" [ItemOnly];
    CAS_VALUE_INVALID 0x0f "CAS value is not valid" [ItemOnly];
    AUTH_STALE 0x1f "Reauthentication required" [ConnStateInvalidated, Auth];
    AUTH_ERROR 0x20 "Authentication failed" [ConnStateInvalidated, Auth];
    AUTH_CONTINUE 0x21 "Authentication continues" [SpecialHandling];
    ERANGE 0x22 "Value is outside of its range" [InvalidInput];
    ROLLBACK 0x23 "Rollback required" [Dcp, SpecialHandling];
    EACCESS 0x24 "Not authorized for this command" [Support];
    NOT_INITIALIZED 0x25 "Node is not initialized" [ConnStateInvalidated];
    ENCRYPTION_KEY_NOT_AVAILABLE 0x26 "Encryption key is not available" [SpecialHandling];
    CHECKSUM_MISMATCH 0x27 "Checksum does not match" [SpecialHandling];
    EXPIRY_OVERFLOW 0x28 "Expiry does not fit its field" [ItemOnly, SystemConstraint, NoRetry];
    LOCK_EXPIRY_OVERFLOW 0x29 "Lock time does not fit its field"
        [ItemOnly, SystemConstraint, NoRetry];
    RATE_LIMITED_NETWORK_INGRESS 0x30 "Limit of received bytes reached"
        [Temp, RetryLater, RateLimit];
    RATE_LIMITED_NETWORK_EGRESS 0x31 "Limit of sent bytes reached" [Temp, RetryLater, RateLimit];
    RATE_LIMITED_MAX_CONNECTIONS 0x32 "Limit of connections reached"
        [ConnStateInvalidated, RateLimit];
    RATE_LIMITED_MAX_COMMANDS 0x33 "Limit of commands reached" [Temp, RetryLater, RateLimit];
    BUCKET_SIZE_LIMIT_EXCEEDED 0x35 "Bucket is too big" [ItemOnly, SystemConstraint, NoRetry];
    BUCKET_RESIDENT_RATIO_TOO_LOW 0x36 "Too little of the bucket is in memory"
        [ItemOnly, SystemConstraint, NoRetry];
    BUCKET_DATA_SIZE_TOO_BIG 0x37 "Bucket has too much data"
        [ItemOnly, SystemConstraint, NoRetry];
    BUCKET_DISK_SPACE_TOO_LOW 0x38 "Too little disk space" [ItemOnly, SystemConstraint, NoRetry];
    BUCKET_PAUSED 0x50 "Bucket is paused" [Support];
    CANCELLED 0x51 "Request was cancelled" [ItemOnly, RetryNow];
    UNKNOWN_FRAME_INFO 0x80 "Frame info is not known" [Support];
    UNKNOWN_COMMAND 0x81 "Command is not known" [Support];
    ENOMEM 0x82 "Out of memory" [Temp, RetryLater];
    NOT_SUPPORTED 0x83 "Not supported" [Support];
    EINTERNAL 0x84 "Internal error" [Internal, ConnStateInvalidated];
    EBUSY 0x85 "Server is busy" [Temp, RetryNow];
    ETMPFAIL 0x86 "Temporary failure" [Temp, RetryNow];
    XATTR_EINVAL 0x87 "Extended attributes are not valid" [InvalidInput];
    UNKNOWN_COLLECTION 0x88 "Collection is not known" [InvalidInput];
    CANNOT_APPLY_COLLECTIONS_MANIFEST 0x8a "Collections manifest cannot be applied"
        [InvalidInput];
    UNKNOWN_SCOPE 0x8c "Scope is not known" [InvalidInput];
    DCP_STREAM_ID_INVALID 0x8d "Stream id is not valid" [InvalidInput];
    DURABILITY_INVALID_LEVEL 0xa0 "Durability level is not valid" [InvalidInput];
    DURABILITY_IMPOSSIBLE 0xa1 "Durability level cannot be reached" [ItemOnly, InvalidInput];
    SYNC_WRITE_IN_PROGRESS 0xa2 "Another durable write is in progress" [ItemOnly, RetryLater];
    SYNC_WRITE_AMBIGUOUS 0xa3 "Outcome of the durable write is not known" [ItemOnly];
    SYNC_WRITE_RE_COMMIT_IN_PROGRESS 0xa4 "Durable write is being committed again"
        [ItemOnly, RetryLater];
    RANGE_SCAN_CANCELLED 0xa5 "Range scan was cancelled" [ItemOnly];
    RANGE_SCAN_MORE 0xa6 "Range scan has more" [Success];
    RANGE_SCAN_COMPLETE 0xa7 "Range scan is complete" [Success];
    VB_UUID_NOT_EQUAL 0xa8 "vBucket UUID does not match" [InvalidInput];
    SUBDOC_PATH_ENOENT 0xc0 "Path is not there" [Subdoc, ItemOnly];
    SUBDOC_PATH_MISMATCH 0xc1 "Path does not fit the document" [Subdoc, ItemOnly];
    SUBDOC_PATH_EINVAL 0xc2 "Path is not valid" [Subdoc, InvalidInput];
    SUBDOC_PATH_E2BIG 0xc3 "Path is too long or too deep" [Subdoc, InvalidInput];
    SUBDOC_DOC_E2DEEP 0xc4 "Document is too deep" [Subdoc, InvalidInput];
    SUBDOC_VALUE_CANTINSERT 0xc5 "Value cannot be inserted" [Subdoc, InvalidInput];
    SUBDOC_DOC_NOT_JSON 0xc6 "Document is not JSON" [Subdoc, ItemOnly];
    SUBDOC_NUM_ERANGE 0xc7 "Number is outside of its range" [Subdoc, ItemOnly];
    SUBDOC_DELTA_EINVAL 0xc8 "Delta is not valid" [Subdoc, ItemOnly];
    SUBDOC_PATH_EEXISTS 0xc9 "Path exists already" [Subdoc, ItemOnly];
    SUBDOC_VALUE_ETOODEEP 0xca "Value would be too deep" [Subdoc, InvalidInput];
    SUBDOC_INVALID_COMBO 0xcb "Operations cannot be combined" [Subdoc, InvalidInput];
    SUBDOC_MULTI_PATH_FAILURE 0xcc "At least one path failed" [Subdoc, SpecialHandling];
    SUBDOC_SUCCESS_DELETED 0xcd "Success on a deleted document" [Subdoc, ItemDeleted, Success];
    SUBDOC_XATTR_INVALID_FLAG_COMBO 0xce "Path flags cannot be combined" [Subdoc, InvalidInput];
    SUBDOC_XATTR_INVALID_KEY_COMBO 0xcf "Attribute keys cannot be combined"
        [Subdoc, InvalidInput];
    SUBDOC_XATTR_UNKNOWN_MACRO 0xd0 "Macro is not known" [Subdoc, InvalidInput];
    SUBDOC_XATTR_UNKNOWN_VATTR 0xd1 "Virtual attribute is not known" [Subdoc, InvalidInput];
    SUBDOC_XATTR_CANT_MODIFY_VATTR 0xd2 "Virtual attribute cannot be changed"
        [Subdoc, InvalidInput];
    SUBDOC_MULTI_PATH_FAILURE_DELETED 0xd3 "At least one path of a deleted document failed"
        [Subdoc, ItemDeleted, SpecialHandling];
    SUBDOC_INVALID_XATTR_ORDER 0xd4 "Attribute paths must come first" [Subdoc, InvalidInput];
    SUBDOC_XATTR_UNKNOWN_VATTR_MACRO 0xd5 "Virtual attribute of a macro is not known"
        [Subdoc, InvalidInput];
    SUBDOC_CAN_ONLY_REVIVE_DELETED_DOCUMENTS 0xd6 "Only deleted documents can be revived"
        [Subdoc, ItemOnly];
    SUBDOC_DELETED_DOCUMENT_CANT_HAVE_VALUE 0xd7 "Deleted documents cannot have a value"
        [Subdoc, ItemOnly];
    SUBDOC_FIELD_NOT_BINARY_VALUE 0xd8 "Attribute is not a binary value" [Subdoc, ItemOnly];
}
