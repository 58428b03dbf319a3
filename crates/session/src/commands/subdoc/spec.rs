//! Specs of paths, and the checks of what a request may ask for.

use identity::{Privilege, PrivilegeSet};
use value::subdoc::{EditKind, name_of};
use wire::request::{DocFlags, PathFlags, SubdocSpec, SubdocSpecs};
use wire::{Feature, Opcode, Status};

use super::macros;
use super::virtual_attributes::is_virtual;
use crate::context::Context;
use crate::outcome::Refusal;

/// Maximum number of paths in a request.
const SPECS_MAX: usize = 16;

/// Operation at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// Reads the value.
    Get,
    /// Checks whether the path exists.
    Exists,
    /// Counts the elements.
    Count,
    /// Reads the whole body, JSON or not.
    GetWhole,
    /// Changes the value.
    Edit(EditKind),
    /// Writes the whole body, JSON or not.
    SetWhole,
    /// Deletes the document.
    DeleteWhole,
    /// Makes an attribute's value the body.
    ReplaceBody,
}

/// Rules that a spec must keep.
pub(super) struct Rules {
    what: What,
    /// Path flags that are allowed.
    path_flags: u8,
    /// Document flags that are allowed.
    pub(super) doc_flags: u8,
    has_value: bool,
    may_be_root: bool,
}

const P: u8 = PathFlags::MKDIR_P.0;
const X: u8 = PathFlags::XATTR.0;
const E: u8 = PathFlags::EXPAND_MACROS.0;
const B: u8 = PathFlags::BINARY.0;
pub(super) const MD: u8 = DocFlags::MKDOC.0;
pub(super) const A: u8 = DocFlags::ADD.0;
pub(super) const AD: u8 = DocFlags::ACCESS_DELETED.0;
pub(super) const CD: u8 = DocFlags::CREATE_AS_DELETED.0;
pub(super) const RV: u8 = DocFlags::REVIVE.0;
pub(super) const RR: u8 = DocFlags::REPLICA_READ.0;

/// Returns the rules of a path operation; `None` for an opcode that is none.
pub(super) fn rules(opcode: Opcode) -> Option<Rules> {
    const MAKES: u8 = MD | AD | RV | A | CD;
    let lookup = |what, path_flags, may_be_root| Rules {
        what,
        path_flags,
        doc_flags: AD | RV | RR,
        has_value: false,
        may_be_root,
    };
    let edit = |kind, path_flags, doc_flags| Rules {
        what: What::Edit(kind),
        path_flags,
        doc_flags,
        has_value: kind != EditKind::Delete,
        may_be_root: kind.is_of_elements(),
    };
    Some(match opcode {
        Opcode::SUBDOC_GET => lookup(What::Get, X | B, false),
        Opcode::SUBDOC_EXISTS => lookup(What::Exists, X, false),
        Opcode::SUBDOC_GET_COUNT => lookup(What::Count, X, true),
        Opcode::SUBDOC_DICT_ADD => edit(EditKind::DictAdd, P | X | E | B, MAKES),
        Opcode::SUBDOC_DICT_UPSERT => edit(EditKind::DictUpsert, P | X | E | B, MAKES),
        Opcode::SUBDOC_DELETE => edit(EditKind::Delete, X, AD | RV),
        Opcode::SUBDOC_REPLACE => edit(EditKind::Replace, X | E | B, AD | RV | A),
        Opcode::SUBDOC_ARRAY_PUSH_LAST => edit(EditKind::PushLast, P | X | E, MAKES),
        Opcode::SUBDOC_ARRAY_PUSH_FIRST => edit(EditKind::PushFirst, P | X | E, MAKES),
        Opcode::SUBDOC_ARRAY_INSERT => edit(EditKind::Insert, X | E, AD | RV | A | CD),
        Opcode::SUBDOC_ARRAY_ADD_UNIQUE => edit(EditKind::AddUnique, P | X, MAKES),
        Opcode::SUBDOC_COUNTER => edit(EditKind::Counter, P | X, MAKES),
        Opcode::SUBDOC_REPLACE_BODY_WITH_XATTR => Rules {
            what: What::ReplaceBody,
            path_flags: X | B,
            doc_flags: AD | RV,
            has_value: false,
            may_be_root: false,
        },
        _ => return None,
    })
}

/// Returns the rules of an operation on the whole document as one of several specs.
fn whole_rules(opcode: Opcode, mutate: bool) -> Option<Rules> {
    let (what, has_value) = match (opcode, mutate) {
        (Opcode::GET, false) => (What::GetWhole, false),
        (Opcode::SET, true) => (What::SetWhole, true),
        (Opcode::DELETE, true) => (What::DeleteWhole, false),
        _ => return None,
    };
    Some(Rules {
        what,
        path_flags: 0,
        doc_flags: MD | A | AD | CD | RV | RR,
        has_value,
        may_be_root: true,
    })
}

/// A spec that was checked.
pub(super) struct Spec<'a> {
    pub(super) what: What,
    pub(super) flags: PathFlags,
    pub(super) path: &'a [u8],
    pub(super) value: &'a [u8],
}

impl Spec<'_> {
    pub(super) fn is_of_attribute(&self) -> bool {
        self.flags.contains(PathFlags::XATTR)
    }

    /// Whether the spec writes the body.
    pub(super) fn writes_body(&self) -> bool {
        match self.what {
            What::Edit(_) => !self.is_of_attribute(),
            What::SetWhole | What::ReplaceBody => true,
            _ => false,
        }
    }
}

/// Checks one spec.
pub(super) fn check<'a>(spec: &SubdocSpec<'a>, rules: &Rules) -> Result<Spec<'a>, Refusal> {
    let flags = spec.flags;
    let beside_attribute = flags.0 & (E | B) != 0;
    if beside_attribute && (flags.0 & X == 0 || flags.0 & (E | B) == E | B) {
        return Err(Status::SUBDOC_XATTR_INVALID_FLAG_COMBO.into());
    }
    let wrong = if flags.0 & !rules.path_flags != 0 {
        "this command does not take these path flags"
    } else if spec.path.is_empty() && !rules.may_be_root {
        "this command needs a path"
    } else if rules.has_value && spec.value.is_empty() {
        "this command needs a value"
    } else if !rules.has_value && !spec.value.is_empty() {
        "this command takes no value"
    } else if rules.what == What::ReplaceBody && flags.0 & X == 0 {
        "this command needs the path of an attribute"
    } else if is_whole(rules.what) && !spec.path.is_empty() {
        "the whole document has no path"
    } else {
        return Ok(Spec {
            what: rules.what,
            flags,
            path: spec.path,
            value: spec.value,
        });
    };
    Err(Refusal::invalid(wrong))
}

/// Refuses attribute paths if the peer did not negotiate attributes or if a name is invalid, and paths of system
/// attributes if the peer lacks `system`.
pub(super) fn check_attributes(
    context: &mut Context<'_>,
    specs: &[Spec<'_>],
    system: Privilege,
) -> Result<(), Refusal> {
    for spec in specs.iter().filter(|spec| spec.is_of_attribute()) {
        if !context.session.has(Feature::XATTR) {
            let context = "extended attributes were not negotiated";
            return Err(Refusal::because(Status::NOT_SUPPORTED, context));
        }
        if name_of(spec.path)?.starts_with(b"_") {
            context.privileges = context.privileges.with(PrivilegeSet::of(&[system]));
        }
    }
    Ok(())
}

/// Checks the attributes to change, independently of the document.
pub(super) fn check_writes(specs: &[Spec<'_>]) -> Result<(), Refusal> {
    for spec in specs.iter().filter(|spec| spec.is_of_attribute()) {
        if is_virtual(name_of(spec.path)?) {
            return Err(Status::SUBDOC_XATTR_CANT_MODIFY_VATTR.into());
        }
        if spec.flags.contains(PathFlags::EXPAND_MACROS) {
            macros::parse(spec.value)?;
        }
    }
    Ok(())
}

fn is_whole(what: What) -> bool {
    matches!(what, What::GetWhole | What::SetWhole | What::DeleteWhole)
}

/// Checks the document flags.
pub(super) fn check_doc_flags(flags: DocFlags, allowed: u8) -> Result<(), Refusal> {
    if flags.0 & !allowed != 0 {
        let context = "this command does not take these document flags";
        return Err(Refusal::invalid(context));
    }
    Ok(())
}

/// Checks several specs: all lookups or all changes, attributes first.
pub(super) fn check_all(specs: SubdocSpecs<'_>) -> Result<Vec<Spec<'_>>, Refusal> {
    let refusal = |context| Refusal::because(Status::SUBDOC_INVALID_COMBO, context);
    let mutate = specs.mutate();
    let mut checked: Vec<Spec<'_>> = Vec::new();
    for spec in specs {
        let spec = spec?;
        if checked.len() == SPECS_MAX {
            return Err(refusal("more paths than one request may have"));
        }
        let sort = |rules: &Rules| {
            let lookup = matches!(
                rules.what,
                What::Get | What::Exists | What::Count | What::GetWhole
            );
            lookup != mutate
        };
        let rules = whole_rules(spec.opcode, mutate)
            .or_else(|| rules(spec.opcode))
            .filter(sort)
            .ok_or_else(|| refusal("not a command that this one takes"))?;
        let spec = check(&spec, &rules)?;
        let body_came = checked.last().is_some_and(|last| !last.is_of_attribute());
        if spec.is_of_attribute() && body_came {
            return Err(Status::SUBDOC_INVALID_XATTR_ORDER.into());
        }
        checked.push(spec);
    }
    if checked.is_empty() {
        return Err(refusal("there is no path"));
    }
    let bodies = checked.iter().filter(|spec| !spec.is_of_attribute());
    if checked.iter().any(|spec| spec.what == What::DeleteWhole) && bodies.count() > 1 {
        return Err(refusal(
            "nothing can be done beside the deletion of the document",
        ));
    }
    Ok(checked)
}
