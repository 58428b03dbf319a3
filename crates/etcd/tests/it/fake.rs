//! A server that answers by a script.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// Longest wait of a test.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// A request.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) path: String,
    pub(crate) token: Option<String>,
    pub(crate) body: String,
}

/// Reply to a request.
pub(crate) enum Reply {
    /// A status and a body.
    Whole(u16, String),
    /// A body in pieces as they arrive; it ends when their sender is dropped.
    Pieces(Receiver<Vec<u8>>),
    /// Raw bytes, then the end of the connection.
    Raw(Vec<u8>),
    /// No reply.
    Silence,
}

/// A successful answer of etcd.
pub(crate) fn granted(body: &str) -> Reply {
    Reply::Whole(200, body.to_owned())
}

type Script = dyn FnMut(&Asked) -> Reply + Send;

pub(crate) struct Fake {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<Asked>>>,
    ended: Receiver<()>,
}

impl Fake {
    /// Serves until the test ends.
    pub(crate) fn start(script: impl FnMut(&Asked) -> Reply + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (end, ended) = channel();
        let script: Arc<Mutex<Script>> = Arc::new(Mutex::new(script));
        let log = Arc::clone(&asked);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (script, log) = (Arc::clone(&script), Arc::clone(&log));
                let (stream, end) = (stream.unwrap(), end.clone());
                thread::spawn(move || serve(&stream, &script, &log, &end));
            }
        });
        Self {
            address,
            asked,
            ended,
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns the requests so far.
    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }

    /// Waits until the other side has closed a connection.
    pub(crate) fn wait_for_an_end(&self) {
        self.ended
            .recv_timeout(PATIENCE)
            .expect("a connection is closed");
    }
}

fn serve(stream: &TcpStream, script: &Mutex<Script>, log: &Mutex<Vec<Asked>>, end: &Sender<()>) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    while let Some(asked) = read(&mut reader) {
        log.lock().unwrap().push(asked.clone());
        let reply = script.lock().unwrap()(&asked);
        if answer(stream, reply).is_none() {
            break;
        }
    }
    if end.send(()).is_err() {
        // The test is over.
    }
}

fn read(reader: &mut BufReader<TcpStream>) -> Option<Asked> {
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        if line.trim().is_empty() {
            break;
        }
        lines.push(line.trim().to_owned());
    }
    let header = |name: &str| {
        let of = |line: &String| {
            let (is, value) = line.split_once(": ")?;
            is.eq_ignore_ascii_case(name).then(|| value.to_owned())
        };
        lines.iter().find_map(of)
    };
    let length = header("content-length").map_or(0, |length| length.parse().unwrap());
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some(Asked {
        path: lines[0].split(' ').nth(1)?.to_owned(),
        token: header("authorization"),
        body: String::from_utf8(body).unwrap(),
    })
}

/// Sends a reply; `None` at the end of the connection.
fn answer(mut stream: &TcpStream, reply: Reply) -> Option<()> {
    match reply {
        Reply::Whole(status, body) => {
            let length = body.len();
            let head = format!("HTTP/1.1 {status} Status\r\nContent-Length: {length}\r\n\r\n");
            stream.write_all((head + &body).as_bytes()).ok()
        }
        Reply::Pieces(pieces) => {
            let head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
            stream.write_all(head).ok()?;
            for piece in pieces {
                stream
                    .write_all(format!("{:x}\r\n", piece.len()).as_bytes())
                    .ok()?;
                stream.write_all(&piece).ok()?;
                stream.write_all(b"\r\n").ok()?;
            }
            stream.write_all(b"0\r\n\r\n").ok()
        }
        Reply::Raw(bytes) => {
            // The other side may close before it has read everything.
            drop(stream.write_all(&bytes));
            drop(stream.shutdown(Shutdown::Write));
            None
        }
        Reply::Silence => Some(()),
    }
}
