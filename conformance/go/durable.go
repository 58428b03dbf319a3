package main

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/couchbase/gocb/v2"
)

// Of the binary protocol: what is needed to tell a vBucket which nodes hold it.
const (
	hello        = 0x1f
	saslAuth     = 0x21
	selectBucket = 0x89
	setVbucket   = 0x3d
	jsonDatatype = 1
	activeState  = 1
)

var levels = []gocb.DurabilityLevel{
	gocb.DurabilityLevelMajority,
	gocb.DurabilityLevelMajorityAndPersistOnMaster,
	gocb.DurabilityLevelPersistToMajority,
}

func writesDurably(w *world) {
	c := w.collection
	var written *gocb.MutationResult
	for _, level := range levels {
		written = must1(c.Upsert("sync", document{"n": "1"}, &gocb.UpsertOptions{DurabilityLevel: level}))
		stale := written.Cas()
		written = must1(c.Replace("sync", document{"n": "2"}, &gocb.ReplaceOptions{Cas: stale, DurabilityLevel: level}))
		_, err := c.Replace("sync", document{"n": "3"}, &gocb.ReplaceOptions{Cas: stale, DurabilityLevel: level})
		refused(err, "a stale CAS", gocb.ErrCasMismatch)
		holds(c, "sync", document{"n": "2"})
		must1(c.Remove("sync", &gocb.RemoveOptions{DurabilityLevel: level}))
	}
	written = must1(c.Upsert("sync", document{"n": "old"}, nil))
	vbucket := uint16(written.MutationToken().PartitionID())
	durably := &gocb.UpsertOptions{DurabilityLevel: gocb.DurabilityLevelMajority, Timeout: 2 * time.Second}
	must(heldBy(w, vbucket, `[["here",null]]`), "a topology that lacks a node")
	_, err := c.Upsert("sync", document{"n": "new"}, durably)
	refused(err, "too few nodes", gocb.ErrDurabilityImpossible)
	must(heldBy(w, vbucket, `[["here","there"]]`), "a topology with a node that does not answer")
	_, err = c.Upsert("sync", document{"n": "new"}, durably)
	refused(err, "nobody else acknowledges", gocb.ErrDurabilityAmbiguous, gocb.ErrAmbiguousTimeout)
	eventually("the write is given up", 10*time.Second, func() error {
		_, err := c.Upsert("sync", document{"n": "later"}, &gocb.UpsertOptions{RetryStrategy: failFast{}})
		return err
	})
	must(heldBy(w, vbucket, `[["here"]]`), "a topology of this node alone")
	must1(c.Upsert("sync", document{"n": "new"}, durably))
	holds(c, "sync", document{"n": "new"})
}

// heldBy makes the node active for the vBucket, with these chains of nodes.
func heldBy(w *world, vbucket uint16, chains string) error {
	connection, err := net.DialTimeout("tcp", fmt.Sprintf("127.0.0.1:%d", w.node.ports.KV), 5*time.Second)
	if err != nil {
		return err
	}
	defer connection.Close()
	topology := fmt.Sprintf(`{"topology":%s}`, chains)
	steps := []error{
		connection.SetDeadline(time.Now().Add(10 * time.Second)),
		call(connection, hello, 0, 0, nil, "settee-conformance", "\x00\x0b"),
		call(connection, saslAuth, 0, 0, nil, "PLAIN", "\x00Administrator\x00password"),
		call(connection, selectBucket, 0, 0, nil, "default", ""),
		call(connection, setVbucket, vbucket, jsonDatatype, []byte{activeState}, "", topology),
	}
	for _, err := range steps {
		if err != nil {
			return err
		}
	}
	return nil
}

// call sends one request and expects that it succeeds.
func call(peer net.Conn, opcode byte, vbucket uint16, datatype byte, extras []byte, key, value string) error {
	head := make([]byte, 24, 24+len(extras)+len(key)+len(value))
	head[0], head[1] = 0x80, opcode
	binary.BigEndian.PutUint16(head[2:], uint16(len(key)))
	head[4], head[5] = byte(len(extras)), datatype
	binary.BigEndian.PutUint16(head[6:], vbucket)
	binary.BigEndian.PutUint32(head[8:], uint32(len(extras)+len(key)+len(value)))
	frame := append(append(append(head, extras...), key...), value...)
	if _, err := peer.Write(frame); err != nil {
		return err
	}
	answer := make([]byte, 24)
	if _, err := io.ReadFull(peer, answer); err != nil {
		return err
	}
	if _, err := io.CopyN(io.Discard, peer, int64(binary.BigEndian.Uint32(answer[8:]))); err != nil {
		return err
	}
	if status := binary.BigEndian.Uint16(answer[6:]); status != 0 {
		return fmt.Errorf("opcode %#x got status %#x", opcode, status)
	}
	return nil
}
