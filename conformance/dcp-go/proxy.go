package main

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"

	"github.com/couchbase/gocbcore/v10/memd"
)

const headerBytes = 24

// proxy stands before a node and cuts connections in the middle of what the node sends. It takes
// the frames apart, so that clients find the proxy's port in every cluster map and come back to it.
type proxy struct {
	listener net.Listener
	port     int
	node     int

	lock   sync.Mutex
	random *rand.Rand
	cuts   int
	frames int
}

func newProxy(node int, seed uint64) (*proxy, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	port := listener.Addr().(*net.TCPAddr).Port
	p := &proxy{listener: listener, port: port, node: node, random: rand.New(rand.NewPCG(seed, 0))}
	go p.accept()
	return p, nil
}

// cut ends the next connections, each after up to so many frames of streams.
func (p *proxy) cut(connections, frames int) {
	p.lock.Lock()
	defer p.lock.Unlock()
	p.cuts, p.frames = connections, frames
}

func (p *proxy) cutsLeft() int {
	p.lock.Lock()
	defer p.lock.Unlock()
	return p.cuts
}

func (p *proxy) close() error { return p.listener.Close() }

func (p *proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		go p.serve(client)
	}
}

func (p *proxy) serve(client net.Conn) {
	defer client.Close()
	node, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", p.node))
	if err != nil {
		return
	}
	defer node.Close()
	go func() {
		_, _ = io.Copy(node, client)
		// Also wakes the reader below.
		_ = node.Close()
	}()
	p.forward(bufio.NewReaderSize(node, 64*1024), client)
}

// forward copies frames until either side ends or the connection's frames are used up.
func (p *proxy) forward(node *bufio.Reader, client net.Conn) {
	out := bufio.NewWriterSize(client, 64*1024)
	left := -1
	for {
		frame, err := readFrame(node)
		if err != nil {
			return
		}
		frame = p.withOwnPort(frame)
		if isOfStream(frame) {
			if left < 0 {
				left = p.share()
			}
			if left--; left == 0 {
				p.breakOff(out, client, frame)
				return
			}
		}
		if _, err := out.Write(frame); err != nil {
			return
		}
		if node.Buffered() < headerBytes {
			if err := out.Flush(); err != nil {
				return
			}
		}
	}
}

// share is how many frames of streams a connection may pass; 0 for any number.
func (p *proxy) share() int {
	p.lock.Lock()
	defer p.lock.Unlock()
	if p.cuts <= 0 {
		return 0
	}
	return 1 + p.random.IntN(p.frames)
}

// breakOff passes a part of the frame, often none or all of it, and ends the connection.
func (p *proxy) breakOff(out *bufio.Writer, client net.Conn, frame []byte) {
	p.lock.Lock()
	p.cuts--
	part := p.random.IntN(2*len(frame)) - len(frame)/2
	abruptly := p.random.IntN(2) == 0
	p.lock.Unlock()
	_, _ = out.Write(frame[:max(0, min(part, len(frame)))])
	_ = out.Flush()
	if abruptly {
		_ = client.(*net.TCPConn).SetLinger(0)
	}
}

func readFrame(node *bufio.Reader) ([]byte, error) {
	header, err := node.Peek(headerBytes)
	if err != nil {
		return nil, err
	}
	frame := make([]byte, headerBytes+int(binary.BigEndian.Uint32(header[8:])))
	_, err = io.ReadFull(node, frame)
	return frame, err
}

// isOfStream tells what a stream is made of from answers, noops and controls.
func isOfStream(frame []byte) bool {
	if memd.CmdMagic(frame[0]) != memd.CmdMagicReq {
		return false
	}
	switch memd.CmdCode(frame[1]) {
	case memd.CmdDcpSnapshotMarker, memd.CmdDcpMutation, memd.CmdDcpDeletion, memd.CmdDcpExpiration,
		memd.CmdDcpSeqNoAdvanced, memd.CmdDcpEvent:
		return true
	default:
		return false
	}
}

// withOwnPort replaces the node's port in a cluster map. Both ports have five digits, as free
// ports do, so no length changes.
func (p *proxy) withOwnPort(frame []byte) []byte {
	const getClusterConfig, pushedByServer = 0xb5, 0x82
	if frame[1] != getClusterConfig && frame[0] != pushedByServer {
		return frame
	}
	own, nodes := fmt.Sprint(p.port), fmt.Sprint(p.node)
	if len(own) != len(nodes) {
		panic("the ports differ in length")
	}
	return append(frame[:headerBytes:headerBytes], bytes.ReplaceAll(frame[headerBytes:], []byte(nodes), []byte(own))...)
}
