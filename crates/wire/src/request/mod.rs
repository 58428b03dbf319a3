//! Requests of clients, typed. A request that consists only of its opcode has no type.
//!
//! One file for each family; every message obeys the rules of its row in the opcode table.

mod collections;
mod node;
mod observe;
mod read;
mod scan;
mod session;
mod subdoc;
mod vbucket;
mod with_meta;
mod write;

pub use collections::{CollectionsGetId, CollectionsGetScopeId};
pub use node::{AuditPut, GetCmdTimer, Stat};
pub use observe::{Observe, ObserveKey, ObserveKeys, ObserveSeqno};
pub use read::{
    Get, GetAndTouch, GetEx, GetLocked, GetMeta, GetRandomKey, GetReplica, MetaVersion, Touch,
    Unlock,
};
pub use scan::{RangeScanCancel, RangeScanContinue, RangeScanCreate};
pub use session::{DropPrivilege, GetClusterConfig, GetErrorMap, Hello, Sasl, SelectBucket};
pub use subdoc::{
    DocFlags, PathFlags, Subdoc, SubdocExtras, SubdocMulti, SubdocSpec, SubdocSpecIter,
    SubdocSpecs, encode_spec,
};
pub use vbucket::{CompactDb, GetAllVbSeqnos, SeqnoPersistence, SetVbucket};
pub use with_meta::{MetaAction, MetaOptions, MutateWithMeta, ReturnMeta, WithMeta};
pub use write::{Arithmetic, Concat, ConcatMode, Delete, Direction, Store, StoreMode};
