package main

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/couchbase/gocbcore/v10"
	"github.com/couchbase/gocbcore/v10/memd"
)

// consumer streams vBuckets through a DCP agent into views, and takes every stream up again where
// it broke off.
type consumer struct {
	agent *gocbcore.DCPAgent

	lock      sync.Mutex
	views     []vbucketView
	open      []*stream
	opened    int
	resumed   int
	rollbacks int
	memory    int
	disk      int
	broken    error
	closing   bool
	// Why streams ended, and how often.
	ends map[string]int
	// Whether collections may be made and dropped.
	anyCollection bool
	// Called for each change before it is noted, without the lock.
	pause func()
}

func newConsumer(port int, bufferBytes int) *consumer {
	return newConsumerOf(port, gocbcore.DCPConfig{BufferSize: bufferBytes, UseExpiryOpcode: true})
}

func newConsumerOf(port int, config gocbcore.DCPConfig) *consumer {
	return connectConsumer(gocbcore.DCPAgentConfig{
		SeedConfig:       gocbcore.SeedConfig{MemdAddrs: []string{fmt.Sprintf("127.0.0.1:%d", port)}},
		SecurityConfig:   security(port),
		IoConfig:         gocbcore.IoConfig{UseCollections: true},
		EnableCCCPPoller: true,
		DCPConfig:        config,
	}, memd.DcpOpenFlagProducer|memd.DcpOpenFlagIncludeDeleteTimes)
}

func connectConsumer(config gocbcore.DCPAgentConfig, flags memd.DcpOpenFlag) *consumer {
	if config.BucketName == "" {
		config.BucketName = "default"
	}
	config.KVConfig.ConnectTimeout = 10 * time.Second
	agent := must1(gocbcore.CreateDcpAgent(&config, fmt.Sprintf("settee-%d", time.Now().UnixNano()), flags))
	c := &consumer{
		agent: agent, views: make([]vbucketView, vbuckets), open: make([]*stream, vbuckets), ends: map[string]int{},
	}
	_, err := await(func(done func(*gocbcore.WaitUntilReadyResult, error)) error {
		_, err := agent.WaitUntilReady(time.Now().Add(20*time.Second), gocbcore.WaitUntilReadyOptions{
			ServiceTypes: []gocbcore.ServiceType{gocbcore.MemdService},
		}, done)
		return err
	})
	must(err, "the DCP agent gets ready")
	return c
}

// streamAll opens a stream of every vBucket from where its view is.
func (c *consumer) streamAll() {
	for vbucket := range uint16(vbuckets) {
		c.request(vbucket)
	}
}

func (c *consumer) request(vbucket uint16) {
	c.lock.Lock()
	if c.closing || c.broken != nil {
		c.lock.Unlock()
		return
	}
	s := &stream{consumer: c, vbucket: vbucket}
	c.open[vbucket] = s
	uuid, at := c.views[vbucket].resume()
	c.lock.Unlock()
	const noEnd = ^gocbcore.SeqNo(0)
	_, err := c.agent.OpenStream(vbucket, memd.DcpStreamAddFlagActiveOnly, uuid, gocbcore.SeqNo(at.seqno), noEnd,
		gocbcore.SeqNo(at.snapshotStart), gocbcore.SeqNo(at.snapshotEnd), s, gocbcore.OpenStreamOptions{},
		func(failovers []gocbcore.FailoverEntry, err error) { c.answered(s, at, failovers, err) })
	if err != nil {
		c.later(vbucket)
	}
}

// answered takes the answer to a stream request.
func (c *consumer) answered(s *stream, at place, failovers []gocbcore.FailoverEntry, err error) {
	c.lock.Lock()
	defer c.lock.Unlock()
	if c.open[s.vbucket] != s {
		return
	}
	var rollback gocbcore.DCPRollbackError
	view := &c.views[s.vbucket]
	switch {
	case err == nil && len(failovers) == 0:
		c.fail(s.vbucket, errors.New("an empty failover log"))
	case err == nil:
		view.opened(failovers)
		c.opened++
		if at.seqno > 0 {
			c.resumed++
		}
	case errors.As(err, &rollback):
		if uint64(rollback.SeqNo) >= at.seqno {
			c.fail(s.vbucket, fmt.Errorf("a rollback from %d to %d", at.seqno, rollback.SeqNo))
			return
		}
		c.rollbacks++
		view.rollBack(uint64(rollback.SeqNo))
		go c.request(s.vbucket)
	case errors.Is(err, gocbcore.ErrMemdRangeError), errors.Is(err, gocbcore.ErrMemdInvalidArgs):
		c.fail(s.vbucket, fmt.Errorf("stream request %+v: %w", at, err))
	default:
		c.later(s.vbucket)
	}
}

// later asks again in a moment: the connection is away.
func (c *consumer) later(vbucket uint16) {
	time.AfterFunc(20*time.Millisecond, func() { c.request(vbucket) })
}

// fail keeps the first thing that was wrong; the lock is held.
func (c *consumer) fail(vbucket uint16, err error) {
	if c.broken == nil {
		c.broken = fmt.Errorf("vBucket %d: %w", vbucket, err)
	}
}

// on runs with the view of an event's stream, unless that stream was given up meanwhile.
func (c *consumer) on(s *stream, what func(*vbucketView) error) {
	c.lock.Lock()
	defer c.lock.Unlock()
	if c.open[s.vbucket] != s {
		return
	}
	if err := what(&c.views[s.vbucket]); err != nil {
		c.fail(s.vbucket, err)
	}
}

// highSeqnos asks the node, through the consumer's connection.
func (c *consumer) highSeqnos() (map[uint16]uint64, error) {
	entries, err := await(func(done func([]gocbcore.VbSeqNoEntry, error)) error {
		_, err := c.agent.GetVbucketSeqnos(1, memd.VbucketStateActive, gocbcore.GetVbucketSeqnoOptions{}, done)
		return err
	})
	high := map[uint16]uint64{}
	for _, entry := range entries {
		high[entry.VbID] = uint64(entry.SeqNo)
	}
	return high, err
}

// catchUp waits until every view is where the node is.
func (c *consumer) catchUp(within time.Duration) {
	eventually("the views catch up", within, func() error {
		high, err := c.highSeqnos()
		if err != nil {
			return err
		}
		if len(high) != vbuckets {
			return fmt.Errorf("%d high seqnos", len(high))
		}
		c.lock.Lock()
		defer c.lock.Unlock()
		if c.broken != nil {
			panic(failure{c.broken.Error()})
		}
		for vbucket := range c.views {
			view := &c.views[vbucket]
			if view.seqno != high[uint16(vbucket)] {
				return fmt.Errorf("vBucket %d is at %d of %d (snapshot %d..%d)", vbucket, view.seqno,
					high[uint16(vbucket)], view.snapshotStart, view.snapshotEnd)
			}
		}
		return nil
	})
}

// documents is everything the streams said, the last of every key.
func (c *consumer) documents() map[string]change {
	c.lock.Lock()
	defer c.lock.Unlock()
	all := map[string]change{}
	for vbucket := range c.views {
		for key, last := range c.views[vbucket].documents() {
			all[key] = last
		}
	}
	return all
}

func (c *consumer) close() {
	c.lock.Lock()
	c.closing = true
	c.lock.Unlock()
	must(c.agent.Close(), "close the DCP agent")
}

// stream receives the events of one stream request.
type stream struct {
	consumer *consumer
	vbucket  uint16
}

func (s *stream) SnapshotMarker(marker gocbcore.DcpSnapshotMarker) {
	s.consumer.on(s, func(v *vbucketView) error {
		if marker.SnapshotType.HasInMemory() {
			s.consumer.memory++
		}
		if marker.SnapshotType.HasOnDisk() {
			s.consumer.disk++
		}
		return v.marker(marker.StartSeqNo, marker.EndSeqNo)
	})
}

func (s *stream) note(vbucket uint16, c change) {
	if s.consumer.pause != nil {
		s.consumer.pause()
	}
	s.consumer.on(s, func(v *vbucketView) error {
		if vbucket != s.vbucket {
			return fmt.Errorf("got %s of vBucket %d", c.key, vbucket)
		}
		return v.change(c)
	})
}

func (s *stream) Mutation(m gocbcore.DcpMutation) {
	s.note(m.VbID, change{key: string(m.Key), seqno: m.SeqNo, cas: m.Cas, value: string(m.Value)})
}

func (s *stream) Deletion(d gocbcore.DcpDeletion) {
	s.note(d.VbID, change{key: string(d.Key), seqno: d.SeqNo, cas: d.Cas, deleted: true, deletedAt: d.DeleteTime})
}

func (s *stream) Expiration(e gocbcore.DcpExpiration) {
	s.note(e.VbID, change{key: string(e.Key), seqno: e.SeqNo, cas: e.Cas, deleted: true, expired: true,
		deletedAt: e.DeleteTime})
}

func (s *stream) SeqNoAdvanced(a gocbcore.DcpSeqNoAdvanced) {
	s.consumer.on(s, func(v *vbucketView) error {
		if a.SeqNo < v.seqno || a.SeqNo > v.snapshotEnd {
			return fmt.Errorf("advanced to %d at %d in %d..%d", a.SeqNo, v.seqno, v.snapshotStart, v.snapshotEnd)
		}
		v.reach(a.SeqNo)
		return nil
	})
}

// End takes the stream up again, unless the consumer is done with it.
func (s *stream) End(_ gocbcore.DcpStreamEnd, err error) {
	s.consumer.lock.Lock()
	current := s.consumer.open[s.vbucket] == s
	if current {
		s.consumer.open[s.vbucket] = nil
		s.consumer.ends[reason(err)]++
		if errors.Is(err, gocbcore.ErrDCPBackfillFailed) || errors.Is(err, gocbcore.ErrDCPStreamFilterEmpty) {
			s.consumer.fail(s.vbucket, err)
		}
	}
	s.consumer.lock.Unlock()
	if current && err != nil && !errors.Is(err, gocbcore.ErrDCPStreamClosed) {
		go s.consumer.request(s.vbucket)
	}
}

func (s *stream) unexpected(what string) {
	s.consumer.on(s, func(*vbucketView) error { return errors.New("an unexpected " + what) })
}

// systemScope is the number of the scope _system.
const systemScope = 8

// CreateScope takes the beginning of the system's scope, which every bucket has.
func (s *stream) CreateScope(c gocbcore.DcpScopeCreation) {
	if string(c.Key) != "_system" && !s.consumer.anyCollection {
		s.unexpected("scope event")
		return
	}
	s.SeqNoAdvanced(gocbcore.DcpSeqNoAdvanced{VbID: c.VbID, SeqNo: c.SeqNo})
}

// CreateCollection takes the beginnings of the system's collections.
func (s *stream) CreateCollection(c gocbcore.DcpCollectionCreation) {
	if c.ScopeID != systemScope && !s.consumer.anyCollection {
		s.unexpected("collection event")
		return
	}
	s.SeqNoAdvanced(gocbcore.DcpSeqNoAdvanced{VbID: c.VbID, SeqNo: c.SeqNo})
}

func (s *stream) DeleteCollection(gocbcore.DcpCollectionDeletion) { s.unexpected("collection event") }
func (s *stream) FlushCollection(gocbcore.DcpCollectionFlush)     { s.unexpected("collection event") }
func (s *stream) DeleteScope(gocbcore.DcpScopeDeletion)           { s.unexpected("scope event") }
func (s *stream) ModifyCollection(gocbcore.DcpCollectionModification) {
	s.unexpected("collection event")
}
func (s *stream) OSOSnapshot(gocbcore.DcpOSOSnapshot) { s.unexpected("snapshot without order") }
