use std::fs;

use model::{Seqno, VbId};

use super::*;
use crate::disk::value_position::Window;

const EXTENT: u64 = 1 << 20;

/// Opens what follows generation `flushed`.
fn open(path: &Path, flushed: u64) -> (Journal, Vec<Vec<Entry>>) {
    let (_, journal, groups) = open_all(path, flushed);
    (
        journal,
        groups.into_iter().map(|(_, group)| group).collect(),
    )
}

type Groups = Vec<(u64, Vec<Entry>)>;

fn open_all(path: &Path, flushed: u64) -> (Option<Sealed>, Journal, Groups) {
    try_open(path, flushed).unwrap()
}

fn try_open(path: &Path, flushed: u64) -> io::Result<(Option<Sealed>, Journal, Groups)> {
    let mut groups = Vec::new();
    let replayed = Journal::replay(path, flushed, &mut |generation, group| {
        groups.push((generation, group));
    })?;
    let (sealed, journal) = Journal::open(path, replayed, EXTENT, &ValueLog::read(path)?)?;
    Ok((sealed, journal, groups))
}

/// Opening is refused as damaged, leaves the files as they are, and this can still be salvaged.
fn refused(path: &Path, left: &[(u64, Vec<Entry>)], what: usize) {
    let content = || {
        numbers(path)
            .into_iter()
            .map(|number| fs::read(path_of(path, number)).unwrap())
    };
    let before: Vec<_> = content().collect();
    let error = try_open(path, 0).expect_err("what was durable is damaged");
    assert_eq!(error.kind(), io::ErrorKind::InvalidData, "byte {what}");
    assert!(content().eq(before), "byte {what}");
    let (_, groups, damaged) = Journal::read_all(path, 0).unwrap();
    assert_eq!(groups, left, "byte {what}");
    assert!(damaged.len() <= 1, "byte {what}");
}

fn key(seqno: u64) -> RowKey {
    crate::record::row_key(VbId(3), Seqno(seqno))
}

/// A group with values of so many bytes, and one removal.
fn group(journal: &mut Journal, lengths: &[usize]) -> Vec<Entry> {
    let mut group = journal.begin();
    let mut entries = Vec::new();
    for (seqno, length) in (1..).zip(lengths) {
        let encode = |out: &mut Vec<u8>| -> &[u8] {
            out.resize(out.len() + length, seqno as u8);
            &[]
        };
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
    let (mut journal, none) = open(dir.path(), 0);
    assert_eq!(none, [] as [Vec<Entry>; 0]);
    let lengths: [&[usize]; 4] = [&[5], &[0, 7], &[CHUNK_BYTES, 1, 200_000, 3], &[]];
    let written = lengths.map(|lengths| group(&mut journal, lengths));
    let (journal, read) = open(dir.path(), 0);
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
fn what_is_cut_or_damaged_at_the_end_leaves_the_groups_before_it_and_elsewhere_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (mut journal, _) = open(dir.path(), 0);
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
            if !cut && whole < 2 {
                let mut left: Vec<_> = written.iter().map(|one| (1, one.clone())).collect();
                left.remove(whole);
                refused(dir.path(), &left, at);
                continue;
            }
            let (journal, read) = open(dir.path(), 0);
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
    let (mut journal, _) = open(dir.path(), 0);
    group(&mut journal, &[CHUNK_BYTES, 5]);
    let path = path_of(dir.path(), 1);
    let mut bytes = fs::read(&path).unwrap();
    bytes[100] ^= 1;
    fs::write(&path, &bytes).unwrap();
    let (mut journal, read) = open(dir.path(), 0);
    assert_eq!(read.len(), 0);
    let mut begun = journal.begin();
    let encode = |out: &mut Vec<u8>| -> &[u8] {
        out.resize(out.len() + CHUNK_BYTES, 1);
        &[]
    };
    journal.put(&mut begun, &key(1), encode).unwrap();
    assert_eq!(
        begun.chunk, 1,
        "its first chunk is written, its last is not"
    );
    assert_eq!(open(dir.path(), 0).1.len(), 0);
}

#[test]
fn an_abandoned_group_never_was() {
    let dir = tempfile::tempdir().unwrap();
    let (mut journal, _) = open(dir.path(), 0);
    let first = group(&mut journal, &[5]);
    let mut abandoned = journal.begin();
    for seqno in 1..5 {
        let encode = |out: &mut Vec<u8>| -> &[u8] {
            out.resize(out.len() + CHUNK_BYTES, 9);
            &[]
        };
        journal.put(&mut abandoned, &key(seqno), encode).unwrap();
    }
    let second = group(&mut journal, &[6]);
    assert_eq!(open(dir.path(), 0).1, [first, second]);
}

fn numbers(path: &Path) -> Vec<u64> {
    let found = journals(path).unwrap();
    let mut numbers: Vec<_> = found.into_iter().map(|(number, _)| number).collect();
    numbers.sort_unstable();
    numbers
}

#[test]
fn generations_follow_one_another() {
    let dir = tempfile::tempdir().unwrap();
    let (mut journal, _) = open(dir.path(), 0);
    let first = group(&mut journal, &[5]);
    let sealed = journal.rotate().unwrap();
    assert_eq!((sealed.generation, journal.bytes()), (1, 0));
    assert_eq!((journal.generation(), journal.last_group), (2, 1));
    let (sealed, journal, read) = open_all(dir.path(), 0);
    assert!(sealed.is_none(), "nothing is in the second yet");
    assert_eq!((journal.generation(), read), (1, vec![(1, first.clone())]));
    assert_eq!(numbers(dir.path()), [1]);

    let mut journal = journal;
    journal.rotate().unwrap();
    let second = group(&mut journal, &[6, 7]);
    let bytes = journal.bytes();
    let (sealed, journal, read) = open_all(dir.path(), 0);
    assert_eq!(read, [(1, first), (2, second.clone())]);
    let sealed = sealed.unwrap();
    assert_eq!((sealed.generation, journal.generation()), (1, 2));
    assert_eq!((journal.bytes(), journal.last_group), (bytes, 2));

    let (sealed, journal, read) = open_all(dir.path(), 1);
    assert!(sealed.is_none(), "the tables have the first");
    assert_eq!((journal.bytes(), read), (bytes, vec![(2, second)]));
    assert_eq!(numbers(dir.path()), [2]);
    assert_eq!(open(dir.path(), 2).1.len(), 0, "the tables have the second");
    assert_eq!(numbers(dir.path()), [3]);
}

/// Two journals, the first with three groups, the second with two; and all of the groups.
fn two(path: &Path) -> Groups {
    let (mut journal, _) = open(path, 0);
    let mut groups = Vec::new();
    for lengths in [&[30][..], &[10, 20], &[1; 40]] {
        groups.push((1, group(&mut journal, lengths)));
    }
    journal.rotate().unwrap();
    for lengths in [&[CHUNK_BYTES, 2][..], &[3]] {
        groups.push((2, group(&mut journal, lengths)));
    }
    groups
}

#[test]
fn damage_in_the_first_of_two_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let written = two(dir.path());
    let path = |number| path_of(dir.path(), number);
    let [first, second] = [1, 2].map(|number| fs::read(path(number)).unwrap());
    let end = first.iter().rposition(|byte| *byte != 0).unwrap();
    let mut seen = [false; 3];
    for at in (0..end).step_by(7) {
        let mut damaged = first.clone();
        damaged[at] ^= 1;
        fs::write(path(1), &damaged).unwrap();
        let left = Journal::read_all(dir.path(), 0).unwrap().1;
        let lost = (0..3).find(|lost| !left.contains(&written[*lost]));
        let lost = lost.expect("one of them is damaged");
        let mut others = written.clone();
        others.remove(lost);
        refused(dir.path(), &others, at);
        seen[lost] = true;
    }
    assert_eq!(seen, [true; 3]);
    fs::write(path(1), &first[..end / 2]).unwrap();
    let error = try_open(dir.path(), 0).expect_err("it is cut");
    assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    fs::remove_file(path(1)).unwrap();
    fs::write(path(2), &second).unwrap();
    assert_eq!(open(dir.path(), 0).1.len(), 0, "the first is lost");
}

/// Of a group that is not durable any chunks may be there; they show nothing of those before.
#[test]
fn what_a_power_cut_leaves_of_the_last_group_is_no_damage() {
    let dir = tempfile::tempdir().unwrap();
    let (mut journal, _) = open(dir.path(), 0);
    for before in [0, 1] {
        let begin = journal.bytes() as usize;
        group(&mut journal, &[CHUNK_BYTES; 4]);
        let path = path_of(dir.path(), 1);
        let mut bytes = fs::read(&path).unwrap();
        bytes[begin..begin + 5000].fill(0);
        fs::write(&path, &bytes).unwrap();
        let (again, read) = open(dir.path(), 0);
        assert_eq!(read.len(), before);
        journal = again;
        group(&mut journal, &[1]);
    }
}

/// Or else a power cut might leave the later one alone, as damage does.
#[test]
fn a_group_is_begun_when_those_before_it_are_durable() {
    let dir = tempfile::tempdir().unwrap();
    let (mut journal, _) = open(dir.path(), 0);
    group(&mut journal, &[1]);
    assert!(!journal.is_synced());
    let mut next = journal.begin();
    let encode = |out: &mut Vec<u8>| -> &[u8] {
        out.resize(out.len() + CHUNK_BYTES, 1);
        &[]
    };
    journal.put(&mut next, &key(1), encode).unwrap();
    assert!(
        journal.is_synced(),
        "the first chunk of the next one is written"
    );
}

#[test]
fn a_journal_that_was_removed_is_not_durable() {
    let dir = tempfile::tempdir().unwrap();
    let (mut journal, _) = open(dir.path(), 0);
    group(&mut journal, &[1]);
    journal.sync().unwrap();
    group(&mut journal, &[2]);
    fs::remove_file(path_of(dir.path(), 1)).unwrap();
    journal.sync().unwrap_err();
}

#[test]
fn damage_in_the_second_of_two_leaves_the_first() {
    let dir = tempfile::tempdir().unwrap();
    let written = two(dir.path());
    let path = |number| path_of(dir.path(), number);
    let [first, second] = [1, 2].map(|number| fs::read(path(number)).unwrap());
    let last = second.iter().rposition(|byte| *byte != 0).unwrap();
    for (at, left) in [(0, 3), (40_000, 3), (last, 4)] {
        let mut damaged = second.clone();
        damaged[at] ^= 1;
        fs::write(path(1), &first).unwrap();
        fs::write(path(2), &damaged).unwrap();
        if at != last {
            let mut others = written.clone();
            others.remove(left);
            refused(dir.path(), &others, at);
            continue;
        }
        let (_, _, read) = open_all(dir.path(), 0);
        assert_eq!(read, written[..left], "byte {at}");
    }
}

/// A group that failed may be there as a whole all the same, behind the last one that counts.
#[test]
fn the_second_says_where_the_first_ended() {
    let dir = tempfile::tempdir().unwrap();
    let (mut journal, _) = open(dir.path(), 0);
    let first = group(&mut journal, &[5]);
    let end = journal.bytes();
    group(&mut journal, &[6]);
    let path = path_of(dir.path(), 1);
    let both = fs::read(&path).unwrap();
    let file = File::options().write(true).open(&path).unwrap();
    file.set_len(end).unwrap();
    let (mut journal, _) = open(dir.path(), 0);
    journal.rotate().unwrap();
    let second = group(&mut journal, &[7]);
    fs::write(&path, both).unwrap();
    assert_eq!(open_all(dir.path(), 0).2, [(1, first), (2, second)]);
}

#[test]
fn what_a_recycled_file_had_does_not_count() {
    let dir = tempfile::tempdir().unwrap();
    let (mut journal, _) = open(dir.path(), 0);
    for _ in 0..3 {
        group(&mut journal, &[1000, 10]);
    }
    let retire_last = |journal: &mut Journal, read: bool| {
        let sealed = journal.rotate().unwrap();
        let reader = read.then(|| Arc::clone(&sealed.file));
        let retired = retire(sealed, &journal.next_place());
        assert_eq!(retired.is_none(), read);
        if let Some((file, generation)) = retired {
            journal.recycled(file, generation);
        }
        reader
    };
    retire_last(&mut journal, false);
    assert_eq!(numbers(dir.path()), [2, 3]);
    let second = group(&mut journal, &[3]);
    let reader = retire_last(&mut journal, true);
    assert_eq!(numbers(dir.path()), [3], "who reads it keeps it");
    let third = group(&mut journal, &[1000]);
    assert!(journal.file().metadata().unwrap().len() >= EXTENT);
    assert_eq!(open_all(dir.path(), 2).2, [(3, third)]);
    let Entry::Put(_, _, place) = second[0] else {
        panic!("a row comes first")
    };
    assert_eq!(*place.read(&reader.unwrap()).unwrap(), [1, 1, 1]);
    // A file without groups of its own generation, as a crash leaves it.
    fs::rename(path_of(dir.path(), 3), path_of(dir.path(), 9)).unwrap();
    assert_eq!(open(dir.path(), 8).1.len(), 0);
}

/// A copy of a journal under another generation's name has nothing to say.
#[test]
fn a_renamed_journal_does_not_count() {
    let dir = tempfile::tempdir().unwrap();
    let (mut journal, _) = open(dir.path(), 0);
    group(&mut journal, &[5]);
    fs::rename(path_of(dir.path(), 1), path_of(dir.path(), 2)).unwrap();
    assert_eq!(open(dir.path(), 1).1.len(), 0);
}

#[test]
fn the_newest_journal_that_has_anything_is_written_again_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let (mut journal, _) = open(dir.path(), 0);
    for vb in 1..=2 {
        let mut group = journal.begin();
        let key = crate::record::row_key(VbId(vb), Seqno(1));
        let put = |out: &mut Vec<u8>| {
            out.resize(out.len() + 100_000, 7);
            &[][..]
        };
        journal.put(&mut group, &key, put).unwrap();
        journal.finish(group).unwrap();
        journal.sync().unwrap();
        if vb == 1 {
            journal.rotate().unwrap();
        }
    }
    prepare(&journal.next_place()).unwrap();
    drop(journal);
    let past = std::time::SystemTime::UNIX_EPOCH;
    let journals: Vec<PathBuf> = (1..=3).map(|one| path_of(dir.path(), one)).collect();
    let before: Vec<Vec<u8>> = journals.iter().map(|one| fs::read(one).unwrap()).collect();
    for path in &journals {
        let file = File::options().write(true).open(path).unwrap();
        file.set_modified(past).unwrap();
    }
    Journal::write_again(dir.path()).unwrap();
    let written = |path: &PathBuf| fs::metadata(path).unwrap().modified().unwrap() != past;
    assert_eq!(
        journals.iter().map(written).collect::<Vec<_>>(),
        [false, true, false]
    );
    let after: Vec<Vec<u8>> = journals.iter().map(|one| fs::read(one).unwrap()).collect();
    assert!(before == after, "as they were");
}
