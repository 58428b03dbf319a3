//! `settee stat`: shows the statistics of a server, as text or as JSON.

mod natural;
mod report;
mod row_buffer;

use std::io::{self, Write};

use crate::connect::ConnectArgs;
use crate::exit::Failure;
use crate::output;

use client::ClientError;
use report::{Report, RowFormat};
use row_buffer::RowBuffer;

/// Show statistics of a server.
///
/// Without a group the general ones are shown. Groups of a settee node: vbucket, vbucket-details [VB],
/// vbucket-seqno [VB], failovers [VB], checkpoint [VB], memory, hash, timings, warmup, diskinfo, config,
/// collections, scopes, dcp, replication, durability-monitor [VB], connections, threads, and those for less
/// common needs in docs/stats.md. Other servers have other groups.
#[derive(Debug, clap::Args)]
pub(crate) struct StatArgs {
    /// Group of statistics
    group: Option<String>,
    /// Argument of the group, such as the number of a vBucket
    arg: Vec<String>,
    #[command(flatten)]
    connect: ConnectArgs,
    /// Print one JSON object, with numbers as JSON numbers
    #[arg(long, env = "SETTEE_JSON")]
    json: bool,
    /// Sort and align any number of rows; without it more than 10,000 rows are printed in order of arrival
    #[arg(long)]
    sort: bool,
}

/// Largest number of rows that are sorted and aligned by default.
const SORTED_ROWS: usize = 10_000;

/// Reason why an answer was not printed completely.
#[derive(Debug)]
enum Stop {
    Client(ClientError),
    Output(io::Error),
}

impl From<ClientError> for Stop {
    fn from(error: ClientError) -> Self {
        Self::Client(error)
    }
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

/// Runs the command.
///
/// # Errors
/// The server cannot be asked, does not know the group, or its answer ends early.
pub(crate) fn run(args: &StatArgs) -> Result<(), Failure> {
    let words: Vec<&str> = args
        .group
        .as_deref()
        .into_iter()
        .chain(args.arg.iter().map(String::as_str))
        .collect();
    let mut client = args.connect.connect()?;
    let mut printer = Printer::new(output::stdout()?, args.json, args.sort);
    let ended = client
        .stat(&words.join(" "), |name, value| printer.row(name, value))
        .and_then(|()| printer.end());
    match ended {
        Ok(_) => Ok(()),
        Err(Stop::Client(error)) => Err(error.into()),
        Err(Stop::Output(error)) => output::ended(Err(error)),
    }
}

/// Prints rows: sorted and aligned if they are few, else in order of arrival.
struct Printer<W> {
    report: Report<W>,
    /// Rows that wait for the others; `None` once rows are printed in order of arrival.
    held: Option<RowBuffer>,
    json: bool,
    sort: bool,
}

impl<W: Write> Printer<W> {
    fn new(to: W, json: bool, sort: bool) -> Self {
        Self {
            report: Report::new(to),
            held: Some(RowBuffer::default()),
            json,
            sort,
        }
    }

    fn row(&mut self, name: &[u8], value: &[u8]) -> Result<(), Stop> {
        let Some(held) = &mut self.held else {
            return Ok(self.report.row(name, value)?);
        };
        held.push(name, value);
        if held.len() > SORTED_ROWS && !self.sort {
            self.print_held(0)?;
        }
        Ok(())
    }

    /// Ends the answer; returns the output.
    fn end(mut self) -> Result<W, Stop> {
        if let Some(held) = &mut self.held {
            held.sort();
            let width = held.width();
            self.print_held(width)?;
        }
        Ok(self.report.end()?)
    }

    /// Prints the held rows, with names of `width`.
    fn print_held(&mut self, width: usize) -> Result<(), Stop> {
        let held = self.held.take().unwrap_or_default();
        self.report.begin(match self.json {
            false => RowFormat::Text { width },
            true if held.is_nameless() => RowFormat::Array,
            true => RowFormat::Object,
        });
        for (name, value) in held.rows() {
            self.report.row(name, value)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(rows: &[(&str, &str)], json: bool, sort: bool) -> String {
        let mut printer = Printer::new(Vec::new(), json, sort);
        for (name, value) in rows {
            printer.row(name.as_bytes(), value.as_bytes()).unwrap();
        }
        String::from_utf8(printer.end().unwrap()).unwrap()
    }

    #[test]
    fn few_rows_are_aligned_and_in_natural_order() {
        let rows = [("vb_10", "active"), ("vb_9:queue", "0"), ("vb_9", "dead")];
        let expected = " vb_9:         dead\n vb_9:queue:   0\n vb_10:        active\n";
        assert_eq!(printed(&rows, false, false), expected);
        assert_eq!(printed(&[("", "{}")], false, false), " {}\n");
        assert_eq!(printed(&[], false, false), "");
        assert_eq!(printed(&[], true, false), "{}\n");
        assert_eq!(printed(&[("", "1")], true, false), "[\n  1\n]\n");
        let apart = [("a", "1"), ("b", "3"), ("a", "2")];
        let expected = "{\n  \"a\": [1, 2],\n  \"b\": 3\n}\n";
        assert_eq!(printed(&apart, true, false), expected);
    }

    #[test]
    fn many_rows_are_sorted_only_on_request() {
        let names: Vec<String> = (0..=SORTED_ROWS)
            .rev()
            .map(|row| format!("r{row}"))
            .collect();
        let rows: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "0")).collect();
        let as_it_came = printed(&rows, false, false);
        assert!(as_it_came.starts_with(" r10000:   0\n r9999:   0\n"));
        assert_eq!(as_it_came.lines().count(), rows.len());
        let sorted = printed(&rows, false, true);
        assert!(sorted.starts_with(" r0:       0\n r1:       0\n"));
        for sort in [false, true] {
            let json: serde_json::Value =
                serde_json::from_str(&printed(&rows, true, sort)).unwrap();
            assert_eq!(json.as_object().unwrap().len(), rows.len());
        }
    }

    /// An output whose reader goes away after this number of bytes.
    struct Gone(usize);

    impl Write for Gone {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let left = self.0.min(bytes.len());
            self.0 -= left;
            if left == 0 {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            Ok(left)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn an_output_without_a_reader_ends_the_answer_early() {
        let mut printer = Printer::new(Gone(1000), false, false);
        let refused = (0..1_000_000).find(|row| {
            let name = format!("name {row}");
            printer.row(name.as_bytes(), b"1").is_err()
        });
        assert!(refused.is_some_and(|row| row < 100_000), "{refused:?}");
    }
}
