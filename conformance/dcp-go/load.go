package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/couchbase/gocbcore/v10"
)

const (
	writers        = 8
	operationLimit = 10 * time.Second
)

// written is the last that the node confirmed about a key.
type written struct {
	vbucket uint16
	seqno   uint64
	cas     uint64
	deleted bool
	value   string
}

// load writes on and on: each writer has keys of its own, so the last confirmation of a key is
// what must be there in the end.
type load struct {
	agent   *gocbcore.Agent
	prefix  string
	keys    int
	ending  atomic.Bool
	done    sync.WaitGroup
	count   atomic.Int64
	results [writers]map[string]written
	errors  chan error
}

// startLoad begins a load that ends after `operations`, or when it is told to.
func startLoad(agent *gocbcore.Agent, prefix string, keys, operations int, seed uint64) *load {
	l := &load{agent: agent, prefix: prefix, keys: keys, errors: make(chan error, writers)}
	for writer := range writers {
		l.results[writer] = map[string]written{}
		l.done.Add(1)
		random := rand.New(rand.NewPCG(seed, uint64(writer)))
		go func() {
			defer l.done.Done()
			for operation := 0; operation < operations/writers && !l.ending.Load(); operation++ {
				if err := l.write(writer, random); err != nil {
					l.errors <- err
					return
				}
				l.count.Add(1)
			}
		}()
	}
	return l
}

func (l *load) write(writer int, random *rand.Rand) error {
	key := fmt.Sprintf("%s-%d", l.prefix, random.IntN(l.keys/writers)*writers+writer)
	results := l.results[writer]
	if before, known := results[key]; known && !before.deleted && random.IntN(5) == 0 {
		after, err := remove(l.agent, key)
		if err != nil {
			return fmt.Errorf("delete %s: %w", key, err)
		}
		results[key] = after
		return nil
	}
	value := fmt.Sprintf(`{"n":%d,"pad":"%s"}`, random.Uint64(), strings.Repeat("x", random.IntN(200)))
	after, err := set(l.agent, key, value, 0)
	if err != nil {
		return fmt.Errorf("set %s: %w", key, err)
	}
	results[key] = after
	return nil
}

// finish lets the load run to its end, or ends it now, and returns what the node confirmed.
func (l *load) finish(now bool) map[string]written {
	l.ending.Store(now)
	l.done.Wait()
	select {
	case err := <-l.errors:
		fail("the load: %v", err)
	default:
	}
	all := map[string]written{}
	for _, results := range l.results {
		for key, last := range results {
			all[key] = last
		}
	}
	return all
}

// await turns a call with a callback into one that waits.
func await[T any](call func(done func(T, error)) error) (T, error) {
	type outcome struct {
		value T
		err   error
	}
	outcomes := make(chan outcome, 1)
	if err := call(func(value T, err error) { outcomes <- outcome{value, err} }); err != nil {
		var none T
		return none, err
	}
	select {
	case got := <-outcomes:
		return got.value, got.err
	case <-time.After(3 * operationLimit):
		var none T
		return none, errors.New("the client does not call back")
	}
}

func set(agent *gocbcore.Agent, key, value string, expiry uint32) (written, error) {
	result, err := await(func(done func(*gocbcore.StoreResult, error)) error {
		_, err := agent.Set(gocbcore.SetOptions{
			Key: []byte(key), Value: []byte(value), Expiry: expiry, Deadline: time.Now().Add(operationLimit),
		}, done)
		return err
	})
	if err != nil {
		return written{}, err
	}
	token := result.MutationToken
	return written{token.VbID, uint64(token.SeqNo), uint64(result.Cas), false, value}, nil
}

func remove(agent *gocbcore.Agent, key string) (written, error) {
	result, err := await(func(done func(*gocbcore.DeleteResult, error)) error {
		_, err := agent.Delete(gocbcore.DeleteOptions{
			Key: []byte(key), Deadline: time.Now().Add(operationLimit),
		}, done)
		return err
	})
	if err != nil {
		return written{}, err
	}
	token := result.MutationToken
	return written{token.VbID, uint64(token.SeqNo), uint64(result.Cas), true, ""}, nil
}

func get(agent *gocbcore.Agent, key string) (*gocbcore.GetResult, error) {
	return await(func(done func(*gocbcore.GetResult, error)) error {
		_, err := agent.Get(gocbcore.GetOptions{
			Key: []byte(key), Deadline: time.Now().Add(operationLimit),
		}, done)
		return err
	})
}
