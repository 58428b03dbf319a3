package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/couchbase/gocbcore/v10"
	"github.com/couchbase/gocbcore/v10/memd"
)

// newConnector connects as the DCP client of Trendyol's connectors does (github.com/Trendyol/go-dcp, which drives this
// agent): seeds of HTTP, opened as a producer and nothing else, with expirations asked for, values compressed.
func newConnector(n *node, collections bool) *consumer {
	port := n.ports.HTTP
	if overTLS {
		port = n.ports.HTTPS
	}
	return connectConsumer(gocbcore.DCPAgentConfig{
		SeedConfig:        gocbcore.SeedConfig{HTTPAddrs: []string{fmt.Sprintf("127.0.0.1:%d", port)}},
		SecurityConfig:    security(n.sdkPort()),
		CompressionConfig: gocbcore.CompressionConfig{Enabled: true},
		IoConfig:          gocbcore.IoConfig{UseCollections: collections},
		DCPConfig:         gocbcore.DCPConfig{BufferSize: defaultBytes, UseExpiryOpcode: true},
	}, memd.DcpOpenFlagProducer)
}

// checkpoint is what a connector keeps of a vBucket between two lives.
type checkpoint struct {
	UUID          uint64 `json:"uuid"`
	Seqno         uint64 `json:"seqno"`
	SnapshotStart uint64 `json:"start"`
	SnapshotEnd   uint64 `json:"end"`
}

func (c *consumer) saveCheckpoints(path string) {
	c.lock.Lock()
	defer c.lock.Unlock()
	all := make([]checkpoint, vbuckets)
	for vbucket := range c.views {
		uuid, at := c.views[vbucket].resume()
		all[vbucket] = checkpoint{uint64(uuid), at.seqno, at.snapshotStart, at.snapshotEnd}
	}
	must(os.WriteFile(path, must1(json.Marshal(all)), 0o600), "write checkpoints")
}

// loadCheckpoints has an unused consumer begin where another one was.
func (c *consumer) loadCheckpoints(path string) {
	all := make([]checkpoint, vbuckets)
	must(json.Unmarshal(must1(os.ReadFile(path)), &all), "read checkpoints")
	for vbucket, at := range all {
		view := &c.views[vbucket]
		view.place = place{at.Seqno, at.SnapshotStart, at.SnapshotEnd}
		view.failovers = []gocbcore.FailoverEntry{{VbUUID: gocbcore.VbUUID(at.UUID)}}
	}
}

// servesConnectors streams every kind of change to a connector, which goes on from its checkpoints after it was away.
func servesConnectors(w *world) {
	for _, collections := range []bool{false, true} {
		w.servesConnector(collections)
	}
}

func (w *world) servesConnector(collections bool) {
	named := func(what string) string { return fmt.Sprintf("connector-%v-%s", collections, what) }
	write := func(what string, expiry uint32) {
		w.expected[named(what)] = must1(set(w.agent, named(what), `{"for":"connectors"}`, expiry))
	}
	c := newConnector(w.node, collections)
	c.streamAll()
	for _, what := range []string{"stays", "leaves", "gone"} {
		write(what, 0)
	}
	write("short", 1)
	w.expected[named("gone")] = must1(remove(w.agent, named("gone")))
	eventually("the document expires", 20*time.Second, func() error {
		_, err := get(w.agent, named("short"))
		if err == nil {
			return fmt.Errorf("it is there")
		}
		return nil
	})
	delete(w.expected, named("short"))
	c.catchUp(catchUpLimit)
	documents := c.documents()
	stays, gone, short := documents[named("stays")], documents[named("gone")], documents[named("short")]
	equal(stays.value, `{"for":"connectors"}`, "a mutation")
	if !gone.deleted || gone.expired || gone.deletedAt == 0 {
		fail("a deletion with its time: %+v", gone)
	}
	if !short.expired || short.deletedAt == 0 {
		fail("an expiration with its time: %+v", short)
	}
	path := filepath.Join(w.node.home, "checkpoints.json")
	c.saveCheckpoints(path)
	c.close()

	w.expected[named("leaves")] = must1(remove(w.agent, named("leaves")))
	write("later", 0)
	must(w.node.stop(), "stop")
	must(w.node.start(), "start")
	c = newConnector(w.node, collections)
	defer c.close()
	c.loadCheckpoints(path)
	c.streamAll()
	c.catchUp(catchUpLimit)
	documents = c.documents()
	if !documents[named("leaves")].deleted || documents[named("later")].seqno != w.expected[named("later")].seqno {
		fail("what was missed: %+v", documents)
	}
	equal(len(documents), 2, "changes since the checkpoints")
}
