package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/couchbase/gocbcore/v10"
	"github.com/couchbase/gocbcore/v10/memd"
)

// observer tells in words what one stream says.
type observer struct {
	told chan string
}

func (o *observer) say(format string, arguments ...any) {
	o.told <- fmt.Sprintf(format, arguments...)
}

func (o *observer) SnapshotMarker(gocbcore.DcpSnapshotMarker) {}
func (o *observer) Mutation(m gocbcore.DcpMutation)           { o.say("%d/%s", m.CollectionID, m.Key) }
func (o *observer) Deletion(d gocbcore.DcpDeletion)           { o.say("%d/%s gone", d.CollectionID, d.Key) }
func (o *observer) Expiration(e gocbcore.DcpExpiration) {
	o.say("%d/%s expired", e.CollectionID, e.Key)
}
func (o *observer) SeqNoAdvanced(gocbcore.DcpSeqNoAdvanced) {}
func (o *observer) CreateCollection(c gocbcore.DcpCollectionCreation) {
	o.say("begin %d %s", c.CollectionID, c.Key)
}
func (o *observer) DeleteCollection(c gocbcore.DcpCollectionDeletion) {
	o.say("end %d", c.CollectionID)
}
func (o *observer) FlushCollection(gocbcore.DcpCollectionFlush) { o.say("flush") }
func (o *observer) CreateScope(s gocbcore.DcpScopeCreation)     { o.say("scope %s", s.Key) }
func (o *observer) DeleteScope(gocbcore.DcpScopeDeletion)       { o.say("end of the scope") }
func (o *observer) ModifyCollection(c gocbcore.DcpCollectionModification) {
	o.say("modify %d", c.CollectionID)
}
func (o *observer) OSOSnapshot(s gocbcore.DcpOSOSnapshot) {
	if s.SnapshotType == 1 {
		o.say("any order begins")
	} else {
		o.say("any order ends")
	}
}
func (o *observer) End(_ gocbcore.DcpStreamEnd, err error) {
	if errors.Is(err, gocbcore.ErrDCPStreamFilterEmpty) {
		o.say("filter empty")
	} else if err != nil && !errors.Is(err, gocbcore.ErrDCPStreamClosed) {
		o.say("end: %v", err)
	}
}

// expects waits for exactly these, in this order.
func (o *observer) expects(expected ...string) {
	for _, wanted := range expected {
		select {
		case told := <-o.told:
			equal(told, wanted, "what the stream says")
		case <-time.After(catchUpLimit):
			fail("the stream does not say %s", wanted)
		}
	}
}

// manage makes a management call about scopes and collections.
func (w *world) manage(method, path string, form url.Values) {
	address := fmt.Sprintf("http://127.0.0.1:%d/pools/default/buckets/default/scopes%s", w.node.ports.HTTP, path)
	request := must1(http.NewRequest(method, address, strings.NewReader(form.Encode())))
	request.SetBasicAuth("Administrator", "password")
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	response := must1(http.DefaultClient.Do(request))
	defer response.Body.Close()
	var answer struct{ UID string }
	must(json.NewDecoder(response.Body).Decode(&answer), "answer")
	if response.StatusCode != http.StatusOK || answer.UID == "" {
		fail("%s %s: %s", method, path, response.Status)
	}
}

// collectionID asks the node for the number of a collection.
func (w *world) collectionID(name string) uint32 {
	return must1(await(func(done func(*gocbcore.GetCollectionIDResult, error)) error {
		_, err := w.agent.GetCollectionID("dcp", name, gocbcore.GetCollectionIDOptions{}, done)
		return err
	})).CollectionID
}

// write stores a document whose key decides its vBucket, in a collection of the scope.
func (w *world) write(collection, key string) uint16 {
	options := gocbcore.SetOptions{
		Key: []byte(key), Value: []byte("{}"), Deadline: time.Now().Add(operationLimit),
		ScopeName: "dcp", CollectionName: collection,
	}
	return must1(await(func(done func(*gocbcore.StoreResult, error)) error {
		_, err := w.agent.Set(options, done)
		return err
	})).MutationToken.VbID
}

// vbucketOf is the vBucket that a key decides.
func vbucketOf(key string) uint16 {
	return uint16(crc32.ChecksumIEEE([]byte(key)) >> 16 & 0x7fff % uint32(vbuckets))
}

// followsCollections streams a collection and a scope that come, change and go.
func followsCollections(w *world) {
	c := newConsumer(w.node.sdkPort(), defaultBytes)
	defer c.close()
	w.manage("POST", "", url.Values{"name": {"dcp"}})
	w.manage("POST", "/dcp/collections", url.Values{"name": {"one"}})
	w.manage("POST", "/dcp/collections", url.Values{"name": {"two"}})
	one := w.collectionID("one")
	vbucket := w.write("one", "key")
	equal(w.write("two", "key"), vbucket, "vBucket of the same key")

	open := func(options gocbcore.OpenStreamOptions) *observer {
		o := &observer{make(chan string, 1000)}
		must1(await(func(done func([]gocbcore.FailoverEntry, error)) error {
			_, err := c.agent.OpenStream(vbucket, memd.DcpStreamAddFlagActiveOnly, 0, 0, ^gocbcore.SeqNo(0), 0, 0, o, options, done)
			return err
		}))
		return o
	}
	filter := gocbcore.OpenStreamFilterOptions{CollectionIDs: []uint32{one}}
	o := open(gocbcore.OpenStreamOptions{FilterOptions: &filter})
	o.expects(fmt.Sprintf("begin %d one", one), fmt.Sprintf("%d/key", one))
	w.write("two", "key")
	w.write("one", "key")
	o.expects(fmt.Sprintf("%d/key", one))
	w.manage("PATCH", "/dcp/collections/one", url.Values{"maxTTL": {"1000"}})
	o.expects(fmt.Sprintf("modify %d", one))
	w.manage("DELETE", "/dcp/collections/one", nil)
	o.expects(fmt.Sprintf("end %d", one), "filter empty")

	w.manage("DELETE", "/dcp", nil)
	_, err := await(func(done func(*gocbcore.GetCollectionIDResult, error)) error {
		_, err := w.agent.GetCollectionID("dcp", "two", gocbcore.GetCollectionIDOptions{Deadline: time.Now().Add(2 * time.Second)}, done)
		return err
	})
	refused(err, "a scope that is gone", gocbcore.ErrScopeNotFound, gocbcore.ErrTimeout)
}

// takesAnyOrder streams a small collection of a vBucket that is no longer in memory, by key, and
// follows it from there.
func takesAnyOrder(w *world) {
	w.manage("POST", "", url.Values{"name": {"dcp"}})
	w.manage("POST", "/dcp/collections", url.Values{"name": {"few"}})
	w.manage("POST", "/dcp/collections", url.Values{"name": {"many"}})
	few := w.collectionID("few")
	// A key of a vBucket, beside many that nobody asks for.
	var keys []string
	vbucket := w.write("many", "key")
	equal(vbucketOf("key"), vbucket, "vBucket of a key")
	for number, others := 0, 0; others < 30; number++ {
		key := fmt.Sprintf("key-%d", number)
		if vbucketOf(key) != vbucket {
			continue
		}
		w.write("many", key)
		others++
		if len(keys) < 1 {
			w.write("few", key)
			keys = append(keys, key)
		}
	}
	must(w.node.stop(), "stop")
	must(w.node.start(), "start")

	c := newConsumerOf(w.node.sdkPort(), gocbcore.DCPConfig{BufferSize: defaultBytes, UseExpiryOpcode: true, UseOSOBackfill: true})
	defer c.close()
	filter := gocbcore.OpenStreamFilterOptions{CollectionIDs: []uint32{few}}
	o := &observer{make(chan string, 1000)}
	must1(await(func(done func([]gocbcore.FailoverEntry, error)) error {
		_, err := c.agent.OpenStream(vbucket, memd.DcpStreamAddFlagActiveOnly, 0, 0, ^gocbcore.SeqNo(0), 0, 0, o, gocbcore.OpenStreamOptions{FilterOptions: &filter}, done)
		return err
	}))
	o.expects("any order begins", fmt.Sprintf("begin %d few", few))
	for index := range keys {
		o.expects(fmt.Sprintf("%d/%s", few, keys[len(keys)-1-index]))
	}
	o.expects("any order ends")
	w.write("few", keys[0])
	o.expects(fmt.Sprintf("%d/%s", few, keys[0]))
	w.manage("DELETE", "/dcp", nil)
}
