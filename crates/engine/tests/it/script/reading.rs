//! Script verbs of streams: `stream NAME from SEQNO`, `read NAME [items=N]`, `drop`, `close`,
//! `behind NAME`.

use model::Seqno;

use super::{Line, World, named};
use crate::streams::{Stream, changes_behind};

impl World {
    pub(super) fn stream(&mut self, line: &Line<'_>) -> String {
        let (vbucket, name) = (&mut self.vbucket, line.word(1));
        if line.word(0) == "stream" {
            let mut stream = Stream::open(vbucket, name, Seqno(line.number(3)));
            let gap = stream.register(vbucket);
            self.streams.insert(name.into(), stream);
            return gap.map_or("memory".into(), |gap| {
                format!("store {}..{}", gap.start, gap.end)
            });
        }
        let stream = self.streams.get_mut(name).expect("a stream");
        match line.word(0) {
            "read" => {
                let items = line.option("items").unwrap_or(u64::MAX) as usize;
                let sent = stream.read(vbucket, &self.store, items);
                sent.map_or("nothing".into(), |sent| sent.told(named))
            }
            "behind" => stream
                .cursor
                .map_or(0, |cursor| changes_behind(vbucket, cursor))
                .to_string(),
            "close" => {
                drop(vbucket.remove_cursor(stream.cursor.expect("a cursor")));
                self.streams.remove(name);
                "closed".into()
            }
            _ => {
                let before = vbucket.checkpoint_stats().cursors;
                drop(vbucket.drop_cursor(stream.cursor.expect("a cursor")));
                let dropped = vbucket.checkpoint_stats().cursors < before;
                let answer = if dropped { "cursor dropped" } else { "kept" };
                answer.into()
            }
        }
    }
}
