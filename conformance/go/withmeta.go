package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/couchbase/gocbcore/v10"
)

// metadata of a document as one site hands it to another.
type metadata struct {
	cas    gocbcore.Cas
	rev    uint64
	flags  uint32
	expiry uint32
}

// router calls the SDK's lower layer, which replication between sites uses, and waits for its answer.
type router struct{ agent *gocbcore.Agent }

func deadline() time.Time { return time.Now().Add(10 * time.Second) }

// wait hands op a function to call with the outcome, and returns that.
func wait(op func(done func(error)) error) error {
	outcome := make(chan error, 1)
	if err := op(func(err error) { outcome <- err }); err != nil {
		return err
	}
	return <-outcome
}

func (r router) set(key, value string, m metadata) error {
	return wait(func(done func(error)) error {
		_, err := r.agent.SetMeta(gocbcore.SetMetaOptions{
			Key: []byte(key), Value: []byte(value), Flags: m.flags, Expiry: m.expiry, Cas: m.cas, RevNo: m.rev, Deadline: deadline(),
		}, func(_ *gocbcore.SetMetaResult, err error) { done(err) })
		return err
	})
}

func (r router) delete(key string, m metadata) error {
	return wait(func(done func(error)) error {
		_, err := r.agent.DeleteMeta(gocbcore.DeleteMetaOptions{
			Key: []byte(key), Flags: m.flags, Expiry: m.expiry, Cas: m.cas, RevNo: m.rev, Deadline: deadline(),
		}, func(_ *gocbcore.DeleteMetaResult, err error) { done(err) })
		return err
	})
}

// get tells the metadata, and whether the document is deleted.
func (r router) get(key string) (found metadata, deleted bool, err error) {
	err = wait(func(done func(error)) error {
		_, err := r.agent.GetMeta(gocbcore.GetMetaOptions{Key: []byte(key), Deadline: deadline()},
			func(result *gocbcore.GetMetaResult, err error) {
				if err == nil {
					found = metadata{result.Cas, uint64(result.SeqNo), result.Flags, result.Expiry}
					deleted = result.Deleted != 0
				}
				done(err)
			})
		return err
	})
	return found, deleted, err
}

func (r router) mustBe(key string, expected metadata, deleted bool) {
	found, gone, err := r.get(key)
	must(err, "read metadata")
	equal(found, expected, "metadata of "+key)
	equal(gone, deleted, "whether "+key+" is deleted")
}

// writesWithMetadata stores and deletes documents with the CAS and the revision that another site gave them.
func writesWithMetadata(w *world) {
	r := router{must1(w.bucket.Internal().IORouter())}
	first := metadata{cas: 0x1600_0000_0001_0000, rev: 7, flags: 0x0200_0006, expiry: 4_000_000_000}
	key := "with-metadata"
	must(r.set(key, `{"from":"afar"}`, first), "set with metadata")
	r.mustBe(key, first, false)
	holds(w.collection, key, document{"from": "afar"})

	older, newer := first, first
	older.rev, older.cas = 6, first.cas+1
	newer.rev = 9
	lost := r.set(key, `{}`, older)
	if !errors.Is(lost, gocbcore.ErrDocumentExists) && !errors.Is(lost, gocbcore.ErrCasMismatch) {
		panic(fmt.Sprintf("an older version: %v", lost))
	}
	holds(w.collection, key, document{"from": "afar"})
	// What the node itself does goes on from there.
	must1(w.collection.Upsert(key, document{"from": "here"}, nil))
	own, _, err := r.get(key)
	must(err, "read metadata")
	equal(own.rev, uint64(8), "revision of a change here")

	must(r.set(key, `{"from":"afar again"}`, newer), "a newer version")
	r.mustBe(key, newer, false)
	deletion := metadata{cas: newer.cas + 1, rev: 10, expiry: 1_700_000_000}
	must(r.delete(key, deletion), "delete with metadata")
	r.mustBe(key, deletion, true)
	if err := r.set(key, `{}`, newer); err == nil {
		panic("an older version came back after the deletion")
	}
}
