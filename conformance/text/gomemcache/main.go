// Command gomemcache runs github.com/bradfitz/gomemcache, unmodified, against the memcached port that its argument names.
package main

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"time"

	"github.com/bradfitz/gomemcache/memcache"
)

func check(what string, got, expected any) {
	if !reflect.DeepEqual(got, expected) {
		fmt.Fprintf(os.Stderr, "%s: expected %v, got %v\n", what, expected, got)
		os.Exit(1)
	}
}

func refused(what string, err, expected error) {
	check(what+" is refused", errors.Is(err, expected), true)
}

func main() {
	client := memcache.New(os.Args[1])
	client.Timeout = 20 * time.Second
	check("ping", client.Ping(), nil)
	check("set", client.Set(&memcache.Item{Key: "go", Value: []byte("one"), Flags: 7}), nil)
	item, err := client.Get("go")
	check("get", err, nil)
	check("value", string(item.Value), "one")
	check("flags", item.Flags, uint32(7))
	refused("add of what exists", client.Add(&memcache.Item{Key: "go", Value: []byte("x")}), memcache.ErrNotStored)
	refused("replace of nothing", client.Replace(&memcache.Item{Key: "no", Value: []byte("x")}), memcache.ErrNotStored)
	check("append", client.Append(&memcache.Item{Key: "go", Value: []byte("!")}), nil)
	check("prepend", client.Prepend(&memcache.Item{Key: "go", Value: []byte("?")}), nil)
	refused("a stale CAS", client.CompareAndSwap(item), memcache.ErrCASConflict)
	item, err = client.Get("go")
	check("get again", err, nil)
	check("joined", string(item.Value), "?one!")
	item.Value = []byte("two")
	check("compare and swap", client.CompareAndSwap(item), nil)
	check("touch", client.Touch("go", 60), nil)
	refused("touch of nothing", client.Touch("no", 60), memcache.ErrCacheMiss)
	many := []string{"no"}
	for number := range 500 {
		key := fmt.Sprintf("go-%d", number)
		many = append(many, key)
		check("set "+key, client.Set(&memcache.Item{Key: key, Value: []byte(key)}), nil)
	}
	items, err := client.GetMulti(many)
	check("many", err, nil)
	check("as many", len(items), 500)
	check("counter", client.Set(&memcache.Item{Key: "count", Value: []byte("10")}), nil)
	up, err := client.Increment("count", 5)
	check("increment", []any{up, err}, []any{uint64(15), nil})
	down, err := client.Decrement("count", 100)
	check("decrement", []any{down, err}, []any{uint64(0), nil})
	check("delete", client.Delete("go"), nil)
	refused("delete of nothing", client.Delete("go"), memcache.ErrCacheMiss)
	_, err = client.Get("go")
	refused("get of nothing", err, memcache.ErrCacheMiss)
}
