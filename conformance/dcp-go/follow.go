package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/couchbase/gocbcore/v10"
	"github.com/couchbase/gocbcore/v10/memd"
)

// told is what a follower shows of a bucket.
type told struct {
	Documents map[string]string `json:"documents"`
	Ends      map[string]int    `json:"ends"`
	Rollbacks int               `json:"rollbacks"`
}

// follow streams buckets of a cluster from all nodes while the cluster changes, and shows what it came to for each line
// of its input, until that ends.
func follow(seeds string, buckets []string) {
	consumers := map[string]*consumer{}
	for _, bucket := range buckets {
		c := connectConsumer(gocbcore.DCPAgentConfig{
			BucketName:       bucket,
			SeedConfig:       gocbcore.SeedConfig{MemdAddrs: strings.Split(seeds, ",")},
			SecurityConfig:   security(0),
			IoConfig:         gocbcore.IoConfig{UseCollections: true},
			EnableCCCPPoller: true,
			DCPConfig:        gocbcore.DCPConfig{BufferSize: defaultBytes, UseExpiryOpcode: true},
		}, memd.DcpOpenFlagProducer|memd.DcpOpenFlagIncludeDeleteTimes)
		c.anyCollection = true
		c.streamAll()
		consumers[bucket] = c
	}
	fmt.Println("round 1")
	input := bufio.NewScanner(os.Stdin)
	for input.Scan() && input.Text() != "stop" {
		all := map[string]told{}
		for bucket, c := range consumers {
			all[bucket] = c.tell()
		}
		fmt.Println("shows", string(must1(json.Marshal(all))))
	}
	fmt.Println("done 1")
}

func (c *consumer) tell() told {
	documents := map[string]string{}
	for key, last := range c.documents() {
		if !last.deleted {
			documents[key] = last.value
		}
	}
	c.lock.Lock()
	defer c.lock.Unlock()
	if c.broken != nil {
		fmt.Println("trouble", c.broken)
	}
	ends := map[string]int{}
	for reason, count := range c.ends {
		ends[reason] = count
	}
	return told{documents, ends, c.rollbacks}
}

// reason is why a stream ended, in a word.
func reason(err error) string {
	switch {
	case err == nil:
		return "end"
	case errors.Is(err, gocbcore.ErrDCPStreamStateChanged):
		return "state changed"
	case errors.Is(err, gocbcore.ErrDCPStreamClosed):
		return "closed"
	case errors.Is(err, gocbcore.ErrDCPStreamDisconnected), errors.Is(err, gocbcore.ErrSocketClosed):
		return "disconnected"
	default:
		return err.Error()
	}
}
