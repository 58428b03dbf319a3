package main

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"
	"time"
)

const testDeadline = 90 * time.Second

// test is one thing that must hold; it panics with a failure when it does not.
type test struct {
	name string
	run  func(*world)
}

type failure struct{ text string }

func fail(format string, arguments ...any) {
	panic(failure{fmt.Sprintf(format, arguments...)})
}

// must fails on any error.
func must(err error, what string) {
	if err != nil {
		fail("%s: %v", what, err)
	}
}

// must1 fails on any error and passes the result on.
func must1[T any](value T, err error) T {
	must(err, "call")
	return value
}

// refused fails unless err is one of the expected errors.
func refused(err error, what string, expected ...error) {
	for _, kind := range expected {
		if errors.Is(err, kind) {
			return
		}
	}
	fail("%s: expected %v, got %v", what, expected, err)
}

func equal(got, expected any, what string) {
	if !reflect.DeepEqual(got, expected) {
		fail("%s: expected %.200v, got %.200v", what, expected, got)
	}
}

// eventually polls until the condition holds.
func eventually(what string, within time.Duration, condition func() error) {
	deadline := time.Now().Add(within)
	for {
		err := condition()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			fail("%s: not within %v; last seen: %v", what, within, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// runAll runs the tests whose name holds filter and prints the closing line.
func runAll(w *world, tests []test, filter string) bool {
	passed, failed := 0, 0
	for _, t := range tests {
		if !strings.Contains(t.name, filter) {
			continue
		}
		started := time.Now()
		hung := time.AfterFunc(testDeadline, func() { panic(suiteName + ": " + t.name + " hangs") })
		err := runOne(w, t)
		hung.Stop()
		if err != nil {
			failed++
			fmt.Printf("FAIL %s: %s: %v\n", suiteName, t.name, err)
		} else {
			passed++
			fmt.Printf("ok   %s: %s (%d ms)\n", suiteName, t.name, time.Since(started).Milliseconds())
		}
	}
	if passed+failed == 0 {
		failed++
		fmt.Fprintf(os.Stdout, "FAIL %s: no test matches `%s`\n", suiteName, filter)
	}
	fmt.Printf("%d passed, %d failed\n", passed, failed)
	return failed == 0
}

func runOne(w *world, t test) (err error) {
	defer func() {
		switch reason := recover().(type) {
		case nil:
		case failure:
			err = errors.New(reason.text)
		default:
			panic(reason)
		}
	}()
	t.run(w)
	return nil
}
