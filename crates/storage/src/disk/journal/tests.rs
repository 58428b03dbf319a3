use super::*;

const EXTENT: u64 = 1 << 20;

fn open(path: &Path, generation: u64) -> (Journal, Vec<Vec<Entry>>) {
    let mut groups = Vec::new();
    let journal = Journal::open(path, (generation, EXTENT), &mut |group| groups.push(group));
    (journal.unwrap(), groups)
}

fn key(seqno: u64) -> RowKey {
    crate::record::row_key(VbId(3), Seqno(seqno))
}

/// A group with values of so many bytes, and one removal.
fn group(journal: &mut Journal, lengths: &[usize]) -> Vec<Entry> {
    let mut group = journal.begin();
    let mut entries = Vec::new();
    for (seqno, length) in (1..).zip(lengths) {
        let encode = |out: &mut Vec<u8>| out.resize(out.len() + length, seqno as u8);
        let place = journal.put(&mut group, &key(seqno), encode).unwrap();
        entries.push(Entry::Put(VbId(3), Seqno(seqno), place));
    }
    journal.remove(&mut group, &key(99)).unwrap();
    entries.push(Entry::Remove(VbId(3), Seqno(99)));
    journal.finish(group).unwrap();
    entries
}

#[test]
fn groups_come_back_with_their_values() {
    let dir = tempfile::tempdir().unwrap();
    let (mut journal, none) = open(dir.path(), 1);
    assert_eq!(none, [] as [Vec<Entry>; 0]);
    let lengths: [&[usize]; 4] = [&[5], &[0, 7], &[CHUNK_BYTES, 1, 200_000, 3], &[]];
    let written = lengths.map(|lengths| group(&mut journal, lengths));
    let (journal, read) = open(dir.path(), 1);
    assert_eq!(read, written);
    let mut window = Window::new(Arc::clone(journal.file()));
    // In both directions, so that some are read ahead and some are not.
    for entry in written
        .iter()
        .flatten()
        .chain(written.iter().flatten().rev())
    {
        if let Entry::Put(_, Seqno(seqno), place) = *entry {
            let expected = vec![seqno as u8; place.length()];
            assert_eq!(*place.read(journal.file()).unwrap(), *expected);
            assert_eq!(window.get(place).unwrap(), expected);
        }
    }
}

#[test]
fn whatever_is_cut_or_damaged_the_groups_before_it_count() {
    let dir = tempfile::tempdir().unwrap();
    let (mut journal, _) = open(dir.path(), 1);
    let mut ends = vec![0];
    let mut written = Vec::new();
    for lengths in [&[30][..], &[10, 20], &[1; 40]] {
        written.push(group(&mut journal, lengths));
        ends.push(journal.bytes());
    }
    drop(journal);
    let path = path_of(dir.path(), 1);
    let bytes = fs::read(&path).unwrap();
    let end = ends[3] as usize;
    for at in (0..end).step_by(7) {
        let whole = ends[1..].iter().filter(|end| **end <= at as u64).count();
        for cut in [true, false] {
            let mut damaged = bytes[..end].to_vec();
            if cut {
                damaged.truncate(at);
            } else {
                damaged[at] ^= 0x10;
            }
            fs::write(&path, &damaged).unwrap();
            let (journal, read) = open(dir.path(), 1);
            assert_eq!(read, written[..whole], "byte {at}, cut: {cut}");
            assert_eq!(journal.bytes(), ends[whole]);
        }
    }
}

/// The end of a group may reach the device before its beginning; nothing of it may be taken for
/// the end of the next one.
#[test]
fn chunks_of_a_torn_group_are_cleared_away() {
    let dir = tempfile::tempdir().unwrap();
    let (mut journal, _) = open(dir.path(), 1);
    group(&mut journal, &[CHUNK_BYTES, 5]);
    let path = path_of(dir.path(), 1);
    let mut bytes = fs::read(&path).unwrap();
    bytes[100] ^= 1;
    fs::write(&path, &bytes).unwrap();
    let (mut journal, read) = open(dir.path(), 1);
    assert_eq!(read.len(), 0);
    let mut begun = journal.begin();
    let encode = |out: &mut Vec<u8>| out.resize(out.len() + CHUNK_BYTES, 1);
    journal.put(&mut begun, &key(1), encode).unwrap();
    assert_eq!(
        begun.chunk, 1,
        "its first chunk is written, its last is not"
    );
    assert_eq!(open(dir.path(), 1).1.len(), 0);
}

#[test]
fn an_abandoned_group_never_was() {
    let dir = tempfile::tempdir().unwrap();
    let (mut journal, _) = open(dir.path(), 1);
    let first = group(&mut journal, &[5]);
    let mut abandoned = journal.begin();
    for seqno in 1..5 {
        let encode = |out: &mut Vec<u8>| out.resize(out.len() + CHUNK_BYTES, 9);
        journal.put(&mut abandoned, &key(seqno), encode).unwrap();
    }
    let second = group(&mut journal, &[6]);
    assert_eq!(open(dir.path(), 1).1, [first, second]);
}

#[test]
fn generations_follow_one_another() {
    let dir = tempfile::tempdir().unwrap();
    let (mut journal, _) = open(dir.path(), 1);
    group(&mut journal, &[5]);
    journal.begin_next().unwrap();
    assert_eq!((journal.generation(), journal.bytes()), (2, 0));
    let second = group(&mut journal, &[6]);
    assert_eq!(journals(dir.path()).unwrap().len(), 1);
    assert_eq!(open(dir.path(), 2).1, [second]);
    assert_eq!(open(dir.path(), 3).1.len(), 0, "the tables have the second");
    assert_eq!(journals(dir.path()).unwrap().len(), 1);
}

/// A copy of a journal under another generation's name has nothing to say.
#[test]
fn a_renamed_journal_does_not_count() {
    let dir = tempfile::tempdir().unwrap();
    let (mut journal, _) = open(dir.path(), 1);
    group(&mut journal, &[5]);
    fs::rename(path_of(dir.path(), 1), path_of(dir.path(), 2)).unwrap();
    assert_eq!(open(dir.path(), 2).1.len(), 0);
}
