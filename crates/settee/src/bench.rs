//! `settee bench`: the load generator on the command line.

use ::bench::{Options, Progress, Style};

use crate::connect::ConnectArgs;
use crate::exit::Failure;
use crate::output;
use crate::tail::Interrupt;

/// Put load on a Couchbase or memcached server, or on two of them in turn, and measure.
///
/// Closed loop by default: every connection keeps DEPTH requests outstanding. With --rate, requests are sent on
/// schedule and latency counts from the scheduled time, so the latency of a server that stalls includes the time
/// that requests had to wait. In a cluster each request goes to the node that has its document, and is sent again
/// if the document has moved.
///
/// SIGINT or SIGTERM ends the run after the current slice, with the measurements so far. If that takes more than
/// 2 s, or before the first slice, it ends without them.
///
/// Exit code 65 when --verify finds a wrong value, 75 when the server refused operations.
#[derive(Debug, clap::Args)]
pub(crate) struct BenchArgs {
    #[command(flatten)]
    connect: ConnectArgs,
    #[command(flatten)]
    options: Options,
}

/// Runs the command.
///
/// # Errors
/// A usage error; a server that cannot be reached or breaks the protocol; wrong values; refused operations.
pub(crate) fn run(args: &BenchArgs) -> Result<(), Failure> {
    let BenchArgs { connect, options } = args;
    let server = connect.options()?;
    let second = options.vs.as_ref().map(|vs| connect.options_of(vs));
    let style = Style::new(output::stdout_is_coloured());
    let line = output::ProgressLine::new(options.json);
    let interrupt = Interrupt::watch()?;
    let progress: Progress = Box::new(move |text| {
        line.show(text);
        !interrupt.is_asked()
    });
    let outcome = ::bench::run(options, server, second.transpose()?, style, progress)?;
    if options.json {
        output::print_json(&outcome.json)?;
    } else {
        output::print(outcome.text.as_bytes())?;
    }
    Ok(outcome.verdict?)
}
