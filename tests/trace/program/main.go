// Command program traces itself while its goroutines wait for all that a trace tells apart.
//
//	program FILE [SECONDS]
//
// Without SECONDS each part runs once.
package main

import (
	"context"
	"fmt"
	"io"
	"iter"
	"net"
	"os"
	"runtime"
	"runtime/trace"
	"strconv"
	"sync"
	"time"
)

func pingPong() {
	a, b := make(chan int), make(chan int)
	go func() {
		for value := range a {
			b <- value + 1
		}
		close(b)
	}()
	for i := range 200 {
		a <- i
		<-b
	}
	close(a)
	<-b
}

func locks() {
	var mutex sync.Mutex
	cond := sync.NewCond(&mutex)
	var group sync.WaitGroup
	turn := 0
	for i := range 8 {
		group.Add(1)
		go func() {
			defer group.Done()
			mutex.Lock()
			for turn != i {
				cond.Wait()
			}
			turn++
			cond.Broadcast()
			mutex.Unlock()
		}()
	}
	group.Wait()
}

func selects() {
	done := make(chan bool)
	ticks := time.NewTicker(time.Millisecond)
	defer ticks.Stop()
	go func() {
		time.Sleep(5 * time.Millisecond)
		close(done)
	}()
	for {
		select {
		case <-ticks.C:
		case <-done:
			return
		}
	}
}

func network() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check(err)
	defer listener.Close()
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				io.Copy(conn, conn)
			}()
		}
	}()
	conn, err := net.Dial("tcp", listener.Addr().String())
	check(err)
	defer conn.Close()
	buffer := make([]byte, 16)
	for range 20 {
		_, err := conn.Write(buffer)
		check(err)
		_, err = io.ReadFull(conn, buffer)
		check(err)
	}
}

// A blocking read that has no place in the poller: its P is taken.
func slowCall() {
	reader, writer, err := os.Pipe()
	check(err)
	// Fd makes the descriptor blocking.
	blocking := os.NewFile(reader.Fd(), "pipe")
	go func() {
		time.Sleep(20 * time.Millisecond)
		writer.Write([]byte("x"))
		writer.Close()
	}()
	io.ReadAll(blocking)
}

func tasks(ctx context.Context) {
	ctx, task := trace.NewTask(ctx, "request")
	defer task.End()
	trace.WithRegion(ctx, "parse", func() {
		trace.Log(ctx, "path", "/index.html")
		trace.WithRegion(ctx, "split", runtime.Gosched)
	})
	for length := range 5 {
		trace.Log(ctx, "queue", strconv.Itoa(length))
	}
}

func coroutines() {
	next, stop := iter.Pull(func(yield func(int) bool) {
		for i := 0; yield(i); i++ {
		}
	})
	defer stop()
	for range 10 {
		next()
	}
}

func compute() {
	var group sync.WaitGroup
	for range 4 {
		group.Add(1)
		go func() {
			defer group.Done()
			for begin := time.Now(); time.Since(begin) < 30*time.Millisecond; {
			}
		}()
	}
	group.Wait()
}

// Enough garbage for the collector to run.
func collect() {
	for range 64 {
		sink = make([]byte, 1<<20)
	}
}

var sink []byte

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func main() {
	seconds := 0.0
	if len(os.Args) > 2 {
		var err error
		seconds, err = strconv.ParseFloat(os.Args[2], 64)
		check(err)
	}
	file, err := os.Create(os.Args[1])
	check(err)
	check(trace.Start(file))
	for begin := time.Now(); ; {
		pingPong()
		locks()
		selects()
		network()
		slowCall()
		tasks(context.Background())
		coroutines()
		compute()
		collect()
		if time.Since(begin).Seconds() >= seconds {
			break
		}
	}
	trace.Stop()
	check(file.Close())
}
