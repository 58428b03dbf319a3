package main

import (
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

const (
	startDeadline = 20 * time.Second
	stopDeadline  = 30 * time.Second
)

// overTLS tells whether SDKs connect with couchbases://.
var overTLS = os.Getenv("SETTEE_OVER_TLS") == "1"

// fewVbuckets tells whether the bucket has 128 vBuckets.
var fewVbuckets = os.Getenv("SETTEE_FEW_VBUCKETS") == "1"

// vbuckets is the number of vBuckets of the bucket.
var vbuckets = map[bool]int{false: 1024, true: 128}[fewVbuckets]

// node is one `settee serve` with a data directory of its own, on free ports.
type node struct {
	home    string
	process *exec.Cmd
	ended   chan error
	ports   struct {
		KV    int `json:"kv"`
		HTTP  int `json:"http"`
		TLS   int `json:"kv_tls"`
		HTTPS int `json:"https"`
	}
}

func newNode() (*node, error) {
	home, err := os.MkdirTemp("", "settee-conformance-")
	if err != nil {
		return nil, err
	}
	n := &node{home: home}
	return n, n.start()
}

// start waits until the node serves; later starts take the ports of the first.
func (n *node) start() error {
	portsFile := filepath.Join(n.home, "ports.json")
	if err := os.Remove(portsFile); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	log, err := os.OpenFile(filepath.Join(n.home, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	n.process = exec.Command(os.Getenv("SETTEE_BIN"), "serve",
		"--data-dir", filepath.Join(n.home, "data"),
		"--kv-port", fmt.Sprint(n.ports.KV),
		"--http-port", fmt.Sprint(n.ports.HTTP),
		"--ports-file", portsFile)
	if fewVbuckets {
		n.process.Args = append(n.process.Args, "--bucket", "default:256:couchbase:value:none:128")
	}
	if overTLS {
		n.process.Args = append(n.process.Args,
			"--kv-tls-port", fmt.Sprint(n.ports.TLS),
			"--https-port", fmt.Sprint(n.ports.HTTPS))
	}
	n.process.Stdout, n.process.Stderr = log, log
	// The node does not outlive this process, however that ends.
	n.process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := n.process.Start(); err != nil {
		return err
	}
	n.ended = make(chan error, 1)
	go func(process *exec.Cmd, ended chan<- error) { ended <- process.Wait() }(n.process, n.ended)
	deadline := time.After(startDeadline)
	for {
		if text, err := os.ReadFile(portsFile); err == nil {
			return json.Unmarshal(text, &n.ports)
		}
		select {
		case err := <-n.ended:
			return fmt.Errorf("the node ended (%v):\n%s", err, n.tail())
		case <-deadline:
			return fmt.Errorf("the node does not serve after %v:\n%s", startDeadline, n.tail())
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// sdkPort is where SDKs connect, with TLS or without.
func (n *node) sdkPort() int {
	if overTLS {
		return n.ports.TLS
	}
	return n.ports.KV
}

// authority is what SDKs are to trust; nil without TLS.
func (n *node) authority() *x509.CertPool {
	if !overTLS {
		return nil
	}
	text, err := os.ReadFile(filepath.Join(n.home, "data", "tls", "ca.pem"))
	pool := x509.NewCertPool()
	if err != nil || !pool.AppendCertsFromPEM(text) {
		panic(fmt.Sprint("no authority: ", err))
	}
	return pool
}

// stop sends SIGTERM; the node must drain, flush and end with 0.
func (n *node) stop() error {
	if err := n.process.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case err := <-n.ended:
		if err != nil {
			return fmt.Errorf("after SIGTERM: %w\n%s", err, n.tail())
		}
		return nil
	case <-time.After(stopDeadline):
		return errors.Join(fmt.Errorf("the node ignores SIGTERM:\n%s", n.tail()), n.kill())
	}
}

// kill sends SIGKILL: nothing is drained.
func (n *node) kill() error {
	if err := n.process.Process.Kill(); err != nil {
		return err
	}
	<-n.ended
	return nil
}

// close ends the node, which must still be able to end by itself, and removes what it wrote.
func (n *node) close() error {
	return errors.Join(n.stop(), os.RemoveAll(n.home))
}

// tail is the end of what the node wrote.
func (n *node) tail() string {
	text, err := os.ReadFile(filepath.Join(n.home, "log"))
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-30):], "\n")
}
