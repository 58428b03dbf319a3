// Command suite streams a node's changes through gocbcore's DCP agent, unmodified, into a view, and
// compares that view with what the node holds.
package main

import (
	"crypto/x509"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"time"

	"github.com/couchbase/gocbcore/v10"
	"github.com/couchbase/gocbcore/v10/memd"
)

const (
	suiteName = "dcp-go"
	// Generous: a machine may be busy with other things.
	catchUpLimit = 40 * time.Second
	defaultBytes = 1 << 20
)

// sealed has what is trusted at ports with TLS.
var sealed = map[int]*x509.CertPool{}

func security(port int) gocbcore.SecurityConfig {
	pool, overTLS := sealed[port]
	return gocbcore.SecurityConfig{
		Auth:              gocbcore.PasswordAuthProvider{Username: "Administrator", Password: "password"},
		UseTLS:            overTLS,
		TLSRootCAProvider: func() *x509.CertPool { return pool },
	}
}

type world struct {
	node  *node
	agent *gocbcore.Agent
	seed  uint64
	// What all loads so far came to.
	expected map[string]written
}

func main() {
	// Nodes are tied to the thread that starts them.
	runtime.LockOSThread()
	filter := ""
	if len(os.Args) > 4 && os.Args[1] == "follow" {
		follow(os.Args[2], os.Args[4:])
		return
	}
	if len(os.Args) > 1 {
		filter = os.Args[1]
	}
	w, err := newWorld()
	if err != nil {
		fmt.Println("FAIL dcp-go:", err)
		fmt.Println("0 passed, 1 failed")
		os.Exit(1)
	}
	fmt.Printf("SETTEE_SEED=%d\n", w.seed)
	held := runAll(w, tests, filter)
	if err := errors.Join(w.agent.Close(), w.node.close()); err != nil {
		fmt.Println("FAIL dcp-go: at the end:", err)
		held = false
	}
	if !held {
		os.Exit(1)
	}
}

func newWorld() (*world, error) {
	n, err := newNode()
	if err != nil {
		return nil, err
	}
	seed := uint64(1)
	if text := os.Getenv("SETTEE_SEED"); text != "" {
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			return nil, errors.Join(err, n.stop())
		}
	}
	if overTLS {
		sealed[n.ports.TLS] = n.authority()
	}
	agent, err := connect(n)
	if err != nil {
		return nil, errors.Join(err, n.stop())
	}
	return &world{n, agent, seed, map[string]written{}}, nil
}

// connect makes an agent for documents and waits until it is usable.
func connect(n *node) (*gocbcore.Agent, error) {
	agent, err := gocbcore.CreateAgent(&gocbcore.AgentConfig{
		BucketName:     "default",
		SeedConfig:     gocbcore.SeedConfig{MemdAddrs: []string{fmt.Sprintf("127.0.0.1:%d", n.sdkPort())}},
		SecurityConfig: security(n.sdkPort()),
		IoConfig:       gocbcore.IoConfig{UseMutationTokens: true, UseCollections: true},
		// By default a node that starts again is looked for each 5 s.
		KVConfig:             gocbcore.KVConfig{ServerWaitBackoff: 200 * time.Millisecond},
		DefaultRetryStrategy: gocbcore.NewBestEffortRetryStrategy(nil),
	})
	if err != nil {
		return nil, err
	}
	_, err = await(func(done func(*gocbcore.WaitUntilReadyResult, error)) error {
		_, err := agent.WaitUntilReady(time.Now().Add(20*time.Second), gocbcore.WaitUntilReadyOptions{
			ServiceTypes: []gocbcore.ServiceType{gocbcore.MemdService},
		}, done)
		return err
	})
	return agent, err
}

var tests = []test{
	{"streams_every_vbucket_from_zero_under_load", streamsUnderLoad},
	{"streams_what_is_on_disk_after_a_restart", streamsFromDisk},
	{"resumes_after_cuts_at_random_frames", resumesAfterCuts},
	{"keeps_to_a_buffer_of_16_kib", smallBuffer},
	{"waits_for_a_consumer_that_stops_reading", stoppedConsumer},
	{"tells_expirations", tellsExpirations},
	{"serves_connectors_that_ask_for_expirations_only", servesConnectors},
	{"ends_a_stream_that_is_closed", closesStream},
	{"ends_a_stream_at_its_end", endsStream},
	{"filters_by_collection", filtersByCollection},
	{"tells_where_to_roll_back", tellsRollback},
	{"refuses_wrong_requests", refusesWrongRequests},
	{"rolls_back_after_a_kill", rollsBackAfterKill},
	// The last one: what it makes is told to every stream from then on.
	{"follows_collections", followsCollections},
	{"takes_a_collection_in_any_order", takesAnyOrder},
}

// load runs writes and keeps what they came to.
func (w *world) load(prefix string, keys, operations int, during func(*load)) {
	l := startLoad(w.agent, prefix, keys, operations, w.seed)
	during(l)
	for key, last := range l.finish(false) {
		w.expected[key] = last
	}
}

// holds compares a consumer's view with what was confirmed, and with what the node holds.
func (w *world) holds(c *consumer) {
	c.catchUp(catchUpLimit)
	documents := c.documents()
	for key, last := range w.expected {
		seen, known := documents[key]
		if !known || seen.seqno != last.seqno || seen.cas != last.cas || seen.deleted != last.deleted {
			fail("%s: the node confirmed %+v, the stream said %+v (%v)", key, last, seen, known)
		}
		if seen.value != last.value {
			fail("%s has another value in the stream", key)
		}
	}
	live := 0
	for key, seen := range documents {
		if seen.deleted {
			continue
		}
		live++
		if _, known := w.expected[key]; !known {
			fail("%s is in the stream and was never written", key)
		}
	}
	w.reads(documents)
	if live == 0 {
		fail("the view is empty")
	}
}

// reads gets every document from the node and compares.
func (w *world) reads(documents map[string]change) {
	keys := make(chan change, len(documents))
	for _, seen := range documents {
		keys <- seen
	}
	close(keys)
	results := make(chan error, writers)
	for range writers {
		go func() { results <- w.readsSome(keys) }()
	}
	for range writers {
		must(<-results, "the view equals the node")
	}
}

func (w *world) readsSome(keys <-chan change) error {
	for seen := range keys {
		got, err := get(w.agent, seen.key)
		missing := errors.Is(err, gocbcore.ErrDocumentNotFound)
		if err != nil && !missing {
			return fmt.Errorf("get %s: %w", seen.key, err)
		}
		if missing != seen.deleted {
			return fmt.Errorf("%s: deleted in the view: %v, on the node: %v", seen.key, seen.deleted, missing)
		}
		if !missing && (string(got.Value) != seen.value || uint64(got.Cas) != seen.cas) {
			return fmt.Errorf("%s differs: CAS %d and %d", seen.key, got.Cas, seen.cas)
		}
	}
	return nil
}

func streamsUnderLoad(w *world) {
	c := newConsumer(w.node.sdkPort(), defaultBytes)
	defer c.close()
	w.load("load", 8_000, 40_000, func(*load) { c.streamAll() })
	w.holds(c)
	equal(c.opened, vbuckets, "streams opened")
	if c.memory == 0 {
		fail("no snapshot came from memory")
	}
}

func streamsFromDisk(w *world) {
	must(w.node.stop(), "stop")
	must(w.node.start(), "start")
	c := newConsumer(w.node.sdkPort(), defaultBytes)
	defer c.close()
	w.load("later", 2_000, 8_000, func(*load) { c.streamAll() })
	w.holds(c)
	if c.disk == 0 {
		fail("no snapshot came from disk")
	}
}

func resumesAfterCuts(w *world) {
	p := must1(newProxy(w.node.ports.KV, w.seed))
	defer p.close()
	c := newConsumer(p.port, defaultBytes)
	defer c.close()
	const cuts = 12
	p.cut(cuts, 6_000)
	w.load("cut", 8_000, 24_000, func(l *load) {
		c.streamAll()
		eventually("the cuts", catchUpLimit, func() error {
			if left := p.cutsLeft(); left > 0 && l.count.Load() < 24_000 {
				return fmt.Errorf("%d cuts are left", left)
			}
			return nil
		})
	})
	// A load that ended early leaves cuts for the rest of the stream.
	p.cut(0, 0)
	w.holds(c)
	if p.cutsLeft() > 0 || c.resumed == 0 {
		fail("%d streams were resumed", c.resumed)
	}
}

func smallBuffer(w *world) {
	c := newConsumer(w.node.sdkPort(), 16*1024)
	defer c.close()
	w.load("small", 500, 4_000, func(*load) { c.streamAll() })
	w.holds(c)
}

// pauseLength is how long the consumer stops reading: a minute in the long form.
func pauseLength() time.Duration {
	if os.Getenv("SETTEE_LONG") != "" {
		return time.Minute
	}
	return 4 * time.Second
}

func stoppedConsumer(w *world) {
	c := newConsumer(w.node.sdkPort(), 64*1024)
	defer c.close()
	gate := make(chan struct{})
	stopped := make(chan struct{}, 1)
	seen := 0
	c.pause = func() {
		if seen++; seen == 100 {
			stopped <- struct{}{}
			<-gate
		}
	}
	l := startLoad(w.agent, "stopped", 4_000, 1<<40, w.seed)
	c.streamAll()
	select {
	case <-stopped:
	case <-time.After(catchUpLimit):
		fail("nothing is streamed")
	}
	before := l.count.Load()
	time.Sleep(pauseLength())
	during := l.count.Load() - before
	close(gate)
	for key, last := range l.finish(true) {
		w.expected[key] = last
	}
	if during == 0 {
		fail("nothing was written while the consumer did not read")
	}
	w.holds(c)
}

func tellsExpirations(w *world) {
	c := newConsumer(w.node.sdkPort(), defaultBytes)
	defer c.close()
	c.streamAll()
	for n := range 20 {
		key := fmt.Sprintf("expiring-%d", n)
		last := must1(set(w.agent, key, `{"soon":"gone"}`, 1))
		last.deleted = true
		w.expected[key] = last
	}
	eventually("the documents expire", 20*time.Second, func() error {
		for n := range 20 {
			_, err := get(w.agent, fmt.Sprintf("expiring-%d", n))
			if !errors.Is(err, gocbcore.ErrDocumentNotFound) {
				return fmt.Errorf("%d is there: %w", n, err)
			}
		}
		return nil
	})
	c.catchUp(catchUpLimit)
	documents := c.documents()
	for n := range 20 {
		key := fmt.Sprintf("expiring-%d", n)
		seen := documents[key]
		if !seen.expired || seen.seqno <= w.expected[key].seqno {
			fail("%s: %+v", key, seen)
		}
		delete(w.expected, key)
	}
}

// ended records how a single stream ends; it keeps nothing else.
type ended struct {
	stream
	ends chan error
}

func (e *ended) End(_ gocbcore.DcpStreamEnd, err error) { e.ends <- err }

// single opens one stream of its own kind on a vBucket that the consumer does not stream itself.
func (c *consumer) single(vbucket uint16, uuid gocbcore.VbUUID, at place, end uint64,
	options gocbcore.OpenStreamOptions) (*ended, []gocbcore.FailoverEntry, error) {
	e := &ended{stream{consumer: c, vbucket: vbucket}, make(chan error, 1)}
	c.lock.Lock()
	c.open[vbucket] = &e.stream
	c.views[vbucket] = vbucketView{place: at}
	c.views[vbucket].opened(nil)
	c.lock.Unlock()
	failovers, err := await(func(done func([]gocbcore.FailoverEntry, error)) error {
		_, err := c.agent.OpenStream(vbucket, memd.DcpStreamAddFlagActiveOnly, uuid, gocbcore.SeqNo(at.seqno),
			gocbcore.SeqNo(end), gocbcore.SeqNo(at.snapshotStart), gocbcore.SeqNo(at.snapshotEnd), e, options, done)
		return err
	})
	return e, failovers, err
}

func (e *ended) wait() error {
	select {
	case err := <-e.ends:
		return err
	case <-time.After(catchUpLimit):
		fail("the stream does not end")
		return nil
	}
}

const noEnd = ^uint64(0)

// somewhere is a document's vBucket with at least one change.
func (w *world) somewhere(key string) written {
	last := must1(set(w.agent, key, `{"some":"where"}`, 0))
	w.expected[key] = last
	return last
}

func closesStream(w *world) {
	c := newConsumer(w.node.sdkPort(), defaultBytes)
	defer c.close()
	vbucket := w.somewhere("closed").vbucket
	e, _, err := c.single(vbucket, 0, place{}, noEnd, gocbcore.OpenStreamOptions{})
	must(err, "open")
	_, err = await(func(done func(struct{}, error)) error {
		_, err := c.agent.CloseStream(vbucket, gocbcore.CloseStreamOptions{}, func(err error) { done(struct{}{}, err) })
		return err
	})
	must(err, "close")
	refused(e.wait(), "end", gocbcore.ErrDCPStreamClosed)
	// The connection and the vBucket are as good as new.
	_, _, err = c.single(vbucket, 0, place{}, noEnd, gocbcore.OpenStreamOptions{})
	must(err, "open again")
}

func endsStream(w *world) {
	c := newConsumer(w.node.sdkPort(), defaultBytes)
	defer c.close()
	first := w.somewhere("ending")
	last := w.somewhere("ending")
	e, _, err := c.single(first.vbucket, 0, place{}, first.seqno, gocbcore.OpenStreamOptions{})
	must(err, "open")
	must(e.wait(), "end")
	// The store may still have the first version. If it has not, the second one is in the snapshot that holds the end.
	view := c.views[first.vbucket]
	cas := view.documents()["ending"].cas
	if view.seqno != view.snapshotEnd || cas != first.cas && cas != last.cas {
		fail("the stream ended at %d in a snapshot to %d, with the document of CAS %d", view.seqno, view.snapshotEnd, cas)
	}
	must(c.broken, "the stream")
}

func filtersByCollection(w *world) {
	c := newConsumer(w.node.sdkPort(), defaultBytes)
	defer c.close()
	last := w.somewhere("filtered")
	filter := func(collections ...uint32) gocbcore.OpenStreamOptions {
		return gocbcore.OpenStreamOptions{FilterOptions: &gocbcore.OpenStreamFilterOptions{CollectionIDs: collections}}
	}
	_, _, err := c.single(last.vbucket, 0, place{}, noEnd, filter(0x5e77))
	refused(err, "an unknown collection", gocbcore.ErrCollectionNotFound)
	_, _, err = c.single(last.vbucket, 0, place{}, noEnd, filter(0))
	must(err, "the default collection")
	eventually("the document", catchUpLimit, func() error {
		c.lock.Lock()
		defer c.lock.Unlock()
		if seen := c.views[last.vbucket].documents()["filtered"]; seen.seqno != last.seqno {
			return fmt.Errorf("%+v", seen)
		}
		return c.broken
	})
}

func tellsRollback(w *world) {
	c := newConsumer(w.node.sdkPort(), defaultBytes)
	defer c.close()
	last := w.somewhere("rollback")
	failovers := must1(await(func(done func([]gocbcore.FailoverEntry, error)) error {
		_, err := c.agent.GetFailoverLog(last.vbucket, done)
		return err
	}))
	uuid := failovers[0].VbUUID
	high := must1(c.highSeqnos())[last.vbucket]
	at := func(seqno uint64) place { return place{seqno, seqno, seqno} }
	cases := []struct {
		name string
		uuid gocbcore.VbUUID
		at   place
		to   uint64
	}{
		{"an unknown branch", uuid + 1, at(1), 0},
		{"an unknown branch at the top", uuid + 1, at(high), 0},
		{"ahead of the node", uuid, at(high + 100), high},
		{"a snapshot that reaches beyond", uuid, place{high, high - 1, high + 10}, high - 1},
	}
	for _, one := range cases {
		_, _, err := c.single(last.vbucket, one.uuid, one.at, noEnd, gocbcore.OpenStreamOptions{})
		var rollback gocbcore.DCPRollbackError
		if !errors.As(err, &rollback) {
			fail("%s: %v", one.name, err)
		}
		equal(uint64(rollback.SeqNo), one.to, one.name)
	}
	_, got, err := c.single(last.vbucket, uuid, at(high), noEnd, gocbcore.OpenStreamOptions{})
	must(err, "a known branch")
	equal(got, failovers, "failover log")
}

func refusesWrongRequests(w *world) {
	c := newConsumer(w.node.sdkPort(), defaultBytes)
	defer c.close()
	last := w.somewhere("wrong")
	_, _, err := c.single(last.vbucket, 0, place{2, 2, 2}, 1, gocbcore.OpenStreamOptions{})
	refused(err, "an end before the start", gocbcore.ErrMemdRangeError)
	_, _, err = c.single(last.vbucket, 0, place{1, 2, 3}, noEnd, gocbcore.OpenStreamOptions{})
	refused(err, "a start outside its snapshot", gocbcore.ErrMemdRangeError)
	_, _, err = c.single(last.vbucket, 0, place{}, noEnd, gocbcore.OpenStreamOptions{})
	must(err, "open")
	_, _, err = c.single(last.vbucket, 0, place{}, noEnd, gocbcore.OpenStreamOptions{})
	refused(err, "a second stream of one vBucket", gocbcore.ErrDocumentExists, gocbcore.ErrMemdKeyExists)
}

// rollsBackAfterKill kills the node under a load: what it had streamed and not persisted is gone,
// and the consumer goes back with it.
func rollsBackAfterKill(w *world) {
	c := newConsumer(w.node.sdkPort(), defaultBytes)
	defer c.close()
	c.streamAll()
	c.catchUp(catchUpLimit)
	l := startLoad(w.agent, "killed", 4_000, 1<<40, w.seed)
	random := rand.New(rand.NewPCG(w.seed, 99))
	goal := int64(3_000 + random.IntN(3_000))
	eventually("the load", catchUpLimit, func() error {
		if count := l.count.Load(); count < goal {
			return fmt.Errorf("%d writes", count)
		}
		return nil
	})
	must(w.node.kill(), "kill")
	must(w.node.start(), "start")
	l.ending.Store(true)
	l.done.Wait()
	c.catchUp(catchUpLimit)
	// What was not persisted may be lost: the node decides, and the view agrees with it.
	w.reads(c.documents())
}
