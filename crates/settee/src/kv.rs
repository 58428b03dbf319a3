//! `settee get`, `set` and `del`: reads and writes single documents.

use std::io::Read;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use client::{Answer, Nodes, Request};
use model::{Cas, Datatype};
use serde_json::{Value, json};
use wire::Opcode;

use crate::connect::ConnectArgs;
use crate::exit::{Failure, Sysexit};
use crate::output;

/// Print the value of a document.
///
/// Exit code 66 when there is no such document.
#[derive(Debug, clap::Args)]
pub(crate) struct GetArgs {
    /// Key of the document
    key: String,
    #[command(flatten)]
    place: DocumentAddress,
    /// Print one JSON object with key, CAS, flags and value
    #[arg(long, env = "SETTEE_JSON")]
    json: bool,
}

/// Store a document, whether or not it exists; prints the CAS of the new revision.
#[derive(Debug, clap::Args)]
pub(crate) struct SetArgs {
    /// Key of the document
    key: String,
    /// The value; - reads it from standard input
    value: String,
    /// Seconds until the document expires, or a Unix time above 2592000; 0 for never
    #[arg(
        long,
        env = "SETTEE_EXPIRY",
        value_name = "SECONDS",
        default_value_t = 0
    )]
    expiry: u32,
    /// Flags stored with the document: decimal, or hexadecimal with 0x
    #[arg(long, env = "SETTEE_FLAGS", value_name = "NUMBER", default_value = "0",
          value_parser = parse_flags)]
    flags: u32,
    /// Store only if the document still has this CAS; 0 for any
    #[arg(long, env = "SETTEE_CAS", value_name = "CAS", default_value_t = 0)]
    cas: u64,
    #[command(flatten)]
    place: DocumentAddress,
    /// Print one JSON object
    #[arg(long, env = "SETTEE_JSON")]
    json: bool,
}

/// Delete a document.
///
/// Exit code 66 when there is no such document.
#[derive(Debug, clap::Args)]
pub(crate) struct DelArgs {
    /// Key of the document
    key: String,
    /// Delete only if the document still has this CAS; 0 for any
    #[arg(long, env = "SETTEE_CAS", value_name = "CAS", default_value_t = 0)]
    cas: u64,
    #[command(flatten)]
    place: DocumentAddress,
    /// Print one JSON object
    #[arg(long, env = "SETTEE_JSON")]
    json: bool,
}

/// Address of a document.
#[derive(Debug, clap::Args)]
struct DocumentAddress {
    /// The collection of the document
    #[arg(long, env = "SETTEE_COLLECTION", value_name = "SCOPE.COLLECTION")]
    collection: Option<String>,
    #[command(flatten)]
    connect: ConnectArgs,
}

impl DocumentAddress {
    /// Sends a request to the node that has the document.
    fn ask(&self, message: &Request<'_>) -> Result<Answer, Failure> {
        let (mut nodes, mut client) = Nodes::connect(&self.connect.options()?)?;
        let vbucket = client.key_form().vbucket(message.key);
        if let Some(owner) = nodes.owner(vbucket).filter(|owner| *owner != 0) {
            client = nodes.open(owner)?;
        }
        if let Some(path) = &self.collection {
            client.use_collection(path)?;
        }
        Ok(client.document_request(message)?)
    }
}

fn parse_flags(text: &str) -> Result<u32, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.map_err(|_| "use a number of 0..4294967295, hexadecimal with 0x".to_owned())
}

/// Runs `get`.
///
/// # Errors
/// The server cannot be asked, or the document does not exist.
pub(crate) fn get(args: &GetArgs) -> Result<(), Failure> {
    let message = Request::with(Opcode::GET, args.key.as_bytes(), b"");
    let answer = args.place.ask(&message)?;
    if args.json {
        return output::print_json(&document_json(&args.key, &answer)?);
    }
    let mut value = answer.value;
    if output::stdout_is_terminal() && !value.ends_with(b"\n") {
        value.push(b'\n');
    }
    output::print(&value)
}

/// Returns the document as JSON. A JSON value is embedded, UTF-8 is a string, other values are base64 in
/// `value_base64`.
fn document_json(key: &str, answer: &Answer) -> Result<Value, Failure> {
    let flags = <[u8; 4]>::try_from(answer.extras.as_slice())
        .map_err(|_| Failure::new(Sysexit::Protocol, "the server's answer to GET has no flags"))?;
    let is_json = answer.datatype.contains(Datatype::JSON);
    let mut object = json!({
        "key": key,
        "cas": answer.cas.0,
        "flags": u32::from_be_bytes(flags),
        "json": is_json,
    });
    let embedded = if is_json {
        serde_json::from_slice(&answer.value).ok()
    } else {
        None
    };
    let text = || std::str::from_utf8(&answer.value).ok().map(Value::from);
    match embedded.or_else(text) {
        Some(value) => object["value"] = value,
        None => object["value_base64"] = BASE64_STANDARD.encode(&answer.value).into(),
    }
    Ok(object)
}

/// Runs `set`.
///
/// # Errors
/// The value cannot be read, or the server does not store it.
pub(crate) fn set(args: &SetArgs) -> Result<(), Failure> {
    let mut from_input = Vec::new();
    let value = if args.value == "-" {
        let read = std::io::stdin().lock().read_to_end(&mut from_input);
        read.map_err(|error| Failure::new(Sysexit::Os, format!("standard input: {error}")))?;
        from_input.as_slice()
    } else {
        args.value.as_bytes()
    };
    let extras = [args.flags.to_be_bytes(), args.expiry.to_be_bytes()].concat();
    let message = Request {
        extras: &extras,
        cas: Cas(args.cas),
        ..Request::with(Opcode::SET, args.key.as_bytes(), value)
    };
    let answer = args.place.ask(&message)?;
    print_revision(&args.key, &answer, args.json)
}

/// Runs `del`.
///
/// # Errors
/// The server cannot be asked, or the document does not exist.
pub(crate) fn del(args: &DelArgs) -> Result<(), Failure> {
    let message = Request {
        cas: Cas(args.cas),
        ..Request::with(Opcode::DELETE, args.key.as_bytes(), b"")
    };
    let answer = args.place.ask(&message)?;
    print_revision(&args.key, &answer, args.json)
}

fn print_revision(key: &str, answer: &Answer, json: bool) -> Result<(), Failure> {
    if json {
        output::print_json(&json!({ "key": key, "cas": answer.cas.0 }))
    } else {
        output::print(format!("cas {}\n", answer.cas.0).as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use wire::Status;

    use super::*;

    fn answer(value: &[u8], datatype: Datatype) -> Answer {
        Answer {
            status: Status::SUCCESS,
            cas: Cas(7),
            datatype,
            extras: vec![2, 0, 0, 6],
            key: Vec::new(),
            value: value.to_vec(),
        }
    }

    #[test]
    fn values_keep_their_kind() {
        let value = |bytes: &[u8], datatype| document_json("k", &answer(bytes, datatype)).unwrap();
        let json = value(br#"{"a":1}"#, Datatype::JSON);
        assert_eq!(
            json,
            json!({"key": "k", "cas": 7, "flags": 0x0200_0006, "json": true, "value": {"a": 1}})
        );
        assert_eq!(value(b"1", Datatype::RAW)["value"], json!("1"));
        assert_eq!(value(b"\xff", Datatype::RAW)["value_base64"], json!("/w=="));
        assert_eq!(value(b"broken", Datatype::JSON)["value"], json!("broken"));
    }

    #[test]
    fn an_answer_without_flags_breaks_the_protocol() {
        let answer = Answer {
            extras: Vec::new(),
            ..answer(b"", Datatype::RAW)
        };
        assert_eq!(
            document_json("k", &answer).unwrap_err().code(),
            Sysexit::Protocol
        );
    }

    #[test]
    fn flags_may_be_hexadecimal() {
        assert_eq!(parse_flags("0x2000006"), Ok(0x0200_0006));
        assert_eq!(parse_flags("12"), Ok(12));
        assert!(parse_flags("4294967296").is_err());
        assert!(parse_flags("0x").is_err());
    }
}
