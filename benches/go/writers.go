package main

import (
	"os"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"
)

// writers: how long a goroutine that waits for a socket waits after a byte was
// written to it, by who writes. Go announces each system call; a thread that is
// none of the runtime's would need cgo.

const writerRest = 2 * time.Millisecond

var writtenAt atomic.Pointer[time.Time]

func writeByte(fd int) {
	now := time.Now()
	writtenAt.Store(&now)
	_, err := syscall.Write(fd, []byte{0})
	check(err == nil, "writers")
}

func readFrom(name string, n int, locks bool, rest func()) {
	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_NONBLOCK|syscall.SOCK_CLOEXEC, 0)
	check(err == nil, "writers")
	reader := os.NewFile(uintptr(pair[0]), "reader")
	go func() {
		if locks {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
		}
		for range n {
			rest()
			writeByte(pair[1])
		}
	}()
	late := make([]time.Duration, n)
	one := make([]byte, 1)
	for i := range late {
		_, err := reader.Read(one)
		check(err == nil, "writers")
		late[i] = time.Since(*writtenAt.Load())
	}
	check(reader.Close() == nil, "writers")
	check(syscall.Close(pair[1]) == nil, "writers")
	reportLate("writers."+name+"_", late, time.Microsecond, "us")
}

func writers(n int) {
	nap := func() { announcedNap(writerRest) }
	readFrom("announced", n, false, nap)
	readFrom("announced_locked", n, true, nap)
	readFrom("sleeper_locked", n, true, func() { time.Sleep(writerRest) })
}
