package main

import (
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// latency: how long a goroutine waits for the P after an event, while other
// goroutines use the P's. For each kind of background and of event: n events,
// one each 2 ms, from a goroutine that has an OS thread for itself, or a timer.
//
// The thread stands for a thread outside the runtime, which would need cgo.
// It notes the time when it runs again, so its own way back isn't measured.

const (
	latencyPeriod = 2 * time.Millisecond
	latencyTurn   = 10 * time.Microsecond
)

var over atomic.Bool

func announcedNap(d time.Duration) {
	ts := syscall.NsecToTimespec(int64(d))
	for syscall.Nanosleep(&ts, &ts) == syscall.EINTR {
	}
}

type background struct {
	name string
	run  func(arg int)
}

func napper(d time.Duration) func(int) {
	return func(int) {
		for !over.Load() {
			announcedNap(d)
		}
	}
}

var balls []chan struct{}

var backgrounds = []background{
	{"nothing", nil},
	{"loops", func(int) {
		count := uint64(0)
		for !over.Load() {
			count++
		}
		sink.Add(count)
	}},
	{"yields", func(int) {
		for !over.Load() {
			for start := time.Now(); time.Since(start) < latencyTurn; {
			}
			runtime.Gosched()
		}
	}},
	{"calls5ms", napper(5 * time.Millisecond)},
	{"calls50us", napper(50 * time.Microsecond)},
	{"locked", func(int) {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		napper(2 * time.Millisecond)(0)
	}},
	// Each goroutine is one side of a pair: it takes the ball from one channel
	// and sends it on the other.
	{"pingpong", func(i int) {
		take, give := balls[i], balls[i^1]
		for range take {
			if over.Load() {
				close(give)
				return
			}
			give <- struct{}{}
		}
	}},
}

func measureLatency(b background, kind string, n int) {
	goroutines := 0
	if b.run != nil {
		goroutines = 2 * runtime.GOMAXPROCS(0)
	}
	over.Store(false)
	balls = make([]chan struct{}, goroutines)
	for i := range balls {
		balls[i] = make(chan struct{})
	}
	var ends sync.WaitGroup
	for i := range goroutines {
		ends.Go(func() { b.run(i) })
	}
	if b.name == "pingpong" {
		for i := 0; i < goroutines; i += 2 {
			balls[i] <- struct{}{}
		}
	}

	at := make([]time.Time, n)
	late := make([]time.Duration, n)
	ch := make(chan struct{}, n)
	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_NONBLOCK|syscall.SOCK_CLOEXEC, 0)
	check(err == nil, "latency")
	reader, writer := os.NewFile(uintptr(pair[0]), "reader"), pair[1]
	event := func() { ch <- struct{}{} }
	wait := func() { <-ch }
	one := []byte{0}
	if kind == "socket" {
		event = func() {
			_, err := syscall.Write(writer, one)
			check(err == nil, "latency")
		}
		byte1 := make([]byte, 1)
		wait = func() {
			_, err := reader.Read(byte1)
			check(err == nil, "latency")
		}
	}
	var source sync.WaitGroup
	if kind != "timer" {
		source.Go(func() {
			runtime.LockOSThread()
			for i := range n {
				announcedNap(latencyPeriod)
				at[i] = time.Now()
				event()
			}
		})
	}
	for i := range n {
		if kind == "timer" {
			at[i] = time.Now().Add(latencyPeriod)
			time.Sleep(latencyPeriod)
		} else {
			wait()
		}
		late[i] = time.Since(at[i])
		check(late[i] >= 0, b.name)
	}
	source.Wait()
	check(reader.Close() == nil, "latency")
	check(syscall.Close(writer) == nil, "latency")
	over.Store(true)
	ends.Wait()

	name := "latency." + b.name + "_" + kind
	slices.Sort(late)
	us := func(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
	report(name+"_p50", us(late[n/2]), "us")
	report(name+"_p99", us(late[n*99/100]), "us")
	report(name+"_max", us(late[n-1]), "us")
}

// Which cells: GOSBENCH_LATENCY is a word that their names, BACKGROUND_EVENT,
// contain; all if it isn't set.
func latency(n int) {
	for _, b := range backgrounds {
		for _, kind := range []string{"timer", "channel", "socket"} {
			if strings.Contains(b.name+"_"+kind, os.Getenv("GOSBENCH_LATENCY")) {
				measureLatency(b, kind, n)
			}
		}
	}
}
