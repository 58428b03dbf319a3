//! Notices of a promotion: a promoted node notifies each other node until it has answered.

use std::io::ErrorKind;

use registry::{EpochAnswer, Peer, Stage, give_way, heard, news};
use tokio::io::AsyncReadExt as _;
use tokio::sync::watch;
use wire::Frame;

use super::broken::Broken;
use super::dialogue::{Dialogue, Opening};
use super::link::{
    BACKOFF_MAX, BACKOFF_MIN, End, FETCH_CONNECT_LIMIT, FETCH_STALL_LIMIT, Link, READ_BYTES,
};
use super::order::Order;
use super::setup::Introduction;
use super::socket::{connect, send, timed_out};

/// The conversation with one node: bytes in, bytes out. It ends with the answer.
struct Notice<'a> {
    opening: Opening<'a>,
    answer: Option<Vec<u8>>,
}

impl<'a> Notice<'a> {
    /// Starts the conversation; `about` must have `tells` set.
    fn new(about: &'a Introduction, out: &mut Vec<u8>) -> Result<Self, Broken> {
        Ok(Self {
            opening: Opening::begin(about, out)?,
            answer: None,
        })
    }
}

impl Dialogue for Notice<'_> {
    fn answer(&mut self, frame: &Frame<'_>, out: &mut Vec<u8>) -> Result<(), Broken> {
        if let Some(answer) = self.opening.answered(frame)? {
            self.answer = Some(answer.to_vec());
            return Ok(());
        }
        self.opening.ask(out)
    }

    fn pushed(&mut self, _frame: &Frame<'_>, _out: &mut Vec<u8>) -> Result<(), Broken> {
        Ok(())
    }
}

impl Link {
    /// Notifies the other nodes of a promotion that happened before the last start.
    pub(super) async fn tell_again(self, orders: watch::Receiver<Order>) {
        let mut others = self.node.env.group_record(self.served.name()).peers;
        self.with_configured(&mut others);
        self.tell_others(others, false, orders).await;
    }

    /// Adds the configured node to `others`, unless they include it.
    pub(super) fn with_configured(&self, others: &mut Vec<Peer>) {
        let configured = self.of.following().active;
        let over_tls = self.of.tls.is_some();
        let there = configured.endpoint(over_tls);
        if !others.iter().any(|peer| peer.endpoint(over_tls) == there) {
            others.push(configured);
        }
    }

    /// Notifies each of `others` until it has answered, with exponential back-off. Ends early if another node
    /// supersedes this one, or if it stops. With `began` the notice includes the seqnos at which the histories
    /// here begin.
    pub(super) async fn tell_others(
        &self,
        others: Vec<Peer>,
        began: bool,
        mut orders: watch::Receiver<Order>,
    ) {
        let about = news(&self.node, &self.served, began);
        let mut untold: Vec<_> = others
            .into_iter()
            .map(|peer| (peer, String::new()))
            .collect();
        let mut backoff = BACKOFF_MIN;
        self.progress.set_last_error("");
        while !untold.is_empty() && !self.served.group().is_superseded() {
            let mut still = Vec::new();
            for (peer, last) in untold {
                if *orders.borrow_and_update() == Order::Stop || orders.has_changed().is_err() {
                    return self.progress.set_stage(Stage::Stopped);
                }
                let why = tokio::select! {
                    told = self.tell(&peer, &about) => told,
                    _ = orders.changed() => Some(last.clone()),
                };
                let Some(why) = why else { continue };
                if why != last {
                    let (bucket, node) = (self.served.name(), peer.name());
                    tracing::warn!(bucket, node, reason = why, "not told of the promotion yet");
                }
                still.push((peer, why));
            }
            untold = still;
            self.note_untold(&untold);
            if !untold.is_empty() {
                self.pause(backoff, &mut orders).await;
                backoff = (backoff * 2).min(BACKOFF_MAX);
            }
        }
    }

    fn note_untold(&self, untold: &[(Peer, String)]) {
        let line = |(peer, why): &(Peer, String)| {
            format!("{} was not told of the promotion: {why}", peer.name())
        };
        let lines: Vec<_> = untold.iter().map(line).collect();
        self.progress.set_last_error(&lines.join("; "));
    }

    /// Notifies one node; returns a reason if it could not be reached, or if it stays active.
    async fn tell(&self, peer: &Peer, about: &str) -> Option<String> {
        let Some(to) = peer.endpoint(self.of.tls.is_some()) else {
            return Some("that node has no port for TLS".to_owned());
        };
        let answer = match self.say(&to, about).await {
            Ok(answer) => answer,
            Err(why) => return Some(why.to_string()),
        };
        match heard(&self.served, &to.0, &answer) {
            EpochAnswer::Yes => {
                let (bucket, node) = (self.served.name(), peer.name());
                tracing::info!(bucket, node, "told of the promotion");
                None
            }
            EpochAnswer::Later(later) => {
                give_way(&self.node, &self.served, &later);
                Some("another node was promoted later".to_owned())
            }
            EpochAnswer::No(why) => Some(why),
        }
    }

    async fn say(&self, to: &(String, u16), about: &str) -> Result<Vec<u8>, End> {
        let limit = FETCH_CONNECT_LIMIT;
        let mut stream = connect(&to.0, to.1, self.of.tls_config()?, limit).await?;
        let mut introduction = self.introduction(to);
        about.clone_into(&mut introduction.about);
        introduction.tells = true;
        let (mut input, mut output) = (Vec::new(), Vec::new());
        let mut notice = Notice::new(&introduction, &mut output)?;
        loop {
            send(&mut stream, &output, FETCH_STALL_LIMIT).await?;
            output.clear();
            input.reserve(READ_BYTES);
            let read = tokio::time::timeout(FETCH_STALL_LIMIT, stream.read_buf(&mut input));
            if read.await.map_err(|_| timed_out("reading"))?? == 0 {
                return Err(End::Lost(ErrorKind::UnexpectedEof.into()));
            }
            let done_with = notice.frames(&input, &mut output)?;
            input.drain(..done_with);
            if let Some(answer) = notice.answer.take() {
                return Ok(answer);
            }
        }
    }
}
