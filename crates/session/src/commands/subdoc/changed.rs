//! A document after the changes of its parts.

use std::borrow::Cow;

use engine::OpError;
use model::{Attributes, Document, body_at};
use registry::Env;
use value::subdoc::{
    AttributeSet, Component, Edit, EditKind, Path, apply, decode_binary, encode_binary, find_in,
    name_of, section_bytes,
};
use value::{SYSTEM_BYTES_MAX, VALUE_BYTES_MAX, is_json};
use wire::Status;
use wire::request::PathFlags;

use super::macros::{Macro, Placeholders, Stamps, parse};
use super::spec::{Spec, What};
use super::virtual_attributes::Shown;

/// Requested changes of a document's parts.
#[derive(Clone, Copy)]
pub(super) struct RequestedChanges<'a> {
    pub(super) specs: &'a [Spec<'a>],
    /// Whether missing objects on a path are created, whatever the flags of the specs.
    pub(super) makes: bool,
    /// Whether the answer reports several paths.
    pub(super) multi: bool,
    /// Source of random numbers.
    pub(super) env: &'a dyn Env,
}

/// A changed document, and the value of its answer.
pub(super) struct Changed {
    /// Attributes and body to store.
    pub(super) value: Vec<u8>,
    /// Offset of the body: behind the attributes, 0 if there are none.
    pub(super) body_at: usize,
    /// The value of the answer.
    pub(super) results: Vec<u8>,
    /// Places where the CAS and seqno of the change are written.
    pub(super) stamps: Stamps,
}

impl Changed {
    pub(super) fn body(&self) -> &[u8] {
        self.value.get(self.body_at..).unwrap_or_default()
    }
}

/// The first path that failed, with its status.
#[derive(Clone, Copy, Debug)]
pub(super) struct Failed {
    pub(super) index: usize,
    pub(super) status: Status,
}

/// Returns the initial body of a document that is created.
pub(super) fn root_of(specs: &[Spec<'_>]) -> &'static [u8] {
    for spec in specs {
        if let What::Edit(kind) = spec.what {
            let first = Path::parse(spec.path).map(|path| path.components.into_iter().next());
            let array = match first {
                Ok(None) => kind.is_of_elements(),
                Ok(Some(first)) => !matches!(first, Component::Key(_)),
                Err(_) => false,
            };
            return if array { b"[]" } else { b"{}" };
        }
    }
    b""
}

/// Makes all changes, or returns the first one that fails.
///
/// # Errors
/// `TooBig` if the result is too large.
pub(super) fn changed(
    shown: &Shown<'_>,
    parts: Result<(), Status>,
    wanted: RequestedChanges<'_>,
) -> Result<Result<Changed, Failed>, OpError> {
    let mut work = PatchedDocument {
        shown,
        attributes: AttributeSet::of(shown.attributes),
        body: Cow::Borrowed(shown.body),
        parts,
        makes: wanted.makes,
        env: wanted.env,
        placeholders: None,
    };
    let mut results = Vec::new();
    for (index, spec) in wanted.specs.iter().enumerate() {
        match work.run(spec) {
            Ok(Some(number)) => tell(wanted.multi, index, number, &mut results),
            Ok(None) => {}
            Err(status) => return Ok(Err(Failed { index, status })),
        }
    }
    let mut value = work.attributes.section();
    let (bytes, body_at) = (section_bytes(&value), value.len());
    let too_big = work.body.len() + bytes.user > VALUE_BYTES_MAX || bytes.system > SYSTEM_BYTES_MAX;
    if too_big {
        return Err(OpError::TooBig);
    }
    value.extend_from_slice(&work.body);
    let stamps = match &work.placeholders {
        Some(placeholders) => placeholders.settle(&mut value, body_at),
        None => Stamps::default(),
    };
    Ok(Ok(Changed {
        value,
        body_at,
        results,
        stamps,
    }))
}

/// Appends a counter's new number to the answer.
fn tell(multi: bool, index: usize, number: i64, results: &mut Vec<u8>) {
    let number = number.to_string();
    if multi {
        results.push(index as u8);
        results.extend_from_slice(&Status::SUCCESS.0.to_be_bytes());
        results.extend_from_slice(&(number.len() as u32).to_be_bytes());
    }
    results.extend_from_slice(number.as_bytes());
}

/// A document during a series of changes.
struct PatchedDocument<'a> {
    /// The document before all changes.
    shown: &'a Shown<'a>,
    attributes: AttributeSet<'a>,
    body: Cow<'a, [u8]>,
    /// Whether parts of the body can be changed.
    parts: Result<(), Status>,
    makes: bool,
    env: &'a dyn Env,
    /// Created at the first macro.
    placeholders: Option<Placeholders>,
}

impl PatchedDocument<'_> {
    fn run(&mut self, spec: &Spec<'_>) -> Result<Option<i64>, Status> {
        match spec.what {
            What::SetWhole => self.set_body(spec.value.to_vec()),
            What::DeleteWhole => {
                self.attributes.keep_system();
                self.set_body(Vec::new());
            }
            What::ReplaceBody => {
                let text = self.attributes.find(spec.path)?;
                let body = if spec.flags.contains(PathFlags::BINARY) {
                    decode_binary(text)?
                } else {
                    text.to_vec()
                };
                self.set_body(body);
            }
            What::Edit(kind) if spec.is_of_attribute() => {
                let value = self.attribute_value(spec)?;
                let path = Path::parse(spec.path)?;
                let edit = self.edit(kind, &path, &value, spec);
                return self.attributes.apply(&edit, name_of(spec.path)?);
            }
            What::Edit(kind) => {
                self.parts?;
                let path = Path::parse(spec.path)?;
                let (body, number) = apply(&self.body, &self.edit(kind, &path, spec.value, spec))?;
                self.body = Cow::Owned(body);
                return Ok(number);
            }
            What::Get | What::Exists | What::Count | What::GetWhole => return Err(Status::EINVAL),
        }
        Ok(None)
    }

    fn edit<'e>(
        &self,
        kind: EditKind,
        path: &'e Path<'e>,
        value: &'e [u8],
        spec: &Spec<'_>,
    ) -> Edit<'e> {
        Edit {
            kind,
            path,
            value,
            make_path: self.makes || spec.flags.contains(PathFlags::MKDIR_P),
        }
    }

    fn set_body(&mut self, body: Vec<u8>) {
        let json = is_json(&body);
        self.parts = json.then_some(()).ok_or(Status::SUBDOC_DOC_NOT_JSON);
        self.body = Cow::Owned(body);
    }

    /// Returns the value of an attribute: as sent, encoded as binary, or expanded from a macro.
    fn attribute_value<'s>(&mut self, spec: &Spec<'s>) -> Result<Cow<'s, [u8]>, Status> {
        if spec.flags.contains(PathFlags::BINARY) {
            return Ok(Cow::Owned(encode_binary(spec.value)));
        }
        if !spec.flags.contains(PathFlags::EXPAND_MACROS) {
            return Ok(Cow::Borrowed(spec.value));
        }
        let asked = parse(spec.value)?;
        if let Macro::Virtual(path) = asked {
            return self.shown_part(path).map(Cow::Owned);
        }
        let env = self.env;
        let made = || Placeholders::new(&mut || env.random_u64());
        let placeholders = self.placeholders.get_or_insert_with(made);
        let string = placeholders.string_of(asked);
        string
            .map(Cow::Owned)
            .ok_or(Status::SUBDOC_XATTR_UNKNOWN_MACRO)
    }

    /// Returns a virtual attribute, or a part of one, from before the change.
    fn shown_part(&self, path: &[u8]) -> Result<Vec<u8>, Status> {
        let unknown = |_| Status::SUBDOC_XATTR_UNKNOWN_VATTR_MACRO;
        let name = name_of(path).map_err(unknown)?;
        let text = self.shown.text(name).map_err(unknown)?;
        let path = Path::parse(path).map_err(unknown)?;
        let span = find_in(text.as_bytes(), path).map_err(unknown)?;
        Ok(span.of(text.as_bytes()).to_vec())
    }
}

/// Splits a plain value into attributes and body.
pub(super) fn split<'v>(value: &'v [u8], document: &Document) -> (Attributes<'v>, &'v [u8]) {
    let datatype = document.datatype();
    let body = value.get(body_at(value, datatype)..).unwrap_or_default();
    (Attributes::of(value, datatype), body)
}
