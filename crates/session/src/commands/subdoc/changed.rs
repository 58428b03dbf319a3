//! A document with the changes of its parts made.

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

/// What is asked of a document's parts.
#[derive(Clone, Copy)]
pub(super) struct Wanted<'a> {
    pub(super) specs: &'a [Spec<'a>],
    /// Whether objects on the way are made, whatever the specs say.
    pub(super) makes: bool,
    /// Whether the answer tells of several paths.
    pub(super) multi: bool,
    /// Where random numbers come from.
    pub(super) env: &'a dyn Env,
}

/// A document with its changes made, and what they tell.
pub(super) struct Changed {
    /// Attributes and body as they are to be stored.
    pub(super) value: Vec<u8>,
    /// Where the body begins: behind the attributes, at zero if there are none.
    pub(super) body_at: usize,
    /// The value of the answer.
    pub(super) told: Vec<u8>,
    /// Where the numbers of the change go.
    pub(super) stamps: Stamps,
}

impl Changed {
    pub(super) fn body(&self) -> &[u8] {
        self.value.get(self.body_at..).unwrap_or_default()
    }
}

/// The first path that failed, and why.
#[derive(Clone, Copy, Debug)]
pub(super) struct Failed {
    pub(super) index: usize,
    pub(super) status: Status,
}

/// What a document that is made starts as.
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

/// Makes all changes, or tells which of them cannot be made.
///
/// # Errors
/// `TooBig`, if what comes out is.
pub(super) fn changed(
    shown: &Shown<'_>,
    parts: Result<(), Status>,
    wanted: Wanted<'_>,
) -> Result<Result<Changed, Failed>, OpError> {
    let mut work = Work {
        shown,
        attributes: AttributeSet::of(shown.attributes),
        body: Cow::Borrowed(shown.body),
        parts,
        makes: wanted.makes,
        env: wanted.env,
        placeholders: None,
    };
    let mut told = Vec::new();
    for (index, spec) in wanted.specs.iter().enumerate() {
        match work.run(spec) {
            Ok(Some(number)) => tell(wanted.multi, index, number, &mut told),
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
        told,
        stamps,
    }))
}

/// Adds the number that a counter has come to.
fn tell(multi: bool, index: usize, number: i64, told: &mut Vec<u8>) {
    let number = number.to_string();
    if multi {
        told.push(index as u8);
        told.extend_from_slice(&Status::SUCCESS.0.to_be_bytes());
        told.extend_from_slice(&(number.len() as u32).to_be_bytes());
    }
    told.extend_from_slice(number.as_bytes());
}

/// A document between two changes.
struct Work<'a> {
    /// As it was before all of them.
    shown: &'a Shown<'a>,
    attributes: AttributeSet<'a>,
    body: Cow<'a, [u8]>,
    /// Whether parts of the body can be changed.
    parts: Result<(), Status>,
    makes: bool,
    env: &'a dyn Env,
    /// Made for the first macro.
    placeholders: Option<Placeholders>,
}

impl Work<'_> {
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

    /// What an attribute is given: the value, or what it stands for.
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

    /// A virtual attribute, or a part of one, as it was before the change.
    fn shown_part(&self, path: &[u8]) -> Result<Vec<u8>, Status> {
        let unknown = |_| Status::SUBDOC_XATTR_UNKNOWN_VATTR_MACRO;
        let name = name_of(path).map_err(unknown)?;
        let text = self.shown.text(name).map_err(unknown)?;
        let path = Path::parse(path).map_err(unknown)?;
        let span = find_in(text.as_bytes(), path).map_err(unknown)?;
        Ok(span.of(text.as_bytes()).to_vec())
    }
}

/// Attributes and body of a plain value.
pub(super) fn split<'v>(value: &'v [u8], document: &Document) -> (Attributes<'v>, &'v [u8]) {
    let datatype = document.datatype();
    let body = value.get(body_at(value, datatype)..).unwrap_or_default();
    (Attributes::of(value, datatype), body)
}
