package main

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/couchbase/gocb/v2"
)

var errGivenUp = errors.New("given up")

func commitsTransactions(w *world) {
	c := w.collection
	must1(c.Upsert("txn-replaced", document{"n": "1"}, nil))
	must1(c.Upsert("txn-removed", document{"n": "2"}, nil))
	must1(c.Upsert("txn-again", document{"n": "3"}, nil))
	must1(c.Remove("txn-again", nil))
	must1(w.cluster.Transactions().Run(func(t *gocb.TransactionAttemptContext) error {
		if err := changeAll(t, c); err != nil {
			return err
		}
		holds(c, "txn-replaced", document{"n": "1"})
		holds(c, "txn-removed", document{"n": "2"})
		_, err := c.Get("txn-again", nil)
		refused(err, "what is not committed", gocb.ErrDocumentNotFound)
		return nil
	}, nil))
	holds(c, "txn-replaced", document{"n": "11"})
	holds(c, "txn-again", document{"n": "13"})
	_, err := c.Get("txn-removed", nil)
	refused(err, "what was removed", gocb.ErrDocumentNotFound)
}

// changeAll replaces a document, removes one and inserts one that was deleted.
func changeAll(t *gocb.TransactionAttemptContext, c *gocb.Collection) error {
	replaced, err := t.Get(c, "txn-replaced")
	if err != nil {
		return err
	}
	if _, err := t.Replace(replaced, document{"n": "11"}); err != nil {
		return err
	}
	removed, err := t.Get(c, "txn-removed")
	if err != nil {
		return err
	}
	if err := t.Remove(removed); err != nil {
		return err
	}
	_, err = t.Insert(c, "txn-again", document{"n": "13"})
	return err
}

func rollsTransactionsBack(w *world) {
	c := w.collection
	must1(c.Upsert("txn-replaced", document{"n": "1"}, nil))
	must1(c.Upsert("txn-removed", document{"n": "2"}, nil))
	_, err := c.Remove("txn-again", nil)
	if err != nil {
		refused(err, "remove", gocb.ErrDocumentNotFound)
	}
	_, err = w.cluster.Transactions().Run(func(t *gocb.TransactionAttemptContext) error {
		if err := changeAll(t, c); err != nil {
			return err
		}
		return errGivenUp
	}, nil)
	if err == nil {
		fail("a transaction that was given up is committed")
	}
	holds(c, "txn-replaced", document{"n": "1"})
	holds(c, "txn-removed", document{"n": "2"})
	_, err = c.Get("txn-again", nil)
	refused(err, "what was rolled back", gocb.ErrDocumentNotFound)
}

// Three clients add to one number: none of what they add is lost.
func runsTransactionsInConflict(w *world) {
	const clients, each = 3, 5
	c := w.collection
	must1(c.Upsert("txn-sum", 0, nil))
	var running sync.WaitGroup
	var failed atomic.Value
	for range clients {
		running.Add(1)
		go func() {
			defer running.Done()
			for range each {
				options := &gocb.TransactionOptions{Timeout: 40 * time.Second}
				_, err := w.cluster.Transactions().Run(addOne(c), options)
				if err != nil {
					failed.Store(err)
				}
			}
		}()
	}
	running.Wait()
	if err, is := failed.Load().(error); is {
		fail("a transaction in conflict: %v", err)
	}
	var sum int
	must(must1(c.Get("txn-sum", nil)).Content(&sum), "sum")
	equal(sum, clients*each, "sum")
}

func addOne(c *gocb.Collection) func(*gocb.TransactionAttemptContext) error {
	return func(t *gocb.TransactionAttemptContext) error {
		found, err := t.Get(c, "txn-sum")
		if err != nil {
			return err
		}
		var sum int
		if err := found.Content(&sum); err != nil {
			return err
		}
		_, err = t.Replace(found, sum+1)
		return err
	}
}

func tellsWhoThereIs(w *world) {
	users := w.cluster.Users()
	equal(len(must1(users.GetAllUsers(nil))), 0, "users")
	equal(len(must1(users.GetAllGroups(nil))), 0, "groups")
	roles := must1(users.GetRoles(nil))
	equal(roles[0].Name, "admin", "the first role")
	_, err := users.GetUser("nobody", nil)
	refused(err, "a user who is not there", gocb.ErrUserNotFound)
	refused(users.DropUser("nobody", nil), "dropping nobody", gocb.ErrUserNotFound)
}
