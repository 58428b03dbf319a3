package main

import (
	"fmt"
	"slices"

	"github.com/couchbase/gocbcore/v10"
)

// place is from where a stream goes on.
type place struct {
	seqno, snapshotStart, snapshotEnd uint64
}

// change is one change of a document as a stream told it.
type change struct {
	key     string
	seqno   uint64
	cas     uint64
	deleted bool
	expired bool
	// When it was deleted, Unix seconds, as far as the stream tells.
	deletedAt uint32
	value     string
}

// vbucketView is what the streams of one vBucket came to: everything they said, in its order, and
// the ends of complete snapshots, to which it can go back.
type vbucketView struct {
	place
	failovers []gocbcore.FailoverEntry
	history   []change
	complete  []uint64
	// Where the snapshot begins that the stream announced; 0 while it has announced none.
	announced uint64
	// Keys of the snapshot so far: none comes twice.
	keys map[string]struct{}
}

// opened begins a stream that goes on from the view's place.
func (v *vbucketView) opened(failovers []gocbcore.FailoverEntry) {
	v.failovers, v.announced, v.keys = failovers, 0, map[string]struct{}{}
}

func (v *vbucketView) marker(start, end uint64) error {
	if v.announced > 0 && v.seqno != v.snapshotEnd {
		return fmt.Errorf("a marker %d..%d inside the snapshot %d..%d at %d", start, end,
			v.announced, v.snapshotEnd, v.seqno)
	}
	if end < start || end <= v.seqno {
		return fmt.Errorf("a marker %d..%d at %d", start, end, v.seqno)
	}
	// What is left of a snapshot that broke off and the new one are one: only its end is consistent.
	if v.seqno == v.snapshotEnd {
		v.snapshotStart = v.seqno
	}
	v.snapshotEnd, v.announced = end, max(start, 1)
	v.keys = map[string]struct{}{}
	return nil
}

func (v *vbucketView) change(c change) error {
	if c.seqno <= v.seqno {
		return fmt.Errorf("%s at %d comes after %d", c.key, c.seqno, v.seqno)
	}
	if v.announced == 0 || c.seqno < v.announced || c.seqno > v.snapshotEnd {
		return fmt.Errorf("%s at %d is outside the snapshot %d..%d", c.key, c.seqno, v.announced, v.snapshotEnd)
	}
	if _, twice := v.keys[c.key]; twice {
		return fmt.Errorf("%s comes twice in the snapshot %d..%d", c.key, v.announced, v.snapshotEnd)
	}
	v.keys[c.key] = struct{}{}
	v.history = append(v.history, c)
	v.reach(c.seqno)
	return nil
}

// reach notes that everything up to the seqno was said.
func (v *vbucketView) reach(seqno uint64) {
	v.seqno = seqno
	if seqno == v.snapshotEnd {
		v.complete = append(v.complete, seqno)
	}
}

// resume is how a stream request says where the view is: the branch it knows, and the snapshot.
func (v *vbucketView) resume() (uuid gocbcore.VbUUID, at place) {
	if v.seqno == v.snapshotEnd {
		v.snapshotStart = v.seqno
	}
	if v.seqno == 0 {
		return 0, v.place
	}
	for _, entry := range v.failovers {
		if uint64(entry.SeqNo) <= v.snapshotEnd {
			return entry.VbUUID, v.place
		}
	}
	return 0, v.place
}

// rollBack forgets everything after the nearest complete snapshot that ends at or before the seqno.
func (v *vbucketView) rollBack(seqno uint64) {
	v.complete = slices.DeleteFunc(v.complete, func(end uint64) bool { return end > seqno })
	to := uint64(0)
	if len(v.complete) > 0 {
		to = v.complete[len(v.complete)-1]
	}
	v.history = slices.DeleteFunc(v.history, func(c change) bool { return c.seqno > to })
	v.place = place{to, to, to}
	v.announced = 0
}

// documents is the last change of every key.
func (v *vbucketView) documents() map[string]change {
	last := map[string]change{}
	for _, c := range v.history {
		last[c.key] = c
	}
	return last
}
