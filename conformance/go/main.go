// Command suite runs the Couchbase Go SDK (gocb on gocbcore), unmodified, against a node.
package main

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/couchbase/gocb/v2"
	"github.com/couchbase/gocbcore/v10"
)

const suiteName = "go"

const mib = 1024 * 1024

// Characters of one, two, three and four bytes each in UTF-8.
const unicodeKey = "k\u00fcche-\u6f22\u5b57-\U0001f6cb"

type world struct {
	node       *node
	cluster    *gocb.Cluster
	bucket     *gocb.Bucket
	collection *gocb.Collection
}

type document map[string]any

func main() {
	// Nodes are tied to the thread that starts them.
	runtime.LockOSThread()
	filter := ""
	if len(os.Args) > 4 && os.Args[1] == "follow" {
		follow(os.Args[2], os.Args[3], os.Args[4:])
		return
	}
	if len(os.Args) > 1 {
		filter = os.Args[1]
	}
	w, err := newWorld()
	if err != nil {
		fmt.Println("FAIL go:", err)
		fmt.Println("0 passed, 1 failed")
		os.Exit(1)
	}
	held := runAll(w, tests, filter)
	if err := errors.Join(w.cluster.Close(nil), w.node.close()); err != nil {
		fmt.Println("FAIL go: at the end:", err)
		held = false
	}
	if !held {
		os.Exit(1)
	}
}

func newWorld() (*world, error) {
	n, err := newNode()
	if err != nil {
		return nil, err
	}
	cluster, err := connect(n, "Administrator", "password")
	if err != nil {
		return nil, errors.Join(err, n.stop())
	}
	bucket := cluster.Bucket("default")
	return &world{n, cluster, bucket, bucket.DefaultCollection()}, nil
}

func connect(n *node, user, password string) (*gocb.Cluster, error) {
	scheme := "couchbase"
	if overTLS {
		scheme = "couchbases"
	}
	// By default a node that starts again is looked for each 5 s.
	return gocb.Connect(fmt.Sprintf("%s://127.0.0.1:%d?server_wait_backoff=200", scheme, n.sdkPort()), gocb.ClusterOptions{
		SecurityConfig: gocb.SecurityConfig{TLSRootCAs: n.authority()},
		Authenticator:  gocb.PasswordAuthenticator{Username: user, Password: password},
		TimeoutsConfig: gocb.TimeoutsConfig{KVTimeout: 10 * time.Second},
	})
}

// content reads a document as JSON.
func content(c *gocb.Collection, key string) (document, gocb.Cas, error) {
	result, err := c.Get(key, nil)
	if err != nil {
		return nil, 0, err
	}
	var got document
	err = result.Content(&got)
	return got, result.Cas(), err
}

func holds(c *gocb.Collection, key string, expected document) {
	got, _, err := content(c, key)
	must(err, key)
	equal(got, expected, key)
}

var tests = []test{
	{"waits_until_ready", func(w *world) {
		services := []gocb.ServiceType{gocb.ServiceTypeKeyValue}
		options := &gocb.WaitUntilReadyOptions{ServiceTypes: services}
		must(w.bucket.WaitUntilReady(10*time.Second, options), "wait until ready")
	}},
	{"tells_who_there_is", tellsWhoThereIs},
	{"users_may_do_what_their_roles_say", managesUsers},
	{"documents_keep_metadata_from_elsewhere", writesWithMetadata},
	{"manages_scopes_and_collections", managesCollections},
	{"changes_the_ttl_of_a_collection", changesTheTTL},
	{"writes_and_reads", func(w *world) {
		c := w.collection
		written := must1(c.Upsert("crud", document{"a": "1"}, nil))
		got, cas, err := content(c, "crud")
		must(err, "get")
		equal(got, document{"a": "1"}, "content")
		equal(cas, written.Cas(), "CAS")
		token := written.MutationToken()
		if token == nil {
			fail("a write has no mutation token")
		}
		equal(token.BucketName(), "default", "bucket of the mutation token")
		replaced := must1(c.Replace("crud", document{"a": "2"}, nil))
		if replaced.MutationToken().SequenceNumber() <= token.SequenceNumber() {
			fail("the seqno does not grow")
		}
		must1(c.Remove("crud", nil))
		_, err = c.Get("crud", nil)
		refused(err, "get", gocb.ErrDocumentNotFound)
	}},
	{"inserts_once", func(w *world) {
		must1(w.collection.Insert("insert", document{"n": "1"}, nil))
		_, err := w.collection.Insert("insert", document{"n": "2"}, nil)
		refused(err, "second insert", gocb.ErrDocumentExists)
		holds(w.collection, "insert", document{"n": "1"})
	}},
	{"refuses_what_is_missing", func(w *world) {
		c := w.collection
		_, err := c.Replace("missing", document{}, nil)
		refused(err, "replace", gocb.ErrDocumentNotFound)
		_, err = c.Remove("missing", nil)
		refused(err, "remove", gocb.ErrDocumentNotFound)
		_, err = c.Touch("missing", time.Second, nil)
		refused(err, "touch", gocb.ErrDocumentNotFound)
		_, err = c.GetAndLock("missing", time.Second, nil)
		refused(err, "lock", gocb.ErrDocumentNotFound)
		_, err = c.Binary().Append("missing", []byte("x"), nil)
		refused(err, "append", gocb.ErrDocumentNotFound)
	}},
	{"tells_a_cas_conflict", func(w *world) {
		c := w.collection
		old := must1(c.Upsert("cas", document{"n": "1"}, nil)).Cas()
		fresh := must1(c.Upsert("cas", document{"n": "2"}, nil)).Cas()
		_, err := c.Replace("cas", document{"n": "3"}, &gocb.ReplaceOptions{Cas: old})
		refused(err, "replace", gocb.ErrCasMismatch)
		_, err = c.Remove("cas", &gocb.RemoveOptions{Cas: old})
		refused(err, "remove", gocb.ErrCasMismatch)
		must1(c.Replace("cas", document{"n": "3"}, &gocb.ReplaceOptions{Cas: fresh}))
		holds(c, "cas", document{"n": "3"})
	}},
	{"expires_documents", expiresDocuments},
	{"preserves_the_expiry", func(w *world) {
		c := w.collection
		must1(c.Upsert("preserve", document{}, &gocb.UpsertOptions{Expiry: 2 * time.Second}))
		must1(c.Upsert("preserve", document{"n": "2"}, &gocb.UpsertOptions{PreserveExpiry: true}))
		holds(c, "preserve", document{"n": "2"})
		gone(c, "preserve")
	}},
	{"locks_documents", locksDocuments},
	{"counts", counts},
	{"appends_and_prepends", func(w *world) {
		c := w.collection
		raw := gocb.NewRawStringTranscoder()
		must1(c.Upsert("append", "middle", &gocb.UpsertOptions{Transcoder: raw}))
		must1(c.Binary().Append("append", []byte(" end"), nil))
		must1(c.Binary().Prepend("append", []byte("start "), nil))
		var got string
		must(must1(c.Get("append", &gocb.GetOptions{Transcoder: raw})).Content(&got), "content")
		equal(got, "start middle end", "joined value")
	}},
	{"tells_existence", func(w *world) {
		c := w.collection
		equal(must1(c.Exists("existence", nil)).Exists(), false, "before")
		must1(c.Upsert("existence", document{}, nil))
		equal(must1(c.Exists("existence", nil)).Exists(), true, "there")
		must1(c.Remove("existence", nil))
		equal(must1(c.Exists("existence", nil)).Exists(), false, "a tombstone")
	}},
	{"waits_for_persistence", func(w *world) {
		must1(w.collection.Upsert("durable", document{}, &gocb.UpsertOptions{PersistTo: 1}))
		must1(w.collection.Remove("durable", &gocb.RemoveOptions{PersistTo: 1}))
	}},
	{"commits_transactions", commitsTransactions},
	{"rolls_transactions_back", rollsTransactionsBack},
	{"runs_transactions_in_conflict", runsTransactionsInConflict},
	{"writes_durably", writesDurably},
	{"keeps_large_documents", func(w *world) {
		random := make([]byte, 19*mib)
		must1(rand.Read(random))
		for _, value := range [][]byte{random[:mib], random, make([]byte, 19*mib)} {
			largeDocument(w.collection, value)
		}
	}},
	{"refuses_what_is_too_large", func(w *world) {
		value := make([]byte, 21*mib)
		must1(rand.Read(value))
		options := &gocb.UpsertOptions{Transcoder: gocb.NewRawBinaryTranscoder()}
		_, err := w.collection.Upsert("huge", value, options)
		refused(err, "upsert", gocb.ErrValueTooLarge)
		must1(w.collection.Upsert("small", document{}, nil))
	}},
	{"takes_long_and_unicode_keys", func(w *world) {
		for _, key := range []string{strings.Repeat("k", 250), unicodeKey, "with space/and:sign\x7f"} {
			must1(w.collection.Upsert(key, document{"key": key}, nil))
			holds(w.collection, key, document{"key": key})
		}
		_, err := w.collection.Upsert(strings.Repeat("k", 251), document{}, nil)
		refused(err, "251 bytes", gocb.ErrInvalidArgument)
	}},
	{"refuses_a_wrong_password", func(w *world) {
		other, err := connect(w.node, "Administrator", "wrong")
		must(err, "connect is lazy")
		defer other.Close(nil)
		err = other.Bucket("default").WaitUntilReady(2*time.Second, &gocb.WaitUntilReadyOptions{
			RetryStrategy: failFast{},
			ServiceTypes:  []gocb.ServiceType{gocb.ServiceTypeKeyValue},
		})
		refused(err, "wait until ready", gocb.ErrAuthenticationFailure, gocb.ErrUnambiguousTimeout)
	}},
	{"refuses_a_wrong_bucket", func(w *world) {
		other := must1(connect(w.node, "Administrator", "password"))
		defer other.Close(nil)
		options := &gocb.GetOptions{Timeout: 2 * time.Second}
		_, err := other.Bucket("no-such-bucket").DefaultCollection().Get("x", options)
		refused(err, "get", gocb.ErrBucketNotFound, gocb.ErrAuthenticationFailure, gocb.ErrUnambiguousTimeout)
	}},
	{"pings_and_diagnoses", func(w *world) {
		pinged := must1(w.bucket.Ping(&gocb.PingOptions{
			ServiceTypes: []gocb.ServiceType{gocb.ServiceTypeKeyValue},
		}))
		endpoints := pinged.Services[gocb.ServiceTypeKeyValue]
		if len(endpoints) == 0 {
			fail("no endpoint answered")
		}
		for _, endpoint := range endpoints {
			equal(endpoint.State, gocb.PingStateOk, "endpoint")
		}
		diagnosed := must1(w.cluster.Diagnostics(nil))
		equal(diagnosed.State, gocb.ClusterStateOnline, "state")
	}},
	{"reads_raw_statistics_and_vbuckets", rawCalls},
	{"finds_all_after_a_restart", func(w *world) { backAfter(w, "restart", w.node.stop) }},
	{"finds_all_after_a_kill", func(w *world) { backAfter(w, "kill", w.node.kill) }},
}

// failFast never retries, so that the reason of a failure is what comes back.
type failFast struct{}

func (failFast) RetryAfter(gocb.RetryRequest, gocb.RetryReason) gocb.RetryAction {
	return &gocb.NoRetryRetryAction{}
}

func gone(c *gocb.Collection, key string) {
	eventually(key+" expires", 7*time.Second, func() error {
		if _, err := c.Get(key, nil); !errors.Is(err, gocb.ErrDocumentNotFound) {
			return fmt.Errorf("still there: %w", err)
		}
		return nil
	})
	equal(must1(c.Exists(key, nil)).Exists(), false, key+" exists")
}

func expiresDocuments(w *world) {
	c := w.collection
	must1(c.Upsert("expiry", document{}, &gocb.UpsertOptions{Expiry: time.Second}))
	must1(c.Upsert("touched", document{}, nil))
	must1(c.Touch("touched", time.Second, nil))
	must1(c.Upsert("got-and-touched", document{"n": "1"}, nil))
	var got document
	must(must1(c.GetAndTouch("got-and-touched", time.Second, nil)).Content(&got), "content")
	equal(got, document{"n": "1"}, "get and touch")
	must1(c.Upsert("saved", document{"n": "1"}, &gocb.UpsertOptions{Expiry: time.Second}))
	must1(c.Touch("saved", 0, nil))
	for _, key := range []string{"expiry", "touched", "got-and-touched"} {
		gone(c, key)
	}
	holds(c, "saved", document{"n": "1"})
	must1(c.Insert("expiry", document{}, nil))
}

func locksDocuments(w *world) {
	c := w.collection
	must1(c.Upsert("lock", document{"n": "1"}, nil))
	locked := must1(c.GetAndLock("lock", 10*time.Second, nil))
	_, err := c.Upsert("lock", document{"n": "2"}, &gocb.UpsertOptions{RetryStrategy: failFast{}})
	refused(err, "write", gocb.ErrDocumentLocked)
	_, err = c.GetAndLock("lock", time.Second, &gocb.GetAndLockOptions{RetryStrategy: failFast{}})
	refused(err, "second lock", gocb.ErrDocumentLocked)
	holds(c, "lock", document{"n": "1"})
	wrong := &gocb.UnlockOptions{RetryStrategy: failFast{}}
	refused(c.Unlock("lock", locked.Cas()+1, wrong), "unlock", gocb.ErrCasMismatch, gocb.ErrDocumentLocked)
	must(c.Unlock("lock", locked.Cas(), nil), "unlock")
	must1(c.Upsert("lock", document{"n": "2"}, nil))
	again := must1(c.GetAndLock("lock", 10*time.Second, nil))
	must1(c.Replace("lock", document{"n": "3"}, &gocb.ReplaceOptions{Cas: again.Cas()}))
	must1(c.Upsert("lock", document{"n": "4"}, nil))
}

func counts(w *world) {
	binary := w.collection.Binary()
	_, err := binary.Increment("counter", &gocb.IncrementOptions{Initial: -1, Delta: 1})
	refused(err, "increment of what is missing", gocb.ErrDocumentNotFound)
	created := must1(binary.Increment("counter", &gocb.IncrementOptions{Initial: 10, Delta: 1}))
	equal(created.Content(), uint64(10), "initial")
	equal(must1(binary.Increment("counter", &gocb.IncrementOptions{Delta: 5})).Content(), uint64(15), "incremented")
	equal(must1(binary.Decrement("counter", &gocb.DecrementOptions{Delta: 6})).Content(), uint64(9), "decremented")
	equal(must1(binary.Decrement("counter", &gocb.DecrementOptions{Delta: 100})).Content(), uint64(0), "floor")
	must1(w.collection.Upsert("no-counter", document{}, nil))
	_, err = binary.Increment("no-counter", &gocb.IncrementOptions{Delta: 1})
	refused(err, "increment of JSON", gocb.ErrDeltaInvalid)
}

func largeDocument(c *gocb.Collection, value []byte) {
	binary := gocb.NewRawBinaryTranscoder()
	must1(c.Upsert("large", value, &gocb.UpsertOptions{Transcoder: binary}))
	var got []byte
	must(must1(c.Get("large", &gocb.GetOptions{Transcoder: binary})).Content(&got), "content")
	if string(got) != string(value) {
		fail("%d bytes came back changed (%d bytes)", len(value), len(got))
	}
}

// rawCalls goes one layer down: statistics and seqno observation as operators' tools use them.
func rawCalls(w *world) {
	router := must1(w.bucket.Internal().IORouter())
	token := must1(w.collection.Upsert("observed", document{}, &gocb.UpsertOptions{PersistTo: 1})).MutationToken()
	results := make(chan error, 1)
	must1(router.ObserveVb(gocbcore.ObserveVbOptions{
		VbID:     uint16(token.PartitionID()),
		VbUUID:   gocbcore.VbUUID(token.PartitionUUID()),
		Deadline: time.Now().Add(10 * time.Second),
	}, func(result *gocbcore.ObserveVbResult, err error) {
		if err == nil && uint64(result.PersistSeqNo) < token.SequenceNumber() {
			err = fmt.Errorf("persisted %d, awaited %d", result.PersistSeqNo, token.SequenceNumber())
		}
		results <- err
	}))
	must(<-results, "observe the vBucket")
	for _, group := range []string{"", "vbucket-details", "warmup"} {
		must1(router.Stats(gocbcore.StatsOptions{
			Key:      group,
			Deadline: time.Now().Add(10 * time.Second),
		}, func(result *gocbcore.StatsResult, err error) {
			if err == nil {
				for server, stats := range result.Servers {
					if stats.Error != nil || len(stats.Stats) == 0 {
						err = fmt.Errorf("%s: %d statistics, %w", server, len(stats.Stats), stats.Error)
					}
				}
			}
			results <- err
		}))
		must(<-results, "statistics `"+group+"`")
	}
}

// managesCollections makes, uses and drops collections through the SDK's management calls.
func managesCollections(w *world) {
	manager := w.bucket.CollectionsV2()
	must(manager.CreateScope("go", nil), "create scope")
	refused(manager.CreateScope("go", nil), "create scope again", gocb.ErrScopeExists)
	must(manager.CreateCollection("go", "a", nil, nil), "create collection")
	refused(manager.CreateCollection("go", "a", nil, nil), "create collection again", gocb.ErrCollectionExists)
	refused(manager.CreateCollection("nope", "a", nil, nil), "create in no scope", gocb.ErrScopeNotFound)
	limited := &gocb.CreateCollectionSettings{MaxExpiry: time.Second}
	must(manager.CreateCollection("go", "fleeting", limited, nil), "create collection with a limit")
	names := map[string]int{}
	for _, scope := range must1(manager.GetAllScopes(nil)) {
		names[scope.Name] = len(scope.Collections)
	}
	equal(names["go"], 2, "collections of the scope")
	a := w.bucket.Scope("go").Collection("a")
	must1(a.Upsert("same", document{"in": "a"}, nil))
	must1(w.collection.Upsert("same", document{"in": "default"}, nil))
	holds(a, "same", document{"in": "a"})
	holds(w.collection, "same", document{"in": "default"})
	fleeting := w.bucket.Scope("go").Collection("fleeting")
	must1(fleeting.Upsert("soon", document{}, nil))
	gone(fleeting, "soon")
	must(manager.DropCollection("go", "a", nil), "drop collection")
	refused(manager.DropCollection("go", "a", nil), "drop collection again", gocb.ErrCollectionNotFound)
	_, err := a.Get("same", &gocb.GetOptions{Timeout: 2 * time.Second, RetryStrategy: failFast{}})
	refused(err, "get from a dropped collection", gocb.ErrCollectionNotFound, gocb.ErrTimeout)
	must(manager.CreateCollection("go", "a", nil, nil), "create collection anew")
	_, err = w.bucket.Scope("go").Collection("a").Get("same", nil)
	refused(err, "get what was dropped", gocb.ErrDocumentNotFound)
	must(manager.DropScope("go", nil), "drop scope")
	refused(manager.DropScope("go", nil), "drop scope again", gocb.ErrScopeNotFound)
}

// changesTheTTL changes how long documents of a collection live: those written from then on.
func changesTheTTL(w *world) {
	manager := w.bucket.CollectionsV2()
	must(manager.CreateScope("lives", nil), "create scope")
	must(manager.CreateCollection("lives", "one", nil, nil), "create collection")
	one := w.bucket.Scope("lives").Collection("one")
	update := func(limit time.Duration) {
		must(manager.UpdateCollection("lives", "one", gocb.UpdateCollectionSettings{MaxExpiry: limit}, nil), "update")
		for _, scope := range must1(manager.GetAllScopes(nil)) {
			if scope.Name == "lives" {
				equal(scope.Collections[0].MaxExpiry, limit, "limit of the collection")
			}
		}
	}
	left := func(key string) time.Duration {
		at := must1(one.Get(key, &gocb.GetOptions{WithExpiry: true})).ExpiryTime()
		if at.IsZero() || at.Unix() == 0 {
			return 0
		}
		return time.Until(at)
	}
	must1(one.Upsert("before", document{}, nil))
	update(1000 * time.Second)
	must1(one.Upsert("plain", document{}, nil))
	if found := left("plain"); found < 900*time.Second || found > 1001*time.Second {
		fail("%v left under a limit of 1000 s", found)
	}
	update(time.Second)
	must1(one.Upsert("soon", document{}, nil))
	gone(one, "soon")
	update(-time.Second)
	must1(one.Upsert("for ever", document{}, nil))
	for _, key := range []string{"before", "for ever"} {
		equal(left(key), time.Duration(0), "expiry of "+key)
	}
	limited := gocb.UpdateCollectionSettings{MaxExpiry: time.Second}
	refused(manager.UpdateCollection("lives", "two", limited, nil), "update of nothing", gocb.ErrCollectionNotFound)
	must(manager.DropScope("lives", nil), "drop scope")
}

// backAfter ends the node while the client stays, and reads everything through the same client.
func backAfter(w *world, name string, end func() error) {
	c := w.collection
	cas := map[string]gocb.Cas{}
	value := func(n int) document { return document{"n": fmt.Sprint(n), "text": strings.Repeat("x", n)} }
	key := func(n int) string { return fmt.Sprintf("%s-%d", name, n) }
	for n := range 50 {
		written := must1(c.Upsert(key(n), value(n), &gocb.UpsertOptions{PersistTo: 1}))
		cas[key(n)] = written.Cas()
	}
	must1(c.Remove(key(0), &gocb.RemoveOptions{PersistTo: 1}))
	must(end(), name)
	must(w.node.start(), "start")
	eventually("the client is back", 30*time.Second, func() error {
		_, _, err := content(c, key(1))
		return err
	})
	for n := 1; n < 50; n++ {
		got, found, err := content(c, key(n))
		must(err, key(n))
		equal(got, value(n), key(n))
		equal(found, cas[key(n)], "CAS of "+key(n))
	}
	_, err := c.Get(key(0), nil)
	refused(err, "what was removed", gocb.ErrDocumentNotFound)
	must1(c.Upsert(key(0), document{}, &gocb.UpsertOptions{PersistTo: 1}))
	holds(c, unicodeKey, document{"key": unicodeKey})
}
