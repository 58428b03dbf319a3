package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/couchbase/gocb/v2"
)

const (
	// Documents of a follower in each bucket.
	followedKeys = 25
	followPause  = 2 * time.Millisecond
	// How long an operation is tried, and how long what failed is tried again: longer than a failover.
	followTimeout  = 20 * time.Second
	followPatience = 80 * time.Second
)

// follower writes and reads in rounds while a cluster changes. It is told on its input what may go wrong: in the calm
// nothing but writes whose outcome is not known, in the storm what is tried again later.
type follower struct {
	name        string
	collections []*gocb.Collection
	storm       atomic.Bool
	stop        atomic.Bool
}

// follow goes on until it is told to stop; it prints each round and whatever went wrong.
func follow(seeds, name string, buckets []string) {
	cluster := must1(gocb.Connect("couchbase://"+seeds, gocb.ClusterOptions{
		Authenticator: gocb.PasswordAuthenticator{Username: "Administrator", Password: "password"},
	}))
	f := &follower{name: name}
	for _, bucket := range buckets {
		f.collections = append(f.collections, cluster.Bucket(bucket).DefaultCollection())
	}
	go f.listen()
	number := 0
	for !f.stop.Load() {
		number++
		for _, c := range f.collections {
			for key := range followedKeys {
				f.step(c, fmt.Sprintf("%s-%d", name, key), number)
				time.Sleep(followPause)
			}
		}
		fmt.Println("round", number)
	}
	for _, c := range f.collections {
		for key := range followedKeys {
			f.reads(c, fmt.Sprintf("%s-%d", name, key), number)
		}
	}
	fmt.Println("done", number)
}

func (f *follower) listen() {
	input := bufio.NewScanner(os.Stdin)
	for input.Scan() {
		word := strings.TrimSpace(input.Text())
		f.storm.Store(word == "storm")
		f.stop.Store(word == "stop")
		fmt.Println("told", word)
	}
}

// step writes a document durably, reads it, and changes a part of it.
func (f *follower) step(c *gocb.Collection, key string, number int) {
	value := map[string]any{"round": number}
	options := &gocb.UpsertOptions{DurabilityLevel: gocb.DurabilityLevelMajority, Timeout: followTimeout}
	f.try("upsert "+key, func() error {
		_, err := c.Upsert(key, value, options)
		if f.storm.Load() && errors.Is(err, gocb.ErrDurabilityImpossible) {
			// One of two copies is gone.
			_, err = c.Upsert(key, value, &gocb.UpsertOptions{Timeout: followTimeout})
		}
		return err
	})
	f.reads(c, key, number)
	f.try("mutate "+key, func() error {
		_, err := c.MutateIn(key, []gocb.MutateInSpec{gocb.UpsertSpec("part", number, nil)},
			&gocb.MutateInOptions{Timeout: followTimeout})
		return err
	})
	var part int
	f.try("look up "+key, func() error {
		found, err := c.LookupIn(key, []gocb.LookupInSpec{gocb.GetSpec("part", nil)},
			&gocb.LookupInOptions{Timeout: followTimeout})
		if err != nil {
			return err
		}
		return found.ContentAt(0, &part)
	})
	if part != number && !f.storm.Load() {
		fmt.Printf("trouble %s has part %d, not %d\n", key, part, number)
	}
}

// reads expects what the last durable write left.
func (f *follower) reads(c *gocb.Collection, key string, number int) {
	var got struct {
		Round int `json:"round"`
	}
	f.try("get "+key, func() error {
		found, err := c.Get(key, &gocb.GetOptions{Timeout: followTimeout})
		if err != nil {
			return err
		}
		return found.Content(&got)
	})
	if got.Round != number {
		fmt.Printf("trouble %s is of round %d, not %d\n", key, got.Round, number)
	}
}

func (f *follower) try(what string, operation func() error) {
	deadline := time.Now().Add(followPatience)
	for {
		err := operation()
		if err == nil {
			return
		}
		ambiguous := errors.Is(err, gocb.ErrDurabilityAmbiguous)
		if ambiguous {
			fmt.Println("ambiguous", what)
		} else if !f.storm.Load() || time.Now().After(deadline) {
			fmt.Printf("trouble %s: %v\n", what, strings.ReplaceAll(err.Error(), "\n", " "))
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}
