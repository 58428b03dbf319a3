// Command pace reads and writes at a steady rate through the Go SDK, and tells each second's latencies and errors.
//
//	pace CONNECT BUCKET DOCUMENTS BYTES RATE
//
// Documents are those of `settee bench`; one operation of ten writes. Lines of standard output: seconds since the start,
// operations, errors, median, 99th and 99.9th percentile in microseconds; a line of standard error for each kind of error.
// Latencies count from when an operation was due. It ends when standard input does.
package main

import (
	"errors"
	"fmt"
	"io"
	"math/rand"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/couchbase/gocb/v2"
)

// Few enough that they do not wait for each other.
const workers = 1024

// second is what was measured in one second.
type second struct {
	lock   sync.Mutex
	micros []int64
	failed int
}

func (s *second) add(micros int64, failed bool) {
	s.lock.Lock()
	defer s.lock.Unlock()
	s.micros = append(s.micros, micros)
	if failed {
		s.failed++
	}
}

// take tells what was measured, and begins anew.
func (s *second) take() ([]int64, int) {
	s.lock.Lock()
	defer s.lock.Unlock()
	micros, failed := s.micros, s.failed
	s.micros, s.failed = make([]int64, 0, len(micros)+1024), 0
	slices.Sort(micros)
	return micros, failed
}

func number(at int) int {
	value, err := strconv.Atoi(os.Args[at])
	if err != nil {
		panic(err)
	}
	return value
}

func main() {
	connect, bucket := os.Args[1], os.Args[2]
	documents, bytes, rate := number(3), number(4), number(5)
	cluster, err := gocb.Connect(connect, gocb.ClusterOptions{
		Authenticator: gocb.PasswordAuthenticator{Username: "Administrator", Password: "password"},
	})
	if err != nil {
		panic(err)
	}
	opened := cluster.Bucket(bucket)
	if err := opened.WaitUntilReady(20*time.Second, nil); err != nil {
		panic(err)
	}
	collection := opened.DefaultCollection()
	ended := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(ended)
	}()
	measured, due := &second{}, make(chan time.Time, 4*rate)
	for worker := range workers {
		go work(collection, measured, due, documents, bytes, int64(worker))
	}
	go feed(due, rate)
	began := time.Now()
	for tick := time.NewTicker(time.Second); ; {
		select {
		case <-ended:
			return
		case <-tick.C:
			micros, failed := measured.take()
			at := func(share float64) int64 {
				if len(micros) == 0 {
					return -1
				}
				return micros[int(share*float64(len(micros)-1))]
			}
			fmt.Printf("%.0f %d %d %d %d %d\n", time.Since(began).Seconds(), len(micros), failed, at(0.5), at(0.99), at(0.999))
		}
	}
}

// feed tells workers when operations are due: some each millisecond.
func feed(due chan<- time.Time, rate int) {
	began, sent := time.Now(), 0
	for {
		time.Sleep(time.Millisecond)
		for wanted := int(time.Since(began).Seconds() * float64(rate)); sent < wanted; sent++ {
			due <- began.Add(time.Duration(float64(sent) / float64(rate) * float64(time.Second)))
		}
	}
}

func work(collection *gocb.Collection, measured *second, due <-chan time.Time, documents, bytes int, seed int64) {
	dice, transcoder := rand.New(rand.NewSource(seed)), gocb.NewRawBinaryTranscoder()
	value := make([]byte, bytes)
	dice.Read(value)
	for wanted := range due {
		key := fmt.Sprintf("settee:%09d", dice.Intn(documents))
		var err error
		if dice.Intn(10) == 0 {
			_, err = collection.Upsert(key, value, &gocb.UpsertOptions{Transcoder: transcoder})
		} else {
			var found *gocb.GetResult
			found, err = collection.Get(key, &gocb.GetOptions{Transcoder: transcoder})
			if err == nil && found == nil {
				err = errors.New("nothing was found")
			}
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		measured.add(time.Since(wanted).Microseconds(), err != nil)
	}
}
